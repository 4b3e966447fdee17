"""Finds which delay a bleed has in which windows, if its delay jumps.

Behind a jitter buffer an echo is now 60, now 200 ms late. The most likely sequence of delays comes from dynamic
programming (A. Viterbi, 1967): the score of a delay in a window is its correlation there, and each jump has a cost, so
that a single window cannot cause one.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Step = tuple[int, int, int]  # windows first to last (exclusive), and the position in their curves

MIN_PEAK = 6.0  # of a window that suggests a delay, in robust standard deviations
MAX_SCORE = 20.0  # of a window
JUMP_COST = 12.0
MIN_DISTANCE = 4  # between two delays, times `near`


def follow(curves: npt.NDArray[np.float64], near: int) -> list[Step]:
    """Return the sequence of delays, or an empty list if one delay applies throughout.

    `curves`: each window's correlation per position in robust standard deviations, shape (windows, positions); `near`:
    positions by which one delay scatters.
    """
    strengths = np.abs(curves)
    peaks = strengths.argmax(axis=1)[strengths.max(axis=1) >= MIN_PEAK]
    delays = _distinct(peaks, MIN_DISTANCE * near)
    if len(delays) < 2:
        return []
    scores = np.stack([strengths[:, max(0, delay - near) : delay + near + 1].max(axis=1) for delay in delays], axis=1)
    best = _most_likely(np.minimum(scores, MAX_SCORE))
    jumps = (np.flatnonzero(np.diff(best)) + 1).tolist()
    if not jumps:
        return []
    return [
        (first, last, _refined(curves[first:last], delays[best[first]], near))
        for first, last in pairwise([0, *jumps, len(best)])
    ]


def _distinct(positions: npt.NDArray[np.int64], distance: int) -> list[int]:
    """Return the positions with the most neighbors first, skipping those within `distance` of an earlier one."""
    if not len(positions):
        return []
    neighbors = (np.abs(positions[:, None] - positions[None, :]) <= distance).sum(axis=1)
    distinct: list[int] = []
    for position in positions[np.argsort(-neighbors, kind="stable")].tolist():
        if all(abs(position - other) > distance for other in distinct):
            distinct.append(position)
    return distinct


def _most_likely(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the index of the delay of each window; `scores` has the shape (windows, delays)."""
    windows, delays = scores.shape
    totals = scores[0]  # of the best sequence that ends with each delay
    previous = np.zeros((windows, delays), np.int64)
    for window in range(1, windows):
        leader = int(totals.argmax())
        after_jump = totals[leader] - JUMP_COST
        stays = totals >= after_jump
        previous[window] = np.where(stays, np.arange(delays), leader)
        totals = np.where(stays, totals, after_jump) + scores[window]
    sequence = np.zeros(windows, np.int64)
    sequence[-1] = int(totals.argmax())
    for window in range(windows - 1, 0, -1):
        sequence[window - 1] = previous[window, sequence[window]]
    return sequence


def _refined(curves: npt.NDArray[np.float64], delay: int, near: int) -> int:
    """Return the position near the delay at which the windows together correlate most."""
    first = max(0, delay - near)
    return first + int(np.abs(curves[:, first : delay + near + 1].sum(axis=0)).argmax())
