"""A bleed whose delay jumps: which delay holds in which windows.

Behind a jitter buffer an echo comes now 60, now 200 ms late. The most likely course of delays is found by dynamic
programming (A. Viterbi, 1967): a window speaks for each delay by its correlation there, and a jump has a price, so that
no single window changes anything.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Step = tuple[int, int, int]  # windows first to last (exclusive), and the place in their curves

SPEAKS = 6.0  # robust standard deviations from which the peak of one window names a delay
MOST = 20.0  # that one window counts
JUMP = 12.0  # price
APART = 4  # times `near`: delays that lie nearer to each other are one


def follow(curves: npt.NDArray[np.float64], near: int) -> list[Step]:
    """The delays one after the other, at least two; none where one holds all the time.

    `curves`: for each window its correlation by place, in robust standard deviations, shape (windows, places); `near`:
    places by which one delay scatters.
    """
    strength = np.abs(curves)
    best = strength.argmax(axis=1)
    places = _distinct(best[strength.max(axis=1) >= SPEAKS], APART * near)
    if len(places) < 2:
        return []
    scores = np.stack([strength[:, max(0, place - near) : place + near + 1].max(axis=1) for place in places], axis=1)
    course = _course(np.minimum(scores, MOST))
    edges = [0, *(np.flatnonzero(np.diff(course)) + 1).tolist(), len(course)]
    return [
        (first, last, _place(curves[first:last], places[course[first]], near))
        for first, last in pairwise(edges)
        if len(edges) > 2
    ]


def _distinct(places: npt.NDArray[np.int64], apart: int) -> list[int]:
    """The places, those that many others lie near first, without what lies within `apart` of one before."""
    counts = (np.abs(places[:, None] - places[None, :]) <= apart).sum(axis=1) if len(places) else places
    distinct: list[int] = []
    for at in np.argsort(-counts, kind="stable"):
        if all(abs(int(places[at]) - other) > apart for other in distinct):
            distinct.append(int(places[at]))
    return distinct


def _course(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """For each window the index of its delay. `spoken`: how much each window speaks for each delay."""
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
    """Where the sum of windows is highest, near a place."""
    first = max(0, place - near)
    return first + int(np.abs(curves[:, first : place + near + 1].sum(axis=0)).argmax())
