"""Connections to checked addresses only, with TLS for the host's name; received bytes are counted."""

# ruff: noqa: ASYNC109 - the timeouts are httpcore's own protocol

import re
import ssl
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import httpcore
import httpx

from pipeline.errors import RecordingUnreachable
from pipeline.fetch.address import AddressGuard
from pipeline.net import egress

HEAD_ENDS = re.compile(rb"\n\r?\n")  # as the HTTP parser finds it, which accepts bare line feeds
HEAD_LIMIT = 1 << 17  # bytes; the parser's own is 100 KiB


@lru_cache(maxsize=4)  # reading the authorities takes 0.1 s
def trust(ca_file: str | None) -> ssl.SSLContext:
    """Return a context that verifies servers; `ca_file`: a PEM file of additional certificate authorities."""
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


class CountedStream(httpcore.AsyncNetworkStream):
    """A connection that carries one response and counts the bytes after its head.

    An HTTP parser stops at Content-Length; only here is it visible that the server sends more than it declared.
    """

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._head: bytes | None = b""
        self.body_bytes = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._inner.read(max_bytes, timeout)
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        if self._head is None:
            self.body_bytes += len(data)
            return
        self._head += data
        while match := HEAD_ENDS.search(self._head):
            head, rest = self._head[: match.start()], self._head[match.end() :]
            if head[9:10] == b"1":  # 100 Continue and its kind come before the response
                self._head = rest
                continue
            self._head, self.body_bytes = None, len(rest)
            return
        if len(self._head) > HEAD_LIMIT:
            raise httpcore.RemoteProtocolError("the head of the response is too long")

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return CountedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves through the guard and connects to the very address that the guard has checked."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = RecordingUnreachable(f"The name {host} has no address.")
        for address in await self._guard.addresses(host, port):
            try:
                with egress.permitted():
                    connection = await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
                return CountedStream(connection)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise NotImplementedError("recordings are fetched over TCP")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
