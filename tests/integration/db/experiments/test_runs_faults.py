import asyncio
import time
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from db.core.database import OUTAGES
from db.experiments import promotion, runs
from db.experiments.runs import MAX_CALLS
from db.records.views import CallRecord
from serve_app.conductor.runs import RunLoop
from serve_app.settings import Settings
from tests.integration.db.experiments.test_runs import (
    PLAIN,
    Engines,
    call,
    create_run,
    ended,
    engines,
    same,
    settings,
    worked,
    working,
)
from tests.postgres import World
from tests.support.conductors import shown

__all__ = ["call", "engines", "settings"]  # fixtures


@pytest.mark.slow
async def test_a_conductor_that_dies_in_a_run_costs_what_it_was_at_and_nothing_is_done_twice(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    run = await create_run(world)
    halt = engines.other.halt("voiceprint")
    dead = RunLoop(world.database, engines, settings, PLAIN)
    await dead.start()
    await halt.wait()
    for task in (*dead._loops, *(task for _, task in dead._leased_tasks())):  # as kill -9 does: nothing is given back
        task.cancel()
    await asyncio.sleep(0.1)
    (row,) = await world.rows("SELECT state, claims FROM run_calls")
    assert (row["state"], row["claims"]) == ("running", 1)
    recognized = engines.other.asked["transcribe"]
    assert recognized >= 1
    async with working(world, engines, settings):
        run = await ended(world, run)
    assert (run.done, run.failed) == (1, 0)
    assert engines.other.asked["transcribe"] == recognized, "what it had recognized is recalled"
    (row,) = await world.rows("SELECT state, claims FROM run_calls")
    assert (row["state"], row["claims"]) == ("done", 2)


@pytest.mark.slow
async def test_a_promotion_whose_connection_is_lost_has_not_happened_and_can_be_made_again(
    world: World,
    call: CallRecord,
    engines: Engines,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    postgres_url: str,
) -> None:
    run = await worked(world, engines, settings, await create_run(world))
    promote = promotion._promote

    async def and_lost(connection: Any, row: Any) -> None:
        await promote(connection, row)
        pid = await connection.scalar(sa.text("SELECT pg_backend_pid()"))
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as operator:
            await operator.execute("SELECT pg_terminate_backend(%s)", [pid])

    with monkeypatch.context() as broken:
        broken.setattr(promotion, "_promote", and_lost)
        with pytest.raises(OUTAGES):
            await promotion.promote(world.database, world.workspace_id, run.run_id)
    assert same(await shown(world)) == same(call)
    now = await runs.find(world.database, world.workspace_id, run.run_id)
    assert (now.promoted, now.promoted_at) == (0, None)
    moved = await promotion.promote(world.database, world.workspace_id, run.run_id)
    assert moved.run.promoted == 1
    assert await world.rows("SELECT 1 FROM admin_changes WHERE action = 'promoted'") == [{"?column?": 1}]


@pytest.mark.slow
async def test_the_largest_run_is_promoted_and_taken_back_within_the_time_of_a_transaction(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    run = await worked(world, engines, settings, await create_run(world))
    await _copied(world, MAX_CALLS - 1)
    begun = time.monotonic()
    moved = await promotion.promote(world.database, world.workspace_id, run.run_id)
    promoted = time.monotonic() - begun
    assert moved.calls == MAX_CALLS
    begun = time.monotonic()
    assert (await promotion.roll_back(world.database, world.workspace_id, run.run_id)).calls == MAX_CALLS
    back = time.monotonic() - begun
    print(f"{MAX_CALLS} calls promoted in {promoted:.1f} s, back in {back:.1f} s")
    assert max(promoted, back) < promotion.SECONDS


async def _copied(world: World, copies: int) -> None:
    """Copy the call with its job, record and place in the run."""
    job, call_id = "md5('job' || number)::uuid", "md5('call' || number)::uuid"
    here = {"call_pk": "call_pk + number", "job_id": job}
    changed = {
        "calls": {"id": "id + number", "call_id": call_id, "job_id": "NULL"},
        "jobs": {"id": job, "call_pk": "call_pk + number"},
        **dict.fromkeys(("transcripts", "findings", "tasks", "run_calls"), here),
    }
    for table, new in changed.items():
        columns = [row["column_name"] for row in await world.rows(_COLUMNS, table=table)]
        await world.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(new.get(name, name) for name in columns)}"
            f" FROM (SELECT * FROM {table}) AS first, generate_series(1, {copies}) AS number"
        )
    await world.execute("UPDATE calls SET job_id = jobs.id FROM jobs WHERE jobs.call_pk = calls.id")


_COLUMNS = """SELECT column_name FROM information_schema.columns WHERE table_name = :table
    AND table_schema = current_schema() AND is_generated = 'NEVER'"""
