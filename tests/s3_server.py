"""A server of the S3 protocol (moto's) with configurable faults, and the packages that it and an S3 client need.

    python -m tests.s3_server            installs the packages into the environment's folder `s3-packages`
    python -m tests.s3_server PORT       serves on loopback

The packages stay out of the environment: botocore replaces the locked python-dateutil by an older one, as on nodes with
the extra `aws`. Faults are set at /_faults, as JSON: see `Faults`.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

LOCK = Path(__file__).with_name("s3.lock")
SECONDS = 60.0  # until it answers
CONTROL = "/_faults"


@dataclass
class Faults:
    """What happens to requests for objects below `under`; everything else works.

    `busy_seconds`: 503, from the first request for an object on. `gone`: objects that are listed, and no longer there.
    `cut`: objects whose first answer ends half-way. `down_after`: so many requests for objects are answered; then each
    request, for whatever, is answered with `down`.
    """

    under: str = "/"
    busy_seconds: float = 0.0
    gone: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    down_after: int | None = None
    down: str = "denied"  # a name of REFUSALS


def packages() -> Path:
    """Return the folder of the packages; install them from the package index if missing."""
    folder = Path(sys.prefix) / "s3-packages"
    done = folder / LOCK.name
    if not done.is_file() or done.read_bytes() != LOCK.read_bytes():
        uv = str(Path(sys.executable).with_name("uv"))
        command = [
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--target",
            str(folder),
            "-r",
            str(LOCK),
        ]
        subprocess.run([uv, *command], check=True)
        done.write_bytes(LOCK.read_bytes())
    return folder


@dataclass
class Bucket:
    """A bucket of a running server. `environment`: what a process needs to use it as s3://`name`."""

    url: str
    name: str
    environment: dict[str, str]

    def put(self, key: str, data: bytes) -> None:
        httpx.put(f"{self.url}/{self.name}/{key}", content=data).raise_for_status()

    def faults(self, faults: Faults) -> None:
        """From now on these, and none of before."""
        httpx.put(self.url + CONTROL, json=asdict(faults)).raise_for_status()

    def answered(self) -> dict[str, int]:
        """Return how often an object was served, in whole or in part, by path."""
        return dict(httpx.get(self.url + CONTROL).raise_for_status().json())


@contextmanager
def bucket(name: str) -> Iterator[Bucket]:
    """Start a server with an empty bucket, in a process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = str(packages())
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.s3_server", str(port)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + SECONDS
        while True:
            try:
                httpx.put(f"{url}/{name}").raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None and time.monotonic() < until, "the server does not start"
                time.sleep(0.2)
        access = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
        yield Bucket(url, name, {"PYTHONPATH": path, "AWS_ENDPOINT_URL": url, **access})
    finally:
        process.kill()
        process.wait(10)


Start = Callable[[str, list[tuple[str, str]]], Any]


class Faulty:
    """The server's WSGI application, with faults before it."""

    def __init__(self, application: Callable[[dict[str, Any], Start], Iterable[bytes]]) -> None:
        self._application = application
        self._set(Faults())
        self._answered: dict[str, int] = {}

    def _set(self, faults: Faults) -> None:
        self._faults, self._asked, self._busy_until = faults, 0, None

    def __call__(self, environment: dict[str, Any], start: Start) -> Iterable[bytes]:
        path, method, faults = environment["PATH_INFO"], environment["REQUEST_METHOD"], self._faults
        if path == CONTROL:
            return self._controlled(environment, start)
        is_object = method == "GET" and path.startswith(faults.under) and not path.endswith("/")
        self._asked += is_object
        if is_object and self._busy_until is None:
            self._busy_until = time.monotonic() + faults.busy_seconds
        if self._busy_until is not None and time.monotonic() < self._busy_until:
            return _refused(start, method, "busy")
        if faults.down_after is not None and self._asked > faults.down_after:
            return _refused(start, method, faults.down)
        if is_object and path in faults.gone:
            return _refused(start, method, "gone")
        body = list(self._application(environment, start))
        if is_object:
            self._answered[path] = self._answered.get(path, 0) + 1
            if path in faults.cut:
                faults.cut.remove(path)
                return _half(b"".join(body), environment["werkzeug.socket"])
        return body

    def _controlled(self, environment: dict[str, Any], start: Start) -> list[bytes]:
        if environment["REQUEST_METHOD"] == "PUT":
            length = int(environment["CONTENT_LENGTH"])
            self._set(Faults(**json.loads(environment["wsgi.input"].read(length))))
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(self._answered).encode()]


REFUSALS = {
    "busy": ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    "denied": ("403 Forbidden", "InvalidAccessKeyId", "The access key does not exist."),
    "gone": ("404 Not Found", "NoSuchKey", "The specified key does not exist."),
}


def _refused(start: Start, method: str, why: str) -> list[bytes]:
    status, code, message = REFUSALS[why]
    start(status, [("Content-Type", "application/xml")])
    document = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return [] if method == "HEAD" else [document]


def _half(body: bytes, connection: socket.socket) -> Iterator[bytes]:
    yield body[: len(body) // 2]
    connection.shutdown(socket.SHUT_RDWR)


def serve(port: int) -> None:
    """Serve until the process is ended."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    make_server(
        "127.0.0.1", port, Faulty(DomainDispatcherApplication(create_backend_app)), threaded=True
    ).serve_forever()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]))
    else:
        print(packages())
