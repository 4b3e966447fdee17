"""Detection of one party's bleed in the other's channel: its level, delay, and share of the call.

Windows in which one channel is louder are correlated with the other channel, and the correlations are summed: the delay
of a bleed is constant through a call, so its peak grows with every window while everything else averages out.
Cross-spectra are whitened in part (C. H. Knapp and G. C. Carter, "The generalized correlation method for estimation of
time delay", IEEE Trans. ASSP 24, 1976), or the pitch of a voice would add peaks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.audio.channels import compare, delays
from pipeline.audio.channels.compare import Stretch
from pipeline.audio.channels.levels import FRAME, Activity, in_band, padded
from pipeline.audio.channels.suppress import BANDS, BLOCK, REACH, Floats, Path, in_bands, spectra
from pipeline.domain.speech import SAMPLE_RATE, Audio, Bleed

SECONDS, WINDOWS = 1.0, 300  # of a window; max. number
LEAD, LAG = 800, 8000  # samples by which a bleed may come before (50 ms: codecs) or after (500 ms: networks) its source
LOUDER_DB = 1.5  # the source's window above the other channel's
TONE_BINS, TONE_SHARE = 0.008, 0.9  # share of the bins up to 8 kHz, and of the power in them
WHITENING = 0.8  # exponent: 0 none, 1 all (PHAT)
SURE = 9.0  # min. height of the peak in robust standard deviations of the sum of all windows
SEEN = 4.0  # min. height in one window, near the common delay
NEAR = 16  # samples, 1 ms
HIDDEN_DB = -3.0  # over the other channel's floor: softer bleeds are inaudible
NOISE_DB, NOISE_LIKE = 10.0, 0.15  # softer bleeds are noise if both channels correlate this much in pauses
PAUSE = 20  # frames of 20 ms
MIRRORED = 0.25  # of the stronger peak: a weaker one at the opposite delay is its mirror image
FEW_WINDOWS, SURE_OF_FEW = 3, 30.0  # fewer windows may match by chance: their peak must be higher
MIN_SHARE = 0.25  # of the windows; below it a stretch is shared, or the match is chance
NOISE_SHARE, NOISE = 0.15, 1.7  # quantile of a band's power, and the mean power of noise over it
LIKE = 2.0  # power ratio by which the other channel may be louder with the same sound
LOUD_FRAMES = 0.5  # the transfer is measured in the louder half of the source's frames


@dataclass(frozen=True, slots=True)
class DetectedBleed:
    """A bleed with its evidence: `peak` (robust standard deviations), compared `windows`; a path per delay."""

    bleed: Bleed
    paths: tuple[Path, ...]
    peak: float
    windows: int

    @property
    def delay(self) -> int:
        """Delay in samples; the most frequent one if it jumps."""
        return round(self.bleed.delay * SAMPLE_RATE)

    @property
    def peak_of_one(self) -> float:
        """Approximate contribution of one window to the peak, in robust standard deviations."""
        return self.peak / float(np.sqrt(self.windows))


def find(
    audio: Audio, activities: Sequence[Activity], skip: Sequence[Stretch] = (), lag: int = LAG
) -> tuple[DetectedBleed, ...]:
    """Detect max. one bleed per direction, outside the shared stretches `skip`; `lag`: max. delay in samples."""
    forward, backward = (_in_direction(audio, activities, source, skip, lag) for source in (0, 1))
    if forward and backward and abs(forward.delay + backward.delay) <= NEAR:
        # While one party speaks, a little of the other's speech and its bleed show the same two channels mirrored.
        weaker, stronger = sorted((forward, backward), key=lambda bleed: bleed.peak_of_one)
        if weaker.peak_of_one < MIRRORED * stronger.peak_of_one:
            return (stronger,)
    return tuple(bleed for bleed in (forward, backward) if bleed is not None)


def _in_direction(
    audio: Audio, activities: Sequence[Activity], source: int, skip: Sequence[Stretch], lag: int
) -> DetectedBleed | None:
    windows = _source_alone(audio, activities, source, skip)
    compared = [(window, correlations(audio, source, *window, lag)) for window in windows]
    windows = [window for window, curve in compared if curve is not None]
    curves = [curve for _, curve in compared if curve is not None]
    if not curves:
        return None
    steps = delays.follow(np.array(curves), NEAR) or [(0, len(curves), _commonest(curves))]
    peak = max(_height(curves[first:last], where) for first, last, where in steps)
    if peak < (SURE if len(curves) >= FEW_WINDOWS else SURE_OF_FEW):
        return None
    steps = [step for step in steps if len(steps) == 1 or _height(curves[step[0] : step[1]], step[2]) >= SURE]
    positions = np.concatenate([np.full(last - first, where) for first, last, where in steps])
    followed = [window for first, last, _ in steps for window in windows[first:last]]
    shown = [_shown(curve, where) for first, last, where in steps for curve in curves[first:last]]
    share = float(np.mean(shown)) * len(shown) / len(curves)
    if share < MIN_SHARE:
        return None
    lags = (positions - LEAD).tolist()
    transferred = transfer(audio, source, lags, followed)
    level = _level(audio, source, lags, followed, transferred)
    delay = int(np.median(lags))
    loudest = float(np.percentile(activities[source].levels[activities[source].frames], 90))
    above = loudest + level - activities[1 - source].floor
    if above < (NOISE_DB if _common_noise(audio, activities, source, delay) else HIDDEN_DB):
        return None  # inaudible, or noise that both channels have
    paths = _paths(source, steps, windows, transferred)
    return DetectedBleed(Bleed(source, level, delay / SAMPLE_RATE, share), paths, peak, len(curves))


def _commonest(curves: Sequence[npt.NDArray[np.float64]]) -> int:
    return int(np.argmax(np.abs(np.sum(curves, axis=0))))


def _height(curves: Sequence[npt.NDArray[np.float64]], where: int) -> float:
    """Return the height of the windows' sum near a position, in robust standard deviations."""
    total = np.sum(curves, axis=0)
    near = slice(max(0, where - NEAR), where + NEAR + 1)
    return float(np.abs(total[near]).max() / _deviation(total))


def _shown(curve: npt.NDArray[np.float64], where: int) -> bool:
    return bool(np.abs(curve[max(0, where - NEAR) : where + NEAR + 1]).max() > SEEN)


def _paths(
    source: int, steps: Sequence[delays.Step], windows: Sequence[tuple[int, int]], transferred: tuple[float, ...]
) -> tuple[Path, ...]:
    """Return the path of each step; where the delay jumps between two windows, both paths overlap."""
    paths = []
    for at, (_, _, where) in enumerate(steps):
        first = windows[steps[at - 1][1] - 1][1] - SAMPLE_RATE // 2 if at else 0
        last = windows[steps[at + 1][0]][0] + SAMPLE_RATE // 2 if at + 1 < len(steps) else None
        paths.append(Path(source, 1 - source, where - LEAD, transferred, max(0, first), last))
    return tuple(paths)


def _common_noise(audio: Audio, activities: Sequence[Activity], source: int, delay: int) -> bool:
    """Return whether both channels have the same noise in pauses, `delay` samples apart."""
    pauses = ~activities[source].frames
    other = np.roll(~activities[1 - source].frames, -round(delay / FRAME))
    starts = np.flatnonzero(np.convolve(pauses & other, np.ones(PAUSE), "valid") == PAUSE)
    both, ours, theirs = 0.0, 0.0, 0.0
    for start in starts[:: max(PAUSE, len(starts) // 60)]:
        first, last = int(start) * FRAME, (int(start) + PAUSE) * FRAME
        x, y = (
            in_band(padded(audio, source, first, last)),
            in_band(padded(audio, 1 - source, first + delay, last + delay)),
        )
        both, ours, theirs = both + float(x @ y), ours + float(x @ x), theirs + float(y @ y)
    return abs(both) > NOISE_LIKE * float(np.sqrt(ours * theirs)) > 0


def _source_alone(
    audio: Audio, activities: Sequence[Activity], source: int, skip: Sequence[Stretch]
) -> list[tuple[int, int]]:
    chosen = []
    for first, last in compare.spread(audio.length, activities[source].frames, SECONDS, WINDOWS):
        if any(first < stretch.last and last > stretch.first for stretch in skip):
            continue
        ours, theirs = (
            _mean_level(activities[channel].levels[first // FRAME : last // FRAME]) for channel in (source, 1 - source)
        )
        if ours - theirs >= LOUDER_DB:
            chosen.append((first, last))
    return chosen


def _mean_level(levels: Floats) -> float:
    return float(10 * np.log10(np.mean(10 ** (levels / 10)) + 1e-12)) if len(levels) else -120.0


def correlations(audio: Audio, source: int, first: int, last: int, lag: int = LAG) -> npt.NDArray[np.float64] | None:
    """Return one window's whitened correlation per delay from -LEAD to `lag`, in robust standard deviations.

    None if either channel is silent or the source holds tones.
    """
    from scipy.fft import irfft, next_fast_len, rfft

    x = in_band(padded(audio, source, first, last))
    y = in_band(padded(audio, 1 - source, first - LEAD, last + lag))
    if not x.any() or not y.any():
        return None
    size = next_fast_len(len(y), real=True)  # `y` holds all of `x` at each delay
    spectrum = rfft(x, size)
    cross = np.conj(spectrum) * rfft(y, size)
    strength = np.abs(cross)
    if _tonal(np.abs(spectrum) ** 2):
        return None
    cross *= 1 / (strength + 1e-3 * strength.max()) ** WHITENING
    curve = irfft(cross, size)[: LEAD + lag + 1].astype(np.float64)
    normalized: npt.NDArray[np.float64] = curve / _deviation(curve)
    return normalized


def _tonal(power: Floats) -> bool:
    """Detect ringing, keys and sung notes: they correlate at any delay."""
    strongest = max(1, round(len(power) * TONE_BINS))
    return float(np.partition(power, -strongest)[-strongest:].sum()) > TONE_SHARE * float(power.sum())


def _deviation(curve: npt.NDArray[np.float64]) -> float:
    return float(1.4826 * np.median(np.abs(curve)) + 1e-12)


def transfer(audio: Audio, source: int, lags: Sequence[int], windows: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Return the power of the bleed over that of its source per band: the median over the frames loud in that band.

    `lags`: its delay in samples in each of the windows. The other channel's noise is subtracted first: where it masks
    the bleed there is nothing to suppress. Frames in which the other channel is much louder are skipped: its party
    speaks.
    """
    x, y = _powers(audio, source, lags, windows)
    covered = y.sum(axis=1) > 0  # a leg may begin later or end earlier than the other
    noise = NOISE * np.quantile(y[covered], NOISE_SHARE, axis=0) if covered.any() else 0.0
    usable = (x.sum(axis=1) * LIKE > y.sum(axis=1)) & covered
    if not usable.any():
        return (0.0,) * BANDS
    x, y = x[usable], np.maximum(y[usable] - noise, 0)
    transfers = []
    for band in range(BANDS):
        loud = x[:, band] >= np.quantile(x[:, band], 1 - LOUD_FRAMES)
        transfers.append(float(np.median(y[loud, band] / (x[loud, band] + 1e-12))))
    return tuple(min(value, LIKE) for value in transfers)


def _powers(
    audio: Audio, source: int, lags: Sequence[int], windows: Sequence[tuple[int, int]]
) -> tuple[Floats, Floats]:
    """Return the power per frame and band in the windows: of the delayed source, and of the other channel."""

    def read(channel: int, first: int, last: int) -> Floats:
        return padded(audio, channel, first, last).astype(np.float32) / np.float32(32768)

    step = max(1, len(windows) // 60)
    chosen = list(zip(windows, lags, strict=True))[::step]
    blocks = {(first + last) // 2 // BLOCK: lag for (first, last), lag in chosen}
    rows = [
        (in_bands(spectra(read, source, block, lag)), in_bands(spectra(read, 1 - source, block)))
        for block, lag in sorted(blocks.items())
    ]
    inner = slice(REACH, -REACH)
    return np.concatenate([x[inner] for x, _ in rows]), np.concatenate([y[inner] for _, y in rows])


def _level(
    audio: Audio,
    source: int,
    lags: Sequence[int],
    windows: Sequence[tuple[int, int]],
    transferred: tuple[float, ...],
) -> float:
    """Return the level of the bleed relative to its source over all bands, in dB."""
    x, _ = _powers(audio, source, lags, windows)
    return float(10 * np.log10((x.mean(axis=0) @ np.array(transferred)) / (x.mean() * BANDS + 1e-12) + 1e-12))
