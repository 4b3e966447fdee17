"""Where does a call's processor time go, stage by stage, as a share of recognition?

    python bench/stages.py [--minutes 4] [--layout separate|mixed] [--size base] [--words 60] [--rounds 3] [--json FILE]

Whole calls walk through `pipeline.process` in this process, without Ray and database, one piece of work at a time, on a
Whisper of full size that says a script (`scripted_whisper.py`) and the synthetic diarizer. A part's seconds are
those of all threads of this process, without what the parts inside it took: `features`, `encode`, `decode` and `align`
together are the reference, recognition. The recording is fetched over HTTP from another process. After each call the
bare engines go through the same sound (as in `throughput.py`), in processor seconds too.
"""

import argparse
import asyncio
import functools
import importlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import long_calls, scripted_whisper
from bench.throughput import Bare
from pipeline.options import ProcessOptions
from pipeline.process import process
from pipeline.runtime.workers import LocalWorkers
from tests.fixture_checkpoints import DIARIZATION

ENGINE = "pipeline.asr.faster_whisper:FasterWhisper."
PARTS = {  # what is called -> the part of the table it counts for
    "pipeline.steps.recordings:fetch": "fetch",
    "pipeline.steps.call_run:load": "decode",
    "pipeline.audio.decode.collect:Collector._flush": "decode: resample",
    "pipeline.audio.decode.sound:ScratchSink.write": "decode: scratch files",
    "pipeline.audio.decode.sound:sweep": "decode: scratch files",
    "pipeline.audio.channels.separation:separate": "layout",
    "pipeline.audio.channels.separation:activity": "layout: levels",
    "pipeline.audio.channels.separation:compare": "layout: channels compared",
    "pipeline.audio.channels.bleed:find": "layout: bleed",
    "pipeline.audio.channels.arrange:suppress": "bleed taken out",
    "pipeline.audio.labels.labeling:label": "labels",
    "pipeline.audio.labels.labeling:measure": "labels: spectrum",
    "pipeline.audio.labels.detector:activity": "labels: speech detector",
    "pipeline.audio.labels.evidence:gather": "labels: tones, music",
    "pipeline.audio.labels.keys:find": "labels: keys",
    "pipeline.audio.chunks:cut": "chunks",
    f"{ENGINE}transcribe": "recognition: rest",
    f"{ENGINE}_features": "recognition: features",
    f"{ENGINE}_encode": "recognition: encode",
    f"{ENGINE}_languages_of": "recognition: languages",
    f"{ENGINE}_decode": "recognition: decode",
    f"{ENGINE}_align": "recognition: align",
    f"{ENGINE}_placed": "recognition: word edges",
    "pipeline.asr.safety:review": "safety: review",
    "pipeline.asr.safety:settle": "safety: settle",
    "pipeline.asr.echoes:shared": "safety: echoes",
    "pipeline.audio.prosody:measure": "prosody",
    "pipeline.diarization.pyannote:Pyannote.diarize": "diarization",
    "pipeline.diarization.pyannote:Pyannote.voiceprint": "voiceprint",
    "pipeline.process:attribute": "speakers",
    "pipeline.analysis:analyze": "analysis",
}
BARE = "bare engines"
REST = "everything else"  # the event loop, threads handed work, garbage


class Meter:
    """Processor seconds by part, each without those inside it. One piece of work at a time: the count is the
    process's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._open = [REST]
        self._since = time.process_time()

    def reset(self) -> None:
        self.seconds.clear()
        self.calls.clear()
        self._since = time.process_time()

    def turn(self) -> None:
        """What has been used since the last turn goes to the innermost part."""
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.turn()
        self.calls[name] += 1
        self._open.append(name)
        try:
            yield
        finally:
            self.turn()
            self._open.remove(name)

    def install(self) -> None:
        """Put the meter around everything in `PARTS`."""
        for place, name in PARTS.items():
            module, _, path = place.partition(":")
            *owners, attribute = path.split(".")
            owner = functools.reduce(getattr, owners, importlib.import_module(module))
            setattr(owner, attribute, self._metered(getattr(owner, attribute), name))

    def _metered(self, fn: Callable[..., Any], name: str) -> Callable[..., Any]:
        if asyncio.iscoroutinefunction(fn):

            async def later(*args: Any, **kwargs: Any) -> Any:
                with self.part(name):
                    return await fn(*args, **kwargs)

            return functools.wraps(fn)(later)

        def now(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return fn(*args, **kwargs)

        return functools.wraps(fn)(now)


class OneByOne(LocalWorkers):
    """Stages that run side by side elsewhere take turns, so that the process's seconds are one part's."""

    def __init__(self, transcriber: Any, diarizer: Any) -> None:
        super().__init__(transcriber, diarizer)
        self._turn = asyncio.Lock()

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        async with self._turn:
            return await super().compute(fn, *args)

    async def _run(self, name: str, ask: Callable[[Any], Any]) -> Any:
        async with self._turn:
            return await super()._run(name, ask)


@contextmanager
def handed_out(folder: Path) -> Iterator[str]:
    """The address under which another process serves the folder's files."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


async def walk(url: str, workers: OneByOne, options: ProcessOptions) -> int:
    """One call through every stage; how many words it has."""
    from pipeline.domain.call import Call
    from pipeline.domain.insight import Roster

    call = Call(uuid4(), "+14155550100", "+14155550123", datetime.now(UTC), recording_url=url, outgoing=False)
    outcome = await process(call, workers, Roster(), options=options)
    return sum(len(turn.words) for turn in outcome.transcript.turns)


def process_options(folder: Path) -> ProcessOptions:
    """The scripted model says nonsense: nothing of it is decoded twice."""
    from pipeline.asr.safety import SafetyOptions
    from pipeline.fetch.fetcher import FetchOptions

    return ProcessOptions(
        storage=f"file://{folder / 'recordings'}",
        fetch=FetchOptions(allowed_hosts=("127.0.0.1",)),
        safety=SafetyOptions(second_pass=False),
    )


def bare_seconds(bare: Bare, call: long_calls.LongCall, layout: str) -> float:
    """Processor seconds of faster-whisper's own pipeline, and of pyannote's where the call is mixed."""
    if layout == "separate":
        return bare.recognize(call.channels)[0].processor
    return bare.recognize([call.mixed])[0].processor + bare.diarize([call.mixed]).processor


async def measure(options: argparse.Namespace, folder: Path, meter: Meter) -> list[dict[str, float]]:
    """Seconds by part, one entry per round; the first call is a rehearsal in which libraries are loaded."""
    from pipeline import asr, diarization

    threads = options.threads or os.cpu_count() or 1
    model = scripted_whisper.write(folder / "model", options.size, options.words)
    workers = OneByOne(
        asr.load(asr.AsrOptions(model=str(model), batch_size=options.batch, cpu_threads=threads)),
        diarization.load(diarization.DiarizationOptions(pipeline=str(DIARIZATION), threads=threads)),
    )
    made = long_calls.make(folder / "calls", options.rounds + 1, options.minutes)
    rounds, bare = [], Bare(model, threads)
    with handed_out(folder / "calls") as address:
        for number, call in enumerate(made):
            file = call.separate if options.layout == "separate" else call.mixed
            meter.reset()
            words = await walk(f"{address}/{file.name}", workers, process_options(folder))
            meter.turn()
            used, reference = dict(meter.seconds), bare_seconds(bare, call, options.layout)
            if number:
                rounds.append(used | {BARE: reference})
            said = f"round {number}" if number else "rehearsal"
            print(
                f"{said}: {words} words, {sum(used.values()):.1f} processor seconds, bare engines {reference:.1f}",
                flush=True,
            )
    return rounds


def report(rounds: Sequence[dict[str, float]], minutes: float) -> list[dict[str, Any]]:
    """The table, largest part first, medians over the rounds."""
    recognition = statistics.median(
        sum(seconds for part, seconds in one.items() if part.startswith("recognition")) for one in rounds
    )
    ratio = statistics.median(one[BARE] / (sum(one.values()) - one[BARE]) for one in rounds)
    parts = {part for one in rounds for part in one} - {BARE}
    rows: list[dict[str, Any]] = []
    for part in parts:
        seconds = statistics.median(one.get(part, 0.0) for one in rounds)
        share = round(seconds / recognition, 4)
        rows.append({"part": part, "seconds_per_minute": round(seconds / minutes, 4), "of_recognition": share})
    rows.sort(key=lambda row: -row["of_recognition"])
    print(f"\n{'part':<28}{'processor s / audio min':>24}{'of recognition':>16}")
    for row in rows:
        print(f"{row['part']:<28}{row['seconds_per_minute']:>24.3f}{row['of_recognition']:>16.1%}")
    other = sum(row["of_recognition"] for row in rows if not row["part"].startswith("recognition"))
    print(f"{'all but recognition':<28}{other * recognition / minutes:>24.3f}{other:>16.1%}")
    print(f"bare engines over the whole call, in processor seconds: {ratio:.2f}")
    rows.append({"part": BARE, "ratio": round(ratio, 3)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--layout", choices=("separate", "mixed"), default="separate")
    parser.add_argument("--size", choices=scripted_whisper.SIZES, default="base")
    parser.add_argument("--words", type=int, default=60, help="words said of every window")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="windows in one forward pass")
    parser.add_argument("--threads", type=int, default=0, help="of the engines; 0: one for each core")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    print(
        f"calls of {options.minutes:g} min, {options.layout}, Whisper {options.size} (scripted), {machine}", flush=True
    )
    meter = Meter()
    meter.install()
    with tempfile.TemporaryDirectory(prefix="switchboard-stages-") as folder:
        rounds = asyncio.run(measure(options, Path(folder), meter))
    rows = report(rounds, options.minutes)
    if options.json:
        figures = {"machine": machine, "layout": options.layout, "size": options.size, "rows": rows}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
