"""Readers notice faults during a response: a truncated response does not look complete."""

import asyncio
import contextlib
import io
import json
import os
import signal
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
import psycopg
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE
from tests.acceptance.running import Client, RunningService
from tests.acceptance.test_api import answering, reading

CALLS = 20_000  # an export of several MB, more than buffers on the way hold
FILL = """
    INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)
    SELECT workspace_id, gen_random_uuid(), id, '+4930123456', '+4930100', now() - n * interval '1 minute', 'received'
    FROM teams, generate_series(1, :calls) AS n WHERE workspace_id = :workspace
"""
CUT = (httpx.RemoteProtocolError, httpx.ReadError)
Strike = Callable[[RunningService], Awaitable[None]]


async def kill_the_replica(service: RunningService) -> None:
    (pid,) = service.pids("Api")
    os.kill(pid, signal.SIGKILL)


async def lose_the_database(service: RunningService) -> None:
    """Interrupt all connections to the database for three seconds."""
    url = urlsplit(service.database_url)
    name = url.path.strip("/")
    async with await psycopg.AsyncConnection.connect(
        urlunsplit(url._replace(path="/postgres")), autocommit=True
    ) as connection:
        await connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            await asyncio.sleep(3)
        finally:
            await connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


async def fill(client: Client) -> None:
    """Give the client's workspace `CALLS` calls."""
    async with client.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL ROLE NONE"))
        await connection.execute(sa.text(FILL), {"calls": CALLS, "workspace": client.workspace_id})


def exported(body: bytes, format_: str) -> int:
    """Return the number of calls in a whole export."""
    return len(body.splitlines()) if format_ == "ndjson" else pq.ParquetFile(io.BytesIO(body)).metadata.num_rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strike", "format_"),
    [
        (kill_the_replica, "ndjson"),
        pytest.param(kill_the_replica, "parquet", marks=pytest.mark.slow),
        pytest.param(lose_the_database, "ndjson", marks=pytest.mark.slow),
        pytest.param(lose_the_database, "parquet", marks=pytest.mark.slow),
    ],
)
async def test_an_export_that_is_cut_does_not_end_as_a_whole_one(
    service: RunningService, client: Client, strike: Strike, format_: str
) -> None:
    await fill(client)
    async with reading(service, client) as reader:
        async with reader.stream("GET", "/export", params={"format": format_}) as stream:
            assert stream.status_code == 200
            parts = stream.aiter_bytes()
            received = bytearray(await anext(parts))
            await strike(service)
            try:
                async for part in parts:
                    received += part
            except CUT:
                pass
            else:  # an export that rests while the database is lost goes on
                assert strike is lose_the_database
                assert exported(bytes(received), format_) == CALLS
        await answering(reader)
        if format_ == "ndjson":
            assert len((await reader.get("/export")).text.splitlines()) == CALLS


@pytest.mark.slow
@pytest.mark.parametrize("strike", [kill_the_replica, lose_the_database])
async def test_a_stream_that_is_cut_goes_on_where_it_was(
    service: RunningService, client: Client, strike: Strike
) -> None:
    async with reading(service, client) as reader:
        first, second = str(uuid4()), str(uuid4())
        last = ""
        async with reader.stream("GET", "/events/stream") as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            await client.accepted(_started(first))
            async for line in lines:
                last = line.removeprefix("id: ") if line.startswith("id: ") else last
                if line.startswith("data: "):
                    break
            await strike(service)
            with contextlib.suppress(CUT):
                async with asyncio.timeout(30):
                    async for _ in lines:
                        pass
        await answering(reader)
        await client.accepted(_started(second))
        async with reader.stream("GET", "/events/stream", headers={"Last-Event-ID": last}) as stream:
            seen = set()
            async for line in stream.aiter_lines():
                seen |= {json.loads(line[6:])["callId"]} if line.startswith("data: ") else set()
                if second in seen:
                    break


async def test_many_more_readers_than_there_is_room_for_keep_no_call_out(
    service: RunningService, client: Client
) -> None:
    async with reading(service, client) as reader:
        asked = [asyncio.create_task(reader.get("/calls")) for _ in range(300)]
        await client.accepted(_started(str(uuid4())))
        answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} <= {200, 429, 503}
        assert all("Retry-After" in answer.headers for answer in answers if answer.status_code != 200)
        assert any(answer.status_code == 200 for answer in answers)


def _started(call_id: str) -> dict[str, object]:
    """Insert a call that has only begun."""
    return {"callId": call_id, "from": "+4930123456", "to": "+4930100", "startTime": "2026-11-02T09:30:00Z"}
