"""Handlers whose answers last: changes of calls as server-sent events, and exports."""

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
from serve_app.api.access import UNAVAILABLE, ReadRequest, to_json
from serve_app.api.calls import now
from serve_app.api.errors import InvalidQuery
from serve_app.api.parquet import MEDIA_TYPE as PARQUET
from serve_app.api.parquet import parquet
from serve_app.api.queries import ExportQuery, StreamQuery, asked_for_time
from serve_app.http.camel_json import written
from serve_app.http.json_body import Fault

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)  # nothing is older
OVERLAP = timedelta(seconds=10)  # a transaction that began so long ago may end now, with the time at which it began
HEARTBEAT_SECONDS = 15.0
EXPORT_PAGE = 100
KEY_SECONDS = 10.0  # between two looks whether the key is still in use
_NUMBER = re.compile(r"[+-]?[0-9][0-9 .]*")
COLUMNS = (
    *(field.name for field in fields(CallSummary) if field.name.removeprefix("declared_") in FIELDS),
    *("state", "language", "failure", "agent", "contact", "company", "tone", "summary", "tasks", "open_tasks"),
    *("created_at", "updated_at", "completed_at"),
)


async def stream_changes(reading: ReadRequest[StreamQuery]) -> Response:
    """Changes of calls as they happen."""
    told = reading.request.headers.get("last-event-id")
    since = reading.query.since
    known: dict[UUID, datetime] = {}
    if told is not None:
        last = asked_for_time(told)
        if last is None:
            raise InvalidQuery([Fault("", "Last-Event-ID is not an id of this stream: leave it out to begin now.")])
        since = max(last, BEGINNING) - OVERLAP
    if since is None:  # what comes from here on, that included which began before and is not there yet
        since = await now(reading) - OVERLAP
        known = await _known(reading, since)
    return StreamingResponse(
        _changes(reading, max(since, BEGINNING), known),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _known(reading: ReadRequest[StreamQuery], since: datetime) -> dict[UUID, datetime]:
    """Calls that changed after `since`, and when, as far as that is committed."""
    found = await call_list.changes_since(reading.database, reading.reader, since)
    known = {one.call_id: one.updated_at for one in found}
    while len(found) == call_list.MAX_CHANGES:
        found = await call_list.changes_since(reading.database, reading.reader, found[-1].updated_at)
        known |= {one.call_id: one.updated_at for one in found}
    return known


async def _changes(
    reading: ReadRequest[StreamQuery], since: datetime, sent: dict[UUID, datetime]
) -> AsyncIterator[bytes]:
    """Each change once, in the order in which they are seen. The overlap finds what was committed late.

    `sent`: when calls changed of which nothing is told until they change again.
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
            found = await call_list.changes_since(reading.database, reading.reader, begin)
        except UNAVAILABLE:
            return  # the reader connects again, and begins where this ended
        fresh = [one for one in found if sent.get(one.call_id) != one.updated_at]
        for one in fresh:
            sent[one.call_id] = one.updated_at
            latest = max(latest, one.updated_at)
            yield f"id: {one.updated_at.isoformat()}\nevent: call\ndata: ".encode() + to_json(one) + b"\n\n"
        sent = {call_id: at for call_id, at in sent.items() if at > latest - 2 * OVERLAP}
        if fresh:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > HEARTBEAT_SECONDS:
            quiet_since = time.monotonic()
            yield b": still here\n\n"
        if len(found) == call_list.MAX_CHANGES:
            begin = found[-1].updated_at
        else:
            begin = max(latest - OVERLAP, since)
            await asyncio.sleep(reading.options.POLL_SECONDS)


async def export_calls(reading: ReadRequest[ExportQuery]) -> Response:
    """All calls of a filter, page by page: no more than a page is ever held."""
    query = reading.query
    pages = _pages(reading)
    first = await anext(pages)  # what is wrong is told before the answer begins
    if query.format == "csv":
        body, media_type = _csv(reading, first, pages), "text/csv; charset=utf-8"
    elif query.format == "parquet":
        said = partial(_transcripts, reading) if "transcript" in query.include else None
        body, media_type = parquet(COLUMNS, _with(first, pages), _flat, said), PARQUET
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


async def _pages(reading: ReadRequest[ExportQuery]) -> AsyncIterator[tuple[CallLine, ...]]:
    """Lines of calls, at least one page of them, each read in a transaction of its own."""
    wanted = reading.query.wanted()
    cursor: str | None = None
    while True:
        page = await call_list.list_calls(
            reading.database, reading.reader, wanted, cursor, min(EXPORT_PAGE, MAX_PAGE_ROWS)
        )
        quoted = [line.call.call_id for line in page.items if line.hits]
        await reading.note("export", quoted, "hits")
        yield page.items
        cursor = page.next
        if cursor is None:
            return


async def _ndjson(
    reading: ReadRequest[ExportQuery], first: tuple[CallLine, ...], pages: AsyncIterator[tuple[CallLine, ...]]
) -> AsyncIterator[bytes]:
    page: tuple[CallLine, ...] | None = first
    while page is not None:
        include = reading.query.include
        said = await _transcripts(reading, page) if "transcript" in include else {}
        edited = await _edits(reading, page) if "edits" in include else {}
        lines = []
        for line in page:
            data = written(line)
            if "transcript" in include:
                data["transcript"] = said.get(line.call.call_id)
            if "edits" in include:
                data["edits"] = edited.get(line.call.call_id, [])
            lines.append(to_json(data) + b"\n")
        yield b"".join(lines)
        page = await anext(pages, None)


async def _transcripts(reading: ReadRequest[ExportQuery], lines: Iterable[CallLine]) -> dict[UUID, Any]:
    """What was said in calls, by call id; noted before it is given."""
    found: dict[UUID, Any] = {}
    async with reading.database.transaction(reading.reader, snapshot=True) as connection:
        wanted, machine = [line.call.call_id for line in lines], reading.query.version == "machine"
        for call_id, transcript in await views.transcripts_of(connection, wanted, machine):
            found[call_id] = written(transcript)
    await reading.note("export", list(found), "transcript")
    return found


async def _edits(reading: ReadRequest[ExportQuery], lines: Iterable[CallLine]) -> dict[UUID, Any]:
    """What people corrected in calls, by call id; noted before it is given."""
    async with reading.database.transaction(reading.reader, snapshot=True) as connection:
        found = await views.edits_of(connection, [line.call.call_id for line in lines])
    await reading.note("export", list(found), "edits")
    return {call_id: written(some) for call_id, some in found.items()}


async def _csv(
    reading: ReadRequest[ExportQuery], first: tuple[CallLine, ...], pages: AsyncIterator[tuple[CallLine, ...]]
) -> AsyncIterator[bytes]:
    yield csv_rows([dict.fromkeys(COLUMNS)], header=True)
    page: tuple[CallLine, ...] | None = first
    while page is not None:
        yield csv_rows([_flat(line) for line in page])
        page = await anext(pages, None)


def csv_rows(rows: list[dict[str, Any]], header: bool = False) -> bytes:
    """Lines of comma-separated values; `header`: the names of the first row in camelCase."""
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows:
        writer.writerow(written(dict.fromkeys(row)).keys() if header else [_cell(value) for value in row.values()])
    return text.getvalue().encode("utf-8", "replace")


def _flat(line: CallLine) -> dict[str, Any]:
    contact = line.contact
    more = {
        "failure": line.call.failure and line.call.failure.code,
        "contact": contact and contact.name,
        "company": contact and contact.company,
    }
    held = {name: getattr(line.call, name, getattr(line, name, None)) for name in COLUMNS}
    return held | more


def _cell(value: Any) -> Any:
    """As text. What a spreadsheet would take for a formula gets an apostrophe before it."""
    shown = written(value)
    if isinstance(shown, bool):
        return "true" if shown else "false"
    if isinstance(shown, str) and shown[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.fullmatch(shown):
        return f"'{shown}"
    return "" if shown is None else shown
