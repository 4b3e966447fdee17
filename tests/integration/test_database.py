"""Connections that outlive what they were made for: servers that turn read-only, servers and nodes that vanish."""

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from db import jobs
from db.database import OUTAGES, SOCKET, Database
from pipeline.errors import StateUnavailable
from tests.postgres import World

A = "https://store.example/a.wav"


async def make_read_only(database: Database, value: str) -> None:
    """As a fail-over does to clients that still reach the former primary: for connections made from now on."""
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


async def test_a_node_that_vanishes_in_a_transaction_keeps_its_locks_for_seconds_only(world: World) -> None:
    (row,) = await world.rows(
        "SELECT setting::int AS milliseconds FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
    )
    assert 0 < row["milliseconds"] <= 60_000


async def test_a_server_that_vanishes_is_noticed_while_its_answer_is_awaited(world: World) -> None:
    """A cut cable cannot be made here; that the sockets are told to look is what can be seen."""
    async with world.database.engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        parameters = raw.info.get_parameters()
    async with world.database.pool.connection() as pooled:
        for found in (parameters, pooled.info.get_parameters()):
            assert found["keepalives_idle"] == str(SOCKET["keepalives_idle"])


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
