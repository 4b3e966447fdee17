"""Export of all calls of a filter. Each page is read in a short transaction; the worker makes its rows."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from starlette.responses import Response, StreamingResponse

from db.records.stored_transcripts import stored_transcripts
from db.search import call_list
from db.search.call_list import CallLine
from serve_app.api import export_rows
from serve_app.api.access import ApiRequest
from serve_app.api.export_rows import COLUMNS, ExportPart
from serve_app.api.parquet import MEDIA_TYPE as PARQUET
from serve_app.api.parquet import parquet, schema_of
from serve_app.api.queries import ExportQuery

PAGE: Final = 100  # calls per transaction
PART: Final = 4  # calls whose transcripts are in memory at a time
REST: Final = 2.0  # after each part, in times of the work on it
_WRITERS: Final = {
    "ndjson": (export_rows.ndjson, "application/x-ndjson"),
    "csv": (export_rows.csv_rows, "text/csv; charset=utf-8"),
    "parquet": (export_rows.arrow_table, PARQUET),
}


async def export_calls(reading: ApiRequest[ExportQuery]) -> Response:
    """Export all calls of a filter, a few in memory at a time."""
    query = reading.query
    pages = _pages(reading)
    first = await anext(pages)  # report errors before the response starts
    write, media_type = _WRITERS[query.format]
    body = _written(reading, first, pages, write)
    if query.format == "csv":
        body = _headed(export_rows.csv_header(), body)
    elif query.format == "parquet":
        body = parquet(schema_of(COLUMNS, "transcript" in query.include), body)
    name = f'attachment; filename="calls.{query.format}"'
    return StreamingResponse(
        body, media_type=media_type, headers={"Content-Disposition": name, "Cache-Control": "no-store"}
    )


async def _pages(reading: ApiRequest[ExportQuery]) -> AsyncIterator[Sequence[CallLine]]:
    filters = reading.query.to_filter()
    cursor: str | None = None
    while True:
        page = await call_list.list_calls(
            reading.database, reading.reader, filters, cursor, PAGE, reading.tools.worker.run
        )
        quoted = [line.call.call_id for line in page.items if line.hits]
        await reading.note("export", quoted, "hits")
        yield page.items
        cursor = page.next
        if cursor is None:
            return


async def _written(
    reading: ApiRequest[ExportQuery],
    first: Sequence[CallLine],
    others: AsyncIterator[Sequence[CallLine]],
    write: Callable[[ExportPart], bytes],
) -> AsyncIterator[bytes]:
    """Yield parts of the file, and rest after each, so that those who wait for an answer find the machine free."""
    size = PART if reading.query.include else PAGE
    page: Sequence[CallLine] | None = first
    while page is not None:
        for first_line in range(0, len(page), size):
            begin = time.monotonic()
            part = await _part(reading, tuple(page[first_line : first_line + size]))
            rows = await reading.tools.worker.run(write, part)
            seconds = time.monotonic() - begin
            yield rows
            await asyncio.sleep(REST * seconds)
        page = await anext(others, None)


async def _headed(header: bytes, rows: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield header
    async for row in rows:
        yield row


async def _part(reading: ApiRequest[ExportQuery], lines: tuple[CallLine, ...]) -> ExportPart:
    """Return calls with what is to be included, and record the access."""
    include = tuple(reading.query.include)
    if not include:
        return ExportPart(lines)
    call_ids = [line.call.call_id for line in lines]
    async with reading.database.transaction(reading.reader, snapshot=True) as connection:
        stored = await stored_transcripts(connection, call_ids)
    for what, calls in (
        ("transcript", [call.call_id for call in stored if call.content is not None]),
        ("edits", [call.call_id for call in stored if call.edits.rows]),
    ):
        if what in include:
            await reading.note("export", calls, what)
    return ExportPart(lines, tuple(stored), include, reading.query.version == "machine")
