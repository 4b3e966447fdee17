"""Fetch a recording: from the sender's URL, past the guard, into our own store."""

import asyncio
import contextlib
import logging
import random
import ssl
from dataclasses import dataclass
from functools import lru_cache

import httpcore
import httpx
from pydantic import BaseModel, ConfigDict, Field, field_validator

from pipeline.audio import body, outcomes, partial, sniff
from pipeline.audio.address import REFUSED_PORTS, Guard, Resolver, Target, parse_allowed, parse_ports, resolve
from pipeline.audio.partial import RangeRefused
from pipeline.audio.redirects import REDIRECTS, follow
from pipeline.audio.storage import Incoming, Store
from pipeline.audio.transport import GuardedBackend
from pipeline.domain.access import Access, Credential
from pipeline.domain.speech import Recording
from pipeline.errors import (
    CallError,
    NotAudio,
    RecordingEmpty,
    RecordingTooSlow,
    RecordingTruncated,
    RecordingUnreachable,
    TooManyRedirects,
)

WRITE_BYTES = 1 << 20  # gathered in memory before a thread writes them
RESUME_PAUSE = 0.5  # seconds before the rest of a cut recording is asked for; doubles each time


class FetchOptions(BaseModel):
    """How recordings are fetched, and from where they may be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_bytes: int = Field(1 << 30, gt=0, description="Largest recording, in bytes.")
    max_seconds: float = Field(600.0, gt=0, description="Longest time for one fetch in all, redirects included.")
    connect_seconds: float = Field(10.0, gt=0, description="How long to wait for a connection and for TLS.")
    read_seconds: float = Field(60.0, gt=0, description="How long the server may be silent.")
    min_bytes_per_second: float = Field(
        500.0,
        ge=0,
        description="A body that comes more slowly than this for `slow_seconds` is abandoned and retried later.",
    )
    slow_seconds: float = Field(30.0, gt=0, description="How long a body may come too slowly.")
    max_resumes: int = Field(
        4, ge=0, description="Times that the rest of a recording that was cut is asked for in one fetch."
    )
    max_redirects: int = Field(3, ge=0, description="Redirects followed; each is checked like the first address.")
    insecure_redirects: bool = Field(False, description="Whether redirects from https to http are followed.")
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="Hosts inside one's own network that every workspace's recordings may be fetched from: names, "
        "addresses, networks (CIDR), each perhaps with a port (pbx.local:8088). Everything else must be on the open "
        "Internet. Where workspaces belong to different people, give each its own: `switchboard workspaces hosts`.",
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


async def fetch(
    url: str,
    channel: int,
    folder: str,
    options: FetchOptions,
    access: Access | None = None,
    name: str | None = None,
) -> Recording:
    """Fetch `url` into `folder` (an fsspec address) and say where it lies. `channel`: 0 or 1.

    `access` has the credentials of the sender's servers. `name` is what is fetched, whatever its URL is signed with:
    a transfer that is cut goes on under it in a later fetch on this machine.
    Raises `StorageError` or a `RecordingError`: its class says whether another try can help. No message or fact
    holds more of the URL than its host.
    """
    return await Fetcher(options).fetch(url, channel, folder, access, name)


@dataclass(frozen=True, slots=True)
class _Errand:
    """What is asked for: a checked address and what may be shown to exactly that server."""

    url: str
    target: Target
    credential: Credential | None = None
    known_as: str | None = None  # see `outcomes.check_status`


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

    async def fetch(
        self, url: str, channel: int, folder: str, access: Access | None = None, name: str | None = None
    ) -> Recording:
        """See `fetch`."""
        target = self._guard.check(url)
        errand = await self._with_credential(_Errand(url, target), access)
        store = Store(folder)
        with store.receive(name) as incoming:  # not in a thread: a cancelled fetch must know of its file to remove it
            try:
                async with asyncio.timeout(self._options.max_seconds):
                    await asyncio.to_thread(incoming.take_up)
                    media_type = await self._persist(errand, incoming)
            except TimeoutError:
                raise RecordingUnreachable(
                    f"Fetching from {target.host} took longer than {self._options.max_seconds:g} s."
                ).with_facts(host=target.host) from None
            uri, sha256 = await asyncio.to_thread(store.keep, incoming)
            return Recording(channel, uri, sha256, incoming.size, media_type)

    async def _with_credential(self, errand: _Errand, access: Access | None) -> _Errand:
        """Credentials are shown over TLS, or to a host that the operator has put on the allow-list."""
        target = errand.target
        credential = await access(target.host, target.port) if access is not None else None
        if credential is None:
            return errand
        if target.scheme == "https" or self._guard.is_listed(target):
            return _Errand(errand.url, target, credential, "shown")
        return _Errand(errand.url, target, None, "withheld")

    async def _persist(self, errand: _Errand, incoming: Incoming) -> str | None:
        """Get the whole content, asking for the rest where the transfer is cut; its media type."""
        resumes = 0
        while True:
            before = incoming.size
            try:
                return await self._get(errand, incoming)
            except RangeRefused:
                await asyncio.to_thread(incoming.restart)
            except RecordingTooSlow:
                raise
            except (RecordingTruncated, RecordingUnreachable):
                if not incoming.can_go_on or incoming.size <= before or resumes == self._options.max_resumes:
                    raise
                await asyncio.sleep(RESUME_PAUSE * 2**resumes * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
                resumes += 1

    async def _get(self, errand: _Errand, incoming: Incoming) -> str | None:
        """From the first address through its redirects to the content. Raises `RangeRefused` where all of it must be
        asked for."""
        first = errand.target
        for _ in range(self._options.max_redirects + 1):
            outcome = await self._request(errand, incoming)
            if not isinstance(outcome, _Moved):
                return outcome
            url = follow(errand.url, errand.target, outcome.location, self._options.insecure_redirects)
            target = self._guard.check(url)
            # Credentials are for the server that the sender named; once left, they do not come back into play.
            stays = target.origin == errand.target.origin
            errand = _Errand(url, target, errand.credential, errand.known_as) if stays else _Errand(url, target)
        raise TooManyRedirects(
            f"The recording's address redirects more than {self._options.max_redirects} times."
        ).with_facts(host=first.host)

    async def _request(self, errand: _Errand, incoming: Incoming) -> "_Moved | str | None":
        """One GET: the media type of what was received, or where it redirects to."""
        target, options = errand.target, self._options
        request = httpcore.Request(
            "GET",
            httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
            headers=_headers(errand, incoming),
            extensions={
                "timeout": dict.fromkeys(("connect", "pool", "write"), options.connect_seconds)
                | {"read": options.read_seconds}
            },
        )
        try:
            async with (
                httpcore.AsyncConnectionPool(self._ssl_context, network_backend=GuardedBackend(self._guard)) as pool,
                contextlib.aclosing(await self._answer(pool, request, target.host)) as response,
            ):
                return await self._take(response, errand, incoming)
        except CallError as error:
            error.with_facts(host=target.host)
            raise
        except outcomes.CONNECTION_FAILURES as error:
            raise outcomes.translate(error, target.host).with_facts(host=target.host) from None

    async def _answer(
        self, pool: httpcore.AsyncConnectionPool, request: httpcore.Request, host: str
    ) -> httpcore.Response:
        """The head of the answer, which may not come in drips either."""
        try:
            async with asyncio.timeout(self._options.connect_seconds + self._options.read_seconds):
                return await pool.handle_async_request(request)
        except TimeoutError:
            raise RecordingUnreachable(f"{host} did not answer in time.") from None

    async def _take(self, response: httpcore.Response, errand: _Errand, incoming: Incoming) -> "_Moved | str | None":
        headers = httpx.Headers(response.headers)
        if response.status in REDIRECTS and "location" in headers:
            return _Moved(str(headers["location"]))
        if incoming.can_go_on and response.status == 416:
            raise RangeRefused
        if incoming.can_go_on and response.status == 206:
            return await self._go_on(response, headers, incoming)
        outcomes.check_status(response.status, headers, errand.target.host, errand.known_as)
        body.check_encoding(headers)
        await asyncio.to_thread(incoming.restart, partial.version_of(headers, body.declared_length(headers)))
        media_type: str | None = headers.get("content-type")
        await self._write(response, headers, incoming, media_type)
        return media_type

    async def _go_on(self, response: httpcore.Response, headers: httpx.Headers, incoming: Incoming) -> str | None:
        """The rest of what was cut, after a stretch that is there already and has to be the same."""
        version, known = incoming.version, await asyncio.to_thread(incoming.tail)
        assert version is not None
        total = partial.check_continues(headers, incoming.size - len(known), version)
        if total > self._options.max_bytes:
            raise body.too_large(self._options.max_bytes)
        await self._write(response, headers, incoming, version.media_type, known)
        if incoming.size > total:
            raise RangeRefused
        if incoming.size < total:
            raise RecordingTruncated("The server sent only a part of the rest of the recording.")
        return version.media_type

    async def _write(
        self,
        response: httpcore.Response,
        headers: httpx.Headers,
        incoming: Incoming,
        media_type: str | None,
        known: bytes = b"",
    ) -> None:
        """Stream the body into the file; `known` is how it has to begin, and is there already."""
        limit = self._options.max_bytes
        pace = body.Pace(self._options.min_bytes_per_second, self._options.slow_seconds)
        pending, checked = bytearray(), incoming.size > 0
        try:
            async for data in body.plain(response, headers, limit, pace):
                known, new = _past(known, data)
                pending += new
                if incoming.size + len(pending) > limit:
                    raise body.too_large(limit)
                if not checked and len(pending) >= sniff.HEAD_BYTES:
                    _check_is_audio(bytes(pending[: sniff.HEAD_BYTES]), media_type)
                    checked = True
                if len(pending) >= WRITE_BYTES:
                    await asyncio.to_thread(incoming.write, bytes(pending))
                    pending.clear()
        except body.LongerThanDeclared:
            incoming.version = None
            raise
        except (*outcomes.CONNECTION_FAILURES, RecordingTruncated, RecordingUnreachable):
            if checked and pending:  # what came before the cut is worth keeping
                await asyncio.to_thread(incoming.write, bytes(pending))
            raise
        if not incoming.size and not pending:
            raise RecordingEmpty("The server sent a recording of zero bytes.")
        if not checked:
            _check_is_audio(bytes(pending), media_type)
        await asyncio.to_thread(incoming.write, bytes(pending))


@dataclass(frozen=True, slots=True)
class _Moved:
    location: str


def _past(known: bytes, data: bytes) -> tuple[bytes, bytes]:
    """What of `known` and of `data` is left where the two have met. Raises `RangeRefused` where they differ."""
    length = min(len(known), len(data))
    if known[:length] != data[:length]:
        raise RangeRefused
    return known[length:], data[length:]


def _headers(errand: _Errand, incoming: Incoming) -> list[tuple[bytes, bytes]]:
    target = errand.target
    host = f"[{target.host}]" if ":" in target.host else target.host
    named_port = target.port != {"http": 80, "https": 443}[target.scheme]
    headers = [
        (b"Host", f"{host}:{target.port}".encode() if named_port else host.encode()),
        (b"Accept", b"audio/*, application/octet-stream;q=0.9, */*;q=0.5"),
        (b"Accept-Encoding", b"identity"),
        (b"User-Agent", b"Switchboard"),
        (b"Connection", b"close"),
    ]
    if errand.credential is not None:
        headers.append((errand.credential.header.encode(), errand.credential.value.encode()))
    if incoming.can_go_on and incoming.version is not None:
        headers.append((b"Range", f"bytes={incoming.size - partial.OVERLAP}-".encode()))
        headers.append((b"If-Range", incoming.version.validator.encode()))
    return headers


def _check_is_audio(head: bytes, media_type: str | None) -> None:
    found = sniff.what_it_is(head, media_type)
    if found:
        raise NotAudio(f"The server sent {found} in place of a recording.")


@lru_cache(maxsize=4)  # reading the authorities takes a tenth of a second, and a recording may be asked for often
def _trust(ca_file: str | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file:
        context.load_verify_locations(ca_file)
    return context
