"""OpenTelemetry traces, if `OTEL_EXPORTER_OTLP_ENDPOINT` is set; otherwise OpenTelemetry is not even imported.

A background thread sends spans over OTLP/HTTP. It queues 2,048 of them and drops more, so that a slow or unavailable
collector delays nothing. OpenTelemetry's variables configure the rest.
"""

import functools
import logging
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any, TypeVar

from pipeline.observability.context import WorkContext, current_context, work_context
from pipeline.observability.work_clock import TimedResult

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORT_SECONDS = 1.0  # between two exports; a killed process loses the spans since the last one
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NOTHING = nullcontext()
Span = Any
T = TypeVar("T")
log = logging.getLogger(__name__)
_providers: list[Any] = []  # max. one, of this process


def traceparent(text: str | None) -> str | None:
    """Return `text` as version 00 of a W3C `traceparent`; None if it is invalid."""
    match = _TRACEPARENT.fullmatch(text) if text and len(text) <= 512 else None
    if match is None or (match[1] == "00" and match[5]):
        return None
    return f"00-{match[2]}-{match[3]}-{match[4]}"


def start(service: str) -> None:
    """Enable traces in this process, if they are configured. OTEL_SERVICE_NAME names it, or else `service`."""
    if _providers or not any(os.environ.get(name) for name in ENDPOINTS):
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    attributes = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"switchboard-{service}"}
    pause = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else EXPORT_SECONDS * 1000
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=pause))
    _providers.append(provider)


def on() -> bool:
    return bool(_providers)


def stop(seconds: float) -> None:
    """Send the remaining spans, within the given seconds."""
    while _providers:
        ending = threading.Thread(target=_providers.pop().shutdown, daemon=True)
        ending.start()
        ending.join(seconds)


def span(
    name: str, kind: str = "internal", links: Iterable[str] = (), **attributes: str | int | float
) -> AbstractContextManager[None]:
    """Return a context manager: a span below the current one, and current itself in the block.

    `kind`: internal, server, client or consumer. `links`: further traceparents. An error is recorded by its code or
    class: its text may contain text from outside. Without traces the block just runs.
    """
    return _around(_begin(name, kind, links, None, attributes)) if _providers else _NOTHING


@contextmanager
def _around(new_span: Span) -> Iterator[None]:
    try:
        with work_context(WorkContext(current_context().ids, _written(new_span))):
            yield
    except BaseException as error:
        _failed(new_span, error)
        raise
    finally:
        new_span.end()


@contextmanager
def observed(step: str, kind: str = "internal") -> Iterator[None]:
    """Log how long the block took, or how it failed: the class of an error, not its text."""
    begun = time.monotonic()
    try:
        with span(step, kind):
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


def past(name: str, begun: datetime, ended: datetime, **attributes: str | int | float) -> None:
    """Record a span that has ended already."""
    if _providers:
        _begin(name, "internal", (), begun, attributes).end(_nanoseconds(max(begun, ended)))


def _begin(name: str, kind: str, links: Iterable[str], begun: datetime | None, attributes: dict[str, Any]) -> Span:
    from opentelemetry import trace

    work = current_context()
    ids = {f"switchboard.{key}": value for key, value in work.ids.items() if value}
    return (
        _providers[0]
        .get_tracer("switchboard")
        .start_span(
            name,
            context=_context(work.trace),
            kind=trace.SpanKind[kind.upper()],
            attributes=ids | attributes,
            links=[trace.Link(linked) for link in links if (linked := _read(link)) is not None],
            start_time=begun and _nanoseconds(begun),
        )
    )


def _context(text: str | None) -> Any:
    from opentelemetry import trace
    from opentelemetry.context import Context

    parent = _read(text)
    return Context() if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def _read(text: str | None) -> Any:
    from opentelemetry import trace

    if (parent := traceparent(text)) is None:
        return None
    _, trace_id, span_id, flags = parent.split("-")
    trace_flags = trace.TraceFlags(int(flags, 16) & 1)
    return trace.SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=trace_flags)


def _written(new_span: Span) -> str:
    context = new_span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def _failed(new_span: Span, error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode

    new_span.set_attribute("error.type", getattr(error, "code", None) or type(error).__name__)
    new_span.set_status(Status(StatusCode.ERROR))


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)
