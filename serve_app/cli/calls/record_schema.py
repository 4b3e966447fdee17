"""JSON Schema of a call's record as `switchboard calls show --json` and `calls export --format json` print it."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from db.records.views import CallRecord
from serve_app.cli.calls.expected_completion import Expected
from serve_app.http.camel_json import renamed

SCHEMA_FILE = Path(__file__).with_name("record.schema.json")


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a record."""
    adapters = [
        ("record", "serialization", TypeAdapter(CallRecord)),
        ("expected", "serialization", TypeAdapter(Expected)),
    ]
    made, common = TypeAdapter.json_schemas(adapters)  # type: ignore[arg-type]
    parts = common["$defs"]
    record = parts.pop("CallRecord", None) or made[("record", "serialization")]
    expected = made[("expected", "serialization")]
    record["properties"]["expected"] = {
        "anyOf": [expected, {"type": "null"}],
        "description": "When a call on its way will be done; not in an export.",
    }
    named: dict[str, Any] = renamed({**record, "$defs": parts, "title": "Record of a call"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **named}
