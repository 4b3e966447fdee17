"""What a request may cost: size, time, form, rate and number at once."""

import asyncio
import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect, Request

from serve_app.http.problems import BodyTooLarge, BodyTooSlow, MediaTypeRefused, Refusal, TooManyRequests, Unavailable


class LimitOptions(BaseModel):
    """Limits of the submission endpoint. Rates and numbers at once count for each Intake replica by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    BODY_BYTES: ClassVar[int] = 64 * 1024  # a submission has 1 KiB or 2; a larger body is answered with 413
    BODY_SECONDS: ClassVar[float] = 10.0  # for a body to arrive; then 408
    CONCURRENCY: ClassVar[int] = 256  # submissions processed at once in a replica; more get 503
    BURST_SECONDS: ClassVar[float] = 20.0  # a rested key may send at once what its rate allows in this time
    QUEUE: ClassVar[int] = 256  # further submissions that Serve queues before it answers 503 itself
    KEY_SECONDS: ClassVar[float] = 5.0  # how long a replica remembers a key that it has looked up
    UNKNOWN_KEY_SECONDS: ClassVar[float] = 1.0  # how long it remembers that there is no such key
    # Look-ups of unknown keys from one address per replica, with a burst of ten seconds. Beyond it, keys that the
    # replica has not seen get 503 from that address for a while: guessing must not keep PostgreSQL busy.
    UNKNOWN_KEYS_PER_SECOND: ClassVar[float] = 50.0
    BACKLOG_RETRY_SECONDS: ClassVar[int] = 60  # Retry-After of a 429 for a full backlog
    RETRY_AFTER_SECONDS: ClassVar[int] = 5  # Retry-After of a 503
    DATABASE_SECONDS: ClassVar[float] = 5.0  # for PostgreSQL to take a call; then 503, never 202
    POOL_SIZE: ClassVar[int] = 8  # connections to PostgreSQL that a replica keeps

    per_minute: float = Field(
        600.0,
        gt=0,
        description="Submissions a minute for one API key; more get 429. A rested key may send a third at once.",
    )
    backlog: int = Field(
        100_000,
        ge=1,
        description="Calls of one workspace that may wait for their recording or their turn; further ones with a "
        "recording get 429. Counted every few seconds, so that a burst may go beyond it.",
    )

    @property
    def burst(self) -> int:
        """Submissions that a rested API key may send at once."""
        return burst(self.per_minute, self.BURST_SECONDS)


def burst(per_minute: float, seconds: float) -> int:
    """Return how many requests a rate brings in so many seconds; at least one."""
    return max(1, round(per_minute / 60 * seconds))


_JSON = re.compile(r"application/(json|[a-z0-9!#$&^_.+-]+\+json)", re.ASCII)


def check_media_type(content_types: Sequence[str], content_codings: Sequence[str]) -> None:
    """Raises `MediaTypeRefused` unless the body is said to be plain JSON. Parameters are allowed and ignored."""
    kinds = {value.split(";", 1)[0].strip().lower() for value in content_types}
    if len(kinds) != 1 or not _JSON.fullmatch(kinds.pop()):
        raise MediaTypeRefused
    if any(coding.strip().lower() not in ("", "identity") for coding in content_codings):
        raise MediaTypeRefused


async def read_body(request: Request, options: LimitOptions, most: int | None = None) -> bytes:
    """The body, of which no more than `most` bytes are ever held; None: those of a submission.

    A Content-Length over the limit is refused unread; what really arrives is counted whatever it said.
    """
    most = options.BODY_BYTES if most is None else most
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > most:
        raise BodyTooLarge
    parts: list[bytes] = []
    held = 0
    try:
        async with asyncio.timeout(options.BODY_SECONDS):
            async for part in request.stream():
                held += len(part)
                if held > most:
                    raise BodyTooLarge
                parts.append(part)
    except TimeoutError:
        raise BodyTooSlow from None
    except ClientDisconnect:
        raise Refusal("The connection ended before the body did.") from None  # nobody is left to read it
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left to an API key, in the words of the IETF draft "RateLimit header fields for HTTP"."""

    quota: int  # submissions that a rested key may send at once
    window: int  # seconds in which a spent quota is whole again
    remaining: int
    reset: int  # seconds until the quota is whole, or, where nothing remains, until one submission is taken

    def headers(self) -> dict[str, str]:
        """`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-09): one policy, for the key."""
        return {
            "RateLimit-Policy": f'"key";q={self.quota};w={self.window}',
            "RateLimit": f'"key";r={self.remaining};t={self.reset}',
        }


class Buckets:
    """A token bucket for each key: `per_minute` tokens flow in, `burst` fit."""

    SWEEP = 4096  # buckets; beyond that, full ones are forgotten: a new one is full as well

    def __init__(self, per_minute: float, burst: int) -> None:
        self._per_second = per_minute / 60.0
        self._burst = float(burst)
        self._levels: dict[UUID, tuple[float, float]] = {}  # level, when

    def take(self, key: UUID, now: float | None = None) -> Allowance:
        """Take a token of `key`; what is left. Raises `TooManyRequests` that says when one will be there."""
        now = time.monotonic() if now is None else now
        level, since = self._levels.get(key, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._per_second)
        if level < 1.0:
            self._levels[key] = (level, now)
            wait = max(1, math.ceil((1.0 - level) / self._per_second))
            raise TooManyRequests(wait, self._allowance(0, wait).headers())
        self._levels[key] = (level - 1.0, now)
        if len(self._levels) > self.SWEEP:
            self._sweep(now)
        left = level - 1.0
        until = self._burst if left >= 1.0 else 1.0
        return self._allowance(int(left), math.ceil((until - left) / self._per_second))

    def _allowance(self, remaining: int, reset: int) -> Allowance:
        return Allowance(int(self._burst), max(1, math.ceil(self._burst / self._per_second)), remaining, reset)

    def _sweep(self, now: float) -> None:
        filled_since = now - self._burst / self._per_second
        self._levels = {key: kept for key, kept in self._levels.items() if kept[1] > filled_since}


class Gate:
    """Lets a bounded number of requests work at once; the others are sent away at once rather than kept waiting."""

    def __init__(self, size: int, retry_after: int) -> None:
        self._size = size
        self._retry_after = retry_after
        self.inside = 0

    @contextmanager
    def passage(self) -> Iterator[None]:
        """Raises `Unavailable` when the bound is reached."""
        if self.inside >= self._size:
            raise Unavailable(self._retry_after)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
