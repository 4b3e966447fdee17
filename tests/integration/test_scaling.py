"""The policy that turns the queue into Conductors, on a real queue."""

import asyncio
from types import SimpleNamespace
from uuid import uuid4

import pytest

from db import jobs
from pipeline.errors import RecordingNotReady
from serve_app.scaling import QueuedCalls
from tests.postgres import World


async def replicas(policy: QueuedCalls, current: int = 1, low: int = 0, high: int = 4) -> int:
    """What the policy asks for once it has looked at the queue."""
    context = SimpleNamespace(
        target_num_replicas=current, capacity_adjusted_min_replicas=low, capacity_adjusted_max_replicas=high
    )
    policy(context)
    assert policy._task is not None
    await policy._task
    wanted, _ = policy(context)
    return wanted


async def test_conductors_follow_the_calls_that_can_be_worked_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", world.database.url)
    policy = QueuedCalls(calls_per_replica=2, poll_seconds=0)
    try:
        assert await replicas(policy) == 0
        for _ in range(3):
            world.call_id = uuid4()
            await world.submit(recording_url="https://store.example/a.wav")
        assert await replicas(policy) == 2
        for lease in await world.claim(3):
            await jobs.retry(world.database, lease, RecordingNotReady(), 3600, counts_as_failure=False)
        await asyncio.sleep(0)
        assert await replicas(policy) == 0, "calls that wait for their recording keep nobody busy"
        assert await replicas(policy, low=1) == 1
    finally:
        assert policy._database is not None
        await policy._database.close()
