"""Requests to the servers of models, which may be hostile: time, size and form of a response are limited."""

import asyncio
import email.utils
import random
import ssl
import time
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
from pydantic import SecretStr
from pydantic_core import from_json

from pipeline.net.endpoint import bearer, below

MAX_RESPONSE_BYTES = 4 << 20  # of one response; a longer one is rejected
MAX_PIECES = 4096  # of one response: each costs time, however small it is
MAX_NAME = 100  # characters of the name of a model
CONNECT_SECONDS = 10.0
MAX_RETRY_AFTER = 24 * 3600.0
_NO_COOKIES = DefaultCookiePolicy(allowed_domains=())


class Unreadable(Exception):
    """The response has a form that is not read. `problem`: our words for it, which continue "the response"."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> Any:
        """Return the parsed body; None if it is not JSON, nested deeper than 200 levels, or not Unicode."""
        try:
            return from_json(self.body.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
        except ValueError:
            return None


def open_client() -> httpx.AsyncClient:
    """Return a client for one server, without redirects, since the key is for this address only, and cookies."""
    cookies, headers = CookieJar(_NO_COOKIES), {"Accept-Encoding": "identity"}
    return httpx.AsyncClient(follow_redirects=False, cookies=cookies, headers=headers, verify=_certificates())


@cache
def _certificates() -> ssl.SSLContext:
    """Load the certificates once: that blocks the event loop for some 20 ms."""
    return httpx.create_ssl_context()


async def exchange(client: httpx.AsyncClient, url: str, seconds: float, method: str = "POST", **content: Any) -> Reply:
    """Send `content`, the keyword arguments of httpx, and return the response, all within `seconds`.

    Raises `Unreadable`, `TimeoutError` and the errors of httpx.
    """
    timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    async with asyncio.timeout(seconds), client.stream(method, url, timeout=timeout, **content) as response:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Unreadable("is compressed, which was not requested")  # a few bytes may unpack to gigabytes
        received, pieces = bytearray(), 0
        async for piece in response.aiter_raw():
            received += piece
            pieces += 1
            if len(received) > MAX_RESPONSE_BYTES:
                raise Unreadable(f"is larger than {MAX_RESPONSE_BYTES >> 20} MiB")
            if pieces > MAX_PIECES:
                raise Unreadable("arrives in too many pieces")
        return Reply(response.status_code, response.headers, bytes(received))


def list_models(base_url: str, key: SecretStr | None, seconds: float) -> tuple[int, list[str]]:
    """Return the status of a request for a server's models, and their names. Raises as `exchange` does."""

    async def ask() -> Reply:
        async with open_client() as client:
            return await exchange(client, below(base_url, "/models"), seconds, "GET", headers=bearer(key))

    reply = asyncio.run(ask())
    try:
        names = [str(model["id"])[:MAX_NAME] for model in reply.json()["data"]]
    except (KeyError, TypeError):
        names = []
    return reply.status, names


def pause(reply: Reply | None, backoff: float) -> float:
    """Return the seconds until the next attempt: those of Retry-After, otherwise `backoff` with some jitter."""
    server_wait = retry_after(reply.headers) if reply is not None else None
    if server_wait is not None:
        return server_wait
    return backoff + random.uniform(0, 0.25)  # noqa: S311 (spreads requests)


def retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds that Retry-After (a number or an HTTP date) asks to wait, capped at a day; None without one.

    A date is compared with the server's own `Date`, or with the local clock if there is none.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        seconds = float(value)
    else:
        until, now = _moment(value), _moment(headers.get("date", ""))
        if until is None:
            return None
        seconds = until - (time.time() if now is None else now)
    return min(max(0.0, seconds), MAX_RETRY_AFTER)


def _moment(value: str) -> float | None:
    """Return the seconds since the epoch of a date in a header; without a time zone it is UTC. None: not a date."""
    try:
        date = email.utils.parsedate_to_datetime(value)
        return date.replace(tzinfo=date.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
