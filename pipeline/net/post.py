import random
from dataclasses import dataclass
from typing import Any

import httpx

from pipeline.net.retry_after import retry_after

MAX_RESPONSE_BYTES = 4 << 20  # of one response; a longer one is rejected
CONNECT_SECONDS = 10.0


class TooLarge(Exception):
    """The response is larger than `MAX_RESPONSE_BYTES`."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: httpx.Headers
    body: bytes


def exchange(client: httpx.Client, url: str, seconds: float, **sent: Any) -> Reply:
    """POST with the keyword arguments of httpx. Raises `TooLarge` and the errors of httpx."""
    timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    with client.stream("POST", url, timeout=timeout, **sent) as response:
        received = bytearray()
        for piece in response.iter_bytes():
            received += piece
            if len(received) > MAX_RESPONSE_BYTES:
                raise TooLarge
        return Reply(response.status_code, response.headers, bytes(received))


def pause(reply: Reply | None, doubled: float) -> float:
    """Return the seconds until the next attempt: Retry-After, otherwise the caller's backoff with some jitter."""
    server_wait = retry_after(reply.headers) if reply is not None else None
    return doubled + random.uniform(0, 0.25) if server_wait is None else server_wait  # noqa: S311 (spreads requests)
