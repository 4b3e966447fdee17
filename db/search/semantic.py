"""Finds the calls whose passages are closest to a question's vector.

Two methods, by how many passages the reader's filters leave: few are compared one by one, which misses none; of many,
the HNSW index is scanned until enough are found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.tables import PRESENT, call_passages, calls, passage_model, passages_due, transcripts
from db.search import call_list
from db.search.call_list import CallFilter, CallLine
from db.search.full_text import HITS, Hit
from db.search.passages import TURNS, turns_of
from pipeline.domain.speech import Turn, text_of

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


@dataclass(frozen=True, slots=True)
class _SimilarPassage:
    call_pk: int
    first_turn: int
    first_word: int
    last_turn: int
    last_word: int
    similarity: float


async def closest_calls(
    database: Database, reader: Reader, vector: Sequence[float], model: str, filters: CallFilter, limit: int
) -> tuple[CallLine, ...]:
    """Return the calls with the passages most similar to a question, the best first, each with its best passages.

    `filters`: conditions on calls, except words and names. Raises `OtherModel`.
    """
    async with database.transaction(reader) as connection:
        stored = await connection.scalar(sa.select(passage_model.c.model))
        if stored != model:
            raise OtherModel(stored)
        passages_by_call = await _closest(connection, await _passages(connection, reader, filters), list(vector), limit)
        lines = await call_list.lines(connection, list(passages_by_call))
        hits = await _hits(connection, passages_by_call)
    return tuple(replace(line, hits=hits.get(pk, ())) for pk, line in zip(passages_by_call, lines, strict=True))


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
) -> dict[int, list[_SimilarPassage]]:
    few = sa.select(sa.func.count()).select_from(passages.limit(MAX_EXACT + 1).subquery())
    exact = (await connection.scalar(few) or 0) <= MAX_EXACT
    count = limit * PASSAGES_PER_CALL
    while True:
        if not exact:
            await connection.execute(sa.text(SCAN_INDEX))
        rows = (await connection.execute(_nearest(passages, vector, count, exact))).all()
        passages_by_call: dict[int, list[_SimilarPassage]] = {}
        for row in rows:
            if row.call_pk in passages_by_call or len(passages_by_call) < limit:
                passages_by_call.setdefault(row.call_pk, []).append(_SimilarPassage(*row))
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


async def _hits(
    connection: AsyncConnection, passages_by_call: dict[int, list[_SimilarPassage]]
) -> dict[int, tuple[Hit, ...]]:
    turns_by_call = {
        row.call_pk: TURNS.validate_python(row.turns)
        for row in await connection.execute(turns_of(list(passages_by_call)))
    }
    return {pk: tuple(_shown(turns_by_call[pk], best)) for pk, best in passages_by_call.items() if pk in turns_by_call}


def _shown(turns: Sequence[Turn], passages: Sequence[_SimilarPassage]) -> Iterator[Hit]:
    by_index = {turn.index: turn for turn in turns}
    for passage in passages:
        words = [
            word
            for index in range(passage.first_turn, passage.last_turn + 1)
            if index in by_index
            for at, word in enumerate(by_index[index].words)
            if (index, at) >= (passage.first_turn, passage.first_word)
            and (index, at) <= (passage.last_turn, passage.last_word)
        ]
        if words:
            speaker, text = by_index[passage.first_turn].speaker, text_of(words)
            start, end = min(word.start for word in words), max(word.end for word in words)
            yield Hit(passage.first_turn, speaker, start, end, text, text, round(passage.similarity, 4))
