import asyncio
import csv
import io
import re
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from starlette.responses import Response, StreamingResponse

from db.core.pages import MAX_PAGE_ROWS
from db.records import views
from db.records.views import CallSummary
from db.search import call_list
from db.search.call_list import CallLine
from pipeline.domain.call import FIELDS
from serve_app.api.access import UNAVAILABLE, ApiRequest, to_json
from serve_app.api.calls import now
from serve_app.api.errors import InvalidQuery
from serve_app.api.parquet import MEDIA_TYPE as PARQUET
from serve_app.api.parquet import parquet
from serve_app.api.queries import ExportQuery, StreamQuery, parse_timestamp
from serve_app.http.camel_json import to_camel_json
from serve_app.http.json_body import Fault

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)  # before any call
OVERLAP = timedelta(seconds=10)  # a transaction may commit this long after its timestamps
HEARTBEAT_SECONDS = 15.0
EXPORT_PAGE = 100
KEY_SECONDS = 10.0  # between two checks that the key is still valid
_NUMBER = re.compile(r"[+-]?[0-9][0-9 .]*")
COLUMNS = (
    *(field.name for field in fields(CallSummary) if field.name.removeprefix("declared_") in FIELDS),
    *("state", "language", "failure", "agent", "contact", "company", "tone", "summary", "tasks", "open_tasks"),
    *("created_at", "updated_at", "completed_at"),
)


async def stream_changes(reading: ApiRequest[StreamQuery]) -> Response:
    """Stream changes of calls."""
    last_event_id = reading.request.headers.get("last-event-id")
    since = reading.query.since
    sent: dict[UUID, datetime] = {}
    if last_event_id is not None:
        last = parse_timestamp(last_event_id)
        if last is None:
            raise InvalidQuery([Fault("", "Last-Event-ID is not an id of this stream. Omit it to start now.")])
        since = max(last, BEGINNING) - OVERLAP
    if since is None:  # also include changes that are not committed yet
        since = await now(reading) - OVERLAP
        sent = await _known(reading, since)
    return StreamingResponse(
        _changes(reading, max(since, BEGINNING), sent),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _known(reading: ApiRequest[StreamQuery], since: datetime) -> dict[UUID, datetime]:
    """Return the calls with a committed change after `since`, and its time."""
    changes = await call_list.changes_since(reading.database, reading.reader, since)
    updated_at = {change.call_id: change.updated_at for change in changes}
    while len(changes) == call_list.MAX_CHANGES:
        changes = await call_list.changes_since(reading.database, reading.reader, changes[-1].updated_at)
        updated_at |= {change.call_id: change.updated_at for change in changes}
    return updated_at


async def _changes(
    reading: ApiRequest[StreamQuery], since: datetime, sent: dict[UUID, datetime]
) -> AsyncIterator[bytes]:
    """Yield each change once. The overlap between polls finds changes that were committed late.

    `sent`: time of the last change per call that was already sent.
    """
    ends = time.monotonic() + reading.options.STREAM_SECONDS
    quiet_since = key_checked = time.monotonic()
    yield b"retry: 2000\n\n"
    latest = begin = since
    while time.monotonic() < ends:
        if time.monotonic() - key_checked > KEY_SECONDS:
            key_checked = time.monotonic()
            if not await reading.may_still_read():
                return
        try:
            changes = await call_list.changes_since(reading.database, reading.reader, begin)
        except UNAVAILABLE:
            return  # the client reconnects and resumes
        fresh = [change for change in changes if sent.get(change.call_id) != change.updated_at]
        for change in fresh:
            sent[change.call_id] = change.updated_at
            latest = max(latest, change.updated_at)
            yield f"id: {change.updated_at.isoformat()}\nevent: call\ndata: ".encode() + to_json(change) + b"\n\n"
        sent = {call_id: at for call_id, at in sent.items() if at > latest - 2 * OVERLAP}
        if fresh:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > HEARTBEAT_SECONDS:
            quiet_since = time.monotonic()
            yield b": still here\n\n"
        if len(changes) == call_list.MAX_CHANGES:
            begin = changes[-1].updated_at
        else:
            begin = max(latest - OVERLAP, since)
            await asyncio.sleep(reading.options.POLL_SECONDS)


async def export_calls(reading: ApiRequest[ExportQuery]) -> Response:
    """Export all calls of a filter, one page in memory at a time."""
    query = reading.query
    pages = _pages(reading)
    first = await anext(pages)  # report errors before the response starts
    if query.format == "csv":
        body, media_type = _csv(reading, first, pages), "text/csv; charset=utf-8"
    elif query.format == "parquet":
        transcripts = partial(_transcripts, reading) if "transcript" in query.include else None
        body, media_type = parquet(COLUMNS, _with(first, pages), _flat, transcripts), PARQUET
    else:
        body, media_type = _ndjson(reading, first, pages), "application/x-ndjson"
    name = f'attachment; filename="calls.{query.format}"'
    return StreamingResponse(
        body, media_type=media_type, headers={"Content-Disposition": name, "Cache-Control": "no-store"}
    )


async def _with(
    first: tuple[CallLine, ...], others: AsyncIterator[tuple[CallLine, ...]]
) -> AsyncIterator[tuple[CallLine, ...]]:
    yield first
    async for page in others:
        yield page


async def _pages(reading: ApiRequest[ExportQuery]) -> AsyncIterator[tuple[CallLine, ...]]:
    """Yield pages of calls, at least one, each read in a separate transaction."""
    filters = reading.query.to_filter()
    cursor: str | None = None
    while True:
        page = await call_list.list_calls(
            reading.database, reading.reader, filters, cursor, min(EXPORT_PAGE, MAX_PAGE_ROWS)
        )
        quoted = [line.call.call_id for line in page.items if line.hits]
        await reading.note("export", quoted, "hits")
        yield page.items
        cursor = page.next
        if cursor is None:
            return


async def _ndjson(
    reading: ApiRequest[ExportQuery], first: tuple[CallLine, ...], pages: AsyncIterator[tuple[CallLine, ...]]
) -> AsyncIterator[bytes]:
    page: tuple[CallLine, ...] | None = first
    while page is not None:
        include = reading.query.include
        transcripts = await _transcripts(reading, page) if "transcript" in include else {}
        edited = await _edits(reading, page) if "edits" in include else {}
        lines = []
        for line in page:
            data = to_camel_json(line)
            if "transcript" in include:
                data["transcript"] = transcripts.get(line.call.call_id)
            if "edits" in include:
                data["edits"] = edited.get(line.call.call_id, [])
            lines.append(to_json(data) + b"\n")
        yield b"".join(lines)
        page = await anext(pages, None)


async def _transcripts(reading: ApiRequest[ExportQuery], lines: Iterable[CallLine]) -> dict[UUID, Any]:
    """Return transcripts by call id and record the access."""
    by_call: dict[UUID, Any] = {}
    async with reading.database.transaction(reading.reader, snapshot=True) as connection:
        call_ids, machine = [line.call.call_id for line in lines], reading.query.version == "machine"
        for call_id, transcript in await views.transcripts_of(connection, call_ids, machine):
            by_call[call_id] = to_camel_json(transcript)
    await reading.note("export", list(by_call), "transcript")
    return by_call


async def _edits(reading: ApiRequest[ExportQuery], lines: Iterable[CallLine]) -> dict[UUID, Any]:
    """Return edits by call id and record the access."""
    async with reading.database.transaction(reading.reader, snapshot=True) as connection:
        edits = await views.edits_of(connection, [line.call.call_id for line in lines])
    await reading.note("export", list(edits), "edits")
    return {call_id: to_camel_json(some) for call_id, some in edits.items()}


async def _csv(
    reading: ApiRequest[ExportQuery], first: tuple[CallLine, ...], pages: AsyncIterator[tuple[CallLine, ...]]
) -> AsyncIterator[bytes]:
    yield csv_rows([dict.fromkeys(COLUMNS)], header=True)
    page: tuple[CallLine, ...] | None = first
    while page is not None:
        yield csv_rows([_flat(line) for line in page])
        page = await anext(pages, None)


def csv_rows(rows: list[dict[str, Any]], header: bool = False) -> bytes:
    """Return rows as comma-separated values; `header`: the names of the first row in camelCase instead."""
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows:
        writer.writerow(
            to_camel_json(dict.fromkeys(row)).keys() if header else [_cell(value) for value in row.values()]
        )
    return text.getvalue().encode("utf-8", "replace")


def _flat(line: CallLine) -> dict[str, Any]:
    contact = line.contact
    more = {
        "failure": line.call.failure and line.call.failure.code,
        "contact": contact and contact.name,
        "company": contact and contact.company,
    }
    values = {name: getattr(line.call, name, getattr(line, name, None)) for name in COLUMNS}
    return values | more


def _cell(value: Any) -> Any:
    """Return the value of a CSV cell, with an apostrophe before text that a spreadsheet would run as a formula."""
    shown = to_camel_json(value)
    if isinstance(shown, bool):
        return "true" if shown else "false"
    if isinstance(shown, str) and shown[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.fullmatch(shown):
        return f"'{shown}"
    return "" if shown is None else shown
