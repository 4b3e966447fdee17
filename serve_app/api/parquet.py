"""Parquet export as a stream of row groups. A truncated file has no footer, so readers reject it."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from db.search.call_list import CallLine
from serve_app.http.camel_json import camel, to_camel_json

MEDIA_TYPE = "application/vnd.apache.parquet"
GROUP_ROWS = 1000  # in a row group; fewer make a file large and slow to read
GROUP_WORDS = 200_000  # in a row group, so that one of long calls fits in memory

_TIMES = ("start_time", "created_at", "updated_at", "completed_at")
_TYPES = {
    "outgoing": pa.bool_(),
    "duration": pa.float64(),
    "declared_duration": pa.int32(),
    "tasks": pa.int32(),
    "open_tasks": pa.int32(),
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

Row = Mapping[str, Any]
Transcripts = Callable[[Sequence[CallLine]], Awaitable[Mapping[UUID, Any]]]


async def parquet(
    columns: Sequence[str],
    pages: AsyncIterator[tuple[CallLine, ...]],
    flat: Callable[[CallLine], Row],
    transcripts: Transcripts | None,
) -> AsyncIterator[bytes]:
    """Yield the file in pieces: one row per call with `columns`, named in camelCase.

    `flat` returns the row of a call. `transcripts` returns the JSON transcripts of a page of calls for the column
    `words`, which is null for a call without a transcript.
    """
    sink = _Sink()
    fields = [pa.field(camel(name), _TYPES.get(name, pa.string())) for name in columns]
    schema = pa.schema([*fields, pa.field("words", pa.list_(_WORD))] if transcripts else fields)
    rows: list[dict[str, Any]] = []
    words = 0
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        async for page in pages:
            page_transcripts = await transcripts(page) if transcripts else {}
            for line in page:
                row = {camel(name): _cell(value) for name, value in flat(line).items()}
                if (transcript := page_transcripts.get(line.call.call_id)) is not None:
                    row["words"] = list(_words(transcript))
                    words += len(row["words"])
                rows.append(row)
            if len(rows) >= GROUP_ROWS or words >= GROUP_WORDS:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                rows, words = [], 0
                yield sink.taken()
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema))
    yield sink.taken()


def _cell(value: Any) -> Any:
    return value if isinstance(value, datetime) else to_camel_json(value)


def _words(transcript: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for turn in transcript["turns"]:
        for word in turn["words"]:
            fields = {name: word[name] for name in ("start", "end", "text", "confidence", "doubtful")}
            yield {"turn": turn["index"], "speaker": turn["speaker"], **fields}


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
