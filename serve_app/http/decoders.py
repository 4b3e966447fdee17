from collections.abc import Callable, Hashable
from typing import ParamSpec, TypeVar

from serve_app.http.admission import Admission
from serve_app.http.options import Places
from serve_app.http.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")

PLACES = Places(total=2, per_workspace=1, per_key=1, waiting=16, seconds=600.0)
RETRY_AFTER_SECONDS = 5
MAX_SECONDS = 600.0  # of one job


class Decoders:
    """Processes that decode recordings for readers: no workspace has more than one at a time."""

    def __init__(self) -> None:
        self._places = Admission(PLACES, RETRY_AFTER_SECONDS)
        self._idle = [Worker(MAX_SECONDS) for _ in range(PLACES.total)]  # the last one that worked goes first

    async def run(self, workspace: Hashable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result, see `Worker.run`. Workspaces take turns. Raises `TooManyAtOnce`."""
        async with self._places.place(workspace, workspace):
            worker = self._idle.pop()
            try:
                return await worker.run(function, *args, **kwargs)
            finally:
                self._idle.append(worker)

    async def close(self) -> None:
        for worker in self._idle:
            await worker.close()
