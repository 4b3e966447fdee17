"""Short mixed calls of many voices, with known speaker turns but unknown words.

`bench.real.catalog` has two speakers with words in each half. Here every call has two further voices (`VOICES` of
`bench.real.sources`), of similar or different pitch, each in turns of 2 to 6 s cut from its one utterance; in addition
a call of one voice and one of three. Voices of a half are used once.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.real.calls import GAPS, Builder, ComposedCall, finish
from bench.real.catalog import TREATMENTS, compose
from bench.real.lines import energy, level
from bench.real.sources import Clip, Half, Sound, Sources

LONG = ("mixed", "mixed-overlap")  # calls of `bench.real.catalog`: two speakers, several minutes
DEEP, HIGH = "deep", "high"  # median pitch below 150 Hz, above 175 Hz
PITCH: dict[Half, dict[str, tuple[str, ...]]] = {
    "development": {
        DEEP: ("1040", "1334", "1594", "196", "2002", "2136", "2384", "2436", "2514", "1034"),
        HIGH: ("1098", "1116", "1246", "150", "1502", "1578", "1898", "1926", "1970", "198", "226"),
    },
    "report": {
        DEEP: ("1235", "163", "1723", "1743", "1867", "2159", "2289", "229", "233", "1081", "1455"),
        HIGH: ("103", "1069", "125", "1553", "1737", "1841", "2007", "2391"),
    },
}
TURNS = (2.0, 6.0)  # seconds
OVERLAP = (0.4, 1.2)  # seconds by which a turn begins early


@dataclass(frozen=True, slots=True)
class Mix:
    """How one call is composed."""

    name: str
    voices: tuple[str, ...]
    line: str = "mulaw"
    treatment: str = ""  # of `bench.real.catalog.TREATMENTS`
    quieter: float = 0.0  # dB by which the second voice is lower
    overlap: float = 0.0  # share of the changes at which the next turn begins early


def mixes(half: Half) -> list[Mix]:
    """Compose the short calls of a half."""
    deep, high = (iter(PITCH[half][kind]) for kind in (DEEP, HIGH))
    return [
        Mix("deep-deep", _two(deep, deep)),
        Mix("high-high", _two(high, high), "gsm"),
        Mix("deep-high", _two(deep, high), "amr-4.75"),
        Mix("deep-deep-amr", _two(deep, deep), "amr-12.2"),
        Mix("deep-high-noise20", _two(deep, high), treatment="pink-20"),
        Mix("deep-high-noise10", _two(deep, high), treatment="pink-10"),
        Mix("deep-deep-levels", _two(deep, deep), quieter=8.0),
        Mix("high-high-overlap", _two(high, high), overlap=0.5),
        Mix("deep-high-overlap-gsm", _two(deep, high), "gsm", overlap=0.5),
        Mix("one-voice", (next(high, None) or next(deep),)),
        Mix("three-voices", (PITCH[half][DEEP][0], PITCH[half][HIGH][0], PITCH[half][HIGH][4])),
    ]


def calls(sources: Sources, half: Half, names: Sequence[str] = ()) -> Iterator[ComposedCall]:
    """Yield the mixed calls of a half, all or by name; the short ones first."""
    voices = {clip.speaker: clip for clip in sources.voices(half)}
    for number, mix in enumerate(mixes(half)):
        if not names or mix.name in names:
            yield composed(mix, [voices[name] for name in mix.voices], sources, half, number)
    for name in LONG:
        if not names or name in names:
            yield compose(name, sources, half)


def turns(call: ComposedCall) -> list[tuple[float, float, str]]:
    """Return (start, end, speaker) of each turn, from its first to its last loud moment."""
    return [(event.onset, event.offset, event.speaker) for event in call.events if event.kind == "speech"]


def _two(first: Iterator[str], second: Iterator[str]) -> tuple[str, str]:
    return next(first), next(second)


def composed(mix: Mix, clips: list[Clip], sources: Sources, half: Half, seed: int) -> ComposedCall:
    """Compose the voices in turn, mixed, each on a separate line except the third."""
    rng = random.Random(seed)
    built = Builder(seed)
    levels = (-23.0, -23.0 - mix.quieter, -23.0)
    pieces = [pieces_of(level(clip.load(), dbfs), rng) for clip, dbfs in zip(clips, levels, strict=False)]
    at = 1.0
    for turn in range(max(map(len, pieces))):
        for number, (clip, clip_pieces) in enumerate(zip(clips, pieces, strict=True)):
            if turn < len(clip_pieces):
                first = max(0.0, at)
                at = built.put(min(number, 1), first, clip_pieces[turn].sound, "speech", clip.id, speaker=clip.speaker)
                onset, offset = first + clip_pieces[turn].onset, first + clip_pieces[turn].offset
                built.events[-1] = replace(built.events[-1], onset=onset, offset=offset)
                at += -rng.uniform(*OVERLAP) if rng.random() < mix.overlap else rng.choice(GAPS)
    built.pad(1.0)
    lines = built.lines()
    if mix.treatment:
        lines = TREATMENTS[mix.treatment](lines, sources, half, seed)
    return finish(built, lines, mix.name, half, "short mixed", mix.line, "mixed")


@dataclass(frozen=True, slots=True, eq=False)
class MixPiece:
    """A turn, and the first and last loud moment in it (s)."""

    sound: Sound
    onset: float
    offset: float


def pieces_of(sound: Sound, rng: random.Random, bounds: tuple[float, float] = TURNS) -> list[MixPiece]:
    """Turns of so many seconds, a second apart at least, cut where it is quietest within their bounds."""
    decibel = energy(sound)
    loud = decibel > max(np.quantile(decibel, 0.95) - 35, np.quantile(decibel, 0.05) + 8)
    quiet = np.convolve(decibel, np.ones(10) / 10, "same")  # 0.1 s
    pieces, first = [], 0  # frames of 10 ms
    while len(decibel) - first > bounds[0] * 100:
        low = first + round(bounds[0] * 100)
        high = min(len(quiet), first + round(rng.uniform(bounds[0] + 1, bounds[1]) * 100))
        last = low + int(np.argmin(quiet[low:high])) if high > low else len(decibel)
        if len(decibel) - last < 100:
            last = len(decibel)
        spoken = np.flatnonzero(loud[first:last])
        if len(spoken):
            pieces.append(MixPiece(sound[first * 160 : last * 160], spoken[0] / 100, (spoken[-1] + 1) / 100))
        first = last
    return pieces
