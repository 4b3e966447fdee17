"""Examples of the OpenAPI documents: bodies as in `examples.toml`, responses composed from their schemas."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

_STORED = tomllib.loads(Path(__file__).with_name("examples.toml").read_text(encoding="utf-8"))
BODIES: Mapping[str, dict[str, dict[str, Any]]] = _STORED["bodies"]  # by operation and name
_VALUES: Mapping[str, Any] = _STORED["values"]  # by property, or by schema and property
_FORMATS = {"date-time": "2026-11-20T08:33:04Z", "date": "2026-11-23", "time": "09:00:00"}
_LIKELY = 0.87  # of numbers from 0 to 1


def body(operation: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the media type of a request body with its examples."""
    examples = {name: {"summary": name, "value": value} for name, value in BODIES[operation].items()}
    return {"schema": schema, "examples": examples}


def response(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """Return an example that is valid by `schema`. Raises LookupError for a text without a value in the file."""
    return _example(schema, schemas, "", "")


def _example(schema: Mapping[str, Any], schemas: Mapping[str, Any], owner: str, name: str) -> Any:
    if "$ref" in schema:
        target = str(schema["$ref"]).rsplit("/", 1)[1]
        return _example(schemas[target], schemas, target, name)
    if "const" in schema:
        return schema["const"]
    stored = next((key for key in (f"{owner}.{name}", name) if key in _VALUES and _allows(schema, _VALUES[key])), None)
    if stored is not None:
        return _VALUES[stored]
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        return _example(next(kind for kind in variants if kind != {"type": "null"}), schemas, owner, name)
    return _plain(schema, schemas, owner, name)


def _plain(schema: Mapping[str, Any], schemas: Mapping[str, Any], owner: str, name: str) -> Any:
    """Return an example of a schema without references, variants and a stored value."""
    kind, example = schema.get("type"), None
    if "enum" in schema:
        example = schema["enum"][0]
    elif kind == "object":
        example = _object(schema, schemas, owner, name)
    elif kind == "array":
        example = [_example(schema["items"], schemas, owner, name)] * schema.get("minItems", 1)
    elif kind == "string":
        example = _text(schema, owner, name)
    elif kind in ("integer", "number"):
        example = _number(schema)
    elif kind == "boolean":
        example = False
    return example


def _object(schema: Mapping[str, Any], schemas: Mapping[str, Any], owner: str, name: str) -> dict[str, Any]:
    if "properties" in schema:
        return {key: _example(kind, schemas, owner, key) for key, kind in schema["properties"].items()}
    values = schema.get("additionalProperties")
    return (
        {_VALUES[f"{name}.key"]: _example(values, schemas, owner, f"{name}.value")} if isinstance(values, dict) else {}
    )


def _text(schema: Mapping[str, Any], owner: str, name: str) -> str:
    kind = schema.get("format")
    if kind == "uuid":
        return str(uuid5(NAMESPACE_URL, f"switchboard:{name}"))
    if kind in _FORMATS:
        return _FORMATS[kind]
    raise LookupError(f"serve_app/openapi/examples.toml has no value for {name!r} of {owner or 'a response'}")


def _number(schema: Mapping[str, Any]) -> float:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum")
    if schema["type"] == "integer":
        return int(min(max(low, 3), high if high is not None else 3))
    return float(_LIKELY if high is None or high >= 1 else (low + high) / 2)


_TYPES: Mapping[str, Any] = {"string": str, "array": list, "object": dict, "integer": int, "number": (int, float)}


def _allows(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether a stored value has the schema's type: a name may have several."""
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(_allows(kind, value) for kind in schema["anyOf"])
    if "format" in schema or not isinstance(value, _TYPES.get(schema.get("type", ""), ())):
        return False
    if isinstance(value, list):
        return all(_allows(schema.get("items", {}), item) for item in value)
    return not isinstance(value, str) or re.search(schema.get("pattern", ""), value) is not None
