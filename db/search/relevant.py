from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.tables import PRESENT, calls, transcripts
from db.records.stored_transcripts import StoredTranscript, stored_transcripts
from db.search import call_list, semantic
from db.search.call_list import CallFilter
from db.search.hits import SimilarPassage, split_words

MAX_COUNTED = 1_000  # calls that match words or names; all others are counted
MAX_WORDS = 32  # of a question that are looked for


@dataclass(frozen=True, slots=True)
class RelevantCall:
    """A call with its transcript as stored; `passages`: the most similar ones to the question."""

    start_time: datetime
    stored: StoredTranscript
    passages: tuple[SimilarPassage, ...] = ()


@dataclass(frozen=True, slots=True)
class RelevantCalls:
    """`matched`: number of calls that match the filters, up to `MAX_COUNTED` of those with words or names.

    `more`: whether there may be further calls with a transcript.
    """

    matched: int
    calls: tuple[RelevantCall, ...]
    more: bool


async def relevant_calls(
    database: Database,
    reader: Reader,
    question: str,
    filters: CallFilter,
    limit: int,
    vector: tuple[str, Sequence[float]] | None = None,
) -> RelevantCalls:
    """Return up to `limit` calls with a transcript, the most relevant first.

    First the closest in meaning (`vector`: name of the model and the question's vector), then those with all words of
    the question, with any of them, and the latest. Raises `semantic.OtherModel`.
    """
    async with database.transaction(reader, snapshot=True) as connection:
        passages: dict[int, list[SimilarPassage]] = {}
        if vector is not None and filters.text is None and filters.name is None:
            passages = await semantic.closest_passages(connection, reader, vector[1], vector[0], filters, limit + 1)
        chosen = await _with_transcript(connection, list(passages))
        for search in () if len(chosen) > limit else _searches(question, filters):
            page = await call_list.call_page(connection, reader, search, None, 2 * limit)
            chosen = list(dict.fromkeys([*chosen, *await _with_transcript(connection, page.items)]))
            if len(chosen) > limit:
                break
        best = await _transcripts(connection, chosen[:limit], passages)
        return RelevantCalls(await _count(connection, reader, filters), best, len(chosen) > limit)


def _searches(question: str, filters: CallFilter) -> list[CallFilter]:
    if filters.text is not None or filters.updated_after is not None:
        return [filters]
    words = [word for word in split_words(question) if word != "or"][:MAX_WORDS]
    texts = dict.fromkeys([" ".join(words), " or ".join(words)]) if words else {}
    return [*(replace(filters, text=text) for text in texts), filters]


async def _with_transcript(connection: AsyncConnection, call_pks: Sequence[int]) -> list[int]:
    query = sa.select(calls.c.id).join(transcripts, PRESENT).where(calls.c.id.in_(call_pks))
    present = set((await connection.execute(query)).scalars()) if call_pks else set()
    return [call_pk for call_pk in call_pks if call_pk in present]


async def _transcripts(
    connection: AsyncConnection, call_pks: Sequence[int], passages: dict[int, list[SimilarPassage]]
) -> tuple[RelevantCall, ...]:
    rows = await connection.execute(
        sa.select(calls.c.id, calls.c.call_id, calls.c.start_time).where(calls.c.id.in_(call_pks))
    )
    by_pk = {row.id: row for row in rows}
    stored = await stored_transcripts(connection, [row.call_id for row in by_pk.values()])
    by_id: dict[UUID, StoredTranscript] = {transcript.call_id: transcript for transcript in stored}
    return tuple(
        RelevantCall(by_pk[pk].start_time, by_id[by_pk[pk].call_id], tuple(passages.get(pk, ()))) for pk in call_pks
    )


async def _count(connection: AsyncConnection, reader: Reader, filters: CallFilter) -> int:
    if filters.text is not None or filters.name is not None:
        return len((await call_list.call_page(connection, reader, filters, None, MAX_COUNTED)).items)
    return await call_list.count(connection, reader, filters)


async def missing(database: Database, reader: Reader, call_ids: Sequence[UUID]) -> list[UUID]:
    """Return the ids of calls that do not exist or are not visible to the reader."""
    query = sa.select(calls.c.call_id).where(calls.c.workspace_id == reader.workspace_id, calls.c.call_id.in_(call_ids))
    visible = {row.call_id for row in await database.rows(reader, query)}
    return [call_id for call_id in call_ids if call_id not in visible]
