"""A server of recordings on 127.0.0.1 that answers as a test says, and what fetching from it left."""

import asyncio
import contextlib
import pickle
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import (
    RecordingError,
)
from pipeline.fetch.address import SERVICE_PORTS
from pipeline.fetch.fetcher import fetch
from pipeline.fetch.options import FetchOptions
from pipeline.scratch import OWNER
from tests.tuned import tuned

AUDIO = b"RIFF\x24\x00\x01\x00WAVEfmt " + bytes(range(256)) * 300


SECRET = "X-Amz-Signature=do-not-tell"


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A TCP server that counts its connections and answers each request with `answer`."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    def url(self, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}/call.wav?{SECRET}"


@contextlib.asynccontextmanager
async def serving(answer: Answer | bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    state, at_work = Server(), set[asyncio.Task[None] | None]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_work.add(asyncio.current_task())
        state.connections += 1
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            state.requests.append(await reader.readuntil(b"\r\n\r\n"))
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    while server.sockets[0].getsockname()[1] in SERVICE_PORTS:  # four of those that the system chooses from
        server.close()
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in at_work:
            if task is not None:
                task.cancel()  # one that says nothing for ever


def reply(body: bytes = AUDIO, status: str = "200 OK", length: int | None = None, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def options(**changes: Any) -> FetchOptions:
    return tuned(FetchOptions, **{"allowed_hosts": ("127.0.0.1", "localhost"), "read_seconds": 5.0, **changes})


def stored_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != OWNER]


async def failing(answer: Answer | bytes, folder: Path, **changes: Any) -> RecordingError:
    """Fetch, expect a RecordingError that exposes no secret, survives pickling and leaves nothing behind."""
    async with serving(answer) as server:
        with pytest.raises(RecordingError) as failure:
            await fetch(server.url(), 0, folder.as_uri(), options(**changes))
    assert stored_files(folder) == []
    error = failure.value
    assert "do-not-tell" not in f"{error.message} {error.facts} {error!r}"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.message, copy.facts) == (type(error), error.message, error.facts)
    return error
