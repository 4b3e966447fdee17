import asyncio
from pathlib import Path
from typing import Any

import pytest

from db.core.database import Database
from db.server import embedded, migrate, readiness
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.cli.doctor import service
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from serve_app.operations.readiness import IDLE, Parts, PartState, Readiness
from serve_app.settings import Settings
from tests.postgres import NOT_DURABLE, World, new_world
from tests.support.conductors import until


async def found(world: World, **deployed: PartState) -> Parts:
    async def cluster() -> Parts:
        return {"Conductor": PartState(True), "Transcriber": PartState(True), "Diarizer": PartState(True)} | deployed

    return await Readiness(world.database, cluster).parts()


async def test_a_conductor_is_ready_once_it_came_round_and_missed_when_it_is_silent(
    world: World, tmp_path: Any
) -> None:
    assert not (await found(world))["Conductor"].ready
    options = ProcessOptions(storage=tmp_path.as_uri())
    conductor = ConductorLoop(world.database, LocalWorkers(None, None), ProcessingOptions(), options)
    await conductor.start()

    async def is_ready() -> bool:
        return all(part.ready for part in (await found(world)).values())

    await until(is_ready)
    await conductor.stop()
    await world.rows("UPDATE engines SET heartbeat_at = now() - interval '50 s' RETURNING name")
    assert (await found(world))["Conductor"] == PartState(False, "no heartbeat for 50 s")
    dead = PartState(False, "no replica runs (unhealthy)")
    assert (await found(world, Conductor=dead))["Conductor"] == dead
    assert (await found(world, Conductor=IDLE))["Conductor"] == IDLE


async def test_an_older_schema_is_not_ready_and_a_later_one_is(world: World) -> None:
    assert (await found(world))["schema"].ready
    for version, ready in (("0135", False), ("v0000", False), ("v9999", True)):
        await world.execute(f"UPDATE alembic_version SET version_num = '{version}'")
        assert (await found(world))["schema"].ready == ready


@pytest.mark.parametrize(
    "change", ["DROP TABLE alembic_version", "REVOKE ALL ON alembic_version FROM PUBLIC, switchboard_service"]
)
async def test_a_schema_that_was_not_migrated_is_not_ready(world: World, change: str) -> None:
    import psycopg

    async with await psycopg.AsyncConnection.connect(world.database.url, autocommit=True) as connection:
        await connection.execute(change)
    parts = await found(world)
    assert parts["database"].ready
    assert "switchboard migrate" in parts["schema"].why


async def test_without_a_database_nothing_that_it_tells_is_ready() -> None:
    async with await Database.open("postgresql://nobody@127.0.0.1:1/x", wait_seconds=0.2) as database:
        parts = await Readiness(database, None).parts()
    assert {name: part.ready for name, part in parts.items()} == {
        "Intake": True,
        "database": False,
        "schema": False,
        "Conductor": False,
    }


def test_the_newest_revision_by_file_name_is_alembics_head() -> None:
    from db.server.migrate import _head

    assert readiness.revisions()[-1] == _head()


async def test_a_backup_is_overdue_after_the_last_one_or_after_the_start_of_a_service_with_calls(world: World) -> None:
    async def age_and_check() -> tuple[int | None, str]:
        age = await readiness.backup_age(world.database)
        settings = Settings(database_url=world.database.url)
        (check,) = await asyncio.to_thread(lambda: list(service.backups(settings)))
        return (None if age is None else round(age / 86400), f"{check.level}: {check.found}")

    await world.execute("UPDATE workspaces SET created_at = now() - interval '3 days'")
    assert await age_and_check() == (None, "good: none overdue"), "without calls there is nothing to lose"
    await world.submit()
    assert await age_and_check() == (3, "warn: no complete backup for 3 days")
    await readiness.heartbeat(world.database, readiness.BACKUP)
    assert await age_and_check() == (0, "good: none overdue")
    await world.execute("UPDATE engines SET heartbeat_at = now() - interval '5 days'")
    assert await age_and_check() == (5, "warn: no complete backup for 5 days")


async def test_archived_wal_counts_as_a_backup_until_one_is_made(tmp_path: Path) -> None:
    url = embedded.start(tmp_path, {**NOT_DURABLE, "archive_mode": "on", "archive_command": "true"}, outlives=False)
    migrate.migrate(url)
    try:
        async with await Database.open(url) as database:
            world = await new_world(database)
            await world.execute("UPDATE workspaces SET created_at = now() - interval '3 days'")
            await world.submit()

            async def archived() -> bool:
                await world.execute("SELECT pg_switch_wal()")
                return bool(await world.rows("SELECT FROM pg_stat_archiver WHERE last_archived_time IS NOT NULL"))

            await until(archived)
            age = await readiness.backup_age(database)
            assert age is not None and age < 600.0
    finally:
        embedded.stop(tmp_path)
