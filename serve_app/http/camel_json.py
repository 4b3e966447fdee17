"""Data as JSON: names in camelCase wherever it leaves the service, and data that serves as a key as it is."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from enum import Enum
from typing import Any

_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
_WIRE_NAMES = {"from_number": "from", "to_number": "to", "state": "status"}  # as in /submit


def written(value: Any, ours: bool = True) -> Any:
    """As `plain`, with names in camelCase, as over HTTP and in events.

    The keys of a mapping inside a dataclass are data (teams, measured figures) and stay as they are; those of a
    finding's value are names. `ours`: whether the keys of a mapping are names.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel(name): written(held, name in ("value", "evidence")) for name, held in fields(value).items()}
    if isinstance(value, Mapping):
        return {camel(str(key)) if ours else str(key): written(item, ours) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [written(item, ours) for item in value]
    return _scalar(value)


def fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are: to be printed beside others."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def camel(name: str) -> str:
    """`user_id` as `userId`; a text that is no name of ours as it is."""
    if name in _WIRE_NAMES:
        return _WIRE_NAMES[name]
    if not _SNAKE.fullmatch(name):
        return name
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def plain(value: Any) -> Any:
    """The JSON-able form: dataclasses as objects, times in ISO 8601, UUIDs as text, numpy and enum values unwrapped."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, datetime | date | time):
        return value.isoformat().replace("+00:00", "Z")
    return value.item() if hasattr(value, "item") else str(value)


def renamed(part: Any) -> Any:
    """The same schema with the names of properties in camelCase."""
    if isinstance(part, list):
        return [renamed(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {key: renamed(value) for key, value in part.items()}
    if isinstance(part.get("properties"), dict):
        made["properties"] = {camel(name): value for name, value in made["properties"].items()}
        made["required"] = [camel(name) for name in part.get("required", ())]
    return made
