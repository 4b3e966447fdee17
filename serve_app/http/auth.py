"""From the Authorization header to the `Sender` whom an API key speaks for."""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import ip_network
from typing import TypeVar

from starlette.requests import Request

from pipeline.domain.call import Sender
from serve_app.http.problems import NotAuthenticated, ScopeMissing, Unavailable

T = TypeVar("T")

SUBMIT, READ, EDIT = "submit", "read", "edit"
Find = Callable[[str], Awaitable[Sender | None]]

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]{1,256}=*) *", re.ASCII | re.IGNORECASE)


class UnknownKeyLimiter:
    """Bounds the look-ups of keys that this replica has not seen: for each address `per_second`, ten seconds' worth at
    once. A look-up is charged before it begins, so that many at once cannot outrun the bound, and refunded if the key
    is good. Addresses do not share a limit: guessing from one keeps no other out.
    """

    BURST_SECONDS = 10.0
    MOST_SOURCES = 4096  # remembered; the one that asked longest ago is forgotten

    def __init__(self, per_second: float, retry_after: int) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * self.BURST_SECONDS)
        self._retry_after = retry_after
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, when

    def charge(self, source: str) -> None:
        """Raises `Unavailable` while nothing is left: whether the key is good is not known then."""
        left = self._left(source)
        self._keep(source, left - 1.0 if left >= 1.0 else left)
        if left < 1.0:
            raise Unavailable(self._retry_after)

    def refund(self, source: str) -> None:
        """The key was good, or the look-up failed."""
        self._keep(source, min(self._most, self._left(source) + 1.0))

    def _left(self, source: str) -> float:
        level, since = self._levels.get(source, (self._most, time.monotonic()))
        return min(self._most, level + (time.monotonic() - since) * self._per_second)

    def _keep(self, source: str, level: float) -> None:
        self._levels[source] = (level, time.monotonic())
        self._levels.move_to_end(source)
        if len(self._levels) > self.MOST_SOURCES:
            self._levels.popitem(last=False)


class Authenticator:
    """Looks keys up through `find`, and remembers for seconds what it found.

    Only hashes are remembered. A revoked key is refused at the latest when the call is recorded: the database looks
    again, in the transaction of the submission. An unknown key is remembered for a moment, so that a sender who keeps
    using one costs no look-up each time; a key created in that moment works after it. `limiter` limits look-ups of keys
    that were not in use lately; what `is_no_key` tells at once costs nothing.
    """

    def __init__(
        self,
        find: Find,
        remember_seconds: float = 5.0,
        remember_keys: int = 1024,
        unknown_seconds: float = 1.0,
        limiter: UnknownKeyLimiter | None = None,
        is_no_key: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._find = find
        self._seconds = remember_seconds
        self._keys = remember_keys
        self._unknown_seconds = unknown_seconds
        self._limiter = limiter or UnknownKeyLimiter(50.0, 5)
        self._is_no_key = is_no_key
        self._known: OrderedDict[bytes, tuple[Sender, float]] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()

    async def sender(self, headers: Sequence[str], source: str, scope: str = SUBMIT) -> Sender:
        """The sender behind the values of the request's Authorization headers; `source` is the address it came from.

        Raises `NotAuthenticated`, `ScopeMissing` for a key that is in use but lacks `scope`, `Unavailable` where the
        key cannot be looked up now.
        """
        sender = await self._sender(_secret(headers), source)
        if scope not in sender.scopes:
            raise ScopeMissing(None if scope == SUBMIT else f"The API key does not have the scope {scope!r}.")
        return sender

    def forget(self, sender: Sender) -> None:
        """The key turned out to be revoked."""
        for digest in [digest for digest, (known, _) in self._known.items() if known.key_id == sender.key_id]:
            del self._known[digest]

    async def _sender(self, secret: str, source: str) -> Sender:
        digest = hashlib.sha256(secret.encode()).digest()
        remembered = self._known.get(digest)
        if remembered and remembered[1] > time.monotonic():
            return remembered[0]
        if self._unknown.get(digest, 0.0) > time.monotonic() or self._is_no_key(secret):
            raise NotAuthenticated
        found = await (self._find(secret) if remembered else self._find_charged(secret, source))
        if found is None:
            self._known.pop(digest, None)
            self._remember(self._unknown, digest, time.monotonic() + self._unknown_seconds)
            raise NotAuthenticated
        self._remember(self._known, digest, (found, time.monotonic() + self._seconds))
        return found

    async def _find_charged(self, secret: str, source: str) -> Sender | None:
        self._limiter.charge(source)
        try:
            found = await self._find(secret)
        except BaseException:
            self._limiter.refund(source)
            raise
        if found is not None:
            self._limiter.refund(source)
        return found

    def _remember(self, memory: OrderedDict[bytes, T], digest: bytes, what: T) -> None:
        memory[digest] = what
        memory.move_to_end(digest)
        if len(memory) > self._keys:
            memory.popitem(last=False)


def _secret(headers: Sequence[str]) -> str:
    if not headers:
        raise NotAuthenticated("The request carries no API key: Authorization: Bearer <API_KEY>.")
    if len(set(headers)) > 1:
        raise NotAuthenticated("The request carries more than one Authorization header.")
    bearer = _BEARER.fullmatch(headers[0])
    if bearer is None:
        raise NotAuthenticated("The Authorization header is not of the form: Bearer <API_KEY>.")
    return bearer.group(1)


def source_of(request: Request, header: str | None) -> str:
    """The address that a request came from; of IPv6 the network, of which one sender has all addresses.

    `header`: in which our own proxy, and nobody else, tells it; None: it is the connection's.
    """
    told = request.headers.get(header) if header else None
    return _network(told or (request.client.host if request.client else ""))


@lru_cache(4096)
def _network(address: str) -> str:
    try:
        return str(ip_network((address, 64 if ":" in address else 32), strict=False).network_address)
    except ValueError:
        return address
