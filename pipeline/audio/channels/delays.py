"""A bleed whose delay jumps: which delay applies in which windows.

Behind a jitter buffer an echo is now 60, now 200 ms late. The most likely sequence of delays is found by dynamic
programming (A. Viterbi, 1967): a window supports each delay by its correlation there, and a jump has a cost, so that no
single window changes anything.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Step = tuple[int, int, int]  # windows first to last (exclusive), and the position in their curves

SPEAKS = 6.0  # min. peak of one window that suggests a delay, in robust standard deviations
MAX_SCORE = 20.0  # of one window
JUMP = 12.0  # cost
APART = 4  # times `near`: closer delays are the same


def follow(curves: npt.NDArray[np.float64], near: int) -> list[Step]:
    """Return the sequence of delays, or an empty list if one delay applies throughout.

    `curves`: each window's correlation per position in robust standard deviations, shape (windows, positions); `near`:
    positions by which one delay scatters.
    """
    strength = np.abs(curves)
    best = strength.argmax(axis=1)
    places = _distinct(best[strength.max(axis=1) >= SPEAKS], APART * near)
    if len(places) < 2:
        return []
    scores = np.stack([strength[:, max(0, place - near) : place + near + 1].max(axis=1) for place in places], axis=1)
    course = _course(np.minimum(scores, MAX_SCORE))
    edges = [0, *(np.flatnonzero(np.diff(course)) + 1).tolist(), len(course)]
    return [
        (first, last, _place(curves[first:last], places[course[first]], near))
        for first, last in pairwise(edges)
        if len(edges) > 2
    ]


def _distinct(places: npt.NDArray[np.int64], apart: int) -> list[int]:
    """Return the positions with the most neighbors first, skipping those within `apart` of an earlier one."""
    counts = (np.abs(places[:, None] - places[None, :]) <= apart).sum(axis=1) if len(places) else places
    distinct: list[int] = []
    for at in np.argsort(-counts, kind="stable"):
        if all(abs(int(places[at]) - other) > apart for other in distinct):
            distinct.append(int(places[at]))
    return distinct


def _course(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the index of each window's delay; `scores`: the support of each window for each delay."""
    windows, count = scores.shape
    total = scores[0]
    previous = np.zeros((windows, count), np.int64)
    for at in range(1, windows):
        jumped = int(total.argmax())
        stays = total >= total[jumped] - JUMP
        previous[at] = np.where(stays, np.arange(count), jumped)
        total = np.where(stays, total, total[jumped] - JUMP) + scores[at]
    course = np.zeros(windows, np.int64)
    course[-1] = int(total.argmax())
    for at in range(windows - 1, 0, -1):
        course[at - 1] = previous[at, course[at]]
    return course


def _place(curves: npt.NDArray[np.float64], place: int, near: int) -> int:
    first = max(0, place - near)
    return first + int(np.abs(curves[:, first : place + near + 1].sum(axis=0)).argmax())
