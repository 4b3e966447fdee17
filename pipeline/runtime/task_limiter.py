"""The limit on CPU tasks in the cluster's queue: few at once, and owners take turns.

Ray has a queue for each class of tasks, and the depth of the caller is part of the class. An actor's depth grows with
every round of calls between actors, so the tasks of one process get into ever new classes, and Ray does not alternate
between classes: with 8 tasks waiting for one CPU, some waited as long as others came (worst 41 s of 41 s measured,
median 0.3 s; with 2 admitted at once worst 2.4 s, median 1.2 s).
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

PRESENT_SECONDS = 10.0  # for which an owner that requested a place counts as present
Queue = deque[asyncio.Future[None]]


class TaskLimiter:
    """Max. `limit()` holders at once, and `ahead` more that wait elsewhere: `async with slots.of(owner): ...`.

    The owner with the smallest number of places comes first; of equals, the one whose last turn was longest ago.
    Requests of one owner keep their order. While several owners are present (they requested a place within
    `PRESENT_SECONDS`), no owner takes the last place in addition to others, and nothing waits ahead: an owner without a
    place finds a free one. A single owner may have all places.

    `limit` is called each time, so it may change; below 1 counts as 1. Belongs to one event loop.
    """

    def __init__(self, limit: Callable[[], int], ahead: int = 0, now: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._ahead, self._now = limit, ahead, now
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, Queue] = {}
        self._asked: dict[Hashable, float] = {}  # time of each owner's last request
        self._served: dict[Hashable, int] = {}  # number of each owner's last turn
        self._turn = 0

    @asynccontextmanager
    async def of(self, owner: Hashable = None) -> AsyncIterator[None]:
        """Hold a place for the block."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked[owner] = self._now()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._give()
        try:
            await turn  # whatever resolves it has taken the place already
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(owner)
            raise
        try:
            yield
        finally:
            self._leave(owner)

    def _leave(self, owner: Hashable) -> None:
        self._held[owner] -= 1
        self._give()

    def _give(self) -> None:
        self._drop_absent()
        while may := [owner for owner in self._waiting if self._may(owner)]:
            owner = min(may, key=lambda owner: (self._held[owner], self._served.get(owner, 0)))
            self._turn += 1
            self._served[owner] = self._turn
            self._held[owner] += 1
            self._waiting[owner].popleft().set_result(None)
            if not self._waiting[owner]:
                del self._waiting[owner]

    def _may(self, owner: Hashable) -> bool:
        limit, taken = max(1, self._limit()), self._held.total()
        if len(self._asked) == 1:
            return taken < limit + self._ahead
        return taken < limit - (self._held[owner] > 0)

    def _drop_absent(self) -> None:
        waiting = {owner: deque(turn for turn in turns if not turn.done()) for owner, turns in self._waiting.items()}
        self._waiting = {owner: turns for owner, turns in waiting.items() if turns}
        self._held = +self._held
        since = self._now() - PRESENT_SECONDS
        self._asked = {
            owner: at
            for owner, at in self._asked.items()
            if at > since or owner in self._waiting or owner in self._held
        }
        self._served = {owner: turn for owner, turn in self._served.items() if owner in self._asked}
