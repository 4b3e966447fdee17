import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Reader
from tests.postgres import World, new_world

NOW = datetime(2026, 11, 20, tzinfo=UTC)
CALLS = 9_000  # in more windows than one, after the gap
ROWS = """
    WITH made AS (
        INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, outgoing, state)
        SELECT :workspace, gen_random_uuid(), CASE WHEN n % 11 = 0 THEN CAST(:other AS uuid) ELSE :team END, '1', '2',
            :now - CASE WHEN n < 3000 THEN n / 3 ELSE 30000 + n END * interval '1 minute', false, 'completed'
        FROM generate_series(1, :calls) AS n
        RETURNING id, workspace_id, team_id, start_time
    )
    INSERT INTO call_search (call_pk, workspace_id, team_id, start_time, config, tone, names, terms)
    SELECT id, workspace_id, team_id, start_time, CASE WHEN id % 2 = 0 THEN 'english' ELSE 'german' END,
        CASE WHEN id % 4000 = 0 THEN 'negative' WHEN id % 3 = 0 THEN 'positive' END, '',
        to_tsvector('simple', 'talk rest' || id % 7 || ' rare' || id % 2500) || array_to_tsvector(ARRAY['~' || id % 5])
    FROM made
"""
PLAIN = """
    SELECT call_pk FROM call_search s
    WHERE workspace_id = :workspace AND (CAST(:team AS uuid) IS NULL OR team_id = :team)
        AND (CAST(:words AS text) IS NULL OR terms @@ websearch_to_tsquery('simple', :words))
        AND (CAST(:config AS text) IS NULL OR config = :config) AND (CAST(:tone AS text) IS NULL OR tone = :tone)
        AND (CAST(:names AS tsquery) IS NULL OR terms @@ CAST(:names AS tsquery))
        AND start_time >= coalesce(:from, '-infinity'::timestamptz)
        AND start_time < coalesce(:until, 'infinity'::timestamptz)
    ORDER BY start_time DESC, call_pk DESC
"""
TIMES = [sa.bindparam(name, type_=sa.DateTime(timezone=True)) for name in ("from", "until")]
SEARCHED = sa.text("""
    SELECT call_pk, start_time FROM search_calls(CAST(:config AS text), CAST(:words AS text), CAST(:names AS tsquery),
        :from, :until, :before, CAST(:call AS bigint), CAST(:limit AS integer), CAST(:tone AS text))
""").bindparams(*TIMES, sa.bindparam("before", type_=sa.DateTime(timezone=True)))


@pytest.fixture
async def many(world: World) -> World:
    values = {"workspace": world.workspace_id, "team": world.team_id, "other": world.other_team_id}
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text(ROWS), values | {"now": NOW, "calls": CALLS})
    return world


def questions(world: World) -> list[tuple[dict[str, Any], UUID | None]]:
    """Return every kind of filter, and 30 random combinations, each with the team of its reader."""
    nothing: dict[str, Any] = dict.fromkeys(("words", "config", "names", "from", "until", "tone"))
    gap = NOW - timedelta(minutes=15_000)
    choices: dict[str, list[Any]] = {
        "words": [None, "talk", "rest3", "rare77", '"talk rest2"', "talk -rest2", "nowhere", "rest1 or rare5"],
        "config": [None, "english"],
        "names": [None, "'~3'", "'~9'"],
        "from": [None, gap, NOW - timedelta(minutes=500), NOW],
        "until": [None, gap, NOW - timedelta(minutes=36_000), NOW - timedelta(days=400)],
        "tone": [None, "positive", "negative", "neutral"],
    }
    chance = random.Random(5)
    drawn = [{name: chance.choice([None, None, *some]) for name, some in choices.items()} for _ in range(30)]
    single = [nothing | {name: value} for name, some in choices.items() for value in some[1:]]
    return [(query, chance.choice([None, world.other_team_id])) for query in [nothing, *single, *drawn]]


async def test_pages_hold_what_one_statement_finds_in_its_order(many: World) -> None:
    matches = 0
    for query, team in questions(many):
        async with many.database.transaction(EVERY_WORKSPACE) as connection:
            values = query | {"workspace": many.workspace_id, "team": team}
            expected = list((await connection.execute(sa.text(PLAIN).bindparams(*TIMES), values)).scalars())
        limit = max(7, len(expected) // 4)
        async with many.database.transaction(Reader(many.workspace_id, team)) as connection:
            seen: list[int] = []
            place: dict[str, Any] = {"before": None, "call": None}
            while True:
                rows = (await connection.execute(SEARCHED, query | place | {"limit": limit})).all()
                seen += [row.call_pk for row in rows]
                if len(rows) < limit:
                    break
                place = {"before": rows[-1].start_time, "call": rows[-1].call_pk}
        assert seen == expected, (query, team)
        matches += len(expected) > 0
    assert matches > 20


async def test_another_workspace_sees_none_of_them(many: World) -> None:
    other = await new_world(many.database)
    nothing = dict.fromkeys(("words", "config", "names", "from", "until", "before", "call", "tone"))
    async with many.database.transaction(Reader(other.workspace_id)) as connection:
        assert (await connection.execute(SEARCHED, nothing | {"limit": 10})).all() == []
