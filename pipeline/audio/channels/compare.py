"""Comparison of two channels window by window: one figure for the whole file would hide what they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pipeline.audio.channels.levels import FRAME, LIVE_SECONDS, Activity, Floats, in_band, padded
from pipeline.domain.speech import SAMPLE_RATE, Audio, Span

WINDOW = 2.0  # seconds
MAX_WINDOWS = 600  # spread over the call; 20 minutes represent six hours well enough
MAX_SHIFT = 1600  # samples, 100 ms: lag between the legs of a recorder
FAR_SHIFT = 11200  # samples, 700 ms: with trunks, satellites and jitter buffers
SAME_LAG = 160  # samples within which two neighboring windows have the same far shift
QUIETER_DB = 25.0  # below the loudest moment within reach, a channel cannot be matched
MATCH = 0.6  # correlation above which a window of both channels holds the same sound
GAIN_DB = 2.0  # max. difference between the gain of a matching window and the call's
LOST_DB = -80.0  # dB of full scale; sound below it is missing from a channel: no line is that quiet
MISSING_SHARE = 0.4  # of the sound of one channel may be missing from a copy
APART = 0.25  # correlation below which a window of both channels holds different sounds
SHARED_GAIN_DB = 2.0  # within which the windows of a shared stretch have one gain
SHARED_SHIFT = 40  # samples within which they have one shift


@dataclass(frozen=True, slots=True)
class WindowMatch:
    """One window of both channels, at the shift where they match best.

    `first` and `last` are samples; `correlation` is normalized and signed; `gain_db` is the level of the second channel
    over the first; `shift` the samples by which the second lags.
    """

    first: int
    last: int
    correlation: float
    gain_db: float
    shift: float


@dataclass(frozen=True, slots=True)
class Match:
    """Comparison of two channels: the windows, and the share with the same sound at the same gain.

    `correlation`, `gain_db` (second over first) and `shift` (samples by which the second lags) are medians over the
    matching windows; `polarity` is -1 if the second is the first inverted; `apart` counts windows with different
    sounds.
    """

    windows: tuple[WindowMatch, ...]
    share: float
    correlation: float = 0.0
    gain_db: float = 0.0
    shift: float = 0.0
    polarity: int = 1
    apart: int = 0


def compare(audio: Audio, active: npt.NDArray[np.bool_]) -> Match:
    """Compare channels 0 and 1 in the windows with sound; `active` marks 20 ms frames."""
    windows = _matches(audio, spread(audio.length, active))
    if not windows:
        return Match((), 0.0)
    correlations = np.array([window.correlation for window in windows])
    gains = np.array([window.gain_db for window in windows])
    shifts = np.array([window.shift for window in windows])
    apart = int((np.abs(correlations) < APART).sum())
    strong = np.abs(correlations) >= MATCH
    if not strong.any():
        return Match(windows, 0.0, float(np.median(np.abs(correlations))), apart=apart)
    gain = _commonest(gains[strong])
    same = strong & (np.abs(gains - gain) <= GAIN_DB)
    correlation, shift = float(np.median(correlations[same])), float(np.median(shifts[same]))
    return Match(windows, float(same.mean()), abs(correlation), gain, shift, 1 if correlation > 0 else -1, apart)


def fuller(activities: Sequence[Activity], match: Match) -> int:
    """Return which of two equal channels misses less, else the louder; a sum might cancel."""
    missing = _missing(activities)
    if abs(missing[0] - missing[1]) >= LIVE_SECONDS:
        return missing.index(min(missing))
    return 0 if match.gain_db <= 0 else 1


def _missing(activities: Sequence[Activity]) -> list[float]:
    """Return the seconds in which each channel is empty while the other has sound."""
    frames = [(activities[channel].levels < LOST_DB) & activities[1 - channel].frames for channel in (0, 1)]
    return [float(missing.sum()) * FRAME / SAMPLE_RATE for missing in frames]


def complete(activities: Sequence[Activity]) -> bool:
    """Return whether each channel holds most of the other's sound: otherwise they are two, whatever they share."""
    return all(lack <= MISSING_SHARE * activities[1 - at].seconds for at, lack in enumerate(_missing(activities)))


def _commonest(gains: npt.NDArray[np.float64]) -> float:
    near = np.abs(gains[:, None] - gains[None, :]) <= GAIN_DB
    return float(np.median(gains[near[np.argmax(near.sum(axis=1))]]))


def spread(
    length: int, active: npt.NDArray[np.bool_], seconds: float = WINDOW, max_windows: int = MAX_WINDOWS
) -> list[tuple[int, int]]:
    """Return max. `max_windows` evenly spread windows (first, last sample) that are at least a quarter active."""
    size = min(length, round(seconds * SAMPLE_RATE))
    starts = range(0, max(1, length - size // 2), size) if size else ()
    enough = seconds / 4 * SAMPLE_RATE / FRAME
    loud = [
        (start, min(length, start + size))
        for start in starts
        if active[start // FRAME : (start + size) // FRAME].sum() >= enough
    ]
    if not loud and length:
        center = int(np.argmax(active)) * FRAME if len(active) else 0
        loud = [(max(0, center - size // 4), min(length, center + size))]
    step = max(1.0, len(loud) / max_windows)
    return [loud[int(index * step)] for index in range(min(len(loud), max_windows))]


def _matches(audio: Audio, places: Sequence[tuple[int, int]]) -> tuple[WindowMatch, ...]:
    """Match each window within `MAX_SHIFT`, else within `FAR_SHIFT` if a neighbor has the same shift.

    With so many shifts a single window may match by chance: two vowels of one pitch do. Since a neighbor has to match,
    the far search covers every other window, and those in between only next to a match.
    """
    near = [_match(audio, first, last) for first, last in places]

    @cache
    def matching(index: int) -> WindowMatch | None:
        if abs(near[index].correlation) >= MATCH:
            return near[index]
        return _far_match(audio, near[index])

    def best(index: int) -> WindowMatch:
        if abs(near[index].correlation) >= MATCH:
            return near[index]
        neighbors = [other for other in (index - 1, index + 1) if 0 <= other < len(near)]
        if index % 2 and not any(map(matching, neighbors)):
            return near[index]
        far = matching(index)
        confirmed = far is not None and any(
            other is not None and abs(other.shift - far.shift) <= SAME_LAG for other in map(matching, neighbors)
        )
        return far if far is not None and confirmed else near[index]

    return tuple(map(best, range(len(near))))


def _far_match(audio: Audio, window: WindowMatch) -> WindowMatch | None:
    from scipy.fft import irfft, next_fast_len, rfft

    a = in_band(audio.read(0, window.first, window.last))
    b = in_band(padded(audio, 1, window.first - FAR_SHIFT, window.last + FAR_SHIFT))
    energy_a = float(a @ a)
    sums = np.concatenate([[0.0], np.cumsum(b.astype(np.float64) ** 2)])
    energy_b = sums[len(a) :] - sums[: len(sums) - len(a)]  # of b, by shift
    loudest = float(energy_b.max(initial=0.0))
    if min(energy_a, loudest) < 1e-9:
        return None
    size = next_fast_len(len(b), real=True)  # only shifts with all of `a` inside `b`
    matched = irfft(rfft(b, size) * np.conj(rfft(a, size)), size)[: len(energy_b)]
    loud = energy_b >= loudest * 10 ** (-QUIETER_DB / 10)
    correlations = np.where(loud, matched / np.sqrt(energy_a * np.maximum(energy_b, 1e-12)), 0.0)
    best = int(np.argmax(np.abs(correlations)))
    correlation = float(correlations[best])
    if abs(correlation) < MATCH:
        return None
    gain = 10 * float(np.log10(energy_b[best] / energy_a))
    return WindowMatch(window.first, window.last, correlation, gain, float(best - FAR_SHIFT))


def _match(audio: Audio, first: int, last: int) -> WindowMatch:
    """Match both channels at the best shift, using only what both hold if that shows the same sound.

    A packet lost on one side alone leaves a hole in a copy and would change its gain.
    """
    a, b = in_band(audio.read(0, first, last)), in_band(audio.read(1, first, last))
    window = _correlated(first, last, a, b)
    missing = _empty(a) | _empty(b)
    if missing.any() and (~missing).sum() >= len(missing) / 4:
        present = np.repeat(~missing, FRAME)[: len(a)].astype(np.float32)
        rest = _correlated(first, last, a * present, b * present)
        if abs(rest.correlation) >= max(MATCH, abs(window.correlation)):
            return rest
    return window


def _empty(samples: Floats) -> npt.NDArray[np.bool_]:
    frames = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
    return np.asarray(np.mean(frames**2, axis=1) < 10 ** (LOST_DB / 10))


def _correlated(first: int, last: int, a: Floats, b: Floats) -> WindowMatch:
    from scipy.fft import irfft, next_fast_len, rfft

    energy_a, energy_b = float(a @ a), float(b @ b)
    if min(energy_a, energy_b) < 1e-9:
        return WindowMatch(first, last, 0.0, 0.0, 0.0)
    reach = min(MAX_SHIFT, len(a) - 1)
    size = next_fast_len(len(a) + reach, real=True)  # shifts up to `reach` do not wrap round
    whole = irfft(rfft(b, size) * np.conj(rfft(a, size)), size)
    near = np.concatenate([whole[size - reach :], whole[: reach + 1]])
    best = int(np.argmax(np.abs(near)))
    correlation = float(near[best] / np.sqrt(energy_a * energy_b))
    return WindowMatch(first, last, correlation, 10 * float(np.log10(energy_b / energy_a)), float(best - reach))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Samples `first` to `last` in which both channels carry the same sound; see `WindowMatch`."""

    first: int
    last: int
    gain_db: float
    shift: float

    @property
    def span(self) -> Span:
        return Span(self.first / SAMPLE_RATE, self.last / SAMPLE_RATE)


def stretches(windows: tuple[WindowMatch, ...]) -> tuple[Stretch, ...]:
    """Return runs of at least two consecutive windows that match at one gain and one shift."""
    runs: list[list[WindowMatch]] = []
    previous = None
    for window in windows:
        if abs(window.correlation) >= MATCH:
            if runs and previous is not None and _goes_on(previous, window):
                runs[-1].append(window)
            else:
                runs.append([window])
            previous = window
        else:
            previous = None
    return tuple(_stretch(run) for run in runs if len(run) > 1)


def _goes_on(previous: WindowMatch, window: WindowMatch) -> bool:
    return (
        window.first - previous.last <= SAMPLE_RATE
        and abs(window.gain_db - previous.gain_db) <= SHARED_GAIN_DB
        and abs(window.shift - previous.shift) <= SHARED_SHIFT
    )


def _stretch(run: list[WindowMatch]) -> Stretch:
    gain, shift = (float(np.median([getattr(window, name) for window in run])) for name in ("gain_db", "shift"))
    return Stretch(run[0].first, run[-1].last, gain, shift)
