"""The reference page of the API: one page without scripts, rendered from openapi.json."""

import html
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

HEADERS = {
    "Cache-Control": "public, max-age=3600",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c1f24 }
code, pre { font: 14px/1.5 ui-monospace, monospace } pre { background: #f3f4f6; padding: .75rem; overflow-x: auto }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .25rem .5rem }
td { border-top: 1px solid #d9dce1 } h3 code { background: #e8edf7; padding: .1rem .4rem; border-radius: .25rem }
nav ul { columns: 2 } section { border-top: 2px solid #1c1f24; margin-top: 2rem }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e6e8ec }
  pre, h3 code { background: #24272d } a { color: #8ab4f8 } section { border-color: #e6e8ec }
  td { border-color: #3a3e45 } }
@media (max-width: 40rem) { code { overflow-wrap: anywhere } th { display: none }
  td { display: block; border: 0; padding: 0 0 0 1rem } td:first-child { border-top: 1px solid; padding: .5rem 0 0 } }
"""


@cache
def document() -> bytes:
    """Return openapi.json as generated."""
    return Path(__file__).with_name("openapi.json").read_bytes()


async def show_openapi(_: Request) -> Response:
    """Serve the OpenAPI document without a key; it is public."""
    return Response(document(), media_type="application/json", headers={"Cache-Control": HEADERS["Cache-Control"]})


async def show_reference(_: Request) -> Response:
    """Serve the reference page without a key; it is public."""
    return Response(_page(), media_type="text/html; charset=utf-8", headers=HEADERS)


@cache
def _page() -> bytes:
    return "".join(render(json.loads(document()))).encode()


def render(api: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of the page: operations by tag, then schemas."""
    info, text = api["info"], html.escape
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{text(info["title"])}</title>'
    yield f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    yield f"<h1>{text(info['title'])} {text(info['version'])}</h1><p>{_prose(info['description'])}</p>"
    yield '<p>As a document for programs: <a href="openapi.json">openapi.json</a>.</p>'
    by_tag: dict[str, list[tuple[str, str, Any]]] = {tag["name"]: [] for tag in api["tags"]}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append((method.upper(), path, operation))
    yield "<nav><ul>"
    for tag in by_tag:
        yield f'<li><a href="#{tag}">{tag}</a></li>'
    yield '<li><a href="#schemas">Schemas</a></li></ul></nav>'
    for tag in api["tags"]:
        yield f'<section id="{tag["name"]}"><h2>{text(tag["name"])}</h2><p>{text(tag["description"])}</p>'
        for method, path, operation in by_tag[tag["name"]]:
            yield from _operation(method, path, operation, api)
        yield "</section>"
    yield '<section id="schemas"><h2>Schemas</h2>'
    for name, schema in api["components"]["schemas"].items():
        yield f'<h3 id="schema-{name}"><code>{name}</code></h3><p>{_prose(schema.get("description", ""))}</p>'
        yield from _properties(schema)
    yield "</section></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any], api: Mapping[str, Any]) -> Iterator[str]:
    name = operation["operationId"]
    yield f'<h3 id="{name}"><code>{method} {html.escape(path)}</code> {html.escape(operation["summary"])}</h3>'
    yield f"<p>{_prose(operation['description'])}</p>"
    rows = [(item["name"], item["schema"], item["description"]) for item in operation["parameters"]]
    yield from _table("Parameter", rows)
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body, <code>{media}</code>: {_kind(content['schema'])}</p>"
        yield from _properties(content["schema"])
    yield "<p>Responses:</p><ul>"
    for status, response in operation["responses"].items():
        shown = api["components"]["responses"][response["$ref"].rsplit("/", 1)[1]] if "$ref" in response else response
        kinds = ", ".join(
            f"<code>{media}</code> {_kind(of['schema'])}" for media, of in shown.get("content", {}).items()
        )
        yield f"<li><code>{status}</code> {html.escape(shown['description'])} {kinds}</li>"
    yield "</ul>"


def _properties(schema: Mapping[str, Any]) -> Iterator[str]:
    rows = [(name, part, part.get("description", "")) for name, part in schema.get("properties", {}).items()]
    yield from _table("Field", rows)


def _table(heading: str, rows: list[tuple[str, Any, str]]) -> Iterator[str]:
    if rows:
        yield f"<table><tr><th>{heading}<th>Type<th>Description</tr>"
        for name, schema, description in rows:
            yield f"<tr><td><code>{html.escape(name)}</code><td>{_kind(schema)}<td>{_prose(description)}</tr>"
        yield "</table>"


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f'<a href="#schema-{name}">{name}</a>'
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(_kind, options))
    if "enum" in schema:
        return ", ".join(f"<code>{html.escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    kinds = schema.get("type", "any")
    return html.escape(schema.get("format") or (kinds if isinstance(kinds, str) else " or ".join(kinds)))


def _prose(text: str) -> str:
    """Return the text with `code` marked."""
    parts = html.escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
