"""Fetch a recording: from the sender's URL, past the guard, into our own store."""

import asyncio
import logging
import ssl
import zlib
from collections.abc import AsyncIterator
from urllib.parse import urljoin

import httpcore
import httpx
from pydantic import BaseModel, ConfigDict, Field, field_validator

from pipeline.audio import outcomes, sniff
from pipeline.audio.address import REFUSED_PORTS, Guard, Resolver, Target, parse_allowed, parse_ports, resolve
from pipeline.audio.storage import Incoming, Store
from pipeline.audio.transport import CountedStream, GuardedBackend
from pipeline.domain.speech import Recording
from pipeline.errors import (
    AddressForbidden,
    CallError,
    NotAudio,
    RecordingEmpty,
    RecordingError,
    RecordingTooLarge,
    RecordingTruncated,
    RecordingUnreachable,
    TooManyRedirects,
)

WRITE_BYTES = 1 << 20  # gathered in memory before a thread writes them
SURPLUS_WAIT = 0.2  # seconds to see whether more comes than was declared
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class FetchOptions(BaseModel):
    """How recordings are fetched, and from where they may be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_bytes: int = Field(1 << 30, gt=0, description="Largest recording, in bytes.")
    max_seconds: float = Field(600.0, gt=0, description="Longest time for one fetch in all, redirects included.")
    connect_seconds: float = Field(10.0, gt=0, description="How long to wait for a connection and for TLS.")
    read_seconds: float = Field(60.0, gt=0, description="How long the server may be silent.")
    max_redirects: int = Field(3, ge=0, description="Redirects followed; each is checked like the first address.")
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="Hosts inside one's own network that may be fetched from: names, addresses, networks (CIDR), "
        "each perhaps with a port (pbx.local:8088). Everything else must be on the open Internet.",
    )
    ports: tuple[str, ...] = Field(
        ("80", "443", "1024-65535"), description="Ports that may be fetched from: single ones and ranges."
    )
    refused_ports: tuple[int, ...] = Field(
        REFUSED_PORTS,
        description="Ports taken out of `ports`: databases, caches, orchestration and remote control.",
    )
    ca_file: str | None = Field(None, description="PEM file of further certificate authorities to trust.")

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_can_be_read(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            parse_allowed(entry)
        return entries

    @field_validator("ports")
    @classmethod
    def _ports_can_be_read(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            parse_ports(entry)
        return entries


async def fetch(url: str, channel: int, folder: str, options: FetchOptions) -> Recording:
    """Fetch `url` into `folder` (an fsspec address) and say where it lies. `channel`: 0 or 1.

    Raises `StorageError` or a `RecordingError`: its class says whether another try can help. No message or fact
    holds more of the URL than its host.
    """
    return await Fetcher(options).fetch(url, channel, folder)


class Fetcher:
    """Fetches with one set of options. `resolver` answers host names, `ssl_context` verifies servers."""

    def __init__(
        self, options: FetchOptions, resolver: Resolver = resolve, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._options = options
        self._guard = Guard(options.allowed_hosts, options.ports, options.refused_ports, resolver)
        self._ssl_context = ssl_context or _trust(options.ca_file)
        for name in ("httpcore.connection", "httpcore.http11"):  # their debug lines hold signed Locations
            logging.getLogger(name).setLevel(logging.INFO)

    async def fetch(self, url: str, channel: int, folder: str) -> Recording:
        """See `fetch`."""
        target = self._guard.check(url)
        try:
            async with asyncio.timeout(self._options.max_seconds):
                return await self._follow(url, target, channel, folder)
        except TimeoutError:
            raise RecordingUnreachable(
                f"Fetching from {target.host} took longer than {self._options.max_seconds:g} s."
            ).with_facts(host=target.host) from None

    async def _follow(self, url: str, target: Target, channel: int, folder: str) -> Recording:
        for _ in range(self._options.max_redirects + 1):
            outcome = await self._request(target, channel, folder)
            if isinstance(outcome, Recording):
                return outcome
            url = _joined(url, outcome)
            target = self._guard.check(url)
        raise TooManyRedirects(
            f"The recording's address redirects more than {self._options.max_redirects} times."
        ).with_facts(host=target.host)

    async def _request(self, target: Target, channel: int, folder: str) -> Recording | str:
        """One GET: the stored recording, or the Location that it redirects to."""
        options = self._options
        timeouts = dict.fromkeys(("connect", "pool", "write"), options.connect_seconds) | {"read": options.read_seconds}
        try:
            async with (
                httpcore.AsyncConnectionPool(self._ssl_context, network_backend=GuardedBackend(self._guard)) as pool,
                pool.stream(
                    "GET",
                    httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
                    headers=_headers(target),
                    extensions={"timeout": timeouts},
                ) as response,
            ):
                headers = httpx.Headers(response.headers)
                if response.status in REDIRECTS and "location" in headers:
                    return headers["location"]
                outcomes.check_status(response.status, headers, target.host)
                return await self._receive(response, headers, channel, Store(folder))
        except CallError as error:
            error.with_facts(host=target.host)
            raise
        except outcomes.CONNECTION_FAILURES as error:
            raise outcomes.translate(error, target.host).with_facts(host=target.host) from None

    async def _receive(
        self, response: httpcore.Response, headers: httpx.Headers, channel: int, store: Store
    ) -> Recording:
        """Stream the body into the store."""
        media_type = headers.get("content-type")
        with store.receive() as incoming:  # not in a thread: a cancelled fetch must know of its file to remove it
            await self._write(response, headers, incoming, media_type)
            uri, sha256 = await asyncio.to_thread(store.keep, incoming)
        return Recording(channel, uri, sha256, incoming.size, media_type)

    async def _write(
        self, response: httpcore.Response, headers: httpx.Headers, incoming: Incoming, media_type: str | None
    ) -> None:
        limit = self._options.max_bytes
        pending, checked = bytearray(), False
        async for data in _plain_body(response, headers, limit):
            pending += data
            if incoming.size + len(pending) > limit:
                raise RecordingTooLarge(f"The recording is larger than the limit of {limit} bytes.").with_facts(
                    limit=limit
                )
            if not checked and len(pending) >= sniff.HEAD_BYTES:
                _check_is_audio(bytes(pending[: sniff.HEAD_BYTES]), media_type)
                checked = True
            if len(pending) >= WRITE_BYTES:
                await asyncio.to_thread(incoming.write, bytes(pending))
                pending.clear()
        if not incoming.size and not pending:
            raise RecordingEmpty("The server sent a recording of zero bytes.")
        if not checked:
            _check_is_audio(bytes(pending), media_type)
        await asyncio.to_thread(incoming.write, bytes(pending))


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise AddressForbidden("The recording's address redirects to something that is not a valid URL.") from None


async def _plain_body(response: httpcore.Response, headers: httpx.Headers, limit: int) -> AsyncIterator[bytes]:
    """The body without transfer and content encodings, as long as it has its declared length."""
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding in ("identity", ""):
        inflate = None
    elif encoding in ("gzip", "x-gzip", "deflate"):  # not asked for, but object stores send what they hold
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    else:
        raise RecordingError("The server sent the recording in a compression that it was not asked for.")
    async for data in _whole_body(response, headers, limit):
        if inflate is None:
            yield data
            continue
        rest = data
        while rest:
            yield inflate.decompress(rest, WRITE_BYTES)
            rest = inflate.unconsumed_tail
    if inflate is not None and not inflate.eof:
        raise RecordingTruncated("The recording's compressed data ended too early.")


async def _whole_body(response: httpcore.Response, headers: httpx.Headers, limit: int) -> AsyncIterator[bytes]:
    """The body as sent. Raises `RecordingTruncated` where it is shorter or longer than Content-Length says."""
    chunked = "transfer-encoding" in headers
    declared = int(headers["content-length"]) if "content-length" in headers and not chunked else None
    if declared is not None and declared > limit:
        raise RecordingTooLarge(f"The recording is larger than the limit of {limit} bytes.").with_facts(
            size=declared, limit=limit
        )
    received = 0
    async for data in response.aiter_stream():
        received += len(data)
        yield data
        if received == declared and await _more_comes(response.extensions["network_stream"], declared):
            raise RecordingTruncated("The server sent more than the length it declared for the recording.")


async def _more_comes(stream: CountedStream, declared: int) -> bool:
    if stream.body_bytes > declared:
        return True
    try:
        return bool(await stream.read(1, timeout=SURPLUS_WAIT))
    except (httpcore.NetworkError, httpcore.TimeoutException):
        return False


def _headers(target: Target) -> list[tuple[bytes, bytes]]:
    host = f"[{target.host}]" if ":" in target.host else target.host
    named_port = target.port != {"http": 80, "https": 443}[target.scheme]
    return [
        (b"Host", f"{host}:{target.port}".encode() if named_port else host.encode()),
        (b"Accept", b"audio/*, application/octet-stream;q=0.9, */*;q=0.5"),
        (b"Accept-Encoding", b"identity"),
        (b"User-Agent", b"Switchboard"),
        (b"Connection", b"close"),
    ]


def _check_is_audio(head: bytes, media_type: str | None) -> None:
    found = sniff.what_it_is(head, media_type)
    if found:
        raise NotAudio(f"The server sent {found} in place of a recording.")


def _trust(ca_file: str | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file:
        context.load_verify_locations(ca_file)
    return context
