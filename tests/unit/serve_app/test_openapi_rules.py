"""The OpenAPI document of the API is one that programs and people can build on: valid, described, tagged, linked."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import jsonschema

from serve_app import openapi
from serve_app.api import reference
from serve_app.openapi import api

DOCUMENT: dict[str, Any] = openapi.api_document()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [
    (f"{method.upper()} {path}", path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def parts(value: Any, where: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of the document with its place."""
    if isinstance(value, dict):
        yield where, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from parts(item, f"{where}/{name}")


def test_every_property_is_described() -> None:
    properties = [
        (f"{where}/{name}", schema)
        for where, part in parts([SCHEMAS, DOCUMENT["paths"]])
        for name, schema in (part.get("properties") or {}).items()
        if isinstance(part.get("properties"), dict) and isinstance(schema, dict)
    ]
    assert len(properties) > 700
    assert [place for place, schema in properties if not schema.get("description")] == []


def test_no_text_is_left_over() -> None:
    names = {name for _, part in parts(DOCUMENT) for name in (part.get("properties") or {})}
    left_over = {key for key in api._TEXTS if key.rpartition(".")[2] not in names}
    assert left_over == set(), "delete these from serve_app/openapi/texts.toml"


def test_every_operation_has_what_generators_and_readers_need() -> None:
    findings = []
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    for name, path, operation in OPERATIONS:
        declared = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
        findings += [f"{name}: {declared} are not the parameters of the path"] * (
            declared != set(re.findall(r"\{(\w+)\}", path))
        )
        findings += [
            f"{name}: {item['name']} is not described" for item in operation["parameters"] if not item["description"]
        ]
        findings += [f"{name}: tag"] * (len(operation["tags"]) != 1 or not set(operation["tags"]) <= tags)
        findings += [f"{name}: no {part}" for part in ("operationId", "summary", "description") if not operation[part]]
        findings += [f"{name}: no 2xx"] * (not any(status.startswith("2") for status in operation["responses"]))
        findings += [
            f"{name}: no {status}" for status in ("401", "403", "429", "503") if status not in operation["responses"]
        ]
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    findings += [f"{name} is repeated" for name in ids if ids.count(name) > 1]
    assert findings == []


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    used = {part["$ref"] for _, part in parts(DOCUMENT) if isinstance(part.get("$ref"), str)}
    there = {f"#/components/{kind}/{name}" for kind, named in DOCUMENT["components"].items() for name in named} - {
        "#/components/securitySchemes/apiKey"
    }
    assert (used - there, there - used) == (set(), set())
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_error_is_a_problem_with_examples_that_fit() -> None:
    for name, response in DOCUMENT["components"]["responses"].items():
        content = response["content"]["application/problem+json"]
        schema = {**content["schema"], "components": DOCUMENT["components"]}
        assert content["examples"], name
        for example in content["examples"].values():
            jsonschema.Draft202012Validator(schema).validate(example["value"])


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {values["id"]} if values.get("id") else set()
        if tag in ("script", "link", "img", "iframe") or "src" in values:
            self.foreign.append(tag)
        if href := values.get("href"):
            self.links |= {href}


def test_the_page_shows_every_operation_and_loads_nothing() -> None:
    page = "".join(reference.render(DOCUMENT))
    links = Links()
    links.feed(page)
    assert links.foreign == []
    assert {operation["operationId"] for _, _, operation in OPERATIONS} <= links.ids
    assert {link.removeprefix("#") for link in links.links} - links.ids == {"openapi.json"}
