import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_network
from typing import TypeVar

from starlette.requests import Request

from pipeline.domain.call import Sender
from serve_app.http.problems import NotAuthenticated, ScopeMissing, Unavailable

T = TypeVar("T")

SUBMIT, READ, EDIT = "submit", "read", "edit"
SOURCE_HEADER = "x-switchboard-source"  # HAProxy replaces it with the sender's address, whatever the sender wrote there
Find = Callable[[str], Awaitable[Sender | None]]

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]{1,256}=*) *", re.ASCII | re.IGNORECASE)


class UnknownKeyLimiter:
    """Limits look-ups of unknown keys per address: `per_second`, with a burst of ten seconds.

    A look-up is charged before it starts, so that concurrent ones cannot exceed the limit, and refunded if the key is
    valid. Addresses do not share a limit, so guessing from one does not block another.
    """

    BURST_SECONDS = 10.0
    MAX_SOURCES = 4096  # the least recently seen one is dropped

    def __init__(self, per_second: float, retry_after: int) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, per_second * self.BURST_SECONDS)
        self.retry_after = retry_after
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, time

    def charge(self, source: str) -> None:
        """Raise `Unavailable` if the limit is reached, since the key cannot be checked then."""
        tokens = self._tokens(source)
        self._store(source, tokens - 1.0 if tokens >= 1.0 else tokens)
        if tokens < 1.0:
            raise Unavailable(self.retry_after)

    def refund(self, source: str) -> None:
        """Return a token: the key is valid, or the look-up failed."""
        self._store(source, min(self._capacity, self._tokens(source) + 1.0))

    def _tokens(self, source: str) -> float:
        level, since = self._levels.get(source, (self._capacity, time.monotonic()))
        return min(self._capacity, level + (time.monotonic() - since) * self._per_second)

    def _store(self, source: str, level: float) -> None:
        self._levels[source] = (level, time.monotonic())
        self._levels.move_to_end(source)
        if len(self._levels) > self.MAX_SOURCES:
            self._levels.popitem(last=False)


@dataclass(slots=True)
class _LookUp:
    """The look-ups of one key, one after the other, and the result of the last one. Times by the monotonic clock."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    sender: Sender | None = None
    began: float = 0.0
    failed: float = 0.0


class Authenticator:
    """Looks up keys with `find` and caches results for a few seconds.

    Only hashes are cached. A revoked key is rejected at the latest when the call is recorded, because the database
    checks it again in the transaction of the submission. Unknown keys are cached briefly to save look-ups; a key
    created in that time works after it. `limiter` limits look-ups of keys that are not cached; `is_malformed` rejects
    malformed keys without a look-up. Requests that wait for the same key share its next look-up, but none that began
    before they arrived: the key may have been revoked since.
    """

    def __init__(
        self,
        find: Find,
        remember_seconds: float = 5.0,
        remember_keys: int = 1024,
        unknown_seconds: float = 1.0,
        limiter: UnknownKeyLimiter | None = None,
        is_malformed: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._find = find
        self._seconds = remember_seconds
        self._keys = remember_keys
        self._unknown_seconds = unknown_seconds
        self._limiter = limiter or UnknownKeyLimiter(50.0, 5)
        self._is_no_key = is_malformed
        self._look_ups: dict[bytes, _LookUp] = {}
        self._senders: OrderedDict[bytes, tuple[Sender, float]] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()

    async def sender(self, headers: Sequence[str], source: str, scope: str = SUBMIT, also: str | None = None) -> Sender:
        """Return the sender for the Authorization headers of a request from the address `source`.

        Raises `NotAuthenticated`, `ScopeMissing` without `scope` and `also`, `Unavailable` if the look-up fails.
        """
        sender = await self._sender(_secret(headers), source)
        if scope not in sender.scopes and also not in sender.scopes:
            raise ScopeMissing(None if scope == SUBMIT else f"The API key does not have the scope {scope!r}.")
        return sender

    def forget(self, sender: Sender) -> None:
        """Drop a revoked key from the cache."""
        for digest in [digest for digest, (cached, _) in self._senders.items() if cached.key_id == sender.key_id]:
            del self._senders[digest]

    async def _sender(self, secret: str, source: str) -> Sender:
        digest = hashlib.sha256(secret.encode()).digest()
        remembered = self._senders.get(digest)
        if remembered and remembered[1] > time.monotonic():
            return remembered[0]
        if self._unknown.get(digest, 0.0) > time.monotonic() or self._is_no_key(secret):
            raise NotAuthenticated
        sender = await self._find_shared(digest, secret, None if remembered else source)
        if sender is None:
            self._senders.pop(digest, None)
            self._remember(self._unknown, digest, time.monotonic() + self._unknown_seconds)
            raise NotAuthenticated
        self._remember(self._senders, digest, (sender, time.monotonic() + self._seconds))
        return sender

    async def _find_shared(self, digest: bytes, secret: str, source: str | None) -> Sender | None:
        arrived = time.monotonic()
        look_up = self._look_ups.setdefault(digest, _LookUp())
        look_up.waiting += 1
        try:
            async with look_up.turn:
                if look_up.failed > arrived:  # do not wait a second time for a database that does not respond
                    raise Unavailable(self._limiter.retry_after)
                if look_up.began <= arrived:
                    await self._find_next(look_up, secret, source)
                return look_up.sender
        finally:
            look_up.waiting -= 1
            if not look_up.waiting:
                del self._look_ups[digest]

    async def _find_next(self, look_up: _LookUp, secret: str, source: str | None) -> None:
        if source is not None:
            self._limiter.charge(source)  # its refusal is for this address alone, not for others that wait
        began = time.monotonic()
        try:
            look_up.sender = await self._find(secret)
        except Exception as error:  # not if the client leaves: such guesses count too
            look_up.failed = time.monotonic() if isinstance(error, Unavailable) else look_up.failed
            self._refund(source)
            raise
        look_up.began = began
        if look_up.sender is not None:
            self._refund(source)

    def _refund(self, source: str | None) -> None:
        if source is not None:
            self._limiter.refund(source)

    def _remember(self, memory: OrderedDict[bytes, T], digest: bytes, what: T) -> None:
        memory[digest] = what
        memory.move_to_end(digest)
        if len(memory) > self._keys:
            memory.popitem(last=False)


def _secret(headers: Sequence[str]) -> str:
    if not headers:
        raise NotAuthenticated("Missing API key. Send the header Authorization: Bearer <API_KEY>.")
    if len(set(headers)) > 1:
        raise NotAuthenticated("The request has more than one Authorization header.")
    bearer = _BEARER.fullmatch(headers[0])
    if bearer is None:
        raise NotAuthenticated("The Authorization header must have the form: Bearer <API_KEY>.")
    return bearer.group(1)


def source_of(request: Request, header: str | None) -> str:
    """Return the address of the client; for IPv6 its /64 network.

    `header`: set by the trusted proxy only; None: use the address of the connection.
    """
    address = request.headers.get(header) if header else None
    return _network(address or (request.client.host if request.client else ""))


@lru_cache(4096)
def _network(address: str) -> str:
    try:
        return str(ip_network((address, 64 if ":" in address else 32), strict=False).network_address)
    except ValueError:
        return address
