"""Every body and response of the API has an example that its schema accepts."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from serve_app import openapi
from serve_app.openapi import examples as stored

DOCUMENT = openapi.api_document()


def examples(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield where, schema and value of each example, or a value that no schema accepts if there is none."""
    bodies = {"body": operation.get("requestBody", {}), **operation["responses"]}
    for where, part in bodies.items():
        media = part.get("content", {}).get("application/json")
        if media is None:
            continue
        for example in media.get("examples", {"none": {"value": NotImplemented}}).values():
            name = example.get("$ref", "").rpartition("/")[2]
            value = (DOCUMENT["components"]["examples"][name] if name else example)["value"]
            yield where, media["schema"], value


def test_each_body_and_response_has_a_valid_example(subtests: pytest.Subtests) -> None:
    checked = 0
    for path in DOCUMENT["paths"].values():
        for operation in path.values():
            for where, schema, value in examples(operation):
                checked += 1
                with subtests.test(operation=operation["operationId"], where=where):
                    jsonschema.Draft202012Validator(
                        {**DOCUMENT, **schema}, format_checker=jsonschema.FormatChecker()
                    ).validate(value)
    assert checked > 150


def test_each_stored_value_belongs_to_a_property() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    properties = {name: set(schema.get("properties", ())) for name, schema in schemas.items()}
    names: set[str] = set().union(*properties.values())
    for key in stored._VALUES:
        owner, _, name = key.rpartition(".")
        is_of_map = name in ("key", "value") and owner in names
        assert key in names or is_of_map or name in properties.get(owner, ()), f"no property is called {key}"
    operations = {operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()}
    assert stored.BODIES.keys() <= operations
