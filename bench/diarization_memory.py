"""How much memory does the diarization of a long call take, beside pyannote's own pipeline?

    python bench/diarization_memory.py [--minutes 10 60] [--ways ours stock] [--json FILE]

Each length and way runs in a process of its own, whole, from 16 kHz sound in a file as decoding leaves it. Told is the
largest resident memory above what the process had when the models were loaded and had heard a short call; for ours what
it holds of the call between its steps, and the largest part of either step. About 5 s of a core for a minute of audio.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.diarization_batches import calls_of, stock_pipeline
from pipeline.domain.speech import SAMPLE_RATE
from tests import fixture_checkpoints

BLOCK = 60.0  # seconds of dialogue that a long call repeats
MB = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, nargs="+", default=[10, 60])
    parser.add_argument("--ways", nargs="+", choices=("ours", "stock"), default=["ours", "stock"])
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one[0], Path(options.one[1]))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for minutes in options.minutes:
            file = Path(folder) / "call.s16le"
            write(file, minutes)
            for way in options.ways:
                print(f"{way}, {minutes:g} minutes ...", file=sys.stderr, flush=True)
                rows.append({"way": way, "minutes": minutes, **in_a_process(way, file)})
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def write(file: Path, minutes: float) -> None:
    """A mixed call of so many minutes, s16le at 16 kHz."""
    (sound,) = calls_of(1, BLOCK)
    samples = np.resize((sound * 32767).astype("<i2"), round(minutes * 60 * SAMPLE_RATE))
    file.write_bytes(samples.tobytes())


def in_a_process(way: str, file: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", way, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed ({done.returncode}): {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measured(way: str, file: Path) -> dict[str, Any]:
    import torch

    from pipeline.audio.sound import StoredAudio
    from pipeline.diarization import DiarizationOptions, load

    torch.set_num_threads(1)
    engine: Any = load(DiarizationOptions(pipeline=str(fixture_checkpoints.DIARIZATION), device="cpu", threads=1))
    audio = StoredAudio((file.as_uri(),), file.stat().st_size // 2)
    if way == "stock":
        pipeline = stock_pipeline(engine, "cpu")
        pipeline(whole(audio, 15.0))
        with Peak() as peak:
            pipeline(whole(audio, audio.duration))
        return {"seconds": peak.seconds, "above_idle_mb": peak.mb}
    engine.diarize(StoredAudio((file.as_uri(),), 15 * SAMPLE_RATE))
    with Peak() as hearing:
        heard, parts = [], engine.parts(audio)
        while batch := list(islice(parts, engine.batch_size)):
            heard += engine.hear(batch)
    held = sum(one.scores.nbytes + one.embeddings.nbytes for one in heard) / MB
    with Peak() as concluding:
        engine.conclude(heard)
    return {
        "seconds": hearing.seconds + concluding.seconds,
        "above_idle_mb": max(hearing.mb, held + concluding.mb),
        "held_mb": held,
        "hearing_mb": hearing.mb,
        "concluding_mb": concluding.mb,
    }


def whole(audio: Any, seconds: float) -> dict[str, Any]:
    """What pyannote's pipeline takes: it wants the whole waveform."""
    import torch

    return {"waveform": torch.from_numpy(audio.cut(0, 0, seconds))[None], "sample_rate": SAMPLE_RATE}


class Peak:
    """Largest resident memory in the block above that at its beginning, MB, by the kernel; and its seconds."""

    def __enter__(self) -> "Peak":
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._begun, self._first = time.perf_counter(), resident("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.mb = (resident("VmHWM") - self._first) / MB
        self.seconds = time.perf_counter() - self._begun


def resident(name: str) -> int:
    """Bytes, of a line of /proc/self/status."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(name))
    return int(line.split()[1]) * 1024


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'':8}{'minutes':>8}{'MB above idle':>15}{'held between':>14}{'hearing':>9}{'concluding':>12}")
    for row in rows:
        parts = [row.get(name) for name in ("held_mb", "hearing_mb", "concluding_mb")]
        told = [f"{value:.1f}" if value is not None else "-" for value in parts]
        print(f"{row['way']:8}{row['minutes']:8g}{row['above_idle_mb']:15.0f}{told[0]:>14}{told[1]:>9}{told[2]:>12}")


if __name__ == "__main__":
    main()
