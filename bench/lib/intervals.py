import math
import statistics
from collections.abc import Sequence


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a share (E. B. Wilson, 1927)."""
    if not count:
        return 0.0, 1.0
    share = hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_ratio(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios of pairs and its 95 % interval by Student; 0 to infinity for one pair."""
    from scipy import stats

    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    half = float(stats.t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(round(math.exp(end), 3) for end in (mean, mean - half, mean + half))  # type: ignore[return-value]
