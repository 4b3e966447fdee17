"""One channel carries both parties, the other one of them: a common way to record.

Then all that the one party's channel holds is in the mix as well, at one gain, while the mix has sound of its own. The
party keeps its words on its own channel; what remains of the mix is the other's. A stretch that both channels share
(`overlap`) is something else: after it each goes on alone.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.audio.channels import bleed
from pipeline.audio.channels.compare import WINDOW, Match, spread
from pipeline.audio.channels.levels import FRAME, Activity, in_band, padded
from pipeline.audio.channels.suppress import Path
from pipeline.domain.speech import SAMPLE_RATE, Audio, Bleed

SECONDS, WINDOWS = 1.0, 300  # of a window; at most so many
LOUD_DB = 6.0  # about as loud in the mix as by itself: what is fainter there is bleed
ONE_GAIN_DB = 2.0  # within which the windows of one party have one gain in the mix
CONTAINED = 0.8  # of the windows in which the party is heard must show it in the mix
EXPLAINS = 0.35  # correlation with the mix from which a window shows the party, also while the other speaks
FEWEST = 5  # windows; fewer may be alike by chance
HEARD_OVER_DB = 8.0  # by which the other party may be louder, and the first still shows in their mix
MISSING, MISSING_SHARE = 2, 0.05  # so many windows in which it should show and does not, and it is not in the mix
OWN_SECONDS = 2.0  # of sound that the mix alone holds


def find(audio: Audio, activities: Sequence[Activity], match: Match) -> bleed.Found | None:
    """The party that the other channel holds as well, as a bleed of about 0 dB; None where neither does.

    `match`: the comparison of channels 0 and 1. Where both would do, both are nearly the same and neither is a party's.
    """
    shift = round(match.shift)
    candidates = [
        candidate
        for source in (0, 1)
        if (candidate := _in(audio, activities, source, shift if source == 0 else -shift))
    ]
    return candidates[0] if len(candidates) == 1 else None


def _in(audio: Audio, activities: Sequence[Activity], source: int, delay: int) -> bleed.Found | None:
    alone = activities[1 - source].frames & ~_widened(activities[source].frames, delay)
    if alone.sum() * FRAME / SAMPLE_RATE < OWN_SECONDS:
        return None
    windows = spread(audio.length, activities[source].frames, SECONDS, WINDOWS)
    if len(windows) < FEWEST:
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
    return bleed.Found(Bleed(source, level, delay / SAMPLE_RATE, share), (path,), float("inf"), len(windows))


def _all_projected(
    audio: Audio, source: int, delay: int, windows: Sequence[tuple[int, int]]
) -> npt.NDArray[np.float64] | None:
    """`_projected` of each window; None as soon as too few of them can show the party."""
    projections, hidden = [], 0
    for first, last in windows:
        projections.append(_projected(audio, source, delay, first, last))
        hidden += projections[-1][1] < EXPLAINS
        if len(windows) - hidden < CONTAINED * len(windows):
            return None
    return np.array(projections)


def _widened(frames: npt.NDArray[np.bool_], delay: int) -> npt.NDArray[np.bool_]:
    """Frames in which, or shortly before or after which, a party is heard, as they come over `delay` samples later."""
    reach = round(WINDOW / 4 * SAMPLE_RATE / FRAME)
    near = np.convolve(frames, np.ones(2 * reach + 1), "same") > 0
    moved: npt.NDArray[np.bool_] = np.roll(near, round(delay / FRAME))
    return moved


def _projected(audio: Audio, source: int, delay: int, first: int, last: int) -> tuple[float, float, float]:
    """In dB the source's level in the other channel, what else is there left aside; their correlation; and in dB the
    level of the other channel, all that is there, over the source's."""
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
