"""Rows of an export, made in the worker process: transcripts of an hour take 20 ms and more each."""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow as pa
from pydantic_core import from_json, to_json

from db.records.stored_transcripts import StoredTranscript
from db.records.views import CallSummary
from db.search.call_list import CallLine
from pipeline.domain.call import FIELDS
from serve_app.api.parquet import schema_of, to_cell
from serve_app.http.camel_json import camel, to_camel_json

COLUMNS: Final = (
    *(field.name for field in fields(CallSummary) if field.name.removeprefix("declared_") in FIELDS),
    *("state", "language", "failure", "agent", "contact", "company", "tone", "summary"),
    *("tasks", "open_tasks", "actions"),
    *("created_at", "updated_at", "completed_at"),
)
_NUMBER = re.compile(r"[+-]?[0-9][0-9 .]*")


@dataclass(frozen=True, slots=True)
class ExportPart:
    """Some calls of an export. `stored` is empty if neither transcripts nor edits are included."""

    lines: tuple[CallLine, ...]
    stored: tuple[StoredTranscript, ...] = ()
    include: tuple[str, ...] = ()
    machine: bool = False


def ndjson(part: ExportPart) -> bytes:
    """Return a line of JSON per call."""
    stored = {item.call_id: item for item in part.stored}
    rows = []
    for line in part.lines:
        row = to_camel_json(line)
        call = stored.get(line.call.call_id)
        if "transcript" in part.include:
            row["transcript"] = call and transcript_of(call, part.machine)
        if "edits" in part.include:
            row["edits"] = to_camel_json(call.edited().edits) if call and call.edits.rows else []
        rows.append(to_json(row, inf_nan_mode="null") + b"\n")
    return b"".join(rows)


def csv_header() -> bytes:
    return csv_table(COLUMNS, ())


def csv_rows(part: ExportPart) -> bytes:
    """Return a line of comma-separated values per call."""
    return csv_lines(_flat(line).values() for line in part.lines)


def csv_table(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    """Return comma-separated values under their names in camelCase."""
    return _csv([[camel(name) for name in names]]) + csv_lines(rows)


def csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    return _csv([_csv_cell(value) for value in row] for row in rows)


def arrow_table(part: ExportPart) -> bytes:
    """Return a table of the calls as an Arrow stream."""
    stored = {item.call_id: item for item in part.stored}
    with_words = "transcript" in part.include
    rows = []
    for line in part.lines:
        row = {camel(name): to_cell(value) for name, value in _flat(line).items()}
        call = stored.get(line.call.call_id)
        if with_words and call and (transcript := transcript_of(call, part.machine)) is not None:
            row["words"] = list(_words(transcript))
        rows.append(row)
    schema = schema_of(COLUMNS, with_words)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
    return sink.getvalue()


def transcript_of(call: StoredTranscript, machine: bool) -> Any:
    """Return the transcript in the form of the API. Stored content is passed on; only edits need it parsed."""
    if call.content is None:
        return None
    if (call.edits.rows and not machine) or '"NaN"' in call.content or 'Infinity"' in call.content:
        return to_camel_json(call.machine() if machine else call.edited().transcript)
    content = from_json(call.content)
    turns = content.pop("turns")  # and its words have no name of two words
    return to_camel_json(content) | {"turns": turns}


def _words(transcript: Any) -> Iterator[dict[str, Any]]:
    for turn in transcript["turns"]:
        for word in turn["words"]:
            fields = {name: word[name] for name in ("start", "end", "text", "confidence", "doubtful")}
            yield {"turn": turn["index"], "speaker": turn["speaker"], **fields}


def _flat(line: CallLine) -> dict[str, Any]:
    contact = line.contact
    more = {
        "failure": line.call.failure and line.call.failure.code,
        "contact": contact and contact.name,
        "company": contact and contact.company,
    }
    values = {name: getattr(line.call, name, getattr(line, name, None)) for name in COLUMNS}
    return values | more


def _csv(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _csv_cell(value: Any) -> Any:
    """Return the value of a CSV cell, with an apostrophe before text that a spreadsheet would run as a formula."""
    shown = to_camel_json(value)
    if isinstance(shown, bool):
        return "true" if shown else "false"
    if isinstance(shown, str) and shown[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.fullmatch(shown):
        return f"'{shown}"
    return "" if shown is None else shown
