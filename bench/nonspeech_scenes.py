"""Recordings for `nonspeech.py`: sounds of the line in a row, and sample calls with such sounds between and beneath."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import sounds
from sounds import RATE, Random, Sound

from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, LabelKind, Span

Kinds = frozenset[LabelKind]
RING, BUSY, DTMF, MUSIC = LabelKind.RINGBACK, LabelKind.BUSY, LabelKind.DTMF, LabelKind.MUSIC
BEEP, NOISE, SILENCE = LabelKind.BEEP, LabelKind.NOISE, LabelKind.SILENCE
PIECE_SECONDS = 300.0  # of one recording


@dataclass(frozen=True)
class Part:
    """A sound of one class in a recording. `right` holds the labels that are right for it; `digits` those pressed."""

    name: str
    start: float
    end: float
    right: Kinds
    digits: str | None = None


@dataclass(frozen=True)
class Scene:
    """A recording at 16 kHz and what lies where in it."""

    codec: str
    audio: AudioInMemory
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Leg:
    """One channel of a sample call at 8 kHz: what was said when."""

    name: str
    sound: Sound
    sentences: tuple[tuple[Span, str], ...]
    words: tuple[Span, ...]


Made = tuple[Sound, str | None]


def _any(table: dict, rng: Random):  # type: ignore[no-untyped-def, type-arg]
    return table[list(table)[rng.integers(len(table))]]


def _ring(rng: Random) -> Sound:
    frequencies, beats = _any(sounds.RINGING, rng)
    period = sum(beats)
    count = int(rng.integers(2, 6))
    return sounds.cadence(frequencies, beats, count * period - beats[-1], rng)


def _keys(rng: Random) -> Made:
    digits = "".join(rng.choice(list("0123456789*#"), rng.integers(1, 12)))
    off = rng.uniform(0.05, 0.25)
    sound = sounds.keys(digits, rng, rng.uniform(0.05, 0.2), off)
    return sound[: len(sound) - round(off * RATE)], digits


MAKERS: dict[str, tuple[float, Kinds, Callable[[Random], Made]]] = {  # share of the parts, right labels, how
    "ringback": (0.24, frozenset({RING}), lambda r: (_ring(r), None)),
    "busy tone": (
        0.06,
        frozenset({BUSY}),
        lambda r: (sounds.cadence(*_any(sounds.ENGAGED, r), r.uniform(5, 15), r), None),
    ),
    "information tone": (0.03, frozenset({BUSY}), lambda r: (sounds.information_tone(r), None)),
    "dial tone": (
        0.03,
        frozenset({NOISE}),
        lambda r: (sounds.tones(_any(sounds.DIALLING, r), r.uniform(4, 12), r), None),
    ),
    "dtmf": (0.09, frozenset({DTMF}), _keys),
    "music": (0.28, frozenset({MUSIC}), lambda r: (sounds.music(r.uniform(20, 60), r), None)),
    "beep": (0.08, frozenset({BEEP}), lambda r: (sounds.beep(r), None)),
    "hum": (0.04, frozenset({NOISE}), lambda r: (sounds.hum(r.uniform(8, 25), r), None)),
    "hiss, rumble": (0.05, frozenset({NOISE}), lambda r: (sounds.noise(r.uniform(8, 25), r), None)),
    "clicks": (0.04, frozenset({NOISE, SILENCE}), lambda r: (sounds.clicks(r.uniform(8, 20), r), None)),
    "fax, modem": (0.04, frozenset({NOISE, SILENCE}), lambda r: (sounds.fax(r.uniform(10, 25), r), None)),
    "silence": (0.02, frozenset({SILENCE}), lambda r: (np.zeros(round(r.uniform(8, 30) * RATE), np.float32), None)),
}


def scene(rng: Random, seconds: float) -> Scene:
    """A recording of sounds of the line, each after two or three seconds of nothing but the line."""
    codec = sounds.CODECS[rng.integers(len(sounds.CODECS))]
    floor = rng.uniform(-75, -52)  # dBFS; what comes between is comfort noise: silence, or noise where it is loud
    names = list(MAKERS)
    weights = [MAKERS[name][0] for name in names]
    pieces: list[Sound] = []
    parts: list[Part] = []
    at = 0.0
    while at < seconds:
        pause = np.zeros(round(rng.uniform(2.2, 3.5) * RATE), np.float32)
        name = names[rng.choice(len(names), p=weights)]
        sound, digits = MAKERS[name][2](rng)
        sound = sounds.level(sound, rng.uniform(-32, -12)) if name != "clicks" else sound
        end = at + len(pause) / RATE
        parts.append(Part("comfort noise", at, end, frozenset({SILENCE, NOISE})))
        parts.append(Part(name, end, end + len(sound) / RATE, MAKERS[name][1], digits))
        pieces += [pause, sound]
        at = end + len(sound) / RATE
    whole = sounds.through(sounds.line(np.concatenate(pieces), rng, floor), codec)
    return Scene(codec, at_16_khz(whole), tuple(parts))


def at_16_khz(sound: Sound) -> AudioInMemory:
    import soxr

    wide = soxr.resample(sound, RATE, SAMPLE_RATE)
    return AudioInMemory(np.clip(wide * 32768, -32768, 32767).astype(np.int16)[None])


def legs() -> list[Leg]:
    """Every channel of the sample calls with its words; of two like channels the first."""
    from serve_app.demo.samples import load_samples

    found = []
    for sample in load_samples():
        channels = [c for path in sample.recordings for c in _read(path)]
        parties = [("rep",), ("customer",)]
        if sample.expected["layout"] in ("mono", "identical"):
            channels, parties = channels[:1], [("rep", "customer")]
        for sound, party in zip(channels, parties, strict=True):
            said = sorted((s for s in sample.expected["segments"] if s["speaker"] in party), key=lambda s: s["start"])
            sentences = tuple((Span(s["start"], s["end"]), s["text"]) for s in said)
            words = tuple(Span(w["start"], w["end"]) for s in said for w in s["words"])
            found.append(Leg(f"{sample.name} {party[0]}", sound, sentences, words))
    return found


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
        names = ("music", "dtmf", "beep", "busy tone", "hum", "fax, modem", "ringback")
        sound = sounds.level(MAKERS[names[rng.integers(len(names))]][2](rng)[0], rng.uniform(-32, -14))[: 25 * RATE]
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
    makers = {"music": sounds.music, "hum": sounds.hum, "noise": sounds.noise}
    under = makers[what](seconds + 0.1, rng)[: len(leg.sound)]
    under = under * np.float32(10 ** ((speech_db - ratio_db) / 20) / np.sqrt(float(np.mean(under**2)) + 1e-12))
    return replace(leg, sound=np.clip(leg.sound + under, -0.99, 0.99))
