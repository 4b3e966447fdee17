"""Calls whose passages lie closest to a question's vector.

Two ways, by how many passages the reader's filters leave: few are compared one by one, which misses none; of many, the
HNSW index is walked on until enough of them are found.
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

EXACT = 20_000  # passages that are compared one by one: 20 to 40 ms
A_CALL = 4  # passages looked at for each call that is wanted, at first
WALK = """
    SELECT set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', '100', true),
        set_config('hnsw.max_scan_tuples', '200000', true), set_config('enable_sort', 'off', true)
"""
"""For a walk through the index. Without a sort PostgreSQL takes the index, whatever it expects of the filters."""


class OtherModel(Exception):
    """The stored passages are of another model than the question; `stored`: which; None: none are made."""

    def __init__(self, stored: str | None) -> None:
        super().__init__(stored)
        self.stored = stored


@dataclass(frozen=True, slots=True)
class _Near:
    """A passage, and how like the question it is."""

    call_pk: int
    first_turn: int
    first_word: int
    last_turn: int
    last_word: int
    similarity: float


async def closest_calls(
    database: Database, reader: Reader, vector: Sequence[float], model: str, wanted: CallFilter, limit: int
) -> tuple[CallLine, ...]:
    """The calls with the passages that are most like a question, the most similar first, each with its best passages.

    `wanted`: which calls, apart from words and names. Raises `OtherModel`.
    """
    async with database.transaction(reader) as connection:
        stored = await connection.scalar(sa.select(passage_model.c.model))
        if stored != model:
            raise OtherModel(stored)
        found = await _closest(connection, await _passages(connection, reader, wanted), list(vector), limit)
        lines = await call_list.lines(connection, list(found))
        hits = await _hits(connection, found)
    return tuple(replace(line, hits=hits.get(pk, ())) for pk, line in zip(found, lines, strict=True))


async def _passages(connection: AsyncConnection, reader: Reader, wanted: CallFilter) -> sa.Select[Any]:
    """Passages of the calls that are wanted, and of the words that stand there now: not of calls that are due."""
    due = sa.select(1).where(passages_due.c.call_pk == call_passages.c.call_pk)
    return (
        sa.select(call_passages)
        .join(calls, calls.c.id == call_passages.c.call_pk)
        .join(transcripts, PRESENT)
        .where(
            call_passages.c.workspace_id == reader.workspace_id,
            call_passages.c.model == sa.select(passage_model.c.model).scalar_subquery(),
            ~sa.exists(due),
            *await call_list.conditions(connection, reader, wanted),
        )
    )


async def _closest(
    connection: AsyncConnection, passages: sa.Select[Any], vector: list[float], limit: int
) -> dict[int, list[_Near]]:
    """The best passages of the most similar calls, by the calls' row ids."""
    few = sa.select(sa.func.count()).select_from(passages.limit(EXACT + 1).subquery())
    exact = (await connection.scalar(few) or 0) <= EXACT
    count = limit * A_CALL
    while True:
        if not exact:
            await connection.execute(sa.text(WALK))
        rows = (await connection.execute(_nearest(passages, vector, count, exact))).all()
        found: dict[int, list[_Near]] = {}
        for row in rows:
            if row.call_pk in found or len(found) < limit:
                found.setdefault(row.call_pk, []).append(_Near(*row))
        if len(found) >= limit or (exact and len(rows) < count):
            return {pk: near[:HITS] for pk, near in found.items()}
        if len(rows) < count:
            exact = True  # the walk ended before enough of them were found
        count *= A_CALL


def _nearest(passages: sa.Select[Any], vector: list[float], count: int, exact: bool) -> sa.Select[Any]:
    """At most `count` passages, the most similar first."""
    if exact:
        source: sa.FromClause = passages.cte("passages").prefix_with("MATERIALIZED", dialect="postgresql")
    else:
        source = call_passages
    distance = source.c.embedding.cosine_distance(vector)
    names = ("call_pk", "first_turn", "first_word", "last_turn", "last_word")
    columns = [*(source.c[name] for name in names), (1 - distance).label("similarity")]
    query = sa.select(*columns) if exact else passages.with_only_columns(*columns)
    return query.order_by(distance).limit(count)


async def _hits(connection: AsyncConnection, found: dict[int, list[_Near]]) -> dict[int, tuple[Hit, ...]]:
    """The passages with their words, as they stand."""
    said = {row.call_pk: TURNS.validate_python(row.turns) for row in await connection.execute(turns_of(list(found)))}
    return {pk: tuple(_shown(said[pk], near)) for pk, near in found.items() if pk in said}


def _shown(turns: Sequence[Turn], found: Sequence[_Near]) -> Iterator[Hit]:
    by_index = {turn.index: turn for turn in turns}
    for one in found:
        words = [
            word
            for index in range(one.first_turn, one.last_turn + 1)
            if index in by_index
            for at, word in enumerate(by_index[index].words)
            if (index, at) >= (one.first_turn, one.first_word) and (index, at) <= (one.last_turn, one.last_word)
        ]
        if words:
            speaker, text = by_index[one.first_turn].speaker, text_of(words)
            start, end = min(word.start for word in words), max(word.end for word in words)
            yield Hit(one.first_turn, speaker, start, end, text, text, round(one.similarity, 4))
