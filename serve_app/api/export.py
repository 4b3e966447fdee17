"""Export of all calls of a filter. Each page is read in a short transaction; the worker makes its rows."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

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
PART: Final = 10  # calls whose transcripts are in memory at a time


async def export_calls(reading: ApiRequest[ExportQuery]) -> Response:
    """Export all calls of a filter, a few in memory at a time."""
    query = reading.query
    pages = _pages(reading)
    first = await anext(pages)  # report errors before the response starts
    parts = _parts(reading, first, pages)
    if query.format == "csv":
        body, media_type = _csv(reading, parts), "text/csv; charset=utf-8"
    elif query.format == "parquet":
        body, media_type = parquet(schema_of(COLUMNS, "transcript" in query.include), _tables(reading, parts)), PARQUET
    else:
        body, media_type = _ndjson(reading, parts), "application/x-ndjson"
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


async def _parts(
    reading: ApiRequest[ExportQuery], first: Sequence[CallLine], others: AsyncIterator[Sequence[CallLine]]
) -> AsyncIterator[ExportPart]:
    page: Sequence[CallLine] | None = first
    while page is not None:
        size = PART if reading.query.include else PAGE
        for begin in range(0, len(page), size):
            yield await _part(reading, tuple(page[begin : begin + size]))
        page = await anext(others, None)


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


async def _ndjson(reading: ApiRequest[Any], parts: AsyncIterator[ExportPart]) -> AsyncIterator[bytes]:
    async for part in parts:
        yield await reading.tools.worker.run(export_rows.ndjson, part)


async def _csv(reading: ApiRequest[Any], parts: AsyncIterator[ExportPart]) -> AsyncIterator[bytes]:
    yield export_rows.csv_header()
    async for part in parts:
        yield await reading.tools.worker.run(export_rows.csv_rows, part)


async def _tables(reading: ApiRequest[Any], parts: AsyncIterator[ExportPart]) -> AsyncIterator[bytes]:
    async for part in parts:
        yield await reading.tools.worker.run(export_rows.arrow_table, part)
