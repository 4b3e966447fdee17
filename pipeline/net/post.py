"""One request to an engine behind an address: a reply of bounded size, and how long to wait before the next try."""

import random
from dataclasses import dataclass
from typing import Any

import httpx

from pipeline.net.retry_after import retry_after

MOST_BYTES = 4 << 20  # of one answer: more is none
CONNECT_SECONDS = 10.0


class TooLarge(Exception):
    """The answer is larger than `MOST_BYTES`."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: httpx.Headers
    body: bytes


def exchange(client: httpx.Client, url: str, seconds: float, **sent: Any) -> Reply:
    """POST `sent`, as `httpx` takes it. Raises `TooLarge` and what `httpx` raises."""
    timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    with client.stream("POST", url, timeout=timeout, **sent) as response:
        received = bytearray()
        for piece in response.iter_bytes():
            received += piece
            if len(received) > MOST_BYTES:
                raise TooLarge
        return Reply(response.status_code, response.headers, bytes(received))


def pause(reply: Reply | None, doubled: float) -> float:
    """Seconds until the next attempt: as the server says, else as given, which doubles, and a little by chance."""
    told = retry_after(reply.headers) if reply is not None else None
    return doubled + random.uniform(0, 0.25) if told is None else told  # noqa: S311 (spreads requests)
