"""Tones of the telephone network: what rings, what says "engaged", keys, fax, beeps.

A tone is a run of moments whose power lies in one or two narrow clusters that keep frequency and level; no voice does
that for long. What it means follows from frequency and cadence (ITU-T E.180 and its supplement 2: 425 Hz in most of
the world, 440 + 480 Hz North America, 400 + 450 Hz United Kingdom; 350 + 440 Hz dial tone; 480 + 620 Hz busy;
950, 1400, 1800 Hz special information tone) or from the frequency alone (ITU-T T.30: 1100 and 2100 Hz).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from pipeline.audio.labels.frames import STEP, Frames, Values
from pipeline.domain.speech import LabelKind

QUIETEST = -55.0  # dBFS; softer tones are not looked for
PURE = 0.9  # of the band's power in one or two clusters; a line's noise 10 dB below the tone takes the rest
SINGLE = 0.8  # of it in one cluster: the tone has one frequency, or several that beat
JUMP = 16.0  # Hz between moments that still are one tone
SHORTEST = 0.1  # seconds
SURE_SECONDS, SURE_SPREAD, SURE_RIPPLE = 0.18, 5.0, 2.0  # seconds, Hz, dB: beyond what voices do, see README
SURE_LOWEST = 330.0  # Hz; held vowels have their strongest harmonic below it
BEATING_SECONDS, BEATING_RIPPLE = 0.8, 5.0
ENGAGED_PAUSE, ENGAGED_TONES = 1.0, 4  # seconds between tones of a busy signal at most; tones in a row, at least
LED_IN_SECONDS = 0.3
LONGEST_BEEP = 1.6  # seconds
LONGEST_PAUSE = 6.5  # seconds between two rings of one telephone
RING_BAND, ENGAGED_BAND, DIAL_BAND = (360.0, 500.0), (360.0, 640.0), (340.0, 460.0)  # Hz
HUM_BELOW = 250.0  # Hz; what lies lower in the band is mains hum
INFORMATION = (950.0, 1400.0, 1800.0)


@dataclass(frozen=True, slots=True)
class SteadyTone:
    """Frames `first` to `last` (exclusive) that hold one steady tone of one or two frequencies (Hz)."""

    first: int
    last: int
    frequencies: tuple[float, ...]
    sure: bool  # no voice can have made it

    @property
    def seconds(self) -> float:
        """How long it sounds."""
        return (self.last - self.first) / STEP


@dataclass(frozen=True, slots=True)
class Signal:
    """What a tone, or several with pauses between them, mean; from `tones[0].first` to `tones[-1].last`."""

    kind: LabelKind
    tones: tuple[SteadyTone, ...]
    detail: str
    network: bool = False  # by frequency and cadence no piece of music


def find(frames: Frames) -> list[SteadyTone]:
    """Every steady tone of `SHORTEST` or longer, in order of time."""
    paired = frames.share_first < SINGLE
    lower = np.where(paired, np.minimum(frames.first, frames.second), frames.first)
    upper = np.where(paired, np.maximum(frames.first, frames.second), 0)
    pure = (np.where(paired, frames.share_both, frames.share_first) >= np.where(paired, PURE, SINGLE + 0.05)) & (
        frames.level > QUIETEST
    )
    same = (np.abs(np.diff(lower)) < JUMP) & (np.abs(np.diff(upper)) < JUMP) & pure[1:] & pure[:-1]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    shortest = round(SHORTEST * STEP)
    found = []
    for first, last in zip(edges[::2], edges[1::2] + 1, strict=True):
        if last - first >= shortest:
            found.append(_tone(frames, lower, upper, int(first), int(last)))
    return found


def _tone(frames: Frames, lower: Values, upper: Values, first: int, last: int) -> SteadyTone:
    inner = slice(first + 1, last - 1) if last - first > 4 else slice(first, last)  # edges lie half in silence
    frequencies = (float(np.median(lower[inner])), float(np.median(upper[inner])))
    # Where two tones less than 50 Hz apart beat, the level ripples though nothing moves (Japan: 400 Hz, 16 Hz in it).
    ripple = SURE_RIPPLE if last - first < BEATING_SECONDS * STEP else BEATING_RIPPLE
    steady = float(np.std(lower[inner])) < SURE_SPREAD and float(np.std(frames.level[inner])) < ripple
    steady &= frequencies[0] > SURE_LOWEST or (last - first) / STEP >= 1
    pure = float(np.mean(frames.share_both[inner])) > PURE
    sure = steady and pure and (last - first) / STEP >= SURE_SECONDS
    return SteadyTone(first, last, tuple(round(f, 1) for f in frequencies if f), sure)


def signals(tones: Sequence[SteadyTone]) -> list[Signal]:
    """Sure tones by what they mean, in order of time."""
    groups = _groups([tone for tone in tones if tone.sure])
    return _information([_meaning(_led_in(group, tones)) for group in groups])


def _led_in(group: list[SteadyTone], tones: Sequence[SteadyTone]) -> list[SteadyTone]:
    """With the tones alike right before it that are too unsteady to be sure alone: where tones beat, as in a ring."""
    for tone in reversed([tone for tone in tones if tone.last <= group[0].first and not tone.sure]):
        if (group[0].first - tone.last) / STEP > LONGEST_PAUSE:
            break
        if tone.seconds >= LED_IN_SECONDS and _alike(tone, group[0]) and len(group) > 1:
            group = [tone, *group]
    return group


def _groups(tones: Sequence[SteadyTone]) -> list[list[SteadyTone]]:
    """Tones of one pitch with pauses of at most `LONGEST_PAUSE`, and no other pitch between them."""
    groups: list[list[SteadyTone]] = []
    for tone in tones:
        before = groups[-1][-1] if groups else None
        if before and _alike(before, tone) and (tone.first - before.last) / STEP <= LONGEST_PAUSE:
            groups[-1].append(tone)
        else:
            groups.append([tone])
    return [part for group in groups for part in _rhythms(group)]


def _rhythms(group: list[SteadyTone]) -> list[list[SteadyTone]]:
    """One group, or several where a telephone that rang is engaged, in the same pitch."""
    bursts: list[list[SteadyTone]] = [[group[0]]]
    for before, after in pairwise(group):
        if (after.first - before.last) / STEP < ENGAGED_PAUSE:
            bursts[-1].append(after)
        else:
            bursts.append([after])
    parts: list[list[SteadyTone]] = []
    engaged = False
    for burst in bursts:
        if parts and not engaged and len(burst) < ENGAGED_TONES:
            parts[-1] += burst
        else:
            parts.append(burst)
        engaged = len(burst) >= ENGAGED_TONES
    return parts


def _alike(one: SteadyTone, other: SteadyTone) -> bool:
    if len(one.frequencies) != len(other.frequencies):
        return False
    return all(abs(a - b) < 1.5 * JUMP for a, b in zip(one.frequencies, other.frequencies, strict=True))


def _meaning(group: list[SteadyTone]) -> Signal:
    pitches = group[0].frequencies
    detail = " + ".join(f"{frequency:.0f}" for frequency in pitches) + " Hz"
    on = median(tone.seconds for tone in group)
    known = _by_frequency(pitches, on)
    if known is not None:
        return Signal(LabelKind.NOISE, tuple(group), known if known == "hum" else f"{known} {detail}", True)
    kind, network = _by_cadence(group, pitches, on)
    return Signal(kind, tuple(group), detail, network)


def _by_frequency(pitches: tuple[float, ...], on: float) -> str | None:
    if pitches[0] < HUM_BELOW and on > 3:
        return "hum"
    calling, answering = near(pitches[0], 1100) and 0.35 <= on <= 0.65, near(pitches[0], 2100) and on > 2
    if len(pitches) == 1 and (calling or answering):
        return "fax tone"
    if _inside(pitches, DIAL_BAND) and on > 3:
        return "dial tone"
    return None


def _by_cadence(group: Sequence[SteadyTone], pitches: tuple[float, ...], on: float) -> tuple[LabelKind, bool]:
    pauses = [(b.first - a.last) / STEP for a, b in pairwise(group)]
    if pauses and _inside(pitches, RING_BAND) and max(pauses) >= 1 and 0.25 <= on <= 3:
        return LabelKind.RINGBACK, len(group) >= 4 and _regular(group, pauses)
    if len(group) >= 3 and _inside(pitches, ENGAGED_BAND) and on <= 0.9 and max(pauses) <= ENGAGED_PAUSE:
        return LabelKind.BUSY, len(group) >= 4 and _regular(group, pauses)
    # Answered after one ring; 440 Hz alone may be an answering machine's beep.
    once = not pauses and 0.7 <= on <= 3 and not near(pitches[0], 440, 8)
    if once and _inside(pitches, RING_BAND):
        return LabelKind.RINGBACK, False
    return (LabelKind.BEEP if on <= LONGEST_BEEP else LabelKind.NOISE), False


def near(frequency: float, wanted: float, tolerance: float = 25.0) -> bool:
    """Whether a measured frequency is one that was meant."""
    return abs(frequency - wanted) < tolerance


def _regular(group: Sequence[SteadyTone], pauses: Sequence[float]) -> bool:
    """Tones alike long, and pauses of one length or, in a double ring, of two."""
    lengths = sorted(tone.seconds for tone in group)[1:] or [group[0].seconds]  # one may be cut by the call's beginning
    short, long = min(pauses), max(pauses)
    strays = [p for p in pauses if min(abs(p - short), abs(p - long)) > 0.12]
    return lengths[-1] - lengths[0] <= 0.12 + 0.1 * lengths[-1] and not strays


def _inside(pitches: tuple[float, ...], band: tuple[float, float]) -> bool:
    return band[0] <= pitches[0] and pitches[-1] <= band[1]


def _information(found: list[Signal]) -> list[Signal]:
    """Three rising tones become one signal: what was dialled cannot be had."""
    joined: list[Signal] = []
    for signal in found:
        joined.append(signal)
        last = joined[-3:]
        pitches = [s.tones[0].frequencies[0] for s in last]
        close = all((b.tones[0].first - a.tones[-1].last) / STEP < 0.5 for a, b in pairwise(last))
        rising = len(last) == 3 and all(abs(p - f) < 40 for p, f in zip(pitches, INFORMATION, strict=True))
        if rising and close:
            tones = tuple(tone for s in last for tone in s.tones)
            joined[-3:] = [Signal(LabelKind.BUSY, tones, "special information tone 950, 1400, 1800 Hz", True)]
    return joined
