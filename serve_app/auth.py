"""From the Authorization header to the `Sender` whom an API key speaks for."""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pipeline.domain.call import Sender
from serve_app.errors import NotAuthenticated, ScopeMissing, Unavailable

T = TypeVar("T")

SUBMIT = "submit"
Find = Callable[[str], Awaitable[Sender | None]]

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]{1,256}=*) *", re.ASCII | re.IGNORECASE)


class Guesses:
    """Bounds the look-ups of keys that turn out not to exist: `per_second`, ten seconds' worth at once."""

    BURST_SECONDS = 10.0

    def __init__(self, per_second: float, retry_after: int) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * self.BURST_SECONDS)
        self._retry_after = retry_after
        self._left, self._since = self._most, time.monotonic()

    def check(self) -> None:
        """Raises `Unavailable` while there are none left: whether the key is good is not known then."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1.0:
            raise Unavailable(self._retry_after)

    def missed(self) -> None:
        """A look-up found nobody."""
        self._left -= 1.0


class Authenticator:
    """Looks keys up through `find`, and remembers for seconds what it found.

    Only hashes are remembered. A revoked key is refused at the latest when the call is recorded: the database looks
    again, in the transaction of the submission. That there is no such key is remembered for a moment, so that a sender
    who goes on with a wrong one costs no look-up each time; a key made in that moment works after it. Whoever tries
    ever new ones meets `guesses`, which keys that were in use lately do not.
    """

    def __init__(
        self,
        find: Find,
        remember_seconds: float = 5.0,
        remember_keys: int = 1024,
        unknown_seconds: float = 1.0,
        guesses: Guesses | None = None,
    ) -> None:
        self._find = find
        self._seconds = remember_seconds
        self._keys = remember_keys
        self._unknown_seconds = unknown_seconds
        self._guesses = guesses or Guesses(50.0, 5)
        self._known: OrderedDict[bytes, tuple[Sender, float]] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()

    async def sender(self, headers: Sequence[str], scope: str = SUBMIT) -> Sender:
        """The sender behind the values of the request's Authorization headers.

        Raises `NotAuthenticated`, `ScopeMissing` for a key that is in use but lacks `scope`, `Unavailable` where the
        key cannot be looked up now.
        """
        sender = await self._sender(_secret(headers))
        if scope not in sender.scopes:
            raise ScopeMissing
        return sender

    def forget(self, sender: Sender) -> None:
        """The key turned out to be revoked."""
        for digest in [digest for digest, (known, _) in self._known.items() if known.key_id == sender.key_id]:
            del self._known[digest]

    async def _sender(self, secret: str) -> Sender:
        digest = hashlib.sha256(secret.encode()).digest()
        remembered = self._known.get(digest)
        if remembered and remembered[1] > time.monotonic():
            return remembered[0]
        if self._unknown.get(digest, 0.0) > time.monotonic():
            raise NotAuthenticated
        if remembered is None:
            self._guesses.check()
        found = await self._find(secret)
        if found is None:
            self._guesses.missed()
            self._known.pop(digest, None)
            self._remember(self._unknown, digest, time.monotonic() + self._unknown_seconds)
            raise NotAuthenticated
        self._remember(self._known, digest, (found, time.monotonic() + self._seconds))
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
