"""How many seconds of calls does a GPU process per second, and does its transcript equal the CPU's?

    python -m bench.gpu [--calls 32] [--minutes 4] [--layout separate|mixed|both] [--model base] [--scripted]
                        [--devices auto,cpu] [--repetitions 2] [--json FILE]

The script starts the service as `switchboard up` does, once for each device, and submits the same calls: real voices of
the demo, joined to calls of `--minutes`. segmentation-3.0+campplus separates the speakers. `switchboard checkpoints
fetch` installs it and `--model base`. To measure the speed of a size without its weights, run
`python -m bench.lib.scripted_whisper FOLDER --size large-v3-turbo`, then use `--model FOLDER --scripted`. All calls are
submitted at once; the clock stops at the last complete record. The first figure is the value for `switchboard plan
--gpu-rtfx`, for one GPU.

`auto` requires a GPU: without one the exit status is 2. Two devices are compared by the words that differ and by the
time with a different speaker.
"""

import argparse
import csv
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from bench.lib import long_calls
from bench.throughput import Ran, SharedWork, Whole
from pipeline.engines import device
from serve_app.demo.compare import WordErrors, word_errors

DIARIZATION = "segmentation-3.0+campplus"
FRAME = 0.1  # s, of the comparison of speakers


class Gpu:
    """Utilization and memory of the first GPU while a block runs, from NVIDIA's driver: share of time, MiB."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, float]] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if shutil.which("nvidia-smi") is None:
            return self
        asked = "--query-gpu=utilization.gpu,memory.used"
        command = ["nvidia-smi", "--id=0", asked, "--format=csv,noheader,nounits", "--loop-ms=250"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for busy, memory in csv.reader(self._process.stdout):
            self._rows.append((float(busy), float(memory)))

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def figures(self) -> dict[str, float]:
        """Return mean utilization and maximum memory; empty without data from the driver."""
        if not self._rows:
            return {}
        busy, memory = zip(*self._rows, strict=True)
        return {"gpu_busy": round(statistics.mean(busy) / 100, 2), "gpu_mib": max(memory)}


def settings(model: str, scripted: bool, where: str) -> dict[str, str]:
    """Return settings of the service for this machine."""
    return {
        "SWITCHBOARD_ASR__MODEL": model,
        "SWITCHBOARD_ASR__DEVICE": where,
        "SWITCHBOARD_DIARIZATION__PIPELINE": DIARIZATION,
        "SWITCHBOARD_DIARIZATION__DEVICE": where,
        "SWITCHBOARD_PROCESSING__LEASE_SECONDS": "60",
        **({"SWITCHBOARD_SAFETY__SECOND_PASS": "false"} if scripted else {}),  # its whole text is suspect
    }


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return rows by device, and the differences between the last transcripts of two devices."""
    calls = long_calls.make(folder / "calls", options.calls, options.minutes, long_calls.real_parts())
    work = SharedWork(
        calls, [options.layout == "mixed" or (options.layout == "both" and i % 2 == 1) for i in range(len(calls))]
    )
    rows: dict[str, list[dict[str, float]]] = {}
    transcripts: dict[str, list[Any]] = {}
    for where in options.devices:
        state = folder / where
        state.mkdir()
        whole = Whole(state, settings(options.model, options.scripted, where))
        try:
            whole.run(work.recordings[:2])  # engines loaded, caches and plans warm
            print(f"{where}: warm", flush=True)
            for _ in range(options.repetitions):
                with Gpu() as gpu:
                    ran = whole.run(work.recordings)
                rows.setdefault(where, []).append(_row(ran, work.hours) | gpu.figures())
                transcripts[where] = ran.transcripts
                print(f"  {rows[where][-1]}", flush=True)
        finally:
            whole.stop()
    results: dict[str, Any] = {"rows": rows}
    if len(transcripts) > 1:
        results["differ"] = differ(*list(transcripts.values())[:2])
    return results


def _row(ran: Ran, hours: float) -> dict[str, Any]:
    return {
        "rtfx": round(hours * 3600 / ran.seconds, 1),
        "seconds": round(ran.seconds, 1),
        "words": ran.words,
        "processor_s": ran.processor,
    }


def differ(first_run: Sequence[Any], second_run: Sequence[Any]) -> dict[str, float]:
    """Return the shares of differing words and of time with a different speaker."""
    words, seconds, elsewhere = WordErrors(0, 0), 0, 0
    for first, second in zip(first_run, second_run, strict=True):
        words += word_errors(_text(first), _text(second))
        if first.layout.kind.separated:
            continue
        a, b = _speakers(first), _speakers(second)
        frame_pairs = [(x, y) for x, y in zip(a, b, strict=True) if x or y]
        names = sorted({name for pair in frame_pairs for name in pair if name})
        straight = sum(x != y for x, y in frame_pairs)
        swapped = dict(zip(names, reversed(names), strict=True)) if len(names) == 2 else {}
        crossed = sum(swapped.get(x, x) != y for x, y in frame_pairs)
        seconds, elsewhere = seconds + len(frame_pairs), elsewhere + min(straight, crossed)
    return {"words": round(words.rate, 4), "speakers": round(elsewhere / seconds, 4) if seconds else 0.0}


def _text(transcript: Any) -> str:
    return " ".join(turn.text for turn in transcript.turns)


def _speakers(transcript: Any) -> list[str]:
    """Return the speaker in each frame; "" without speech."""
    frames = [""] * round(transcript.duration / FRAME)
    for turn in transcript.turns:
        for word in turn.words:
            for i in range(int(word.start / FRAME), min(len(frames), round(word.end / FRAME))):
                frames[i] = turn.speaker
    return frames


def report(results: dict[str, Any]) -> None:
    """Print medians over the repetitions."""
    print(f"\n{'device':<8}{'audio s per s':>14}{'elapsed s':>11}{'processor s':>13}{'GPU busy':>10}{'GPU MiB':>10}")
    for where, rows in results["rows"].items():
        middle = {
            key: statistics.median(row[key] for row in rows if key in row) for key in rows[0] if key != "processor_s"
        }
        processor = statistics.median(sum(row["processor_s"].values()) for row in rows)
        print(
            f"{where:<8}{middle['rtfx']:>14.1f}{middle['seconds']:>11.1f}{processor:>13.1f}"
            f"{middle.get('gpu_busy', float('nan')):>10.2f}{middle.get('gpu_mib', float('nan')):>10.0f}"
        )
    if "differ" in results:
        words, speakers = results["differ"]["words"], results["differ"]["speakers"]
        print(f"\nbetween the devices: {words:.2%} of the words, another speaker in {speakers:.2%} of the time")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--layout", choices=("separate", "mixed", "both"), default="both")
    parser.add_argument("--model", default="base", help="as SWITCHBOARD_ASR__MODEL takes it: a name or a folder")
    parser.add_argument("--scripted", action="store_true", help="the model writes a script for any sound: decode once")
    parser.add_argument("--devices", type=lambda text: text.split(","), default=["auto", "cpu"])
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if "auto" in options.devices and not device.gpus():
        print("No GPU found: see `switchboard doctor --node`. --devices cpu measures without one.", file=sys.stderr)
        sys.exit(2)
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    print(f"{options.calls} calls of {options.minutes:g} min, {options.layout}, {options.model}, {machine}", flush=True)
    with tempfile.TemporaryDirectory(prefix="switchboard-gpu-") as folder:
        results = measure(options, Path(folder))
    report(results)
    if options.json:
        results |= {"machine": machine, "model": options.model, "layout": options.layout}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
