"""Steps of the work as operators see them: a log line at the end, and a span of the trace."""

import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pipeline.observability import tracing
from pipeline.observability.context import WorkContext, work_context
from pipeline.observability.work_clock import TimedResult

T = TypeVar("T")
log = logging.getLogger(__name__)


@contextmanager
def observed(step: str, kind: str = "internal") -> Iterator[None]:
    """Log how long the block took, or how it failed: the class of an error, not its text."""
    begun = time.monotonic()
    try:
        with tracing.span(step, kind):
            yield
    except BaseException as error:
        log.info("%s: %s after %.2f s", step, type(error).__name__, time.monotonic() - begun)
        raise
    log.info("%s: %.2f s", step, time.monotonic() - begun)


def on_request(method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Decorate a method of a `Replica` that other processes call: it runs in the caller's `WorkContext`, `observed`.

    A caller that requested its time gets a `TimedResult`.
    """

    @functools.wraps(method)
    async def answered(self: Any, *args: Any, work: WorkContext | None = None, **options: Any) -> Any:
        if work is None:
            return await method(self, *args, **options)
        with work_context(work), observed(method.__name__, "server"), self.clock.shared() as so_far:
            answer = await method(self, *args, **options)
            return TimedResult(answer, so_far()) if work.timed else answer

    del answered.__wrapped__  # by whose signature, without `work`, Ray would check requests
    return answered
