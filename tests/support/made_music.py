"""Music for fast tests, synthesized: chords, melody, bass and drums in several timbres. Real music: `bench/real`."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bench.lib.sounds import RATE, Random, Sound

Timbre = Callable[[float, float, Random], Sound]


def _envelope(n: int, attack: float, release: float) -> npt.NDArray[np.float64]:
    shape = np.ones(n)
    a, r = min(n // 2, round(attack * RATE)), min(n // 2, round(release * RATE))
    shape[:a] = np.linspace(0, 1, a)
    shape[n - r :] *= np.linspace(1, 0, r)
    return shape


def _harmonics(frequency: float, seconds: float, rng: Random, weights: list[float], vibrato: float) -> Sound:
    t = np.arange(round(seconds * RATE)) / RATE
    phase = 2 * np.pi * frequency * t + vibrato * frequency / 5.5 * np.sin(2 * np.pi * 5.5 * t + rng.uniform(0, 6))
    kept = [(k, w) for k, w in enumerate(weights, 1) if k * frequency < 3800]
    return np.asarray(sum(w * np.sin(k * phase) for k, w in kept), np.float32)


def organ(frequency: float, seconds: float, rng: Random) -> Sound:
    sound = _harmonics(frequency, seconds, rng, [1, 0.8, 0.5, 0.6, 0.1, 0.3, 0.05, 0.3], 0.001)
    return (sound * _envelope(len(sound), 0.02, 0.03)).astype(np.float32)


def strings(frequency: float, seconds: float, rng: Random) -> Sound:
    weights = [1 / k for k in range(1, 13)]
    sound = sum(_harmonics(frequency * 2 ** (c / 1200), seconds, rng, weights, 0.006) for c in (-6, 0, 7))
    return (sound * _envelope(len(sound), 0.15, 0.2) / 3).astype(np.float32)


def plucked(frequency: float, seconds: float, rng: Random) -> Sound:
    t = np.arange(round(seconds * RATE)) / RATE
    kept = [k for k in range(1, 13) if k * frequency < 3800]
    parts = (np.sin(2 * np.pi * k * frequency * t) * np.exp(-t * (1.5 + 0.7 * k)) / k for k in kept)
    return np.asarray(sum(parts), np.float32)


def flute(frequency: float, seconds: float, rng: Random) -> Sound:
    sound = _harmonics(frequency, seconds, rng, [1, 0.25, 0.08], 0.008) + rng.normal(0, 0.01, round(seconds * RATE))
    return (sound * _envelope(len(sound), 0.06, 0.08)).astype(np.float32)


def bell(frequency: float, seconds: float, rng: Random) -> Sound:
    t = np.arange(round(seconds * RATE)) / RATE
    index = 3 * np.exp(-t * 4)
    return (
        np.sin(2 * np.pi * frequency * t + index * np.sin(2 * np.pi * 1.41 * frequency * t)) * np.exp(-t * 2)
    ).astype(np.float32)


TIMBRES: dict[str, Timbre] = {"organ": organ, "strings": strings, "plucked": plucked, "flute": flute, "bell": bell}


def _drum(kind: int, rng: Random) -> Sound:
    t = np.arange(round(0.15 * RATE)) / RATE
    if kind == 0:
        return (np.sin(2 * np.pi * (60 + 60 * np.exp(-t * 30)) * t) * np.exp(-t * 25)).astype(np.float32)
    return (rng.normal(0, 0.5, len(t)) * np.exp(-t * (30 if kind == 1 else 80))).astype(np.float32)


def music(seconds: float, rng: Random) -> Sound:
    """A piece: four chords round and round, a melody from their scale, bass, and in most pieces drums."""
    beat = 60 / rng.uniform(66, 140)
    root = rng.uniform(110, 220)
    minor = rng.random() < 0.4
    scale = [0, 2, 3, 5, 7, 8, 10] if minor else [0, 2, 4, 5, 7, 9, 11]
    names = list(TIMBRES)
    chord, lead = TIMBRES[names[rng.integers(len(names))]], TIMBRES[names[rng.integers(len(names))]]
    loop = [0, *rng.integers(0, 6, 3)]
    parts = {"chords": rng.random() < 0.85, "melody": rng.random() < 0.85, "drums": rng.random() < 0.6}
    if not (parts["chords"] or parts["melody"]):
        parts["chords"] = True
    total = round(seconds * RATE)
    sound = np.zeros(total + 8 * RATE, np.float32)

    def put(at: float, piece: Sound, gain: float) -> None:
        first = round(at * RATE)
        if first < total:
            sound[first : first + len(piece)] += np.float32(gain) * piece[: len(sound) - first]

    def pitch(step: int, octave: int = 0) -> float:
        return float(root * 2 ** ((scale[step % 7] + 12 * (step // 7 + octave)) / 12))

    bar, degree = 0, 7
    while bar * 4 * beat < seconds:
        start, base = bar * 4 * beat, int(loop[bar % 4])
        if parts["chords"]:
            for step in (0, 2, 4):
                put(start, chord(pitch(base + step), 4 * beat, rng), 0.25)
        put(start, plucked(pitch(base, -1), 2 * beat, rng), 0.3)
        at = 0.0
        while parts["melody"] and at < 4:
            length = float(rng.choice([0.5, 0.5, 1, 1, 2]))
            degree = int(np.clip(degree + rng.integers(-2, 3), 4, 14))
            if rng.random() > 0.12:
                put(start + at * beat, lead(pitch(degree), length * beat, rng), 0.4)
            at += length
        for eighth in range(8 if parts["drums"] else 0):
            put(start + eighth * beat / 2, _drum(2, rng), 0.15)
            if eighth % 4 == 0:
                put(start + eighth * beat / 2, _drum(0, rng), 0.6)
            if eighth % 4 == 2:
                put(start + eighth * beat / 2, _drum(1, rng), 0.4)
        bar += 1
    return sound[:total] / np.float32(max(1e-6, np.abs(sound[:total]).max()))
