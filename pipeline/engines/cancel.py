"""How a function that runs in a thread or a task learns that its caller has left."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LEFT: ContextVar[threading.Event | None] = ContextVar("left", default=None)


@contextmanager
def cancellable() -> Iterator[threading.Event]:
    """An event for the block and the threads that `asyncio.to_thread` starts in it; set it to stop them."""
    left = threading.Event()
    token = _LEFT.set(left)
    try:
        yield left
    finally:
        _LEFT.reset(token)


def is_cancelled() -> bool:
    """Whether the caller of this work has left."""
    left = _LEFT.get()
    return left is not None and left.is_set()
