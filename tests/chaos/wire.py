"""A wire between the service and PostgreSQL that can be cut, also in the middle of a commit, or fall silent.

It passes bytes between a TCP connection and the server's Unix socket. An armed cut takes effect at the next commit of a
client (a `COMMIT`, or the statement of a submission, which commits by itself), in one of three ways:

    before    the commit never reaches the server: nothing may have happened
    during    it reaches the server, and both ends of the wire are closed at once
    after     the server has responded, and the response is lost: the commit happened, but the client does not know

A wire that is silent for some processes neither responds nor resets: the kernel drops their packets before TCP sees
them (a socket filter, which needs no privilege), so that not even an acknowledgment returns. Bytes in transit arrive
when it is healed, late commits included.
"""

import asyncio
import contextlib
import ctypes
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil

SOCKET = ".s.PGSQL.5432"
WAYS = ("before", "during", "after")
CHUNK = 65536

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # Linux; the socket module does not name them
NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # "return 0": of each packet, no byte
DROP_ALL = struct.pack("HL", 1, ctypes.addressof(NOTHING))


class Wire:
    """Listens on 127.0.0.1, at `port`; the server's socket is in `server`."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._armed: list[tuple[str, bytes]] = []  # with what has to be said before the commit
        self._links: set[_Link] = set()
        self._silent: frozenset[int] = frozenset()  # for these processes
        self._acknowledging = False
        self.silences = 0
        self.port = 0
        self.cuts: Counter[str] = Counter()
        self.last_cut = 0.0  # seconds since the epoch

    def through(self, url: str) -> str:
        """Return the URL of a database on the server, through this wire."""
        database = urlsplit(url).path.strip("/")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def arm(self, way: str, statement: bytes = b"") -> None:
        """Cut the next connection that commits, or the next that commits after it `said` this."""
        self._armed.append((way, statement))

    @property
    def armed(self) -> bool:
        return bool(self._armed)

    def disarm(self) -> None:
        self._armed.clear()

    def silence(self, pids: Collection[int], acknowledging: bool = False) -> None:
        """Let nothing through to or from these processes, on connections that are there or come, until `heal`.

        `acknowledging`: packets are taken and lead to nothing, as where a server hangs behind a proxy.
        """
        self._silent, self._acknowledging = frozenset(pids), acknowledging
        self.silences += 1
        ports = self._ports(pids)
        for link in self._links:
            if link.port in ports:
                link.silence(acknowledging)

    def heal(self) -> None:
        self._silent = frozenset()
        for link in self._links:
            link.heal()

    def answers(self, pid: int, since: float) -> bool:
        """Return whether data came back to this process since a moment of `time.monotonic`."""
        ports = self._ports([pid])
        return any(link.port in ports and link.answered > since for link in self._links)

    def _ports(self, pids: Collection[int]) -> set[int]:
        """Return the ports of these processes' ends of the wire."""
        ports: set[int] = set()
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                ends = psutil.Process(pid).net_connections("tcp4")
                ports |= {
                    connection.laddr.port
                    for connection in ends
                    if connection.raddr and connection.raddr.port == self.port
                }
        return ports

    @asynccontextmanager
    async def strung(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.heal()
            for link in list(self._links):
                link.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        self._links.add(link)
        try:
            if self._silent and link.port in self._ports(self._silent):
                link.silence(self._acknowledging)
            await link.open.wait()
            far_reader, link.far = await asyncio.open_unix_connection(self._server / SOCKET)
            await asyncio.gather(self._to_server(reader, link.far, link), self._to_client(far_reader, writer, link))
        except (OSError, _Cut):  # the server is away: as its own socket would, refuse
            pass
        finally:
            link.abort()
            self._links.discard(link)

    async def _to_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link") -> None:
        while data := await reader.read(CHUNK):
            await link.open.wait()
            if self._armed and link.commits(data, self._armed[0][1]):
                link.way, _ = self._armed.pop(0)
                self.cuts[link.way] += 1
                self.last_cut = time.time()
                if link.way == "before":
                    raise _Cut
            writer.write(data)
            await writer.drain()
            if link.way == "during":
                raise _Cut
        await link.open.wait()
        raise _Cut

    async def _to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link") -> None:
        while data := await reader.read(CHUNK):
            await link.open.wait()
            if link.way == "after":
                raise _Cut
            writer.write(data)
            link.answered = time.monotonic()
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        await link.open.wait()
        raise _Cut


class _Cut(Exception):
    """Both ends are to be closed."""


class _Link:
    """One connection; remembers whether it is one of those that take submissions."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self.near = near
        self.far: asyncio.StreamWriter | None = None
        self.port: int = near.get_extra_info("peername")[1]
        self.way = ""
        self.answered = 0.0
        self.open = asyncio.Event()
        self.open.set()
        self._socket: socket.socket = near.get_extra_info("socket")
        self._submits = False
        self._said = False

    def commits(self, data: bytes, statement: bytes) -> bool:
        self._submits = self._submits or b"submit_call" in data
        self._said = self._said or statement in data
        return (b"COMMIT" in data or self._submits) and self._said  # a prepared statement is run without its text

    def silence(self, acknowledging: bool) -> None:
        self.open.clear()
        if not acknowledging:
            with contextlib.suppress(OSError):  # closed already
                self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, DROP_ALL)

    def heal(self) -> None:
        if not self.open.is_set():
            with contextlib.suppress(OSError):  # there is none, or it is closed already
                self._socket.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
            self.open.set()

    def abort(self) -> None:
        for end in (self.near, self.far):
            if end is not None:
                end.transport.abort()
