"""A model hub on the loopback address that serves the files of some repositories, each at one commit."""

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

COMMIT = "a" * 40


class HubServer:
    """`with HubServer({"owner/name": {"model.bin": b"..."}}) as hub`: answers the hub client at `hub.url`."""

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(b"")

            def do_GET(self) -> None:
                self._answer(None)

            def _answer(self, body: bytes | None) -> None:
                content, headers = _content(repositories, self.path)
                self.send_response(200 if content is not None else 404)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write((content or b"") if body is None else body)

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _content(repositories: Mapping[str, Mapping[str, bytes]], path: str) -> tuple[bytes | None, dict[str, str]]:
    for name, files in repositories.items():
        if path.startswith(f"/api/models/{name}/tree/"):
            tree = [{"type": "file", "path": file, "oid": "0", "size": len(data)} for file, data in files.items()]
            return json.dumps(tree).encode(), {"Content-Type": "application/json"}
        if path.startswith(f"/api/models/{name}"):
            facts = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
            return json.dumps(facts).encode(), {"Content-Type": "application/json"}
        for file, content in files.items():
            if path == f"/{name}/resolve/{COMMIT}/{file}":
                return content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
    return None, {}
