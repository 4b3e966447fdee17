"""The recordings that bench/decode.py decodes, and how the decoded sound is compared with its source."""

import io
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests" / "fixtures" / "calls"
FIXTURES = ROOT / "tests" / "unit" / "fixtures"
RATES = (8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000)
STEREO = ("01_invoice_stereo", "02_callback_stereo", "05_factura_stereo_es", "08_flite_voices_stereo")

LONG: dict[str, tuple[str, str, str, dict[str, str]]] = {  # container, codec, sample format, options
    "mulaw": ("wav", "pcm_mulaw", "s16", {}),
    "mp3": ("mp3", "libmp3lame", "s16p", {"b": "32000"}),
    "opus": ("ogg", "libopus", "s16", {"b": "24000"}),
}

# (container, codec, sample format that the encoder takes, rates, options)
WRITTEN: tuple[tuple[str, str, str, tuple[int, ...], dict[str, str]], ...] = (
    ("wav", "pcm_u8", "u8", RATES, {}),
    ("wav", "pcm_s16le", "s16", RATES, {}),
    ("wav", "pcm_s24le", "s32", RATES, {}),
    ("wav", "pcm_s32le", "s32", RATES, {}),
    ("wav", "pcm_f32le", "flt", RATES, {}),
    ("wav", "pcm_alaw", "s16", RATES, {}),
    ("wav", "pcm_mulaw", "s16", RATES, {}),
    ("wav", "adpcm_ima_wav", "s16p", (8000, 16000), {}),
    ("wav", "g726", "s16", (8000,), {}),
    ("g722", "g722", "s16", (16000,), {}),
    ("flac", "flac", "s16", RATES, {}),
    ("mp3", "libmp3lame", "s16p", RATES, {"b": "32000"}),
    ("adts", "aac", "fltp", RATES, {"b": "32000"}),
    ("ipod", "aac", "fltp", RATES, {"b": "32000"}),
    ("ogg", "libopus", "s16", (8000, 16000, 24000, 48000), {"b": "16000"}),
    ("webm", "libopus", "s16", (8000, 16000, 24000, 48000), {"b": "16000"}),
    ("amr", "libopencore_amrnb", "s16", (8000,), {"b": "12200"}),
    ("3gp", "libopencore_amrnb", "s16", (8000,), {"b": "4750"}),
)
DECLARED = {"g722": "audio/g722", ".g729": "audio/g729"}  # what only the server can say


def speech(rate: int = 16000) -> npt.NDArray[np.float64]:
    """Two seconds of the sample call that the fixtures are made of, -1..1, at `rate` Hz."""
    import soxr

    from pipeline.audio.decode import DecodeOptions, decode_file

    samples = decode_file(SAMPLES / "02_callback_stereo" / "call.flac", DecodeOptions()).samples[0, 16000:48000]
    return np.asarray(soxr.resample(samples / 32768, 16000, rate), np.float64)


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


def correlation(source: npt.NDArray[np.float64], found: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """(correlation from 300 to 3000 Hz, lag in ms of the second, signal to noise in dB) at the best lag, of 16 kHz."""
    from scipy.signal import butter, correlate, sosfiltfilt

    band = butter(4, (300, 3000), "bandpass", fs=16000, output="sos")
    first, second = sosfiltfilt(band, source), sosfiltfilt(band, found)
    products = correlate(second, first, "full", method="fft")
    best = int(np.argmax(np.abs(products)))
    value = float(products[best] / np.sqrt((first @ first) * (second @ second)))
    noise = 10 * np.log10(value**2 / max(1e-12, 1 - value**2))
    return value, (best - len(first) + 1) / 16, float(noise)


def written() -> Iterator[dict[str, Any]]:
    """A row for each codec and rate that can be written here."""
    for container, codec, sample_format, rates, options in WRITTEN:
        for rate in rates:
            file = io.BytesIO()
            encode(
                file, iter(np.array_split(speech(rate)[:, None], 40)), rate, (container, codec, sample_format, options)
            )
            yield {"codec": codec, "container": container, "rate": rate, **_decoded(file.getvalue(), container)}


def fixtures() -> Iterator[dict[str, Any]]:
    """A row for each file that was written elsewhere."""
    for path in sorted(FIXTURES.iterdir()):
        if path.suffix not in (".sh", ".md"):
            yield {"codec": path.name, "container": "fixture", "rate": "", **_decoded(path.read_bytes(), path.suffix)}


def _decoded(data: bytes, form: str) -> dict[str, Any]:
    from pipeline.audio.decode import DecodeOptions, decode_file
    from pipeline.errors import RecordingError

    try:
        found = decode_file(io.BytesIO(data), DecodeOptions(), DECLARED.get(form))
    except RecordingError as error:
        return {"decodes": str(error)}
    value, lag, noise = correlation(speech(), found.samples[0].astype(np.float64))
    return {"decodes": "yes", "seconds": found.duration, "correlation": value, "lag_ms": lag, "snr_db": noise}


def strays(rate: int) -> dict[str, Any]:
    """What resampling from `rate` Hz adds (loudest alias or image, dB against the tone) and changes (ripple, dB)."""
    inside = [*range(100, min(3700, int(rate / 2 * 0.92)), 200)]
    wide = list(range(3700, int(min(7300, rate / 2 * 0.9)), 200))
    above = [*range(8050, int(rate / 2), 190)]
    added = [_tone(rate, tone) for tone in (*inside, *wide, *above)]
    speech_band, pass_band = added[: len(inside)], added[: len(inside) + len(wide)]
    ripple = lambda tones: max(abs(level) for level, _ in tones)  # noqa: E731
    return {
        "rate": rate,
        "tones": len(added),
        "alias_or_image_db": max(stray for _, stray in added),
        "ripple_to_3600_hz_db": ripple(speech_band),
        "ripple_to_0.9_db": ripple(pass_band),
    }


def _tone(rate: int, tone: float) -> tuple[float, float]:
    """(level of a tone after decoding, of all else), dB against the tone as it was: float WAV in, int16 out."""
    from pipeline.audio.decode import DecodeOptions, decode_file

    source = 0.9 * np.sin(2 * np.pi * tone * np.arange(rate * 2) / rate)
    file = io.BytesIO()
    encode(file, iter(np.array_split(source[:, None], 20)), rate, ("wav", "pcm_f32le", "flt", {}))
    found = decode_file(io.BytesIO(file.getvalue()), DecodeOptions()).samples[0, 4000:28000] / 32768
    window = np.blackman(len(found))
    spectrum = np.abs(np.fft.rfft(found * window)) ** 2
    whole = np.sum(window**2) * len(found) / 4 * 0.9**2  # of a tone at full level
    own = np.abs(np.fft.rfftfreq(len(found), 1 / 16000) - tone) < 20
    level, rest = spectrum[own].sum() / whole, spectrum[~own].sum() / whole
    return 10 * float(np.log10(level + 1e-20)), 10 * float(np.log10(rest + 1e-20))
