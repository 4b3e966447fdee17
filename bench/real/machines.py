"""Machines that are heard on a telephone line, generated: float32 at 16 kHz, RMS 1. What they are, no voice and no
music: transformers and dimmers (50 and 60 Hz and their harmonics), motors, fans, a modem, a mobile phone's 217 Hz.
"""

from collections.abc import Callable

import numpy as np

from bench.real.lines import Random, noise
from bench.real.sources import RATE, Sound

HIGHEST = 3800  # Hz


def harmonics(base: float, fall: float, seconds: float, rng: Random, sway: float = 0.0, step: int = 1) -> Sound:
    """Every `step`-th harmonic of `base` Hz, falling as 1 / k^`fall`; the pitch sways by the share `sway`."""
    t = np.arange(round(seconds * RATE)) / RATE
    speed = rng.uniform(0.15, 1.0)
    phase = 2 * np.pi * np.cumsum(base * (1 + sway * np.sin(2 * np.pi * speed * t))) / RATE
    kept = range(1, int(HIGHEST / base) + 1, step)
    parts = (rng.uniform(0.3, 1) / k**fall * np.sin(k * phase + rng.uniform(0, 6.28)) for k in kept)
    return _unit(np.asarray(sum(parts), np.float32))


def phone_buzz(seconds: float, _: Random) -> Sound:
    """A GSM phone beside the line: bursts at 217 Hz, in groups."""
    t = np.arange(round(seconds * RATE)) / RATE
    burst = np.where((t * 217) % 1 < 0.125, 1.0, 0.0) - 0.125
    return _unit(np.asarray(burst * (((t * 8.3) % 1 < 0.6) | (t > seconds / 2)), np.float32))


def modem(seconds: float, rng: Random) -> Sound:
    """V.22: two carriers of 600 baud."""
    t = np.arange(round(seconds * RATE)) / RATE
    signs = rng.choice([-1, 1], (2, round(seconds * 600) + 1))[:, (t * 600).astype(int)]
    return _unit(np.asarray(signs[0] * np.cos(2 * np.pi * 1200 * t) + signs[1] * np.cos(2 * np.pi * 2400 * t)))


def uneven_motor(seconds: float, rng: Random) -> Sound:
    """A motor whose load changes seven times a second."""
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
