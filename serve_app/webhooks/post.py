"""Sends one event: a signed POST to a checked address, without redirects, reading little of the response."""

import asyncio
import copy
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Self

import httpcore
import httpx

from db.core.database import Clock
from db.events.outbox import Attempt
from pipeline.errors import AddressForbidden, CallError, RecordingUnreachable
from pipeline.fetch.address import HOW_TO_ALLOW, REFUSED_PORTS, AddressGuard, Resolver, Target, parse_allowed, resolve
from pipeline.fetch.outcomes import is_tls
from pipeline.fetch.transport import GuardedBackend, trust
from pipeline.net.post import retry_after
from pipeline.observability.context import current_context
from serve_app.webhooks.options import WebhookOptions
from serve_app.webhooks.signing import sign

PORTS = ("443", "80", "1024-65535")
ANSWER_BYTES = 2048  # read of a response's body, which only helps people to find a mistake
ANSWER_SECONDS = 2.0  # for reading it
ANSWER_CHARACTERS = 300  # stored


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The response of a receiver. `retry_after`: seconds it requested, max. a day."""

    attempt: Attempt
    retry_after: float | None = None


class Poster:
    """Sends with one set of options. `ca_file`: further authorities to trust; `resolver` resolves host names."""

    def __init__(self, options: WebhookOptions, ca_file: str | None = None, resolver: Resolver = resolve) -> None:
        self._options = options
        self._resolver = resolver
        self._ssl_context = trust(ca_file)
        self._allow(options.allowed_hosts)

    def _allow(self, hosts: Sequence[str]) -> None:
        self._rules = [parse_allowed(entry) for entry in hosts]
        self._guard = AddressGuard(hosts, PORTS, REFUSED_PORTS, self._resolver)

    def for_workspace(self, hosts: Sequence[str]) -> Self:
        """Return a poster that also allows the hosts of a workspace (`switchboard workspaces hosts`)."""
        if not hosts:
            return self
        poster = copy.copy(self)
        poster._allow((*self._options.allowed_hosts, *hosts))
        return poster

    def check(self, url: str) -> Target:
        """Return the target of `url`, by its text. Raises AddressForbidden with a sentence about receivers."""
        try:
            target = self._guard.check(url)
        except AddressForbidden as error:
            raise _about_receivers(error) from None
        is_allowed = any(rule.names(target.host) and rule.port in (None, target.port) for rule in self._rules)
        if target.scheme != "https" and not is_allowed:
            raise AddressForbidden(
                f"Events are sent to {target.host} by https only. If it is a host of your own network that has no "
                f"certificate, {HOW_TO_ALLOW}.".replace("FETCH", "WEBHOOKS")
            )
        return target

    async def look(self, url: str) -> None:
        """Check the URL and every address of its host. Raises AddressForbidden, ValueError for a host without one."""
        target = self.check(url)
        try:
            await self._guard.addresses(target.host, target.port)
        except AddressForbidden as error:
            raise _about_receivers(error) from None
        except RecordingUnreachable as error:
            raise ValueError(error.message.removesuffix(".")) from None

    async def post(
        self, url: str, message_id: str, body: bytes, secrets: Sequence[str], clock: Clock
    ) -> EndpointResponse:
        """Send `body`, signed with each of `secrets`; return the outcome. No error of a receiver raises.

        The signed time is that of `clock`, since receivers refuse a difference of five minutes.
        """
        at, started = clock.now(), time.monotonic()
        status: int | None = None
        wait: float | None = None
        answer = ""
        try:
            target = self.check(url)
            headers = _headers(target, message_id, body, secrets, at)
            status, wait, answer = await self._exchange(target, headers, body)
            outcome = f"status {status}"
        except AddressForbidden as error:
            outcome = _about_receivers(error).message
        except CallError as error:
            outcome = error.message
        except TimeoutError:
            outcome = f"no response within {self._options.TIMEOUT_SECONDS:g} s"
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            outcome = _phrase(error)
        return EndpointResponse(Attempt(at, time.monotonic() - started, status, outcome, answer), wait)

    async def _exchange(
        self, target: Target, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, float | None, str]:
        """Return status, Retry-After in seconds, and the beginning of the body, which may be slow or endless."""
        deadline = asyncio.timeout(self._options.TIMEOUT_SECONDS)
        url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        async with httpcore.AsyncConnectionPool(self._ssl_context, network_backend=GuardedBackend(self._guard)) as pool:
            request = httpcore.Request("POST", url, headers=headers, content=body)
            async with deadline:
                response = await pool.handle_async_request(request)
            try:
                response_headers = httpx.Headers(response.headers)
                return response.status, retry_after(response_headers), await _beginning(response)
            finally:
                await response.aclose()


async def _beginning(response: httpcore.Response) -> str:
    read = bytearray()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            async for data in response.aiter_stream():
                read += data
                if len(read) >= ANSWER_BYTES:
                    break
    except (TimeoutError, httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError):
        pass  # the part that arrived is enough
    return clean(bytes(read[:ANSWER_BYTES]))


def clean(data: bytes) -> str:
    """Return the beginning of a response's body as one short line, without control or direction characters."""
    text = data.decode("utf-8", "replace")
    plain = "".join(" " if unicodedata.category(character).startswith(("C", "Z")) else character for character in text)
    return " ".join(plain.split())[:ANSWER_CHARACTERS]


def _headers(
    target: Target, message_id: str, body: bytes, secrets: Sequence[str], at: datetime
) -> list[tuple[bytes, bytes]]:
    now = int(at.timestamp())
    headers = {
        "host": target.host_header,
        "user-agent": f"Switchboard/{_version()}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "accept-encoding": "identity",
        "connection": "close",
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": sign(secrets, message_id, now, body),
    }
    if (trace := current_context().trace) is not None:
        headers["traceparent"] = trace
    return [(name.encode(), value.encode("ascii")) for name, value in headers.items()]


def _about_receivers(error: AddressForbidden) -> AddressForbidden:
    """Rewrite a sentence of the guard, which is about recordings, for receivers."""
    message = error.message.replace("that recordings are not fetched from", "that events are not sent to")
    message = message.replace("that recordings are fetched from", "that events are sent to")
    message = message.replace("The recording's address", "The receiver's address")
    message = message.replace("of the recording's address", "of the receiver's address")
    return AddressForbidden(message.replace("SWITCHBOARD_FETCH__", "SWITCHBOARD_WEBHOOKS__")).with_facts(**error.facts)


def _phrase(error: Exception) -> str:
    if is_tls(error):
        return "the TLS handshake failed"
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
        return "could not connect"
    if isinstance(error, httpcore.TimeoutException):
        return "no response in time"
    if isinstance(error, httpcore.ProtocolError):
        return "the response is not HTTP, or incomplete"
    return "the connection was lost"


def _version() -> str:
    try:
        return version("switchboard-calls")
    except PackageNotFoundError:
        return "unpackaged"
