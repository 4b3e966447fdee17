"""Tones of the telephone network: ringing, busy, keys, fax, beeps.

A tone is a run of frames whose power is in one or two narrow clusters of constant frequency and level; no voice stays
that steady for long. Its meaning follows from frequency and cadence (ITU-T E.180 and its supplement 2: 425 Hz in most
of the world, 440 + 480 Hz North America, 400 + 450 Hz United Kingdom; 350 + 440 Hz dial tone; 480 + 620 Hz busy; 950,
1400, 1800 Hz special information tone) or from the frequency alone (ITU-T T.30: 1100 and 2100 Hz).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from pipeline.audio.labels.frames import STEP, Frames, Values
from pipeline.audio.labels.music import runs
from pipeline.domain.speech import LabelKind

MIN_LEVEL = -55.0  # dBFS; softer tones are ignored
PURE = 0.9  # min. share of the band's power in one or two clusters; line noise 10 dB below the tone has the rest
SINGLE = 0.8  # of it in one cluster: one frequency, or several that beat
JUMP = 16.0  # max. Hz between frames of one tone
MIN_SECONDS = 0.1  # seconds
SURE_SECONDS, SURE_SPREAD, SURE_RIPPLE = 0.18, 5.0, 2.0  # seconds, Hz, dB: voices are never that steady, see README
SURE_LOWEST = 330.0  # Hz; the strongest harmonic of sustained vowels is lower
BEATING_SECONDS, BEATING_RIPPLE = 0.8, 5.0
ENGAGED_PAUSE, ENGAGED_TONES = 1.0, 4  # max. seconds between tones of a busy signal; min. number of tones in a row
LED_IN_SECONDS = 0.3
MAX_BEEP = 1.6  # seconds
MAX_PAUSE = 6.5  # seconds between two rings of one telephone
RING_BAND, ENGAGED_BAND, DIAL_BAND = (360.0, 500.0), (360.0, 640.0), (340.0, 460.0)  # Hz
HUM_BELOW = 250.0  # Hz; lower tones are mains hum
INFORMATION = (950.0, 1400.0, 1800.0)


@dataclass(frozen=True, slots=True)
class SteadyTone:
    """Frames `first` to `last` (exclusive) with one steady tone of one or two frequencies (Hz)."""

    first: int
    last: int
    frequencies: tuple[float, ...]
    sure: bool  # no voice can produce it

    @property
    def seconds(self) -> float:
        return (self.last - self.first) / STEP


@dataclass(frozen=True, slots=True)
class Signal:
    """The meaning of a tone, or of several with pauses; from `tones[0].first` to `tones[-1].last`."""

    kind: LabelKind
    tones: tuple[SteadyTone, ...]
    detail: str
    network: bool = False  # not music, by frequency and cadence


def find(frames: Frames) -> list[SteadyTone]:
    """Return every steady tone of at least `MIN_SECONDS`, in order of time."""
    paired = frames.share_first < SINGLE
    lower = np.where(paired, np.minimum(frames.first, frames.second), frames.first)
    upper = np.where(paired, np.maximum(frames.first, frames.second), 0)
    pure = (np.where(paired, frames.share_both, frames.share_first) >= np.where(paired, PURE, SINGLE + 0.05)) & (
        frames.level > MIN_LEVEL
    )
    same = (np.abs(np.diff(lower)) < JUMP) & (np.abs(np.diff(upper)) < JUMP) & pure[1:] & pure[:-1]
    spans = [(first, last + 1) for first, last in runs(same)]  # `same` compares each frame with the next
    return [_tone(frames, lower, upper, *span) for span in spans if span[1] - span[0] >= round(MIN_SECONDS * STEP)]


def _tone(frames: Frames, lower: Values, upper: Values, first: int, last: int) -> SteadyTone:
    inner = slice(first + 1, last - 1) if last - first > 4 else slice(first, last)  # edges are half silent
    frequencies = (float(np.median(lower[inner])), float(np.median(upper[inner])))
    # Two tones less than 50 Hz apart beat: the level of a steady tone ripples (Japan: 400 Hz modulated by 16 Hz).
    ripple = SURE_RIPPLE if last - first < BEATING_SECONDS * STEP else BEATING_RIPPLE
    steady = float(np.std(lower[inner])) < SURE_SPREAD and float(np.std(frames.level[inner])) < ripple
    steady &= frequencies[0] > SURE_LOWEST or (last - first) / STEP >= 1
    pure = float(np.mean(frames.share_both[inner])) > PURE
    sure = steady and pure and (last - first) / STEP >= SURE_SECONDS
    return SteadyTone(first, last, tuple(round(f, 1) for f in frequencies if f), sure)


def signals(tones: Sequence[SteadyTone]) -> list[Signal]:
    """Return the signals of sure tones, in order of time."""
    groups = _groups([tone for tone in tones if tone.sure])
    return _information([_meaning(_led_in(group, tones)) for group in groups])


def _led_in(group: list[SteadyTone], tones: Sequence[SteadyTone]) -> list[SteadyTone]:
    """Prepend similar tones that are too unsteady to be sure, such as the beating tones of a ring."""
    for tone in reversed([tone for tone in tones if tone.last <= group[0].first and not tone.sure]):
        if (group[0].first - tone.last) / STEP > MAX_PAUSE:
            break
        if tone.seconds >= LED_IN_SECONDS and _alike(tone, group[0]) and len(group) > 1:
            group = [tone, *group]
    return group


def _groups(tones: Sequence[SteadyTone]) -> list[list[SteadyTone]]:
    """Group tones of one pitch with pauses up to `MAX_PAUSE` and no other pitch between them."""
    groups: list[list[SteadyTone]] = []
    for tone in tones:
        before = groups[-1][-1] if groups else None
        if before and _alike(before, tone) and (tone.first - before.last) / STEP <= MAX_PAUSE:
            groups[-1].append(tone)
        else:
            groups.append([tone])
    return [part for group in groups for part in _rhythms(group)]


def _rhythms(group: list[SteadyTone]) -> list[list[SteadyTone]]:
    """Split a group where ringing turns into a busy signal of the same pitch."""
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


def _alike(tone: SteadyTone, other: SteadyTone) -> bool:
    if len(tone.frequencies) != len(other.frequencies):
        return False
    return all(abs(a - b) < 1.5 * JUMP for a, b in zip(tone.frequencies, other.frequencies, strict=True))


def _meaning(group: list[SteadyTone]) -> Signal:
    pitches = group[0].frequencies
    detail = " + ".join(f"{frequency:.0f}" for frequency in pitches) + " Hz"
    on = median(tone.seconds for tone in group)
    name = _by_frequency(pitches, on)
    if name is not None:
        return Signal(LabelKind.NOISE, tuple(group), name if name == "hum" else f"{name} {detail}", True)
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
    return (LabelKind.BEEP if on <= MAX_BEEP else LabelKind.NOISE), False


def near(frequency: float, nominal: float, tolerance: float = 25.0) -> bool:
    return abs(frequency - nominal) < tolerance


def _regular(group: Sequence[SteadyTone], pauses: Sequence[float]) -> bool:
    """Return whether tones have equal lengths, and pauses one length or, in a double ring, two."""
    # The shortest may be cut by the start of the call.
    lengths = sorted(tone.seconds for tone in group)[1:] or [group[0].seconds]
    short, long = min(pauses), max(pauses)
    strays = [p for p in pauses if min(abs(p - short), abs(p - long)) > 0.12]
    return lengths[-1] - lengths[0] <= 0.12 + 0.1 * lengths[-1] and not strays


def _inside(pitches: tuple[float, ...], band: tuple[float, float]) -> bool:
    return band[0] <= pitches[0] and pitches[-1] <= band[1]


def _information(signals: list[Signal]) -> list[Signal]:
    """Merge three rising tones into one signal: the dialed number cannot be reached."""
    joined: list[Signal] = []
    for signal in signals:
        joined.append(signal)
        last = joined[-3:]
        pitches = [s.tones[0].frequencies[0] for s in last]
        close = all((b.tones[0].first - a.tones[-1].last) / STEP < 0.5 for a, b in pairwise(last))
        rising = len(last) == 3 and all(abs(p - f) < 40 for p, f in zip(pitches, INFORMATION, strict=True))
        if rising and close:
            tones = tuple(tone for s in last for tone in s.tones)
            joined[-3:] = [Signal(LabelKind.BUSY, tones, "special information tone 950, 1400, 1800 Hz", True)]
    return joined
