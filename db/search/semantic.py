"""Finds the calls whose passages are closest to a question's vector.

Two methods, by how many passages the reader's filters leave: few are compared one by one, which misses none; of many,
the HNSW index is scanned until enough are found.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.tables import PRESENT, call_passages, calls, passage_model, passages_due, transcripts
from db.records.stored_transcripts import StoredTranscript, stored_transcripts
from db.search import call_list
from db.search.call_list import CallFilter, CallLine
from db.search.hits import HITS, Hit, Offload, SimilarPassage, passage_hits, split_words
from db.search.stored_turns import spoken_in_parts

MAX_EXACT = 20_000  # passages that are compared one by one: 20 to 40 ms
PASSAGES_PER_CALL = 4  # that are examined for each requested call, at first
SCAN_INDEX = """
    SELECT set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', '100', true),
        set_config('hnsw.max_scan_tuples', '200000', true), set_config('enable_sort', 'off', true)
"""
"""For an index scan. Without a sort PostgreSQL uses the index, whatever it estimates for the filters."""


class OtherModel(Exception):
    """The stored passages are of another model than the question. `stored`: that model, or None without passages."""

    def __init__(self, stored: str | None) -> None:
        super().__init__(stored)
        self.stored = stored


async def closest_calls(
    database: Database,
    reader: Reader,
    vector: Sequence[float],
    model: str,
    filters: CallFilter,
    limit: int,
    offload: Offload = asyncio.to_thread,
) -> tuple[CallLine, ...]:
    """Return the calls with the passages most similar to a question, the best first, each with its best passages.

    `filters`: conditions on calls, except words and names. `offload`: see `hits`. Raises `OtherModel`.
    """
    async with database.transaction(reader) as connection:
        passages_by_call = await closest_passages(connection, reader, vector, model, filters, limit)
        lines = await call_list.lines(connection, list(passages_by_call))
    hits: dict[int, tuple[Hit, ...]] = {}
    async for spoken in spoken_in_parts(database, reader, list(passages_by_call)):
        passages = {call.call_pk: passages_by_call[call.call_pk] for call in spoken}
        hits |= await offload(passage_hits, spoken, passages)
    return tuple(replace(line, hits=hits.get(pk, ())) for pk, line in zip(passages_by_call, lines, strict=True))


async def closest_passages(
    connection: AsyncConnection,
    reader: Reader,
    vector: Sequence[float],
    model: str,
    filters: CallFilter,
    limit: int,
) -> dict[int, list[SimilarPassage]]:
    """Return the best passages of the closest calls by row id, the best call first. See `closest_calls`."""
    stored = await connection.scalar(sa.select(passage_model.c.model))
    if stored != model:
        raise OtherModel(stored)
    return await _closest(connection, await _passages(connection, reader, filters), list(vector), limit)


async def _passages(connection: AsyncConnection, reader: Reader, filters: CallFilter) -> sa.Select[Any]:
    """Return the query of passages of matching calls with present words, so not of due calls."""
    due = sa.select(1).where(passages_due.c.call_pk == call_passages.c.call_pk)
    return (
        sa.select(call_passages)
        .join(calls, calls.c.id == call_passages.c.call_pk)
        .join(transcripts, PRESENT)
        .where(
            call_passages.c.workspace_id == reader.workspace_id,
            call_passages.c.model == sa.select(passage_model.c.model).scalar_subquery(),
            ~sa.exists(due),
            *await call_list.conditions(connection, reader, filters),
        )
    )


async def _closest(
    connection: AsyncConnection, passages: sa.Select[Any], vector: list[float], limit: int
) -> dict[int, list[SimilarPassage]]:
    few = sa.select(sa.func.count()).select_from(passages.limit(MAX_EXACT + 1).subquery())
    exact = (await connection.scalar(few) or 0) <= MAX_EXACT
    count = limit * PASSAGES_PER_CALL
    while True:
        if not exact:
            await connection.execute(sa.text(SCAN_INDEX))
        rows = (await connection.execute(_nearest(passages, vector, count, exact))).all()
        passages_by_call: dict[int, list[SimilarPassage]] = {}
        for row in rows:
            if row.call_pk in passages_by_call or len(passages_by_call) < limit:
                passages_by_call.setdefault(row.call_pk, []).append(SimilarPassage(*row))
        if len(passages_by_call) >= limit or (exact and len(rows) < count):
            return {pk: best[:HITS] for pk, best in passages_by_call.items()}
        if len(rows) < count:
            exact = True  # the scan ended before enough were found
        count *= PASSAGES_PER_CALL


def _nearest(passages: sa.Select[Any], vector: list[float], count: int, exact: bool) -> sa.Select[Any]:
    if exact:
        source: sa.FromClause = passages.cte("passages").prefix_with("MATERIALIZED", dialect="postgresql")
    else:
        source = call_passages
    distance = source.c.embedding.cosine_distance(vector)
    names = ("call_pk", "first_turn", "first_word", "last_turn", "last_word")
    columns = [*(source.c[name] for name in names), (1 - distance).label("similarity")]
    query = sa.select(*columns) if exact else passages.with_only_columns(*columns)
    return query.order_by(distance).limit(count)


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
    the question, with any of them, and the latest. Raises `OtherModel`.
    """
    async with database.transaction(reader, snapshot=True) as connection:
        passages: dict[int, list[SimilarPassage]] = {}
        if vector is not None and filters.text is None and filters.name is None:
            passages = await closest_passages(connection, reader, vector[1], vector[0], filters, limit + 1)
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
