"""A receiver of events on 127.0.0.1: a real HTTP server that answers as a test wants it to."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

HANG = -1  # take the request and say nothing
ENDLESS = -2  # 200, and a body that never ends
DRIP = -3  # 200, and a byte now and then


@dataclass(frozen=True)
class Received:
    """One request; `headers` by lower-case name."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    @property
    def type(self) -> str:
        return str(self.event["type"])

    @property
    def call_id(self) -> str:
        return str(self.event["data"]["callId"])

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """`answer` says the status of each request, perhaps with headers; `taken` are those answered with 2xx."""

    answer: Callable[[Received], int | tuple[int, dict[str, str]]] = lambda _: 204
    text: str = ""
    seen: list[Received] = field(default_factory=list)
    taken: list[Received] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    scheme: str = "http"
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/hook"

    async def until(self, count: int, timeout: float = 60.0) -> list[Received]:
        """Return the first `count` accepted events, once there are that many."""
        await until(lambda: len(self.taken) >= count, timeout, lambda: f"{len(self.taken)} of {count} taken")
        return self.taken[:count]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._exchange(reader, writer)
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(head[0].split(" ")[1], headers, body, time.time())
        self.seen.append(received)
        answer = self.answer(received)
        status, more = answer if isinstance(answer, tuple) else (answer, {})
        if status == HANG:
            await reader.read()  # until they go
            return
        if status < 0 or 200 <= status < 300:
            self.taken.append(received)
        if status in (ENDLESS, DRIP):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b"x" * (65536 if status == ENDLESS else 1))
                await writer.drain()
                await asyncio.sleep(0 if status == ENDLESS else 0.1)
        text = self.text.encode()
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(text)}"]
        lines += [f"{name}: {value}" for name, value in more.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + text)
        await writer.drain()


@asynccontextmanager
async def receiving(context: ssl.SSLContext | None = None, port: int = 0, **fields: Any) -> AsyncIterator[Receiver]:
    """Start a receiver; with `context` over TLS, as localhost."""
    receiver = Receiver(**fields)
    if context is not None:
        receiver.scheme, receiver.host = "https", "localhost"
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", port, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


async def until(
    condition: Callable[[], object],
    timeout: float = 60.0,
    describe: Callable[[], str] = lambda: "it did not come to that",
) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, describe()
        await asyncio.sleep(0.02)
