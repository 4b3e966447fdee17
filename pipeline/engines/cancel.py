"""Cancellation of functions that run in a thread or a task."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LEFT: ContextVar[threading.Event | None] = ContextVar("left", default=None)


@contextmanager
def cancellable() -> Iterator[threading.Event]:
    """Yield an event for the block and the threads that `asyncio.to_thread` starts in it; set it to stop them."""
    canceled = threading.Event()
    token = _LEFT.set(canceled)
    try:
        yield canceled
    finally:
        _LEFT.reset(token)


def is_cancelled() -> bool:
    """Return whether the caller of this work has left."""
    canceled = _LEFT.get()
    return canceled is not None and canceled.is_set()
