"""What may be shown to a recording server so that it hands out a recording."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Credential:
    """A header of a request. It stays in the process that opened it: it cannot be pickled, and `repr` hides it."""

    header: str
    value: str = field(repr=False)

    def __reduce__(self) -> Any:
        raise TypeError("a credential does not leave its process")


Access = Callable[[str, int], Awaitable[Credential | None]]
"""(host, port) -> what the workspace has for exactly that server, opened when asked for. May raise `CallError`."""
