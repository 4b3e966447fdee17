"""OpenTelemetry traces, where `OTEL_EXPORTER_OTLP_ENDPOINT` is set; without it nothing of OpenTelemetry is imported.

Spans are sent over OTLP/HTTP by a thread in the background. It holds 2,048 of them and drops more, so that a collector
that is slow or away holds up nothing. OpenTelemetry's own variables set the rest.
"""

import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any

from pipeline.observability.context import WorkContext, current_context, work_context

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORT_SECONDS = 1.0  # between two exports: a process that is killed takes the spans of so long along
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NOTHING = nullcontext()
Span = Any
_providers: list[Any] = []  # one at most: that of this process


def traceparent(text: str | None) -> str | None:
    """`text` as version 00 of a W3C `traceparent`; None where it is none."""
    found = _TRACEPARENT.fullmatch(text) if text and len(text) <= 512 else None
    if found is None or (found[1] == "00" and found[5]):
        return None
    return f"00-{found[2]}-{found[3]}-{found[4]}"


def start(service: str) -> None:
    """Prepare traces in this process, if they are wanted. OTEL_SERVICE_NAME names it, or else `service`."""
    if _providers or not any(os.environ.get(name) for name in ENDPOINTS):
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"switchboard-{service}"}
    pause = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else EXPORT_SECONDS * 1000
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=pause))
    _providers.append(provider)


def on() -> bool:
    """Whether this process makes spans."""
    return bool(_providers)


def stop(seconds: float) -> None:
    """Send what is left, for at most so many seconds."""
    while _providers:
        ending = threading.Thread(target=_providers.pop().shutdown, daemon=True)
        ending.start()
        ending.join(seconds)


def span(
    name: str, kind: str = "internal", links: Iterable[str] = (), **attributes: str | int | float
) -> AbstractContextManager[None]:
    """A span around the block, below the current span, and current itself in the block.

    `kind`: internal, server, client or consumer. `links`: further traceparents. An error is told by its code or class:
    its text may hold what others wrote. Without traces the block just runs.
    """
    return _around(_begin(name, kind, links, None, attributes)) if _providers else _NOTHING


@contextmanager
def _around(made: Span) -> Iterator[None]:
    try:
        with work_context(WorkContext(current_context().ids, _written(made))):
            yield
    except BaseException as error:
        _failed(made, error)
        raise
    finally:
        made.end()


def past(name: str, begun: datetime, ended: datetime, **attributes: str | int | float) -> None:
    """A span of what is over already."""
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
            links=[trace.Link(found) for link in links if (found := _read(link)) is not None],
            start_time=begun and _nanoseconds(begun),
        )
    )


def _context(text: str | None) -> Any:
    from opentelemetry import trace
    from opentelemetry.context import Context

    found = _read(text)
    return Context() if found is None else trace.set_span_in_context(trace.NonRecordingSpan(found), Context())


def _read(text: str | None) -> Any:
    from opentelemetry import trace

    if (known := traceparent(text)) is None:
        return None
    _, trace_id, span_id, flags = known.split("-")
    flags_known = trace.TraceFlags(int(flags, 16) & 1)
    return trace.SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flags_known)


def _written(made: Span) -> str:
    context = made.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def _failed(made: Span, error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode

    made.set_attribute("error.type", getattr(error, "code", None) or type(error).__name__)
    made.set_status(Status(StatusCode.ERROR))


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)
