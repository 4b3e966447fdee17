import asyncio
from collections.abc import Callable
from uuid import UUID

from db.queue.jobs import Lease
from serve_app.conductor.options import ProcessingOptions

JobTask = asyncio.Task[None]


class RunningJobs:
    """The jobs that a Conductor runs, and how many more may start.

    A job fetches its recordings first, and is then a running call; both have limits of their own. A guest is a call
    beyond the limit, of a workspace with no call running. A suspect is a quarantined job, which may kill its worker:
    no other call starts until it has ended.
    """

    def __init__(self, options: ProcessingOptions, waiting_for_model: Callable[[], int]) -> None:
        """`waiting_for_model` returns how many calls wait for a language model."""
        self._options = options
        self._waiting_for_model = waiting_for_model
        self._ended = asyncio.Event()  # set when a job ends
        self.by_id: dict[UUID, tuple[Lease, JobTask]] = {}
        self.suspect: UUID | None = None
        self.closed = False  # nothing more is started

    @property
    def leases(self) -> list[Lease]:
        return [lease for lease, _ in self.by_id.values()]

    def add(self, lease: Lease, task: JobTask) -> None:
        self.by_id[lease.job.job_id] = (lease, task)

    def remove(self, job_id: UUID, task: JobTask) -> None:
        """Remove a job whose task has ended; a later run of the same job stays."""
        if self.by_id.get(job_id, (None, None))[1] is task:
            del self.by_id[job_id]
            if self.suspect == job_id:
                self.suspect = None
        self._ended.set()

    async def wait_until_alone(self) -> None:
        """Return when no other call runs, so that none of them dies if this one kills the process again."""
        while self._running_calls > 1:
            self._ended.clear()
            await self._ended.wait()

    @property
    def room(self) -> int:
        """Number of further jobs that may start now."""
        if self.closed or self.suspect:
            return 0
        return max(0, self._options.calls_at_once - self._places_taken)

    @property
    def guest_room(self) -> int:
        """Number of guests that may start now, beyond `room`."""
        if self.closed or self.suspect:
            return 0
        places = self._options.calls_at_once + self._options.GUESTS
        return min(self._options.GUESTS, max(0, places - self._places_taken))

    @property
    def fetch_room(self) -> int:
        """Number of further fetches that may start now.

        A slow recording server must not keep other calls from running, nor a suspect keep recordings from coming.
        """
        if self.closed:
            return 0
        fetching = len(self.by_id) - self._running_calls
        return self._options.FETCH_CONCURRENCY - fetching

    @property
    def _places_taken(self) -> int:
        """Running calls, except those that wait for a language model, up to a limit.

        The limit keeps calls in the queue if the model is slower than they arrive.
        """
        without_place = min(self._waiting_for_model(), self._options.ASKING * self._options.calls_at_once)
        return self._running_calls - without_place

    @property
    def _running_calls(self) -> int:
        return sum(not lease.fetching for lease in self.leases)
