import asyncio
import contextlib
import logging
import random
import re
from collections import defaultdict
from dataclasses import dataclass

import httpcore
import httpx

from pipeline import errors
from pipeline.domain import sniff
from pipeline.domain.credentials import Access, Credential
from pipeline.domain.speech import Recording
from pipeline.fetch import body, outcomes, partial
from pipeline.fetch.address import REFUSED_PORTS, AddressGuard, Resolver, Target, resolve
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.partial import RangeRefused
from pipeline.fetch.storage import Incoming, Store
from pipeline.fetch.transport import GuardedBackend, trust

MAX_COOKIES = 20  # of one server
MAX_CHARACTERS = 4096  # of one cookie, and of all cookies in a request
_PAIR = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+=[!#-+\--:<-\[\]-~\" ]*", re.ASCII)
_EXPIRED = re.compile(r";\s*max-age\s*=\s*(?:0+|-\d+)\s*(?:;|$)", re.IGNORECASE)

Origin = tuple[str, str, int]


class Cookies:
    """Cookies of one fetch: a server that answers only with the cookie of its own redirect gets it back.

    A cookie goes to the scheme, host and port that set it, whatever its attributes permit, and ends with the fetch.
    """

    def __init__(self) -> None:
        self._by_origin: defaultdict[Origin, dict[str, str]] = defaultdict(dict)

    def store(self, origin: Origin, set_cookies: tuple[str, ...]) -> None:
        """Store the cookies of a response's Set-Cookie headers; malformed or oversized ones are dropped."""
        cookies = self._by_origin[origin]
        for header in set_cookies:
            pair = header.partition(";")[0].strip()
            if len(pair) > MAX_CHARACTERS or not _PAIR.fullmatch(pair):
                continue
            name, _, value = pair.partition("=")
            cookies.pop(name, None)
            if not _EXPIRED.search(header) and len(cookies) < MAX_COOKIES:
                cookies[name] = value

    def of(self, origin: Origin) -> str:
        """Return the value of the Cookie header for a server; "" without cookies."""
        text = ""
        for name, value in self._by_origin.get(origin, {}).items():
            pair = f"{name}={value}"
            if len(text) + len(pair) + 2 <= MAX_CHARACTERS:
                text = f"{text}; {pair}" if text else pair
        return text


WRITE_BYTES = 1 << 20  # buffered in memory before a thread writes them
RESUME_PAUSE = 0.5  # seconds before the rest of an interrupted transfer is requested; doubles each time


async def fetch(
    url: str,
    channel: int,
    folder: str,
    options: FetchOptions,
    access: Access | None = None,
    name: str | None = None,
    key: bytes | None = None,
) -> Recording:
    """Fetch `url` into `folder` (an fsspec address) and return where it is stored. `channel`: 0 or 1.

    `access` has the credentials of the sender's servers. `name` identifies the recording, whatever its URL is signed
    with: a later fetch on this machine resumes an interrupted transfer of that name. `key` seals the stored file.
    Raises `StorageError` or a `RecordingError`: its class says whether another try can help. Of the URL, only the host
    is in messages and facts.
    """
    return await Fetcher(options).fetch(url, channel, folder, access, name, key)


@dataclass(frozen=True, slots=True)
class _Source:
    """One request: a checked address and the credential for exactly that server."""

    url: str
    target: Target
    credential: Credential | None = None
    known_as: str | None = None  # see `outcomes.check_status`
    cookies: str = ""  # that this server set in redirects of this fetch


class Fetcher:
    """Fetches with one set of options. `resolver` answers host names."""

    def __init__(self, options: FetchOptions, resolver: Resolver = resolve) -> None:
        self._options = options
        self._guard = AddressGuard(options.allowed_hosts, options.ports, REFUSED_PORTS, resolver)
        self._ssl_context = trust(options.ca_file)
        for name in ("httpcore.connection", "httpcore.http11"):  # their debug lines hold signed Locations
            logging.getLogger(name).setLevel(logging.INFO)

    async def fetch(
        self,
        url: str,
        channel: int,
        folder: str,
        access: Access | None = None,
        name: str | None = None,
        key: bytes | None = None,
    ) -> Recording:
        target = self._guard.check(url)
        source = await self._with_credential(_Source(url, target), access)
        store = Store(folder)
        with store.receive(name) as incoming:  # not in a thread: a canceled fetch must know its file to remove it
            try:
                async with asyncio.timeout(self._options.max_seconds):
                    await asyncio.to_thread(incoming.resume)
                    media_type = await self._persist(source, incoming)
            except TimeoutError:
                raise errors.RecordingUnreachable(
                    f"Fetching from {target.host} took longer than {self._options.max_seconds:g} s."
                ).with_facts(host=target.host) from None
            uri, sha256 = await asyncio.to_thread(store.keep, incoming, key)
            return Recording(channel, uri, sha256, incoming.size, media_type, key)

    async def _with_credential(self, source: _Source, access: Access | None) -> _Source:
        """Credentials are sent over TLS, or to a host on the allow-list."""
        target = source.target
        credential = await access(target.host, target.port) if access is not None else None
        if credential is None:
            return source
        if target.scheme == "https" or self._guard.is_listed(target):
            return _Source(source.url, target, credential, "shown")
        return _Source(source.url, target, None, "withheld")

    async def _persist(self, source: _Source, incoming: Incoming) -> str | None:
        """Get the whole content, resuming interrupted transfers; return its media type."""
        resumes = 0
        while True:
            before = incoming.size
            try:
                return await self._get(source, incoming)
            except RangeRefused:
                await asyncio.to_thread(incoming.restart)
            except errors.RecordingTooSlow:
                raise
            except (errors.RecordingTruncated, errors.RecordingUnreachable):
                if not incoming.can_resume or incoming.size <= before or resumes == self._options.MAX_RESUMES:
                    raise
                await asyncio.sleep(RESUME_PAUSE * 2**resumes * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
                resumes += 1

    async def _get(self, source: _Source, incoming: Incoming) -> str | None:
        """Follow redirects to the content. Raises `RangeRefused` if the whole recording must be requested."""
        first, jar = source.target, Cookies()
        for _ in range(self._options.MAX_REDIRECTS + 1):
            outcome = await self._request(source, incoming)
            if not isinstance(outcome, _Moved):
                return sniff.media_type(outcome, source.target.path.partition(b"?")[0])
            jar.store(source.target.origin, outcome.set_cookies)
            url = outcomes.follow(source.url, source.target, outcome.location)
            target = self._guard.check(url)
            # Credentials are for the server that the sender named; once dropped, they are not sent again.
            stays = target.origin == source.target.origin
            cookies = jar.of(target.origin)
            if stays:
                source = _Source(url, target, source.credential, source.known_as, cookies)
            else:
                source = _Source(url, target, cookies=cookies)
        raise errors.TooManyRedirects(
            f"The recording's address redirects more than {self._options.MAX_REDIRECTS} times."
        ).with_facts(host=first.host)

    async def _request(self, source: _Source, incoming: Incoming) -> "_Moved | str | None":
        """Send one GET; return the media type of the received content, or the redirect."""
        target, options = source.target, self._options
        request = httpcore.Request(
            "GET",
            httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
            headers=_headers(source, incoming),
            extensions={
                "timeout": dict.fromkeys(("connect", "pool", "write"), options.CONNECT_SECONDS)
                | {"read": options.READ_SECONDS}
            },
        )
        try:
            async with (
                httpcore.AsyncConnectionPool(self._ssl_context, network_backend=GuardedBackend(self._guard)) as pool,
                contextlib.aclosing(await self._answer(pool, request, target.host)) as response,
            ):
                return await self._take(response, source, incoming)
        except errors.CallError as error:
            error.with_facts(host=target.host)
            raise
        except outcomes.CONNECTION_FAILURES as error:
            raise outcomes.translate(error, target.host).with_facts(host=target.host) from None

    async def _answer(
        self, pool: httpcore.AsyncConnectionPool, request: httpcore.Request, host: str
    ) -> httpcore.Response:
        """Return the response once its head has arrived, within a deadline."""
        try:
            async with asyncio.timeout(self._options.CONNECT_SECONDS + self._options.READ_SECONDS):
                return await pool.handle_async_request(request)
        except TimeoutError:
            raise errors.RecordingUnreachable(f"{host} did not answer in time.") from None

    async def _take(self, response: httpcore.Response, source: _Source, incoming: Incoming) -> "_Moved | str | None":
        headers = httpx.Headers(response.headers)
        if response.status in outcomes.REDIRECTS and "location" in headers:
            return _Moved(str(headers["location"]), tuple(headers.get_list("set-cookie")))
        if incoming.can_resume and response.status == 416:
            raise RangeRefused
        if incoming.can_resume and response.status == 206:
            return await self._resume(response, headers, incoming)
        outcomes.check_status(response.status, headers, source.target.host, source.known_as)
        body.check_encoding(headers)
        await asyncio.to_thread(incoming.restart, partial.version_of(headers, body.declared_length(headers)))
        media_type: str | None = headers.get("content-type")
        await self._write(response, headers, incoming, media_type)
        return media_type

    async def _resume(self, response: httpcore.Response, headers: httpx.Headers, incoming: Incoming) -> str | None:
        """Receive the rest of an interrupted transfer after verifying the overlap."""
        version, tail = incoming.version, await asyncio.to_thread(incoming.tail)
        assert version is not None
        total = partial.check_continues(headers, incoming.size - len(tail), version)
        if total > self._options.max_bytes:
            raise body.too_large(self._options.max_bytes)
        await self._write(response, headers, incoming, version.media_type, tail)
        if incoming.size > total:
            raise RangeRefused
        if incoming.size < total:
            raise errors.RecordingTruncated("The server sent only part of the rest of the recording.")
        return version.media_type

    async def _write(
        self,
        response: httpcore.Response,
        headers: httpx.Headers,
        incoming: Incoming,
        media_type: str | None,
        expected: bytes = b"",
    ) -> None:
        """Stream the body into the file; `expected` is how it must begin, and is stored already."""
        limit = self._options.max_bytes
        speed = body.SpeedCheck(self._options.MIN_BYTES_PER_SECOND, self._options.slow_seconds)
        pending, checked = bytearray(), incoming.size > 0
        try:
            async for data in body.plain(response, headers, limit, speed):
                expected, new = _past(expected, data)
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
        except (*outcomes.CONNECTION_FAILURES, errors.RecordingTruncated, errors.RecordingUnreachable):
            if checked and pending:  # keep what arrived before the interruption
                await asyncio.to_thread(incoming.write, bytes(pending))
            raise
        if not incoming.size and not pending:
            raise errors.RecordingEmpty("The server sent a recording of zero bytes.")
        if not checked:
            _check_is_audio(bytes(pending), media_type)
        await asyncio.to_thread(incoming.write, bytes(pending))


@dataclass(frozen=True, slots=True)
class _Moved:
    location: str
    set_cookies: tuple[str, ...] = ()


def _past(expected: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Strip the common prefix of `expected` and `data` from both. Raises `RangeRefused` if they differ."""
    length = min(len(expected), len(data))
    if expected[:length] != data[:length]:
        raise RangeRefused
    return expected[length:], data[length:]


def _headers(source: _Source, incoming: Incoming) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"Host", source.target.host_header.encode()),
        (b"Accept", b"audio/*, application/octet-stream;q=0.9, */*;q=0.5"),
        (b"Accept-Encoding", b"identity"),
        (b"User-Agent", b"Switchboard"),
        (b"Connection", b"close"),
    ]
    if source.cookies:
        headers.append((b"Cookie", source.cookies.encode()))
    if source.credential is not None:
        headers.append((source.credential.header.encode(), source.credential.value.encode()))
    if incoming.can_resume and incoming.version is not None:
        headers.append((b"Range", f"bytes={incoming.size - partial.OVERLAP}-".encode()))
        headers.append((b"If-Range", incoming.version.validator.encode()))
    return headers


def _check_is_audio(head: bytes, media_type: str | None) -> None:
    content_type = sniff.detect_type(head, media_type)
    if content_type:
        raise errors.NotAudio(f"The server sent {content_type} instead of a recording.")
