"""From the Authorization header to the `Sender` whom an API key speaks for."""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from pipeline.domain.call import Sender
from serve_app.errors import NotAuthenticated, ScopeMissing

SUBMIT = "submit"
Find = Callable[[str], Awaitable[Sender | None]]

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]{1,256}=*) *", re.ASCII | re.IGNORECASE)


class Authenticator:
    """Looks keys up through `find`, and remembers those it found for a few seconds.

    Only keys in use are remembered, by their hash, so a new key works at once. A revoked one is refused at the latest
    when the call is recorded: the database looks again, in the transaction of the submission.
    """

    def __init__(self, find: Find, remember_seconds: float = 5.0, remember_keys: int = 1024) -> None:
        self._find = find
        self._seconds = remember_seconds
        self._keys = remember_keys
        self._known: OrderedDict[bytes, tuple[Sender, float]] = OrderedDict()

    async def sender(self, headers: Sequence[str], scope: str = SUBMIT) -> Sender:
        """The sender behind the values of the request's Authorization headers.

        Raises `NotAuthenticated`, or `ScopeMissing` for a key that is in use but lacks `scope`.
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
        found = await self._find(secret)
        if found is None:
            self._known.pop(digest, None)
            raise NotAuthenticated
        self._known[digest] = (found, time.monotonic() + self._seconds)
        self._known.move_to_end(digest)
        if len(self._known) > self._keys:
            self._known.popitem(last=False)
        return found


def _secret(headers: Sequence[str]) -> str:
    if not headers:
        raise NotAuthenticated("The request carries no API key: Authorization: Bearer <API_KEY>.")
    if len(set(headers)) > 1:
        raise NotAuthenticated("The request carries more than one Authorization header.")
    bearer = _BEARER.fullmatch(headers[0])
    if bearer is None:
        raise NotAuthenticated("The Authorization header is not of the form: Bearer <API_KEY>.")
    return bearer.group(1)
