"""Who may have a task in the cluster's queue: few at once, in the order in which they asked.

Ray keeps a queue of its own for each class of tasks, and the depth of the caller belongs to the class. An actor's depth
grows with every round of calls between actors, so the tasks of one process fall into ever new classes, among which Ray
takes no turns: with 8 tasks waiting for one processor some waited for as long as others came (worst 41 s of 41 s
measured, median 0.3 s; with 2 admitted at once worst 2.4 s, median 1.2 s).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Slots:
    """At most `limit()` holders at once, first come first served: `async with slots: ...`.

    `limit` is asked anew each time, so it may change; below 1 counts as 1. Belongs to one event loop.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._free and not self._waiting:
            self._held += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn  # whoever ends it has taken the place for us
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    @property
    def _free(self) -> bool:
        return self._held < max(1, self._limit())

    def _leave(self) -> None:
        self._held -= 1
        while self._waiting and self._free:
            turn = self._waiting.popleft()
            if not turn.done():
                self._held += 1
                turn.set_result(None)
