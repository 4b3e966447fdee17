from collections.abc import Callable
from typing import Any


class ForOperators:
    """Marks a field of a dataclass that the API, events and exports leave out: `Annotated[str, FOR_OPERATORS]`."""

    KEY = "x-for-operators"  # of its JSON Schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return handler(schema) | {self.KEY: True}


FOR_OPERATORS = ForOperators()
