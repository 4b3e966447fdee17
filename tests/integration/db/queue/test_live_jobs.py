import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.queue import backlog
from db.queue import backlog as queue
from tests.postgres import World

ENDED = 20_000
STORE = """
SET session_replication_role = replica;
INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)
SELECT %(workspace)s, gen_random_uuid(), %(team)s, '+49301', '+49402', now() - n * interval '1 s', 'completed'
FROM generate_series(1, %(ended)s) AS n;
INSERT INTO jobs (call_pk, kind, state, run, attempts, team_id, live)
SELECT id, 'process', 'done', 1, 1, team_id, false FROM calls;
ANALYZE calls, jobs;
"""


@pytest.fixture
async def stored(world: World) -> World:
    """Create many finished calls, and one that waits for its recording."""
    places = {"workspace": world.workspace_id, "team": world.team_id, "ended": ENDED}
    async with await psycopg.AsyncConnection.connect(world.database.url, autocommit=True) as admin:
        cursor = psycopg.AsyncClientCursor(admin)
        await cursor.execute(STORE, places)
    await world.submit(recording_url="https://store.example/a.wav")
    return world


async def looks(world: World) -> dict[str, Callable[[], Awaitable[Any]]]:
    (job,) = await world.rows("SELECT id FROM jobs WHERE state = 'fetching'")
    database, reader = world.database, Reader(world.workspace_id)
    return {
        "backlog": lambda: queue.backlog(database),
        "ages": lambda: queue.ages(database),
        "lanes": lambda: queue.lanes(database),
        "full workspaces": lambda: queue.full_workspaces(database, 1),
        "place": lambda: queue.place(database, job["id"]),
        "queues of teams": lambda: backlog.team_queues(database, reader),
    }


async def test_no_look_at_the_queue_reads_the_jobs_that_have_ended(stored: World) -> None:
    for name, look in (await looks(stored)).items():
        with StatementLog(stored.database) as log:
            await look()
        read = [scan for text, values in log for scan in await scans(stored.database, text, values)]
        assert "jobs" in {table for _, table in read}, f"{name} was not seen to look at jobs"
        assert ("Seq Scan", "jobs") not in read, name
        assert ("Seq Scan", "calls") not in read, name


class StatementLog:
    """Records the statements that a block sends through the pool of transactions."""

    def __init__(self, database: Database) -> None:
        self._engine, self._said = database.engine.sync_engine, []

    def __enter__(self) -> list[tuple[str, Any]]:
        sa.event.listen(self._engine, "before_cursor_execute", self._hear)
        return self._said

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "before_cursor_execute", self._hear)

    def _hear(self, _: Any, __: Any, text: str, values: Any, *___: Any) -> None:
        if text.lstrip().startswith("SELECT") and "set_config" not in text:
            self._said.append((text, values))


async def scans(database: Database, text: str, values: Any) -> list[tuple[str, str]]:
    """Return how a statement scans each table, by PostgreSQL's plan."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        plan_json = (await connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {text}", values)).scalar_one()
    (plan,) = plan_json if isinstance(plan_json, list) else json.loads(plan_json)
    return [(node["Node Type"], node["Relation Name"]) for node in _nodes(plan["Plan"]) if "Relation Name" in node]


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)
