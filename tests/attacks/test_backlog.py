"""A workspace cannot fill the queue: beyond its backlog limit it gets 429, and other workspaces do not."""

import asyncio
import time
from uuid import UUID, uuid4

import pytest

from db.queue import backlog as queue
from serve_app.intake.store import open_store
from tests.postgres import World, new_world
from tests.support.intake_in_memory import BODY, FINISHED, is_problem, service, three_keys

A = "https://pbx.example/{}.wav"


async def waiting(world: World, count: int) -> None:
    for _ in range(count):
        world.call_id = uuid4()
        await world.submit(recording_url=A.format(world.call_id))


async def test_a_full_workspace_hears_429_for_recordings_and_others_do_not() -> None:
    memory = three_keys()
    memory.full = {memory.keys["sb_team"].workspace_id}
    async with service(memory) as client:
        answer = await client.post("/submit", json=FINISHED)
        is_problem(answer, 429, "backlog-full")
        assert answer.headers["Retry-After"] == "60"
        assert memory.recorded == []
        assert (await client.post("/submit", json=BODY)).status_code == 202, "metadata does not count"
        other = {"Authorization": "Bearer sb_wide"}
        wide = {**FINISHED, "callId": str(uuid4()), "teamId": str(uuid4())}
        assert (await client.post("/submit", json=wide, headers=other)).status_code == 202


async def test_what_waits_in_any_queue_counts_for_its_workspace_alone(world: World) -> None:
    other = await new_world(world.database)
    await waiting(world, 3)
    await world.claim_one()
    await waiting(world, 2)
    await waiting(other, 4)
    assert await queue.full_workspaces(world.database, 5) == {world.workspace_id}
    assert await queue.full_workspaces(world.database, 4) == {world.workspace_id, other.workspace_id}
    assert await queue.full_workspaces(world.database, 6) == frozenset()


async def test_a_replica_knows_of_a_full_workspace_within_seconds(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.intake.store.COUNT_SECONDS", 0.05)

    async def becomes(full: bool) -> None:
        deadline = time.monotonic() + 90
        while store.is_full(world.workspace_id) is not full:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    async with open_store(postgres_url, 2, backlog=3) as store:
        await waiting(world, 3)
        await becomes(full=True)
        assert not store.is_full(UUID(int=0))
        await world.execute("UPDATE jobs SET state = 'done', lease_until = NULL")
        await becomes(full=False)
