"""Finds the change of a party's sentiment for the rest of the call: the most likely single change of a series of
scores.

It is the split with the largest difference of means for its lengths (likelihood ratio of one change of mean, Hinkley
1970). Max. one change for each party: a call has too few turns to separate a second one from chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean

MIN_STATISTIC = 1.0  # if one side is displeased: 0.5 between the means of eight turns each
MIN_STATISTIC_PLEASED = 1.5  # if only pleasure changes, as with every goodbye
MIN_BEFORE, MIN_AFTER = 2, 2  # turns on either side
DISPLEASED = -0.1  # mean mark
CLEAR, SOON, SOONER = 0.3, 5, 3  # the change starts at a mark this far from 0 within 5 turns, or any within 3


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """`at` is the index of the first mark after the change; the means are of the marks before and after it."""

    at: int
    before: float
    after: float


def change_point(marks: Sequence[float]) -> ChangePoint | None:
    """Return the change of `marks`, one mark per turn of a party; None if none is clear, or there are too few."""
    best, change = 0.0, None
    for at in range(MIN_BEFORE, len(marks) - MIN_AFTER + 1):
        before, after = fmean(marks[:at]), fmean(marks[at:])
        statistic = abs(after - before) * sqrt(at * (len(marks) - at) / len(marks))
        if statistic > best:
            best, change = statistic, ChangePoint(at, before, after)
    if change is None:
        return None
    threshold = MIN_STATISTIC if min(change.before, change.after) <= DISPLEASED else MIN_STATISTIC_PLEASED
    return _at_first_mark(change, marks) if best >= threshold else None


def _at_first_mark(change: ChangePoint, marks: Sequence[float]) -> ChangePoint:
    """Move the change to the first mark in the new direction: neutral turns before it belong to neither side."""
    sign = 1 if change.after > change.before else -1
    for min_mark, within in ((CLEAR, SOON), (0.0, SOONER)):
        for at in range(change.at, min(change.at + within, len(marks))):
            if sign * marks[at] > min_mark:
                return replace(change, at=at)
    return change
