import asyncio
import math
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request

from serve_app.http.options import LimitOptions
from serve_app.http.problems import BodyTooLarge, BodyTooSlow, MediaTypeRefused, Refusal, TooManyRequests

_JSON = re.compile(r"application/(json|[a-z0-9!#$&^_.+-]+\+json)", re.ASCII)


class ShortInteger(IntegerConvertor):
    """A number in a path, `{name:int}`. A path with a longer one does not exist; its conversion would fail."""

    regex = "[0-9]{1,9}"


register_url_convertor("int", ShortInteger())


def check_media_type(content_types: Sequence[str], content_codings: Sequence[str]) -> None:
    """Raise `MediaTypeRefused` unless the declared type is uncompressed JSON. Parameters are ignored."""
    kinds = {value.split(";", 1)[0].strip().lower() for value in content_types}
    if len(kinds) != 1 or not _JSON.fullmatch(kinds.pop()):
        raise MediaTypeRefused
    if any(coding.strip().lower() not in ("", "identity") for coding in content_codings):
        raise MediaTypeRefused


async def read_body(request: Request, options: LimitOptions, max_bytes: int | None = None) -> bytes:
    """Return the body of at most `max_bytes`; None: the limit of submissions.

    A larger Content-Length is rejected without reading; received bytes are counted in any case.
    """
    max_bytes = options.BODY_BYTES if max_bytes is None else max_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > max_bytes:
        raise BodyTooLarge
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(options.BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise BodyTooLarge
                parts.append(part)
    except TimeoutError:
        raise BodyTooSlow from None
    except ClientDisconnect:
        raise Refusal(
            "The connection was closed before the body was complete."
        ) from None  # no client is connected to read it
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Remaining quota of an API key (IETF draft "RateLimit header fields for HTTP")."""

    quota: int  # max. burst
    window: int  # seconds to refill an empty quota
    remaining: int
    reset: int  # seconds until the quota is full, or, if it is empty, until the next submission

    def headers(self) -> dict[str, str]:
        """Return `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-09)."""
        return {
            "RateLimit-Policy": f'"key";q={self.quota};w={self.window}',
            "RateLimit": f'"key";r={self.remaining};t={self.reset}',
        }


class Buckets:
    """Token buckets per key: refilled with `per_minute` tokens, capacity `burst`."""

    SWEEP = 4096  # buckets; beyond that, full ones are dropped

    def __init__(self, per_minute: float, burst: int) -> None:
        self._per_second = per_minute / 60.0
        self._burst = float(burst)
        self._levels: dict[UUID, tuple[float, float]] = {}  # level, when

    def take(self, key: UUID, now: float | None = None, cost: int = 1) -> Allowance:
        """Take `cost` tokens of `key` and return the allowance. Raises `TooManyRequests` with the time until then."""
        now = time.monotonic() if now is None else now
        level, since = self._levels.get(key, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._per_second)
        cost = min(cost, int(self._burst))
        if level < cost:
            self._levels[key] = (level, now)
            wait = max(1, math.ceil((cost - level) / self._per_second))
            raise TooManyRequests(wait, self._allowance(int(level), wait).headers())
        self._levels[key] = (level - cost, now)
        if len(self._levels) > self.SWEEP:
            self._sweep(now)
        remaining = level - cost
        until = self._burst if remaining >= 1.0 else 1.0
        return self._allowance(int(remaining), math.ceil((until - remaining) / self._per_second))

    def _allowance(self, remaining: int, reset: int) -> Allowance:
        return Allowance(int(self._burst), max(1, math.ceil(self._burst / self._per_second)), remaining, reset)

    def _sweep(self, now: float) -> None:
        filled_since = now - self._burst / self._per_second
        self._levels = {key: bucket for key, bucket in self._levels.items() if bucket[1] > filled_since}


class Pace:
    """Limits the bytes per second that each workspace is sent, over all of its responses."""

    BYTES_PER_SECOND = 4 << 20  # 125 times as fast as a WAV is played
    HEAD_START = 0.25  # seconds: what a pause allows to send at once

    def __init__(self) -> None:
        self._due: dict[UUID, float] = {}  # when the bytes sent so far are paid for; one per workspace

    async def wait(self, workspace_id: UUID, size: int) -> None:
        """Return when so many more bytes may be sent."""
        now = time.monotonic()
        due = max(self._due.get(workspace_id, 0.0), now - self.HEAD_START)
        self._due[workspace_id] = due + size / self.BYTES_PER_SECOND
        await asyncio.sleep(due - now)


class LateRefusals:
    """Delays refusals of keys that do not wait for Retry-After: to refuse takes about as much time as to read.

    At most `at_once` are delayed; others are sent immediately.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._delayed = 0
        self._until: dict[UUID, float] = {}  # when the Retry-After of a key's last refusal is over

    async def delay(self, key: UUID, refusal: TooManyRequests) -> None:
        """Wait for half to all of the Retry-After of a refusal that follows another one too soon."""
        seconds, now = float(refusal.headers["Retry-After"]), time.monotonic()
        is_early = now < self._until.pop(key, now)
        self._until = {other: until for other, until in self._until.items() if until > now} | {key: now + seconds}
        if not is_early or self._delayed >= self._at_once:
            return
        self._delayed += 1
        try:
            await asyncio.sleep(seconds * random.uniform(0.5, 1.0))  # noqa: S311 (spreads requests)
        finally:
            self._delayed -= 1
