"""The context of work: ids for its log lines and its trace, passed from process to process, and its cancellation."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WorkContext:
    """`ids`: `call_id`, `call_job_id` and `request_id`, if there are any (`job_id` is a job of Ray). `trace`: the W3C
    `traceparent` of the open span, or the one that a client sent. `timed`: the caller of a replica requests its working
    time; see `pipeline.observability.work_clock`.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    trace: str | None = None
    timed: bool = False


_NOTHING = WorkContext()
_left: ContextVar[threading.Event | None] = ContextVar("left", default=None)
_present: ContextVar[WorkContext] = ContextVar("work_context", default=_NOTHING)


def current_context() -> WorkContext:
    return _present.get()


class work_context:  # noqa: N801 (used as a function)
    """A context manager: its block, and the tasks and threads that the block starts, have the context `work`."""

    __slots__ = ("_token", "_work")

    def __init__(self, work: WorkContext) -> None:
        self._work = work

    def __enter__(self) -> None:
        self._token = _present.set(self._work)

    def __exit__(self, *_: object) -> None:
        _present.reset(self._token)


@contextmanager
def cancellable() -> Iterator[threading.Event]:
    """Yield an event for the block and the threads that `asyncio.to_thread` starts in it; set it to stop them."""
    canceled = threading.Event()
    token = _left.set(canceled)
    try:
        yield canceled
    finally:
        _left.reset(token)


def is_cancelled() -> bool:
    """Return whether the caller of this work has left."""
    canceled = _left.get()
    return canceled is not None and canceled.is_set()
