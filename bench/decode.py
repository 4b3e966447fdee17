"""How much memory does decoding and labeling a long recording take?

    python bench/decode.py [--hours 6] [--formats mulaw,mp3,opus] [--json FILE]

A stereo recording of so many hours, made of the sample calls with noise under them, is decoded, separated and searched
for speech in a process of its own, as `pipeline.audio.analyze` does it. Its peak is given above its idle: what it held
after a short call had gone through the same functions.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SAMPLES = ROOT / "tests" / "fixtures" / "calls"
STEREO = ("01_invoice_stereo", "02_callback_stereo", "05_factura_stereo_es", "08_flite_voices_stereo")
Rows = list[dict[str, Any]]

LONG: dict[str, tuple[str, str, str, dict[str, str]]] = {  # container, codec, sample format, options
    "mulaw": ("wav", "pcm_mulaw", "s16", {}),
    "mp3": ("mp3", "libmp3lame", "s16p", {"b": "32000"}),
    "opus": ("ogg", "libopus", "s16", {"b": "24000"}),
}


def encode(target: Any, blocks: Iterator[npt.NDArray[np.float64]], rate: int, how: tuple[str, str, str, Any]) -> None:
    """Write blocks (n, channels) in -1..1 to an open file or a path."""
    import av

    container, codec, sample_format, options = how
    stream, at = None, 0
    with av.open(target, "w", format=container) as output:
        for block in blocks:
            layout = "mono" if block.shape[1] == 1 else "stereo"
            if stream is None:
                stream = output.add_stream(codec, rate=rate, layout=layout, options=options)
                stream.codec_context.format = sample_format
            samples = np.clip(np.rint(block * 32767), -32768, 32767).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples.reshape(1, -1)), "s16", layout)
            frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), at
            at += len(block)
            output.mux(stream.encode(frame))
        if stream is not None:
            output.mux(stream.encode(None))


def long_call(path: Path, name: str, hours: float) -> None:
    """A stereo call of so many hours at 8 kHz: the sample calls over and over, each time at another level, in noise."""
    import soundfile

    generator = np.random.default_rng(0)
    calls = [soundfile.read(SAMPLES / call / "call.flac", always_2d=True)[0] for call in STEREO]

    def blocks() -> Iterator[npt.NDArray[np.float64]]:
        left = round(hours * 3600 * 8000)
        while left > 0:
            for call in calls:
                samples = (call * generator.uniform(0.3, 1.0) + generator.normal(0, 0.0005, call.shape))[:left]
                left -= len(samples)
                for first in range(0, len(samples), 4000):
                    yield samples[first : first + 4000]

    encode(str(path), blocks(), 8000, LONG[name])


def memory(options: argparse.Namespace) -> Rows:
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
    from pipeline.audio import analyze
    from pipeline.audio.decode import sound
    from pipeline.audio.decode.decoder import DecodeOptions
    from pipeline.audio.labels.detector import SpeechOptions
    from pipeline.domain.speech import Recording

    def load(file: Path) -> Any:
        recording = Recording(0, file.as_uri(), "00" * 32, file.stat().st_size)
        return analyze.load([recording], DecodeOptions(max_seconds=1e6), 1, path.parent.as_uri())

    short = load(ROOT / "tests" / "fixtures" / "calls" / "02_callback_stereo" / "call.flac")
    analyze.analyze_audio(short, SpeechOptions(), 30.0)
    sound.discard(short.folder)
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
    heard = measured("labels, speech, chunks", lambda: analyze.analyze_audio(loaded, SpeechOptions(), 30.0))
    rows[-1]["layout"] = str(heard.layout.kind)
    rows[-1]["speech_seconds"] = sum(span.duration for spans in heard.speech for span in spans)
    sound.discard(loaded.folder)
    print(json.dumps(rows))


def _status(name: str) -> float:
    """A figure of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def show(rows: Rows) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = [[_plain(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[at]) for line in text)) for at, column in enumerate(columns)]
    for line in [columns, *text]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print()


def _plain(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=6.0, help="length of the long recording")
    parser.add_argument("--formats", default="mulaw,mp3", help="of the long recording: mulaw, mp3, opus")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    load, rows = os.getloadavg()[0], memory(options)
    figures = {"cores": os.cpu_count(), "load": load, "memory": rows}
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
