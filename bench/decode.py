"""What does decoding a long recording cost in memory, what does resampling do to the sound, and which codecs are read?

    python bench/decode.py [--only memory,resampling,codecs] [--hours 6] [--formats mulaw,mp3] [--json FILE]

memory: a stereo recording of so many hours, made of the sample calls with noise under them, is decoded, separated and
searched for speech in a process of its own, as `pipeline.audio.hear` does it. Its peak is given above its idle: what it
held after a short call had gone through the same functions.
resampling: tones through the decoder, from 8 to 48 kHz: the loudest thing that was not in the source, and how far the
speech band strays from its level.
codecs: the same seconds of speech in every codec and rate that FFmpeg writes here, and in the files of
tests/unit/fixtures; correlation with the source from 300 to 3000 Hz, at the best lag.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).resolve().parent))

Rows = list[dict[str, Any]]


def memory(options: argparse.Namespace) -> Rows:
    from decode_files import long_call

    rows: Rows = []
    for name in options.formats.split(","):
        with tempfile.TemporaryDirectory(prefix="swb-bench-") as folder:
            path = Path(folder) / f"call.{name}"
            started = time.perf_counter()
            long_call(path, name, options.hours)
            print(f"made {options.hours:g} h as {name} in {time.perf_counter() - started:.0f} s", file=sys.stderr)
            command = [sys.executable, __file__, "--child", str(path)]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            if found.returncode:
                raise SystemExit(found.stderr)
            rows += [{"format": name, "hours": options.hours, **row} for row in json.loads(found.stdout)]
    return rows


def child(path: Path) -> None:
    """The process that is measured: a short call first, then the long one, stage by stage."""
    from pipeline.audio import hear
    from pipeline.audio.chunks import SpeechOptions
    from pipeline.audio.decode import DecodeOptions
    from pipeline.domain.speech import Recording

    def load(file: Path) -> Any:
        recording = Recording(0, file.as_uri(), "00" * 32, file.stat().st_size)
        return hear.load([recording], DecodeOptions(max_seconds=1e6), 1, path.parent.as_uri())

    short = load(ROOT / "tests" / "fixtures" / "calls" / "02_callback_stereo" / "call.flac")
    hear.examine(short, SpeechOptions(), 30.0)
    hear.discard(short)
    idle = _status("VmRSS")
    rows: Rows = []

    def measured(stage: str, run: Callable[[], Any]) -> Any:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now
        started = time.perf_counter()
        result = run()
        seconds = time.perf_counter() - started
        rows.append({"stage": stage, "idle_mb": idle, "peak_above_mb": _status("VmHWM") - idle, "seconds": seconds})
        return result

    loaded = measured("decode, layout", lambda: load(path))
    heard = measured("labels, speech, chunks", lambda: hear.examine(loaded, SpeechOptions(), 30.0))
    rows[-1]["layout"] = str(heard.layout.kind)
    rows[-1]["speech_seconds"] = sum(span.duration for spans in heard.speech for span in spans)
    hear.discard(loaded)
    print(json.dumps(rows))


def _status(name: str) -> float:
    """A figure of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def resampling(_: argparse.Namespace) -> Rows:
    from decode_files import RATES, strays

    return [strays(rate) for rate in RATES]


def codecs(_: argparse.Namespace) -> Rows:
    from decode_files import fixtures, written

    return [*written(), *fixtures()]


PARTS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "memory": memory,
    "resampling": resampling,
    "codecs": codecs,
}


def show(rows: Rows) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = [[_plain(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[at]) for line in text)) for at, column in enumerate(columns)]
    for line in [columns, *text]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print()


def _plain(value: Any) -> str:
    return (
        f"{value:.4g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, comma separated")
    parser.add_argument("--hours", type=float, default=6.0, help="length of the long recording")
    parser.add_argument("--formats", default="mulaw,mp3", help="of the long recording: mulaw, mp3, opus")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
    for part in options.only.split(","):
        print(f"{part}:")
        figures[part] = PARTS[part](options)
        show(figures[part])
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
