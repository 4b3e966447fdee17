"""Serves local files over HTTP, as a telephony system does: only the added ones, each under a random path."""

import secrets
import shutil
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Self
from urllib.parse import quote

from pipeline.fetch.address import SERVICE_PORTS

MEDIA_TYPES = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".webm": "audio/webm",
}


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        """Bind as `HTTPServer` does, without the unused lookup of a host name: a name server may be slow."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


@dataclass
class FileServer:
    """A context manager. `add` gives a file's URL; `fetched` says whether it has been sent whole at least once.

    `host` is the address to listen on and to name in URLs: 127.0.0.1 is seen by this machine alone.
    """

    host: str = "127.0.0.1"
    port: int = 0
    _files: dict[str, Path] = field(default_factory=dict)  # by URL path
    _sent: set[str] = field(default_factory=set)
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self._server = self._listening()
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def _listening(self) -> ThreadingHTTPServer:
        """Listen; if the system chooses the port, not on one that recordings are never fetched from."""
        with ExitStack() as refused:  # held until there is another: the system would choose them again
            while True:
                server = _Server((self.host, self.port), self._handler())
                if self.port or server.server_port not in SERVICE_PORTS:
                    return server
                refused.callback(server.server_close)

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def add(self, file: Path) -> str:
        assert self._server is not None
        path = f"/{secrets.token_urlsafe(16)}/{quote(file.name)}"
        self._files[path] = file
        return f"http://{self.host}:{self._server.server_address[1]}{path}"

    def fetched(self, url: str) -> bool:
        return any(url.endswith(path) for path in self._sent)

    @property
    def waiting(self) -> list[Path]:
        """Return files that no client has downloaded completely yet."""
        return [file for path, file in self._files.items() if path not in self._sent]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        files, sent = self._files, self._sent

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_version = "switchboard"
            sys_version = ""

            def do_GET(self) -> None:
                file = self._head()
                if file is None:
                    return
                with suppress(ConnectionError), file.open("rb") as source:
                    shutil.copyfileobj(source, self.wfile)
                    sent.add(self.path)

            def do_HEAD(self) -> None:
                self._head()

            def _head(self) -> Path | None:
                file = files.get(self.path)
                if file is None or not file.is_file():
                    self.send_error(404)
                    return None
                self.send_response(200)
                self.send_header("Content-Type", MEDIA_TYPES.get(file.suffix.lower(), "application/octet-stream"))
                self.send_header("Content-Length", str(file.stat().st_size))
                self.end_headers()
                return file

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        return Handler
