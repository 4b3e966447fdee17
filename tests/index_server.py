"""A package index on the loopback: wheels built here, byte ranges, and the faults of a real network on demand."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


def wheel(project: str, members: Mapping[str, bytes]) -> bytes:
    """Return a wheel of version 1.0 with these members, stored without compression."""
    name = project.replace("-", "_")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", metadata(project))
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return content.getvalue()


def metadata(project: str) -> str:
    return f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n"


@dataclass(frozen=True)
class Cut:
    """The connection ends after so many bytes of the body."""

    after: int


@dataclass
class IndexServer:
    """`with IndexServer() as index`: serves `index.files` (name -> bytes) below `index.url`.

    `sent` counts the bytes of file bodies. The next answers with a file are as `faults` say, one each: `Cut(n)`
    ends the connection after n bytes, a status such as 503 is answered as such.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[Any] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    sent: int = 0
    slowly: float = 0.0  # seconds before each 64 KiB
    started: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        outer = self

        class Handler(_Handler):
            index = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, project: str, members: Mapping[str, bytes]) -> bytes:
        """Serve a wheel of `members`; returns its bytes."""
        content = wheel(project, members)
        self.files[f"{project.replace('-', '_')}-1.0-py3-none-any.whl"] = content
        return content


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    index: IndexServer

    def do_GET(self) -> None:
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "simple":
            self._page(name.rstrip("/").replace("-", "_"))
        elif name.endswith(".metadata"):
            self._answer(200, metadata(name.split("-")[0].replace("_", "-")).encode())
        elif name in self.index.files:
            self._file(self.index.files[name])
        else:
            self._answer(404, b"")

    def _page(self, project: str) -> None:
        links = [
            f'<a href="/files/{name}#sha256={hashlib.sha256(content).hexdigest()}" data-core-metadata="true" '
            f'data-dist-info-metadata="true">{name}</a>'
            for name, content in self.index.files.items()
            if name.startswith(f"{project}-")
        ]
        page = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        self._answer(200 if links else 404, page, {"Content-Type": "text/html"})

    def _file(self, content: bytes) -> None:
        range_header = self.headers.get("Range")
        self.index.ranges.append(range_header)
        fault = self.index.faults.pop(0) if self.index.faults else None
        if isinstance(fault, int):
            self._answer(fault, b"")
            return
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        start = int(range_header.removeprefix("bytes=").split("-")[0]) if range_header else 0
        if start and self.headers.get("If-Range", etag) != etag:
            start = 0
        headers = {"ETag": etag, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        body = content[start:]
        self.send_response(206 if start else 200)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        self._send(body[: fault.after] if isinstance(fault, Cut) else body)
        self.close_connection = True

    def _send(self, body: bytes) -> None:
        for start in range(0, len(body), 65536):
            block = body[start : start + 65536]
            self.index.started.set()
            if self.index.slowly:
                threading.Event().wait(self.index.slowly)
            try:
                self.wfile.write(block)
            except OSError:
                return
            self.index.sent += len(block)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(body))} | dict(headers or {})).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
