import asyncio
import os
import signal

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from db.core.database import EVERY_WORKSPACE, OUTAGES, SOCKET, Database
from db.queue import jobs
from pipeline.errors import StateUnavailable
from serve_app.conductor.options import ProcessingOptions
from tests.postgres import World

A = "https://store.example/a.wav"


async def make_read_only(database: Database, value: str) -> None:
    """Make new connections read-only, as for clients that still reach the former primary after a failover."""
    async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as admin:
        await admin.execute("SET default_transaction_read_only = off")
        name = admin.info.dbname
        await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}".encode())


async def test_a_connection_to_a_server_that_only_reads_is_not_used_again(world: World) -> None:
    await make_read_only(world.database, "on")
    database = await Database.open(world.database.url, pool_size=1)
    try:
        behind = World(
            database, **{name: getattr(world, name) for name in World.__dataclass_fields__ if name != "database"}
        )
        with pytest.raises(StateUnavailable):
            await behind.submit(recording_url=A)
        with pytest.raises(OUTAGES):
            await behind.claim()
        await make_read_only(world.database, "off")
        assert (await behind.submit(recording_url=A)).job_id is not None
        assert len(await behind.claim()) == 1
    finally:
        await database.close()


@pytest.mark.parametrize("ordered, used", [("off", "on"), ("remote_apply", "remote_apply"), ("local", "local")])
async def test_a_commit_waits_for_the_disk_whatever_the_database_says(world: World, ordered: str, used: str) -> None:
    """With `off`, a killed server loses submissions that got a 202."""
    async with await psycopg.AsyncConnection.connect(world.database.url, autocommit=True) as admin:
        await admin.execute(f"ALTER DATABASE {admin.info.dbname} SET synchronous_commit = {ordered}".encode())
    database = await Database.open(world.database.url, pool_size=1)
    try:
        assert await database.fetch_one("SHOW synchronous_commit", ()) == (used,)
        async with database.transaction(EVERY_WORKSPACE) as connection:
            assert (await connection.execute(sa.text("SHOW synchronous_commit"))).scalar_one() == used
    finally:
        await database.close()


async def test_a_connection_that_has_planned_a_statement_is_taken_first(world: World) -> None:
    """To plan what a record needs takes longer than to run it, and each connection plans for itself."""
    database = await Database.open(world.database.url, pool_size=3)
    pid = sa.text("SELECT pg_backend_pid()")
    plans = sa.text("SELECT count(*) FROM pg_prepared_statements WHERE statement ~ '^SELECT pg_backend_pid'")
    try:
        everywhere = [database.transaction(EVERY_WORKSPACE) for _ in range(3)]
        connections = [await opening.__aenter__() for opening in everywhere]
        several = {await connection.scalar(pid) for connection in connections}
        for opening in everywhere:
            await opening.__aexit__(None, None, None)
        later = [await database.first(EVERY_WORKSPACE, pid) for _ in range(6)]
        assert len(several) == 3 and len({row[0] for row in later}) == 1
        assert (await database.first(EVERY_WORKSPACE, plans))[0] == 1
    finally:
        await database.close()


async def test_what_a_node_holds_is_let_go_within_the_time_of_a_lease_when_it_vanishes(world: World) -> None:
    """Otherwise the node that takes over its calls waits for its locks, and so do submissions."""
    (row,) = await world.rows(
        "SELECT setting::int AS milliseconds FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
    )
    assert 0 < row["milliseconds"] <= 1000 * ProcessingOptions().lease_seconds


async def test_a_transaction_that_idled_for_too_long_is_an_outage_and_no_fault_of_the_call(world: World) -> None:
    """As after the process was frozen during a transaction."""
    with pytest.raises(OUTAGES):
        async with world.database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = '50ms'"))
            await asyncio.sleep(0.5)
            await connection.execute(sa.text("SELECT 1"))
    assert await world.rows("SELECT 1 AS one")


async def test_a_server_that_vanishes_is_noticed_while_its_answer_is_awaited(world: World) -> None:
    """A test cannot cut a cable, so this checks the options of the sockets."""
    async with world.database.engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        parameters = raw.info.get_parameters()
    async with world.database.pool.connection() as pooled:
        for parameters_of_pool in (parameters, pooled.info.get_parameters()):
            assert parameters_of_pool["keepalives_idle"] == str(SOCKET["keepalives_idle"])


async def test_a_statement_whose_connection_is_ended_runs_on_another(world: World) -> None:
    statement = "SELECT pg_sleep(%s::float)::text, pg_backend_pid()"
    async with await psycopg.AsyncConnection.connect(world.database.url, autocommit=True) as admin:
        _, idle = await world.database.fetch_one(statement, ["0"])
        await admin.execute("SELECT pg_terminate_backend(%s::int)", [idle])
        _, used = await world.database.fetch_one(statement, ["0"])
        assert used != idle
        asking = asyncio.create_task(world.database.fetch_one(statement, ["0.5"]))
        await asyncio.sleep(0.1)
        await admin.execute("SELECT pg_terminate_backend(%s::int)", [used])
        _, another = await asking
    assert another != used


async def test_who_gives_up_does_not_wait_until_dead_connections_are_replaced(world: World) -> None:
    statement = "SELECT pg_sleep(%s::float)::text, pg_backend_pid()"
    database = await Database.open(world.database.url, pool_size=2)
    try:
        both = await asyncio.gather(*(database.fetch_one(statement, ["0.3"]) for _ in range(2)))
        _, last = await database.fetch_one(statement, ["0"])  # the other one is next
        (following,) = {pid for _, pid in both} - {last}
        async with await psycopg.AsyncConnection.connect(world.database.url, autocommit=True) as admin:
            await admin.execute("SELECT pg_terminate_backend(%s)", [following])
        os.kill(last, signal.SIGSTOP)
        try:
            asking = asyncio.create_task(database.fetch_one(statement, ["0"]))
            done, _ = await asyncio.wait({asking}, timeout=0.5)
            assert not done, "the frozen one is looked at"
            asking.cancel()
            done, _ = await asyncio.wait({asking}, timeout=2)
            assert done, "it waits for the frozen one"
        finally:
            os.kill(last, signal.SIGCONT)
        assert (await database.fetch_one(statement, ["0"]))[0] == ""
    finally:
        await database.close()


async def test_what_is_written_is_not_in_the_message_of_a_failed_statement(world: World) -> None:
    with pytest.raises(DBAPIError) as caught:
        await world.execute("SELECT CAST(:url AS text) || 1/0", url="https://store.example/a.wav?Signature=secret")
    assert "secret" not in str(caught.value)


async def test_a_listener_hears_of_work(world: World) -> None:
    wakes = jobs.wakes(world.database)
    await anext(wakes)
    await world.submit(recording_url=A)
    await anext(wakes)
    await wakes.aclose()
