"""Synthetic sample calls with sounds of the line between and beneath what is said; for tests of labels and tones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from bench.lib import sounds
from bench.lib.sounds import RATE, Random, Sound
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, Span
from tests.support.made_music import music
from tests.synthetic_calls import synthetic_calls

CODECS = ("none", "mulaw", "alaw", "amr", "amr low", "g726", "opus")


@dataclass(frozen=True)
class Leg:
    """One channel of a sample call at 8 kHz: what was said when."""

    name: str
    sound: Sound
    sentences: tuple[tuple[Span, str], ...]
    words: tuple[Span, ...]


def noise(seconds: float, rng: Random) -> Sound:
    """Coloured noise: hiss or rumble."""
    white = rng.normal(0, 1, round(seconds * RATE))
    spectrum = np.fft.rfft(white)
    slope = np.maximum(np.arange(len(spectrum)) / max(1.0, seconds), 50.0) ** rng.uniform(-0.8, 0.1)
    shaped = np.fft.irfft(spectrum * slope, len(white))
    return (shaped / np.abs(shaped).max() / 2).astype(np.float32)


def line(sound: Sound, rng: Random, floor_dbfs: float) -> Sound:
    """With a line's noise beneath it."""
    return (sound + rng.normal(0, 10 ** (floor_dbfs / 20), len(sound))).astype(np.float32)


def _ring(rng: Random) -> Sound:
    frequencies, beats = sounds.RINGING[list(sounds.RINGING)[rng.integers(len(sounds.RINGING))]]
    count = int(rng.integers(2, 6))
    return sounds.cadence(frequencies, beats, count * sum(beats) - beats[-1], rng)


def _keys(rng: Random) -> Sound:
    digits = "".join(rng.choice(list("0123456789*#"), rng.integers(1, 12)))
    return sounds.keys(digits, rng, rng.uniform(0.05, 0.2), rng.uniform(0.05, 0.25))


BETWEEN: tuple[Callable[[Random], Sound], ...] = (
    lambda rng: music(rng.uniform(20, 60), rng),
    _keys,
    sounds.beep,
    lambda rng: sounds.cadence(*sounds.ENGAGED["Germany"], rng.uniform(5, 15), rng),
    lambda rng: sounds.hum(rng.uniform(8, 25), rng),
    lambda rng: sounds.fax(rng.uniform(10, 25), rng),
    _ring,
)


def at_16_khz(sound: Sound) -> AudioInMemory:
    import soxr

    wide = soxr.resample(sound, RATE, SAMPLE_RATE)
    return AudioInMemory(np.clip(wide * 32768, -32768, 32767).astype(np.int16)[None])


@cache
def legs() -> tuple[Leg, ...]:
    """Every channel of the sample calls with its words; of two like channels the first."""
    found: list[Leg] = []
    for sample in synthetic_calls():
        channels = [c for path in sample.recordings for c in _read(path)]
        parties = [("rep",), ("customer",)]
        if sample.expected["layout"] in ("mono", "identical"):
            channels, parties = channels[:1], [("rep", "customer")]
        for sound, party in zip(channels, parties, strict=True):
            said = sorted((s for s in sample.expected["segments"] if s["speaker"] in party), key=lambda s: s["start"])
            sentences = tuple((Span(s["start"], s["end"]), s["text"]) for s in said)
            words = tuple(Span(w["start"], w["end"]) for s in said for w in s["words"])
            found.append(Leg(f"{sample.name} {party[0]}", sound, sentences, words))
    return tuple(found)


def _read(path: Path) -> npt.NDArray[np.float32]:
    sound, rate = soundfile.read(path, dtype="float32", always_2d=True)
    if rate != RATE:
        import soxr

        sound = soxr.resample(sound, rate, RATE)
    return np.ascontiguousarray(sound.T)


def interrupted(leg: Leg, rng: Random, room: float = 0.5) -> Leg:
    """The leg with a ring before it, and sounds of the line put into its pauses; words keep their order."""
    gaps = _gaps(leg, room)
    pieces = [sounds.level(_ring(rng), rng.uniform(-30, -14)), np.zeros(RATE // 2, np.float32)]
    shifts, taken = [(0.0, sum(map(len, pieces)) / RATE)], 0
    for gap in gaps:
        if rng.random() < 0.4:
            continue
        made = BETWEEN[rng.integers(len(BETWEEN))](rng)
        sound = sounds.level(made, rng.uniform(-32, -14))[: 25 * RATE]
        at = round(gap * RATE)
        quiet = np.zeros(round(rng.uniform(0.05, 0.4) * RATE), np.float32)
        pieces += [leg.sound[taken:at], quiet, sound, quiet]
        taken = at
        shifts.append((gap, shifts[-1][1] + (len(sound) + 2 * len(quiet)) / RATE))
    pieces.append(leg.sound[taken:])
    return _shifted(leg, np.concatenate(pieces), shifts)


def _gaps(leg: Leg, room: float) -> Iterator[float]:
    """The middle of each pause between sentences that is at least `room` seconds long."""
    ends = 0.0
    for span, _ in leg.sentences:
        if ends and span.start - ends >= room:
            yield (ends + span.start) / 2
        ends = max(ends, span.end)


def _shifted(leg: Leg, sound: Sound, shifts: list[tuple[float, float]]) -> Leg:
    def moved(span: Span) -> Span:
        by = next(shift for at, shift in reversed(shifts) if span.start >= at)
        return Span(span.start + by, span.end + by)

    sentences = tuple((moved(span), text) for span, text in leg.sentences)
    return replace(leg, sound=sound, sentences=sentences, words=tuple(moved(word) for word in leg.words))


def beneath(leg: Leg, rng: Random, what: str, ratio_db: float) -> Leg:
    """The leg with a sound beneath it all along, `ratio_db` softer than its speech."""
    spoken = np.concatenate([leg.sound[round(w.start * RATE) : round(w.end * RATE)] for w in leg.words])
    speech_db = 10 * np.log10(float(np.mean(spoken**2)) + 1e-12)
    seconds = len(leg.sound) / RATE
    makers = {"music": music, "hum": sounds.hum, "noise": noise}
    under = makers[what](seconds + 0.1, rng)[: len(leg.sound)]
    under = under * np.float32(10 ** ((speech_db - ratio_db) / 20) / np.sqrt(float(np.mean(under**2)) + 1e-12))
    return replace(leg, sound=np.clip(leg.sound + under, -0.99, 0.99))
