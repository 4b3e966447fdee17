"""Start time of the second of two files, from what one party's line carries of the other.

Loud windows of each leg are searched in the other leg. A single window is weak evidence; many windows throughout the
call that agree on the same offset are strong. A false alignment is worse than none, so a window counts only if it
contains speech (hold music and ring tones are alike in any two calls) and matches clearly better at one place than
anywhere else (repeated sounds match at many).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.audio.channels import compare
from pipeline.audio.channels.levels import Activity, Samples, in_band, padded
from pipeline.domain.speech import SAMPLE_RATE, Audio

SECONDS = (4.0, 2.0)  # of a window; the shorter if there are few of the longer
FEW, WINDOWS = 6, 24  # of each leg
SEARCH = 90.0  # seconds before and after
REDUCED = 4  # decimation factor of the 16 kHz samples
BAND = (300, 1800)  # Hz
LEVELED = 0.3  # seconds over which the level is equalized
WHITENING = 0.8  # exponent, as in `bleed`
SPEECH = 1.0  # seconds, min. per window
HEIGHT = 9.0  # min. height of the peak in robust standard deviations
CLEAR = 1.4  # times the best peak elsewhere
ELSEWHERE = 0.05  # seconds from the peak
AGREE = 0.02  # seconds from the line through all
MIN_AGREEING, MIN_SHARE = 3, 0.6  # windows of one leg that agree on the offset
ALIKE_DB, ALIKE_SHARE = 2.0, 0.9  # sound equally loud in both legs, and the share of windows that must agree
MAX_DRIFT = 500e-6
DRIFT_WINDOWS, DRIFT_SPREAD = 6, 30.0  # windows, and seconds between the first and the last, needed for a drift
BOTH_WAYS = 1.2  # seconds between the offsets of both legs: each is late by an echo


@dataclass(frozen=True, slots=True)
class Alignment:
    """Leg 1 begins `offset` seconds after leg 0 (before it if negative) and runs slow by `drift` (1e-6: 1 ppm).

    `agreeing` of `windows` agree; if `aligned` is false, offset and drift are zero.
    """

    aligned: bool
    offset: float
    drift: float
    agreeing: int
    windows: int
    each: tuple[int, int] = (0, 0)  # windows of either leg

    @property
    def unrelated(self) -> bool:
        """Whether enough windows were compared to conclude that neither leg carries sound of the other."""
        return not self.aligned and min(self.each) >= MIN_AGREEING

    def as_evidence(self) -> dict[str, float]:
        return {
            "aligned": float(self.aligned),
            "offset_seconds": self.offset,
            "offset_windows": float(self.agreeing),
            "offset_windows_tried": float(self.windows),
            "drift_ppm": self.drift * 1e6,
        }


@dataclass(frozen=True, slots=True)
class Vote:
    """A window at second `moment` of its leg matches the other leg `shift` seconds earlier; None: no match."""

    moment: float
    shift: float | None
    gain_db: float = -99.0  # of the match over the window


@dataclass(frozen=True, slots=True)
class Line:
    """The agreeing votes of one leg, and how many were cast."""

    votes: tuple[Vote, ...]
    cast: int

    @property
    def agreed(self) -> bool:
        """Whether enough votes agree; for equally loud sound nearly all, since each leg may get it at another time."""
        share = ALIKE_SHARE if self._alike else MIN_SHARE
        return len(self.votes) >= max(MIN_AGREEING, share * self.cast)

    def confirms(self, other: "Line") -> bool:
        """Return whether a few votes confirm the other leg's offset; the echoes of both make them late."""
        late = -(self.shift + other.shift) if self.votes and other.agreed else -1.0
        return -AGREE <= late <= BOTH_WAYS and len(self.votes) >= MIN_AGREEING and not self._alike

    @property
    def _alike(self) -> bool:
        return bool(self.votes) and bool(abs(np.median([vote.gain_db for vote in self.votes])) < ALIKE_DB)

    @property
    def shift(self) -> float:
        return _median(self.votes)


def align(legs: Sequence[Audio], activities: Sequence[Activity]) -> Alignment:
    """Compare two legs of one channel each, reading max. some minutes at a time."""
    votes = by_speaker([_votes(legs, activities, source) for source in (0, 1)])
    lines = [agreeing(votes[source], legs[1 - source].duration) for source in (0, 1)]
    cast = sum(line.cast for line in lines)
    reliable = [line for line, other in zip(lines, reversed(lines), strict=True) if line.agreed or line.confirms(other)]
    none = Alignment(False, 0.0, 0.0, max(len(line.votes) for line in lines), cast, (lines[0].cast, lines[1].cast))
    if not reliable or (len(reliable) == 2 and abs(lines[0].shift + lines[1].shift) > BOTH_WAYS):
        return none
    # Leg 1 gives the same offset as leg 0 with the opposite sign.
    estimates = [(line, sign) for line, sign in zip(lines, (1, -1), strict=True) if line in reliable]
    drifts = [sign * drift for line, sign in estimates if (drift := drift_of(line.votes))]
    drift = float(np.mean(drifts)) if drifts else 0.0
    # With a drift, the offset in the middle of the call differs from that at its beginning.
    begins = [sign * _median(line.votes, sign * drift) for line, sign in estimates]
    return Alignment(True, float(np.mean(begins)), drift, sum(len(line.votes) for line in reliable), cast)


def by_speaker(votes: Sequence[Sequence[Vote]]) -> list[list[Vote]]:
    """Group the votes by the leg of the party that speaks in the window.

    A window that is louder in the other leg holds an echo of that leg's party. Each party's echo has its own delay: in
    one group they would suggest two offsets, and neither would get enough votes.
    """
    placed: list[list[Vote]] = [[], []]
    for leg, cast in enumerate(votes):
        for vote in cast:
            if vote.shift is None or vote.gain_db <= ALIKE_DB:
                placed[leg].append(vote)
            else:
                placed[1 - leg].append(Vote(vote.moment - vote.shift, -vote.shift, -vote.gain_db))
    return placed


def _median(votes: Sequence[Vote], drift: float = 0.0) -> float:
    return float(np.median([vote.shift - drift * vote.moment for vote in votes if vote.shift is not None]))


def _votes(legs: Sequence[Audio], activities: Sequence[Activity], source: int) -> list[Vote]:
    if not (activities[0].live and activities[1].live):
        return []
    votes = []
    for first, last in _windows(legs[source], activities[source]):
        samples = legs[source].read(0, first, last)
        match = _find(samples, first, legs[1 - source])
        moment = first / SAMPLE_RATE
        votes.append(Vote(moment, None) if match is None else Vote(moment, moment - match[0], match[1]))
    return votes


def _windows(leg: Audio, activity: Activity) -> list[tuple[int, int]]:
    with_speech: list[tuple[int, int]] = []
    for seconds in SECONDS:
        windows = compare.spread(leg.length, activity.frames, seconds, WINDOWS)
        with_speech = [(a, b) for a, b in windows if _speech_seconds(leg.read(0, a, b)) >= min(SPEECH, seconds / 3)]
        if len(with_speech) >= FEW:
            break
    return with_speech


def _speech_seconds(samples: Samples) -> float:
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    timestamps = get_speech_timestamps(samples.astype(np.float32) / np.float32(32768), VadOptions(threshold=0.3))
    return float(sum(timestamp["end"] - timestamp["start"] for timestamp in timestamps)) / SAMPLE_RATE


def _find(samples: Samples, first: int, other: Audio) -> tuple[float, float] | None:
    """Find `samples` (which start at sample `first` of their leg) in `other`: the second, and the gain in dB."""
    from scipy.fft import irfft, next_fast_len, rfft

    reach = round(SEARCH * SAMPLE_RATE)
    begin = max(0, first - reach)
    x, y = _reduced(samples), _reduced(other.read(0, begin, first + len(samples) + reach))
    if len(y) < len(x) // 2 or not x.any() or not y.any():
        return None
    size = next_fast_len(len(x) + len(y), real=True)
    cross = np.conj(rfft(x, size)) * rfft(y, size)
    strength = np.abs(cross)
    cross /= (strength + 1e-3 * strength.max()) ** WHITENING
    curve = irfft(cross, size)
    before = len(x) // 2  # the window may begin before the other leg does
    curve = np.concatenate([curve[-before:], curve[: len(y)]])
    peak = _clear_peak(np.abs(curve))
    if peak is None:
        return None
    place = begin + (peak - before) * REDUCED
    power, other_power = (
        float(np.mean(in_band(x) ** 2)) for x in (samples, padded(other, 0, round(place), round(place) + len(samples)))
    )
    return place / SAMPLE_RATE, 10 * float(np.log10((other_power + 1e-12) / (power + 1e-12)))


def _clear_peak(curve: npt.NDArray[np.float32]) -> float | None:
    """Return the position of the highest peak (fractional), if it is high and no other peak is nearly as high."""
    best = int(np.argmax(curve))
    reach = round(ELSEWHERE * SAMPLE_RATE / REDUCED)
    elsewhere = np.concatenate([curve[: max(0, best - reach)], curve[best + reach + 1 :]])
    if not len(elsewhere):
        return None
    height = float(curve[best])
    if height < HEIGHT * 1.4826 * float(np.median(elsewhere)) or height < CLEAR * float(elsewhere.max()):
        return None
    if not 0 < best < len(curve) - 1:
        return float(best)
    before, after = float(curve[best - 1]), float(curve[best + 1])
    bend = before - 2 * height + after
    return best + (0.5 * (before - after) / bend if bend else 0.0)


def _reduced(samples: Samples) -> npt.NDArray[np.float32]:
    """Reduce to 4000 samples/s of the lower telephone band at a constant level, since bleed is softer than speech."""
    from scipy.ndimage import uniform_filter1d
    from scipy.signal import butter, sosfilt

    filters = butter(4, BAND, "bandpass", fs=SAMPLE_RATE, output="sos").astype(np.float32)
    filtered: npt.NDArray[np.float32] = sosfilt(filters, samples.astype(np.float32))[::REDUCED]
    power = uniform_filter1d(filtered**2, round(LEVELED * SAMPLE_RATE / REDUCED), mode="nearest")
    levelled: npt.NDArray[np.float32] = filtered / np.sqrt(np.maximum(power, 0) + 1.0)
    return levelled


def agreeing(votes: Sequence[Vote], other_seconds: float) -> Line:
    """Return the largest set of votes on one line of a possible drift (tries all pairs).

    Only windows within the other leg's `other_seconds` on that line could match there: others do not count as cast.
    """
    placed = [vote for vote in votes if vote.shift is not None]
    moments, shifts = (np.array([getattr(vote, name) for vote in placed], np.float64) for name in ("moment", "shift"))
    best = np.zeros(len(placed), np.bool_)
    for i in range(len(placed)):
        for j in range(i, len(placed)):
            apart = moments[j] - moments[i]
            slope = (shifts[j] - shifts[i]) / apart if apart else 0.0
            if abs(slope) > MAX_DRIFT:
                continue
            near = np.abs(shifts - shifts[i] - slope * (moments - moments[i])) <= AGREE
            if near.sum() > best.sum():
                best = near
    chosen = tuple(placed[i] for i in np.flatnonzero(best))
    if not chosen:
        return Line((), len(votes))
    places = [vote.moment - _median(chosen) for vote in votes]
    within = sum(0 <= place <= other_seconds - SECONDS[-1] for place in places)
    return Line(chosen, max(len(chosen), within))  # a window at the very edge may match beyond it


def drift_of(votes: Sequence[Vote]) -> float:
    """Return the slope of the shifts by the median of all pairs (Theil and Sen); 0 if it is not significant."""
    from scipy.stats import theilslopes

    moments = np.array([vote.moment for vote in votes])
    shifts = np.array([vote.shift for vote in votes], np.float64)
    if len(votes) < DRIFT_WINDOWS or np.ptp(moments) < DRIFT_SPREAD:
        return 0.0
    slope, _, low, high = theilslopes(shifts, moments, 0.99)
    return float(slope) if low > 0 or high < 0 else 0.0
