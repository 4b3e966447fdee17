from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Credential:
    """A header of a request. It stays in the process that decrypted it: it cannot be pickled, and `repr` hides it."""

    header: str
    value: str = field(repr=False)

    def __reduce__(self) -> Any:
        raise TypeError("a credential does not leave its process")


Access = Callable[[str, int], Awaitable[Credential | None]]
"""(host, port) -> the credential of the workspace for exactly that server, decrypted on request. May raise
`CallError`."""
