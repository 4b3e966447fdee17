import email.utils
import random
import time
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import httpx

MAX_RESPONSE_BYTES = 4 << 20  # of one response; a longer one is rejected
CONNECT_SECONDS = 10.0
MAX_RETRY_AFTER = 24 * 3600.0


class TooLarge(Exception):
    """The response is larger than `MAX_RESPONSE_BYTES`."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: httpx.Headers
    body: bytes


def exchange(client: httpx.Client, url: str, seconds: float, **content: Any) -> Reply:
    """POST `content`, the keyword arguments of httpx, within `seconds`. Raises `TooLarge` and the errors of httpx."""
    timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    with client.stream("POST", url, timeout=timeout, **content) as response:
        received = bytearray()
        for piece in response.iter_bytes():
            received += piece
            if len(received) > MAX_RESPONSE_BYTES:
                raise TooLarge
        return Reply(response.status_code, response.headers, bytes(received))


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
