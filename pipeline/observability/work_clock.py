"""How long replicas work on requests: measured where they work, told to the caller with each answer.

The caller alone cannot know: a request waits for a replica that starts, several callers share a replica, and a caller
with one request keeps one replica busy, however many there are.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


class SharedClock:
    """Divides time equally among those that share something, a replica for example. Times are seconds of `now`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._at = now()
        self._each = 0.0  # work of one that was there from the start
        self._begun: dict[object, float] = {}
        self._apart: dict[object, float] = {}  # work of those that do not share now

    def begin(self, one: object) -> None:
        """`one` begins; where it has begun already, it starts over."""
        self._advance()
        self._apart.pop(one, None)
        self._begun[one] = self._each

    def end(self, one: object) -> float | None:
        """Return the work of `one` in seconds; None if it has not begun."""
        self._advance()
        begun = self._begun.pop(one, None)
        return self._apart.pop(one, None) if begun is None else self._each - begun

    def so_far(self, one: object) -> float:
        """Return the work of `one` in seconds until now; 0 if it has not begun."""
        self._advance()
        return self._apart.get(one, self._each - self._begun.get(one, self._each))

    @contextmanager
    def apart(self, one: object) -> Iterator[None]:
        """`one` has no share in the time of the block: it waits for something that nobody works on here."""
        worked = self.end(one)
        if worked is None:
            yield
            return
        self._apart[one] = worked
        try:
            yield
        finally:
            if one in self._apart:  # it has not ended meanwhile
                worked = self._apart.pop(one)
                self.begin(one)
                self._begun[one] -= worked

    @contextmanager
    def shared(self) -> Iterator[Callable[[], float]]:
        """The block shares the time. Yields a function that returns its work in seconds until now."""
        one = object()
        self.begin(one)
        try:
            yield lambda: self.so_far(one)
        finally:
            self.end(one)

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
"""Takes the seconds of each timed request; None of a replica that does not measure them."""


def counted(response: Any) -> Any:
    """Return the result of a timed request after adding its seconds to the tally."""
    seconds = response.seconds if isinstance(response, TimedResult) else None
    if (spent := tally.get()) is not None:
        spent.append(seconds)
    return response.result if isinstance(response, TimedResult) else response
