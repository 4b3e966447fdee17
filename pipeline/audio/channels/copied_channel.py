"""One channel carries both parties and the other one of them: a common way to record.

The mix then contains all sound of the one party's channel, at one gain, and sound that only the mix has. The party's
words come from its channel; the rest of the mix is the other party's. A stretch that both channels share (`overlap`) is
different: after it the channels differ.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.audio.channels import bleed
from pipeline.audio.channels.compare import WINDOW, Match, spread
from pipeline.audio.channels.levels import FRAME, Activity, in_band, padded
from pipeline.audio.channels.suppress import Path
from pipeline.domain.speech import SAMPLE_RATE, Audio, Bleed

SECONDS, WINDOWS = 1.0, 300  # of a window; max. number
LOUD_DB = 6.0  # max. level difference between the mix and the party's channel; fainter sound is bleed
ONE_GAIN_DB = 2.0  # max. spread of the gain of one party in the mix
CONTAINED = 0.8  # min. share of the party's windows that must show it in the mix
EXPLAINS = 0.35  # min. correlation of a window with the mix, also while the other party speaks
MIN_WINDOWS = 5  # fewer may match by chance
HEARD_OVER_DB = 8.0  # by which the other party may be louder in the mix without hiding the first
MISSING, MISSING_SHARE = 2, 0.05  # max. number and share of windows that should show the party and do not
OWN_SECONDS = 2.0  # min. sound that only the mix has


def find(audio: Audio, activities: Sequence[Activity], match: Match) -> bleed.DetectedBleed | None:
    """Return the party that the other channel contains as well, as a bleed of about 0 dB, or None.

    `match`: the comparison of channels 0 and 1. If both qualify, they are nearly the same and neither is a party's.
    """
    shift = round(match.shift)
    candidates = [_in(audio, activities, 0, shift), _in(audio, activities, 1, -shift)]
    parties = [candidate for candidate in candidates if candidate]
    return parties[0] if len(parties) == 1 else None


def _in(audio: Audio, activities: Sequence[Activity], source: int, delay: int) -> bleed.DetectedBleed | None:
    alone = activities[1 - source].frames & ~_widened(activities[source].frames, delay)
    if alone.sum() * FRAME / SAMPLE_RATE < OWN_SECONDS:
        return None
    windows = spread(audio.length, activities[source].frames, SECONDS, WINDOWS)
    if len(windows) < MIN_WINDOWS:
        return None
    projected = _all_projected(audio, source, delay, windows)
    if projected is None:
        return None
    shown = projected[:, 1] >= EXPLAINS
    level = float(np.median(projected[shown, 0]))
    at_level = shown & (np.abs(projected[:, 0] - level) <= ONE_GAIN_DB)
    missing = int((~shown & (projected[:, 2] <= level + HEARD_OVER_DB)).sum())
    if at_level.mean() < CONTAINED or abs(level) > LOUD_DB or missing >= max(MISSING, MISSING_SHARE * len(windows)):
        return None
    chosen = [window for window, at_gain in zip(windows, at_level, strict=True) if at_gain]
    path = Path(source, 1 - source, delay, bleed.transfer(audio, source, [delay] * len(chosen), chosen))
    share = float(at_level.mean())
    return bleed.DetectedBleed(Bleed(source, level, delay / SAMPLE_RATE, share), (path,), float("inf"), len(windows))


def _all_projected(
    audio: Audio, source: int, delay: int, windows: Sequence[tuple[int, int]]
) -> npt.NDArray[np.float64] | None:
    """Return `_projected` of each window, or None as soon as too few of them can show the party."""
    projections, hidden = [], 0
    for first, last in windows:
        projections.append(_projected(audio, source, delay, first, last))
        hidden += projections[-1][1] < EXPLAINS
        if len(windows) - hidden < CONTAINED * len(windows):
            return None
    return np.array(projections)


def _widened(frames: npt.NDArray[np.bool_], delay: int) -> npt.NDArray[np.bool_]:
    """Mark frames with or next to sound of a party, as they arrive `delay` samples later."""
    reach = round(WINDOW / 4 * SAMPLE_RATE / FRAME)
    near = np.convolve(frames, np.ones(2 * reach + 1), "same") > 0
    moved: npt.NDArray[np.bool_] = np.roll(near, round(delay / FRAME))
    return moved


def _projected(audio: Audio, source: int, delay: int, first: int, last: int) -> tuple[float, float, float]:
    """Return the source's level in the other channel (dB), their correlation, and the ratio of their levels (dB)."""
    x = in_band(audio.read(source, first, last))
    y = in_band(padded(audio, 1 - source, first + delay, last + delay))[: len(x)]
    power = float(x @ x)
    if power < 1e-9 or not y.any():
        return 0.0, 0.0, -120.0
    both, other = abs(float(x @ y)), float(y @ y)
    return (
        20 * float(np.log10(both / power + 1e-9)),
        both / float(np.sqrt(power * other)),
        10 * float(np.log10(other / power)),
    )
