from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


class ForOperators:
    """Marks a field of a dataclass that the API, events and exports leave out: `Annotated[str, FOR_OPERATORS]`."""

    KEY = "x-for-operators"  # of its JSON Schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return handler(schema) | {self.KEY: True}


FOR_OPERATORS = ForOperators()


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
