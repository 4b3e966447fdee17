import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.tables import PRESENT, calls, transcripts
from db.records.corrections import EditedCall, EditRows, edit_rows
from db.secrets import call_keys
from db.secrets.call_keys import CallKeys
from pipeline.domain.speech import Transcript

_TRANSCRIPT = TypeAdapter(Transcript)
CONTENT = sa.cast(call_keys.readable(transcripts.c.content, transcripts.c.call_pk), sa.Text).label("content")
"""The JSON of a transcript; `transcripts` must be joined by `PRESENT`."""


@dataclass(frozen=True, slots=True)
class StoredTranscript:
    """A call's transcript as stored, and its edits. Can be pickled: an hour of talk takes 0.1 s to parse."""

    call_id: UUID
    content: str | None  # JSON; None: no transcript of the present recording
    edits: EditRows

    def machine(self) -> Transcript | None:
        """Return the transcript without users' corrections."""
        return parsed(self.content)

    def edited(self) -> EditedCall:
        """Return the call with users' corrections."""
        return self.edits.applied_to(self.machine())


async def stored_transcripts(connection: AsyncConnection, call_ids: Sequence[UUID]) -> list[StoredTranscript]:
    """Return what is stored of calls in the scope, in no order."""
    query = sa.select(calls.c.id, calls.c.call_id, CONTENT).select_from(calls).outerjoin(transcripts, PRESENT)
    rows = (await connection.execute(query.where(calls.c.call_id.in_(call_ids)))).all()
    of_call = await edit_rows(connection, [row.id for row in rows])
    contents = await asyncio.to_thread(_opened, call_keys.of(connection), rows)
    return [
        StoredTranscript(row.call_id, content, of_call[row.id]) for row, content in zip(rows, contents, strict=True)
    ]


def _opened(keys: CallKeys, rows: Sequence[sa.Row[Any]]) -> list[str | None]:
    return [keys.open_text(row.content) for row in rows]


def parsed(content: str | None) -> Transcript | None:
    """Return the transcript of `CONTENT`, opened."""
    return None if content is None else _TRANSCRIPT.validate_json(content)
