"""A collector of traces on 127.0.0.1: OTLP over HTTP, decoded by OpenTelemetry's own messages."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Seen:
    """A span as it arrived."""

    name: str
    service: str
    trace: str
    span: str
    parent: str
    links: frozenset[str]  # trace ids
    attributes: dict[str, str]
    begun: int
    ended: int
    failed: bool


@dataclass
class Collector:
    """What has arrived until now; `answers_after` seconds each export is held."""

    url: str = ""
    answers_after: float = 0.0
    spans: list[Seen] = field(default_factory=list)

    def until(self, enough: Callable[[list[Seen]], bool], timeout: float = 60.0) -> list[Seen]:
        deadline = time.monotonic() + timeout
        while not enough(self.spans):
            assert time.monotonic() < deadline, [(span.name, span.service, span.trace) for span in self.spans]
            time.sleep(0.1)
        return self.spans

    def of(self, trace: str) -> list[Seen]:
        return [span for span in self.spans if span.trace == trace]

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource_attributes = {
                attribute.key: attribute.value.string_value for attribute in resource.resource.attributes
            }
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Seen(
                            span.name,
                            resource_attributes["service.name"],
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            frozenset(link.trace_id.hex() for link in span.links),
                            {attribute.key: attribute.value.string_value for attribute in span.attributes},
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            span.status.code == span.status.STATUS_CODE_ERROR,
                        )
                    )


@contextmanager
def collecting() -> Iterator[Collector]:
    trace_collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["content-length"]))
            time.sleep(trace_collector.answers_after)
            trace_collector.take(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        trace_collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield trace_collector
        finally:
            server.shutdown()
