"""Parquet export as a stream of row groups. A truncated file has no footer, so readers reject it."""

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from serve_app.http.camel_json import camel, to_camel_json

MEDIA_TYPE = "application/vnd.apache.parquet"
GROUP_ROWS = 1000  # in a row group; fewer make a file large and slow to read
GROUP_BYTES = 32 << 20  # in a row group, so that one of long calls fits in memory

_TIMES = ("start_time", "created_at", "updated_at", "completed_at")
_TYPES = {
    "outgoing": pa.bool_(),
    "duration": pa.float64(),
    "declared_duration": pa.int32(),
    "tasks": pa.int32(),
    "open_tasks": pa.int32(),
    "actions": pa.int32(),
} | dict.fromkeys(_TIMES, pa.timestamp("us", tz="UTC"))
_WORD = pa.struct(
    {
        "turn": pa.int32(),
        "speaker": pa.string(),
        "start": pa.float64(),  # seconds from the start of the recording
        "end": pa.float64(),
        "text": pa.string(),
        "confidence": pa.float32(),
        "doubtful": pa.bool_(),
    }
)


async def parquet(schema: pa.Schema, tables: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the file in pieces. `tables`: Arrow streams of `schema`."""
    sink = _Sink()
    group: list[pa.Table] = []
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        async for stream in tables:
            group.append(pa.ipc.open_stream(stream).read_all())
            if sum(table.num_rows for table in group) >= GROUP_ROWS or sum(t.nbytes for t in group) >= GROUP_BYTES:
                await asyncio.to_thread(writer.write_table, pa.concat_tables(group))
                group = []
                yield sink.taken()
        if group:
            await asyncio.to_thread(writer.write_table, pa.concat_tables(group))
    yield sink.taken()


def schema_of(columns: Sequence[str], words: bool) -> pa.Schema:
    """Return the schema: one row per call with `columns`, named in camelCase.

    `words`: also a column with the words of the transcript, which is null for a call without one.
    """
    fields = [pa.field(camel(name), _TYPES.get(name, pa.string())) for name in columns]
    return pa.schema([*fields, pa.field("words", pa.list_(_WORD))] if words else fields)


def to_cell(value: Any) -> Any:
    return value if isinstance(value, datetime) else to_camel_json(value)


class _Sink(io.RawIOBase):
    """Buffer between the Parquet writer and the response."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        self._parts.append(bytes(part))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)
