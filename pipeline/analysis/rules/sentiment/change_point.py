"""Where a party's tone turns for the rest of the call: the most likely single change of a series of marks.

The split that sets the two means furthest apart for their lengths (the likelihood ratio of one change of mean, Hinkley
1970). One change at most for each party: a call has too few turns to tell a second from chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean

LEAST = 1.0  # of the statistic, where displeasure comes or goes: 0.5 between the means of eight turns and eight
LEAST_PLEASED = 1.5  # where it is pleasure alone that comes or goes, as it does with every farewell
BEFORE, AFTER = 2, 2  # turns on either side
DISPLEASED = -0.1  # mean mark
CLEAR, SOON, SOONER = 0.3, 5, 3  # a mark that far from 0 within five turns, or any within three, begins the new tone


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """`at` is the place of the first mark of the new tone; the means are of the marks before and after the change."""

    at: int
    before: float
    after: float


def change_point(marks: Sequence[float]) -> ChangePoint | None:
    """The change of `marks`, one for each turn of a party; None where none is clear, or there are too few."""
    best, found = 0.0, None
    for at in range(BEFORE, len(marks) - AFTER + 1):
        before, after = fmean(marks[:at]), fmean(marks[at:])
        statistic = abs(after - before) * sqrt(at * (len(marks) - at) / len(marks))
        if statistic > best:
            best, found = statistic, ChangePoint(at, before, after)
    if found is None:
        return None
    least = LEAST if min(found.before, found.after) <= DISPLEASED else LEAST_PLEASED
    return _begun(found, marks) if best >= least else None


def _begun(found: ChangePoint, marks: Sequence[float]) -> ChangePoint:
    """Moved on to the first mark in the new direction: neutral turns in between belong to neither tone."""
    feature = 1 if found.after > found.before else -1
    for least, within in ((CLEAR, SOON), (0.0, SOONER)):
        for at in range(found.at, min(found.at + within, len(marks))):
            if feature * marks[at] > least:
                return replace(found, at=at)
    return found
