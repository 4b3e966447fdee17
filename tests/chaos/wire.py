"""A wire between the service and PostgreSQL that can be cut, best of all in the middle of a commit.

It passes bytes on between two Unix sockets. An armed cut strikes the next time that a client asks for a commit (a
`COMMIT`, or the statement of a submission, which commits by itself), in one of three ways:

    before    what asks for the commit never reaches the server: nothing may have happened
    during    it reaches the server, and both ends of the wire are gone at once
    after     the server has answered, and its answer is lost: all of it has happened, and nobody was told
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
WAYS = ("before", "during", "after")
CHUNK = 65536


class Wire:
    """Listens in `folder`; the server's socket is in `server`."""

    def __init__(self, folder: Path, server: Path) -> None:
        self._folder = folder
        self._server = server
        self._armed: list[str] = []
        self._open: set[asyncio.StreamWriter] = set()
        self.cuts: Counter[str] = Counter()
        self.last_cut = 0.0  # seconds since the epoch

    def arm(self, way: str) -> None:
        """Cut the next connection that commits."""
        self._armed.append(way)

    @property
    def armed(self) -> bool:
        return bool(self._armed)

    def disarm(self) -> None:
        self._armed.clear()

    @asynccontextmanager
    async def strung(self) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._pass_on, self._folder / SOCKET)
        try:
            yield
        finally:
            server.close()
            for writer in list(self._open):
                writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self._server / SOCKET)
        except OSError:
            writer.transport.abort()  # the server is away: as its own socket would, refuse
            return
        ends = (writer, far_writer)
        self._open.update(ends)
        link = _Link()
        try:
            await asyncio.gather(self._to_server(reader, far_writer, link), self._to_client(far_reader, writer, link))
        except (OSError, _Cut):
            pass
        finally:
            for end in ends:
                end.transport.abort()
            self._open.difference_update(ends)

    async def _to_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link") -> None:
        while data := await reader.read(CHUNK):
            if self._armed and link.commits(data):
                link.way = self._armed.pop(0)
                self.cuts[link.way] += 1
                self.last_cut = time.time()
                if link.way == "before":
                    raise _Cut
            writer.write(data)
            await writer.drain()
            if link.way == "during":
                raise _Cut
        raise _Cut

    async def _to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link") -> None:
        while data := await reader.read(CHUNK):
            if link.way == "after":
                raise _Cut
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        raise _Cut


class _Cut(Exception):
    """Both ends are to be closed."""


class _Link:
    """One connection; remembers whether it is one of those that take submissions."""

    def __init__(self) -> None:
        self.way = ""
        self._submits = False

    def commits(self, data: bytes) -> bool:
        self._submits = self._submits or b"submit_call" in data
        return b"COMMIT" in data or self._submits  # a prepared statement is run without its text
