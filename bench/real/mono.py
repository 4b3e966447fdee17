"""Diarization of mixed recordings: our engines compared with pyannote's own pipeline, with the same weights.

    python -m bench.real mono run HALF FILE.jsonl [--librispeech FOLDER] [--call NAME ...]
    python -m bench.real mono show FILE.jsonl

`run` diarizes the calls of `bench.real.mixes` and, in either half, pyannote.audio's telephone sample. "switchboard" is
the service's engine `pyannote`, "clustering" the engine of that name. "pyannote" is the stock `SpeakerDiarization`,
call by call, at its own step of 1 s and with our networks and thresholds: only the cutting, batching and embedding of
windows differ. `--system` selects some of them. `show` prints the diarization error rate, its parts in seconds,
speakers found, processor seconds. Words assigned to the wrong speaker and cpWER are in `bench.real`.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.real.mixes import LONG, calls, turns
from bench.real.sources import Half, Sound, Sources

TELEPHONE = "telephone sample"
COLLARS = (0.25, 0.0)  # seconds at either side of a boundary that are not judged
PARTS = ("missed detection", "false alarm", "confusion", "total")
Spans = list[tuple[float, float, str]]
Row = dict[str, Any]


def recordings(sources: Sources, half: Half, names: Sequence[str]) -> Iterator[tuple[str, Sound, Spans]]:
    """Yield each call's name, sound and true speaker turns."""
    telephone = sources.telephone()
    if not names or TELEPHONE in names:
        from bench.real.sources import load

        yield TELEPHONE, load(telephone.path), [(turn.start, turn.end, turn.speaker) for turn in telephone.turns]
    for call in calls(sources, half, names):
        yield call.name, call.samples[0], turns(call)


def ours(pipeline: str, engine_name: str = "pyannote") -> Callable[[Sound], Spans]:
    """Load an engine of the service."""
    from pipeline.diarization import DiarizationOptions, load

    engine = load(DiarizationOptions(engine=engine_name, pipeline=pipeline, device="cpu", threads=1))
    return lambda sound: [(span.start, span.end, span.speaker) for span in engine.diarize(sound).spans]


def stock(pipeline: str) -> Callable[[Sound], Spans]:
    """pyannote's pipeline as it comes."""
    import torch

    from pipeline import checkpoints
    from pipeline.diarization.campplus_pipeline import assemble
    from pipeline.diarization.pyannote import CHECKPOINTS
    from pipeline.voice.calibration import calibration_of

    checkpoint = checkpoints.resolve(pipeline, CHECKPOINTS, "cpu")
    calibration = calibration_of(f"pyannote {checkpoint.name}")
    if calibration is None or calibration.pipeline is None:
        raise SystemExit(f"{pipeline!r} is not put together from parts.")
    parameters = calibration.pipeline.model_copy(update={"step": 0.1})
    diarizer = assemble(checkpoint.parts["segmentation"], checkpoint.parts["embedding"], parameters, calibration.center)

    def diarize(sound: Sound) -> Spans:
        annotation = diarizer(
            {"waveform": torch.from_numpy(sound)[None], "sample_rate": 16000}
        ).exclusive_speaker_diarization
        return [(s.start, s.end, str(who)) for s, _, who in annotation.itertracks(yield_label=True)]

    return diarize


SYSTEMS: dict[str, Callable[[str], Callable[[Sound], Spans]]] = {
    "switchboard": ours,
    "clustering": lambda _: ours("auto", "clustering"),
    "pyannote": stock,
}


def run(half: Half, sources: Sources, pipeline: str, names: Sequence[str], of: Sequence[str]) -> Iterator[Row]:
    """Yield the result of each system for each call."""
    systems = {name: SYSTEMS[name](pipeline) for name in of}
    for name, exact, truth in recordings(sources, half, names):
        sound = np.clip(np.round(exact * 32768), -32768, 32767).astype(np.float32) / np.float32(32768)
        for system, diarize in systems.items():
            if system == "pyannote" and name in LONG:
                continue
            begun = time.process_time()
            spans = diarize(sound)
            spent = time.process_time() - begun
            yield {
                "call": name,
                "system": system,
                "seconds": len(sound) / 16000,
                "processor seconds": round(spent, 2),
                "truth": _rounded(truth),
                "found": _rounded(spans),
            }


def _rounded(spans: Spans) -> Spans:
    return [(round(start, 3), round(end, 3), who) for start, end, who in spans]


def errors(row: Row, collar: float) -> dict[str, float]:
    """Seconds by `PARTS`."""
    from pyannote.core import Annotation, Segment
    from pyannote.metrics.diarization import DiarizationErrorRate

    def annotation(spans: Spans) -> Any:
        annotation = Annotation()
        for number, (start, end, who) in enumerate(spans):
            annotation[Segment(start, end), number] = who
        return annotation

    truth = annotation(row["truth"])
    reach = Segment(0, row["seconds"])
    measured = DiarizationErrorRate(collar=2 * collar)(truth, annotation(row["found"]), uem=_uem(reach), detailed=True)
    return {part: float(measured[part]) for part in PARTS}


def _uem(reach: Any) -> Any:
    from pyannote.core import Timeline

    return Timeline([reach])


def show(rows: Sequence[Row]) -> None:
    """Print a line for each call and system, and one for all short calls."""
    print(
        f"{'call':<26}{'system':<13}{'s':>5}{'cpu s':>7}{'speakers':>10}",
        *(f"DER {c} (miss, false, conf)" for c in COLLARS),
    )
    for system in dict.fromkeys(row["system"] for row in rows):
        system_rows = [row for row in rows if row["system"] == system]
        for row in system_rows:
            _line([row], row["call"], system)
        short = [row for row in system_rows if row["call"] not in (*LONG, TELEPHONE)]
        if short:
            _line(short, f"all {len(short)} short calls", system)


def _line(rows: Sequence[Row], title: str, system: str) -> None:
    right = sum(len({s[2] for s in row["found"]}) == len({s[2] for s in row["truth"]}) for row in rows)
    cells = []
    for collar in COLLARS:
        sums = {part: sum(errors(row, collar)[part] for row in rows) for part in PARTS}
        wrong = [sums[part] for part in PARTS[:3]]
        parts = ", ".join(f"{seconds:.1f}" for seconds in wrong)
        cells.append(f"{100 * sum(wrong) / sums['total']:5.1f} % ({parts} of {sums['total']:.0f} s)")
    seconds, spent = (sum(row[key] for row in rows) for key in ("seconds", "processor seconds"))
    print(f"{title:<26}{system:<13}{seconds:>5.0f}{spent:>7.1f}{f'{right} of {len(rows)}':>10}", *cells)


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.real mono", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("run")
    making.add_argument("half", choices=("development", "report"))
    making.add_argument("file", type=Path)
    making.add_argument("--librispeech", type=Path)
    making.add_argument("--asterisk", type=Path)
    making.add_argument("--call", nargs="*", default=[], help="names; none given: all")
    making.add_argument("--pipeline", default="segmentation-3.0+campplus", help="as SWITCHBOARD_DIARIZATION__PIPELINE")
    making.add_argument("--system", nargs="*", choices=SYSTEMS, default=[*SYSTEMS])
    showing = commands.add_parser("show")
    showing.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "run":
        with options.file.open("a") as file:
            sources = Sources(options.librispeech, options.asterisk)
            for row in run(options.half, sources, options.pipeline, options.call, options.system):
                file.write(json.dumps(row) + "\n")
                file.flush()
    show([json.loads(line) for line in options.file.read_text().splitlines()])
