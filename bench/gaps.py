"""Does speech keep its time where a file lacks packets, or was put together?

    python bench/gaps.py [--json FILE]

A sample call's channel in every container that the bundled FFmpeg writes, without the packets of a stretch or of every
tenth 20 ms: by how many seconds what follows comes too early, by its correlation with the call.
"""

import argparse
import io
import json
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import soxr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.channel_cases import Sound, channels_of
from pipeline.audio.decode.decoder import DecodeOptions, decode_file
from pipeline.domain.speech import SAMPLE_RATE

FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "frag_duration": "500000"}
FORMS: dict[str, tuple[str, str, int, dict[str, str]]] = {  # container, codec, rate, settings of the container
    "OGG, Opus": ("ogg", "libopus", 48000, {}),
    "OGG, FLAC": ("ogg", "flac", 16000, {}),
    "WebM, Opus": ("webm", "libopus", 48000, {}),
    "MP4, AAC": ("mp4", "aac", 16000, {}),
    "MP4 in fragments, AAC": ("mp4", "aac", 16000, FRAGMENTS),
    "M4A, AAC": ("ipod", "aac", 16000, {}),
    "3GP, AMR": ("3gp", "libopencore_amrnb", 8000, {}),
    "MPEG-TS, AAC": ("mpegts", "aac", 16000, {}),
    "FLAC": ("flac", "flac", 16000, {}),
}
LOST: dict[str, Callable[[float], bool]] = {
    "4 s": lambda time: 8 <= time < 12,
    "every tenth": lambda time: 4 <= time < 20 and round(time * 50) % 10 == 0,
}
FROM, TO = 22.0, 32.0  # seconds of the call that are looked for
FARTHEST = 24.0  # seconds by which they may be off


def without_packets(
    samples: npt.NDArray[np.int16],
    rate: int,
    container: str,
    codec: str,
    lost: Callable[[float], bool],
    settings: dict[str, str] | None = None,
) -> bytes:
    """Return a mono file of samples (n,) at `rate` Hz without the packets at whose time, in seconds, `lost` is true."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=settings or {}) as output:
        stream = output.add_stream(codec, rate=rate, layout="mono")
        if codec == "aac":
            stream.codec_context.format = "fltp"
        packets = []
        for start in range(0, len(samples), 1000):
            frame = av.AudioFrame.from_ndarray(samples[None, start : start + 1000], "s16", "mono")
            frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), start
            packets += stream.encode(frame)
        for packet in [*packets, *stream.encode(None)]:
            if not lost(float(packet.pts * packet.time_base)):
                output.mux(packet)
    return buffer.getvalue()


def written(sound: Sound, form: str, lost: Callable[[float], bool]) -> bytes:
    container, codec, rate, settings = FORMS[form]
    samples = np.clip(soxr.resample(sound, SAMPLE_RATE, rate), -32768, 32767).astype(np.int16)
    return without_packets(samples, rate, container, codec, lost, settings)


def paused(sound: Sound) -> bytes:
    """AMR as a telephone sends it: nothing while nobody speaks."""
    samples = np.clip(soxr.resample(sound, SAMPLE_RATE, 8000), -32768, 32767).astype(np.int16)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="amr") as output:
        stream = output.add_stream("libopencore_amrnb", rate=8000, layout="mono", options={"b": "12200", "dtx": "1"})
        frame = av.AudioFrame.from_ndarray(samples[None], "s16", "mono")
        frame.sample_rate = 8000
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return buffer.getvalue()


def shift(sound: Sound, data: bytes) -> float:
    """Seconds by which a stretch of the call comes too early in what was decoded."""
    found = decode_file(io.BytesIO(data), DecodeOptions()).samples[0].astype(np.float64)
    piece = sound[round(FROM * SAMPLE_RATE) : round(TO * SAMPLE_RATE)]
    first = max(0, round((FROM - FARTHEST) * SAMPLE_RATE))
    area = found[first : round((TO + 1) * SAMPLE_RATE)]
    size = 1 << (len(area) + len(piece)).bit_length()
    likeness = np.fft.irfft(np.fft.rfft(area, size) * np.conj(np.fft.rfft(piece, size)), size)[: len(area)]
    return FROM - (first + int(np.argmax(likeness))) / SAMPLE_RATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    sound = channels_of("01_invoice_stereo")[0][: 40 * SAMPLE_RATE]
    sound = sound + np.random.default_rng(0).normal(0, 10, len(sound))
    figures = [
        {"form": form, "lost": lost, "seconds_early": round(shift(sound, written(sound, form, which)), 3)}
        for lost, which in LOST.items()
        for form in FORMS
    ]
    early = round(shift(sound, paused(sound)), 3)
    figures.append({"form": "AMR", "lost": "silence, not transmitted", "seconds_early": early})
    for row in figures:
        print(f"{row['form']:24}{row['lost']:28}{row['seconds_early']:8.3f} s early")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
