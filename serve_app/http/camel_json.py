import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from enum import Enum
from functools import cache
from typing import Any

from pipeline.domain.speech import FOR_OPERATORS

_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
_WIRE_NAMES = {"from_number": "from", "to_number": "to", "state": "status"}  # as in /submit


def to_camel_json(value: Any, keys_are_names: bool = True, for_operators: bool = False) -> Any:
    """Return the JSON form with names in camelCase, as over HTTP and in events.

    Fields marked `FOR_OPERATORS` are left out unless `for_operators`; always if `repr` leaves them out too.
    Keys of a mapping inside a dataclass are data (teams, metrics) and stay unchanged; those of the value of a finding
    and of the evidence of a layout are names. `keys_are_names`: whether the keys of a mapping are names.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            wire_name: to_camel_json(getattr(value, name), name in ("value", "evidence"), for_operators)
            for name, wire_name in _names(type(value), for_operators)
        }
    if isinstance(value, Mapping):
        return {
            camel(str(key)) if keys_are_names else str(key): to_camel_json(item, keys_are_names, for_operators)
            for key, item in value.items()
        }
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [to_camel_json(item, keys_are_names, for_operators) for item in value]
    return _scalar(value)


def to_json(data: Any) -> bytes:
    """Return data as one line of JSON with names in camelCase; NaN and infinity become null."""
    return dump(to_camel_json(data))


def dump(shown: Any) -> bytes:
    """Return a JSON value as one line; NaN and infinity become null."""
    try:
        text = json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(shown), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _finite(shown: Any) -> Any:
    if isinstance(shown, dict):
        return {key: _finite(value) for key, value in shown.items()}
    if isinstance(shown, list):
        return [_finite(value) for value in shown]
    return None if isinstance(shown, float) and not math.isfinite(shown) else shown


@cache
def _names(kind: type, for_operators: bool) -> tuple[tuple[str, str], ...]:
    """Return the names of a dataclass's fields, in Python and on the wire."""
    return tuple(
        (field.name, camel(field.name))
        for field in dataclasses.fields(kind)
        if (for_operators and field.repr) or FOR_OPERATORS not in getattr(field.type, "__metadata__", ())
    )


def fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, unconverted."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def camel(name: str) -> str:
    """Return the name on the wire: `user_id` as `userId`. Other texts are returned unchanged."""
    if name in _WIRE_NAMES:
        return _WIRE_NAMES[name]
    if not _SNAKE.fullmatch(name):
        return name
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def plain(value: Any) -> Any:
    """Return the JSON form: dataclasses as objects, ISO 8601 times, UUIDs as text, plain numpy and enum values."""
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


def camelize_schema(part: Any) -> Any:
    """Return the schema with property names in camelCase, without fields that are marked `FOR_OPERATORS`."""
    if isinstance(part, list):
        return [camelize_schema(item) for item in part]
    if not isinstance(part, dict):
        return part
    schema = {key: camelize_schema(value) for key, value in part.items()}
    if isinstance(part.get("properties"), dict):
        shown = {name: value for name, value in schema["properties"].items() if FOR_OPERATORS.KEY not in value}
        schema["properties"] = {camel(name): value for name, value in shown.items()}
        schema["required"] = [camel(name) for name in part.get("required", ()) if name in shown]
    return schema
