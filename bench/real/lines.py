"""Telephone lines and noises on them. Sound is float32 at 16 kHz, shape (n,), -1..1."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bench.real.sources import RATE, Sound

FRAME = RATE // 100  # samples of 10 ms
TELEPHONE_BAND = (300, 3400)  # Hz
STEADY = (10, 14)  # of 14 frames of 10 ms, 10 must be loud
MAX_DELAY = 0.06  # seconds by which a codec may lag
Random = np.random.Generator
Line = Callable[[Sound], Sound]


def energy(sound: Sound) -> npt.NDArray[np.float64]:
    """dB of full scale of each whole 10 ms."""
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    return np.asarray(10 * np.log10((frames**2).mean(axis=1) + 1e-12))


def level(sound: Sound, dbfs: float = -23.0) -> Sound:
    """Scaled so that its frames within 40 dB of the loudest have `dbfs` RMS. Silence stays as it is."""
    active = _active(sound)
    return sound if active <= 0 else np.asarray(sound * (10 ** (dbfs / 20) / active), np.float32)


def edges(sound: Sound) -> tuple[float, float]:
    """First and last moment (s) of a clean clip of speech; all of it where nothing is loud.

    Level in the telephone band over 30 ms, every 10 ms; loud is within 30 dB of the loud ones (95th percentile) and
    10 dB above the floor (10th), and stays so in 10 of 14: breaths and clicks before the first word do not count.
    """
    power = np.convolve(10 ** (energy(telephone_band(sound)) / 10), np.ones(3) / 3, "same")
    if len(power) < STEADY[1]:
        return 0.0, len(sound) / RATE
    decibel = 10 * np.log10(power + 1e-12)
    loud = decibel > max(np.quantile(decibel, 0.95) - 30, np.quantile(decibel, 0.1) + 10)
    enough = np.convolve(loud, np.ones(STEADY[1], int), "valid") >= STEADY[0]
    first = np.flatnonzero(enough & loud[: len(enough)])
    last = np.flatnonzero(enough & loud[-len(enough) :])
    if not len(first) or not len(last):
        return 0.0, len(sound) / RATE
    return float(first[0]) / 100, float(last[-1] + STEADY[1]) / 100


def noise(samples: int, exponent: float, rng: Random) -> Sound:
    """Noise of RMS 1 whose power falls as 1 / f^exponent: 0 white, 1 pink, 2 brown."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    frequency = np.fft.rfftfreq(samples, 1 / RATE)
    frequency[0] = frequency[1]
    shaped = np.fft.irfft(spectrum / frequency ** (exponent / 2), samples)
    return np.asarray(shaped / np.sqrt((shaped**2).mean()), np.float32)


def pink(samples: int, dbfs: float, rng: Random) -> Sound:
    """Pink noise of `dbfs` RMS."""
    return np.asarray(noise(samples, 1, rng) * 10 ** (dbfs / 20), np.float32)


def at_snr(sound: Sound, background: Sound, decibel: float) -> Sound:
    """`sound` over `background`, repeated to its length and scaled to `decibel` below its active level."""
    filled = np.resize(background, len(sound)).astype(np.float32)
    gain = _active(sound) * 10 ** (-decibel / 20) / (np.sqrt((filled**2).mean()) + 1e-9)
    return np.asarray(sound + filled * gain, np.float32)


def wide(sound: Sound) -> Sound:
    """Return the sound without a line: 16 kHz linear."""
    return sound


def mulaw(sound: Sound) -> Sound:
    """G.711 mu-law over the telephone band."""
    return _codec(sound, "pcm_mulaw", "pcm_mulaw", 8000)


def gsm(sound: Sound) -> Sound:
    """GSM 06.10 full rate, 13 kbit/s."""
    import io

    import soundfile

    file = io.BytesIO()
    narrow = _resampled(telephone_band(sound), RATE, 8000)
    soundfile.write(file, np.clip(narrow, -1, 1), 8000, format="WAV", subtype="GSM610")
    file.seek(0)
    decoded, _ = soundfile.read(file, dtype="float32")
    return _aligned(_resampled(decoded, 8000, RATE), sound)


def amr(bitrate: int) -> Line:
    """AMR narrow band at `bitrate` bit/s: 4750 is the lowest mode, 12200 the highest."""
    return lambda sound: _codec(sound, "libopencore_amrnb", "amrnb", 8000, bitrate)


def g722(sound: Sound) -> Sound:
    """G.722 at 64 kbit/s: wide band."""
    return _codec(sound, "g722", "g722", RATE)


def opus(bitrate: int) -> Line:
    """Opus of a telephone band at `bitrate` bit/s."""
    return lambda sound: _codec(sound, "libopus", "libopus", 8000, bitrate)


LINES: dict[str, Line] = {
    "wide": wide,
    "mulaw": mulaw,
    "gsm": gsm,
    "amr-4.75": amr(4750),
    "amr-12.2": amr(12200),
    "g722": g722,
    "opus-12": opus(12000),
}
"""Lines by name. Sound goes in and comes out at 16 kHz; the codec's delay is taken out, so that times stay true."""


def recorded_rate(line: str) -> int:
    """Hz at which a recorder stores what came over a line."""
    return RATE if line in ("wide", "g722") else 8000


def telephone_band(sound: Sound) -> Sound:
    """300 to 3400 Hz, 24 dB an octave."""
    from scipy.signal import butter, sosfiltfilt

    filtered = sosfiltfilt(butter(2, TELEPHONE_BAND, "bandpass", fs=RATE, output="sos"), sound)
    return np.asarray(filtered, np.float32)


def _active(sound: Sound) -> float:
    decibel = energy(sound)
    if not len(decibel) or decibel.max() <= -110:
        return 0.0
    power = 10 ** (decibel[decibel > decibel.max() - 40] / 10)
    return float(np.sqrt(power.mean()))


def _resampled(sound: Sound, source: int, target: int) -> Sound:
    import soxr

    return sound if source == target else np.asarray(soxr.resample(sound, source, target), np.float32)


def _codec(sound: Sound, encoder: str, decoder: str, rate: int, bitrate: int | None = None) -> Sound:
    """Sound after a codec of PyAV's FFmpeg. Raises av's UnknownCodecError where a build lacks it."""
    import av

    banded = telephone_band(sound) if rate == 8000 else sound
    pcm = (np.clip(_resampled(banded, RATE, rate), -1, 1) * 32767).astype(np.int16)
    into = av.CodecContext.create(encoder, "w")
    into.sample_rate, into.layout, into.format = rate, "mono", "s16"
    if bitrate:
        into.bit_rate = bitrate
    into.open()
    size = into.frame_size or rate // 50
    pcm = np.pad(pcm, (0, -len(pcm) % size + 2 * size))  # what a codec holds back comes out
    back = av.CodecContext.create(decoder, "r")
    back.sample_rate, back.layout = rate, "mono"
    if into.extradata:
        back.extradata = into.extradata
    resampler = av.AudioResampler("flt", "mono", RATE)
    pieces: list[Sound] = []
    for first in range(0, len(pcm) + 1, size):
        frame = None
        if first < len(pcm):
            frame = av.AudioFrame.from_ndarray(pcm[None, first : first + size], format="s16", layout="mono")
            frame.sample_rate, frame.pts = rate, first
        for packet in into.encode(frame):
            for decoded in back.decode(packet):
                pieces += [out.to_ndarray()[0] for out in resampler.resample(decoded)]
    pieces += [out.to_ndarray()[0] for out in resampler.resample(None)]
    return _aligned(np.concatenate(pieces), sound)


def _aligned(decoded: Sound, sound: Sound) -> Sound:
    """`decoded` without the codec's delay, as long as `sound`: shifted to where both correlate best."""
    from scipy.signal import correlate

    reach = round(MAX_DELAY * RATE)
    n = min(len(decoded), len(sound))
    lags = correlate(decoded[:n], sound[:n], method="fft")[n - 1 - reach : n + reach]
    lag = int(np.argmax(lags)) - reach if np.abs(sound).max() > 1e-4 and n > 2 * reach else 0
    shifted = decoded[lag:] if lag >= 0 else np.pad(decoded, (-lag, 0))
    return np.asarray(np.pad(shifted, (0, max(0, len(sound) - len(shifted))))[: len(sound)], np.float32)


# Machines next to the telephone, RMS 1: neither voice nor music.

MAX_MACHINE_HZ = 3800


def harmonics(base: float, fall: float, seconds: float, rng: Random, sway: float = 0.0, step: int = 1) -> Sound:
    """Return every `step`-th harmonic of `base` Hz, falling as 1 / k^`fall`; the pitch sways by the share `sway`."""
    t = np.arange(round(seconds * RATE)) / RATE
    speed = rng.uniform(0.15, 1.0)
    phase = 2 * np.pi * np.cumsum(base * (1 + sway * np.sin(2 * np.pi * speed * t))) / RATE
    harmonics_range = range(1, int(MAX_MACHINE_HZ / base) + 1, step)
    parts = (rng.uniform(0.3, 1) / k**fall * np.sin(k * phase + rng.uniform(0, 6.28)) for k in harmonics_range)
    return _unit(np.asarray(sum(parts), np.float32))


def phone_buzz(seconds: float, _: Random) -> Sound:
    """Return the buzz of a GSM phone near the line: bursts at 217 Hz, in groups."""
    t = np.arange(round(seconds * RATE)) / RATE
    burst = np.where((t * 217) % 1 < 0.125, 1.0, 0.0) - 0.125
    return _unit(np.asarray(burst * (((t * 8.3) % 1 < 0.6) | (t > seconds / 2)), np.float32))


def modem(seconds: float, rng: Random) -> Sound:
    """V.22: two carriers of 600 baud."""
    t = np.arange(round(seconds * RATE)) / RATE
    signs = rng.choice([-1, 1], (2, round(seconds * 600) + 1))[:, (t * 600).astype(int)]
    return _unit(np.asarray(signs[0] * np.cos(2 * np.pi * 1200 * t) + signs[1] * np.cos(2 * np.pi * 2400 * t)))


def uneven_motor(seconds: float, rng: Random) -> Sound:
    """Return a motor whose load changes seven times per second."""
    t = np.arange(round(seconds * RATE)) / RATE
    turning = harmonics(63, 0.5, seconds, rng, 0.03) * (1 + 0.3 * np.sin(2 * np.pi * 7 * t))
    return _unit(np.asarray(turning + 0.3 * noise(len(t), 1, rng), np.float32))


def _with_noise(base: float, fall: float, share: float, sway: float = 0.0, step: int = 1) -> Callable[..., Sound]:
    def made(seconds: float, rng: Random) -> Sound:
        tonal = harmonics(base, fall, seconds, rng, sway, step)
        return _unit(tonal + np.float32(share) * noise(len(tonal), 1, rng))

    return made


def _unit(sound: Sound) -> Sound:
    return np.asarray(sound / np.sqrt(np.mean(sound.astype(np.float64) ** 2)), np.float32)


MACHINES: dict[str, Callable[[float, Random], Sound]] = {
    "mains hum, 50 Hz": _with_noise(50, 1.5, 0.05),
    "mains hum, 60 Hz": _with_noise(60, 1.5, 0.05),
    "transformer, 50 Hz": _with_noise(50, 0.7, 0.02),
    "transformer, 60 Hz": _with_noise(60, 0.7, 0.02),
    "dimmer": _with_noise(100, 0.2, 0.02, step=2),
    "fluorescent lamp": _with_noise(120, 0.4, 0.2),
    "fan": _with_noise(87, 1.0, 1.5, 0.01),
    "whistling fan": _with_noise(240, 1.0, 0.4, 0.004),
    "motor": _with_noise(148, 0.6, 0.2, 0.002),
    "swaying motor": _with_noise(170, 0.6, 0.2, 0.015),
    "uneven motor": uneven_motor,
    "vacuum cleaner": _with_noise(330, 0.8, 1.2, 0.01),
    "razor": _with_noise(120, 0.3, 0.02, 0.01),
    "car": _with_noise(38, 1.0, 1.0, 0.08),
    "two motors": lambda s, rng: _unit(harmonics(101, 0.6, s, rng, 0.002) + harmonics(147, 0.6, s, rng, 0.003)),
    "mobile phone": phone_buzz,
    "modem": modem,
    "comfort noise": lambda s, rng: noise(round(s * RATE), 1, rng),
    "hiss": lambda s, rng: noise(round(s * RATE), 0, rng),
}
"""By name: (seconds, generator) to sound."""
