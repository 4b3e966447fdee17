"""Working time of replicas on requests, measured in the replica and returned with each result.

The caller alone cannot measure it: a request waits for a replica that starts, several callers share a replica, and a
caller with one request keeps one replica busy, however many there are.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


class SharedClock:
    """Divides time equally among the members that share something, such as a replica. Times are seconds of `now`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._at = now()
        self._each = 0.0  # work of a member that has been present from the start
        self._begun: dict[object, float] = {}
        self._apart: dict[object, float] = {}  # work of members that do not share now

    def begin(self, member: object) -> None:
        """Start the time of `member`, again if it has one."""
        self._advance()
        self._apart.pop(member, None)
        self._begun[member] = self._each

    def end(self, member: object) -> float | None:
        """Return the work of `member` in seconds; None if it has not begun."""
        self._advance()
        begun = self._begun.pop(member, None)
        return self._apart.pop(member, None) if begun is None else self._each - begun

    def so_far(self, member: object) -> float:
        """Return the work of `member` in seconds until now; 0 if it has not begun."""
        self._advance()
        return self._apart.get(member, self._each - self._begun.get(member, self._each))

    @contextmanager
    def apart(self, member: object) -> Iterator[None]:
        """Exclude `member` from the time of the block, in which it waits for work outside this process."""
        worked = self.end(member)
        if worked is None:
            yield
            return
        self._apart[member] = worked
        try:
            yield
        finally:
            if member in self._apart:  # it has not ended in the block
                worked = self._apart.pop(member)
                self.begin(member)
                self._begun[member] -= worked

    @contextmanager
    def shared(self) -> Iterator[Callable[[], float]]:
        """Make the block a member. Yields a function that returns its work in seconds until now."""
        member = object()
        self.begin(member)
        try:
            yield lambda: self.so_far(member)
        finally:
            self.end(member)

    def _advance(self) -> None:
        now = self._now()
        if self._begun:
            self._each += (now - self._at) / len(self._begun)
        self._at = now


@dataclass(frozen=True, slots=True)
class TimedResult:
    """A replica's result for a timed request (`WorkContext.timed`). `seconds`: the request's share of its time."""

    result: Any
    seconds: float


tally: ContextVar[list[float | None] | None] = ContextVar("tally", default=None)
"""Collects the seconds of each timed request; None from a replica that does not measure them."""


def counted(response: Any) -> Any:
    """Return the result of a timed request after adding its seconds to the tally."""
    seconds = response.seconds if isinstance(response, TimedResult) else None
    if (spent := tally.get()) is not None:
        spent.append(seconds)
    return response.result if isinstance(response, TimedResult) else response
