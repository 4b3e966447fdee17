import asyncio
import hmac
import json
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from db.events import endpoints
from db.workspace import settings as workspace_settings
from serve_app.cli.ui.output import err, out
from serve_app.cli.ui.resource import Scope
from serve_app.settings import Settings
from serve_app.webhooks import signing

if TYPE_CHECKING:
    from uuid import UUID

HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")
MAX_BODY_BYTES = 4 << 20


class Received(ThreadingHTTPServer):
    """Passes each verified event to `show`: its headers of Standard Webhooks and its body."""

    daemon_threads = True

    def __init__(self, host: str, port: int, secret: str, show: Callable[[dict[str, str], Any], None]) -> None:
        super().__init__((host, port), _Handler)
        self.secret, self.show, self.lock = secret, show, threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: Received

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        body = self.rfile.read(int(length)) if length.isdecimal() and int(length) <= MAX_BODY_BYTES else b""
        headers = {name: self.headers.get(name, "") for name in HEADERS}
        status = 204 if is_signed(self.server.secret, headers, body) else 401
        if status == 204:
            with self.server.lock:
                self.server.show(headers, json.loads(body))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing: the events are the output."""


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Return whether one of the signatures is that of the secret."""
    if not headers["webhook-timestamp"].isdecimal() or not headers["webhook-id"].isascii():
        return False
    expected = signing.sign([secret], headers["webhook-id"], int(headers["webhook-timestamp"]), body)
    return any(
        hmac.compare_digest(expected.encode(), signature.encode()) for signature in headers["webhook-signature"].split()
    )


def print_event(headers: dict[str, str], event: Any) -> None:
    """Print the event as a service would receive it: headers, then the body."""
    for name, value in headers.items():
        out().print(f"{name}: {value}", markup=False, soft_wrap=True)
    out().print(json.dumps(event, indent=2, ensure_ascii=False) + "\n", markup=False, soft_wrap=True)


def print_line(headers: dict[str, str], event: Any) -> None:
    """Print the event as one line of JSON."""
    print(json.dumps({"headers": headers, "body": event}, ensure_ascii=False), flush=True)


@asynccontextmanager
async def temporary_endpoint(
    scope: Scope, host: str, port: int, secret: str, events: list[str] | None, include: list[str] | None
) -> AsyncIterator["UUID"]:
    """Create an endpoint at this machine and allow its address, until the block ends."""
    database, address = scope.database, f"{host}:{port}"
    before = await workspace_settings.allowed_hosts(database, scope.id)
    sealed, description = Settings().sealer().seal(secret), "switchboard webhooks listen"
    url = f"http://{address}/"
    endpoint = await endpoints.add(database, scope.id, url, sealed, events, include or (), description=description)
    try:
        await workspace_settings.set_allowed_hosts(database, scope.id, (*before, address))
        yield endpoint.endpoint_id
    finally:
        await endpoints.remove(database, endpoint)
        if address not in before:
            hosts = await workspace_settings.allowed_hosts(database, scope.id)
            await workspace_settings.set_allowed_hosts(database, scope.id, [name for name in hosts if name != address])


async def receive(
    scope: Scope, host: str, port: int, events: list[str] | None, include: list[str] | None, count: int | None
) -> int:
    """Print events until `count` arrived, or Ctrl-C; return how many arrived."""
    loop, stop, secret, arrived = asyncio.get_running_loop(), asyncio.Event(), signing.new_secret(), 0

    def show(headers: dict[str, str], event: Any) -> None:
        nonlocal arrived
        arrived += 1
        (print_event if out().is_terminal else print_line)(headers, event)
        if count is not None and arrived >= count:
            loop.call_soon_threadsafe(stop.set)

    with Received(host, port, secret, show) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        try:
            async with temporary_endpoint(scope, host, server.server_port, secret, events, include):
                where = f"http://{host}:{server.server_port}/"
                err().print(f"Listening on {where} with the secret {secret} until Ctrl-C.", markup=False)
                await stop.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            server.shutdown()
    return arrived
