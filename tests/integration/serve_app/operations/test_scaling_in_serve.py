import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from serve_app.operations.autoscaling import autoscaling, replica_config
from serve_app.operations.cluster import replica_counts
from serve_app.operations.options import EngineReplicas, ScalingOptions
from tests import cluster
from tests.postgres import World
from tests.tuned import tuned

OPTIONS = tuned(
    ScalingOptions,
    transcriber=EngineReplicas(min_replicas=0, max_replicas=2),
    transcriber_rtfx=10.0,
    target_drain_seconds=30,
    up_seconds=0.5,
    down_seconds=0.5,
    idle_seconds=1,
    poll_seconds=0.5,
)


class Engine:
    """Receives no request: only the queue scales it."""


@contextmanager
def serving(url: str) -> Iterator[Any]:
    """Run Serve on a separate small cluster with a Transcriber that the policy scales; yield its status."""
    from ray import serve

    with cluster.serving(SWITCHBOARD_DATABASE_URL=url):
        deployment = serve.deployment(name="Transcriber")(Engine).options(
            **replica_config(OPTIONS.transcriber, **autoscaling("Transcriber", OPTIONS)),
            ray_actor_options={"num_cpus": 0},
            graceful_shutdown_wait_loop_s=0.1,
        )
        serve.run(deployment.bind(), name="scaled", route_prefix=None)
        yield lambda: serve.status().applications["scaled"].deployments["Transcriber"]


async def running(status: Any, count: int) -> None:
    """Returns once so many replicas run."""
    async with asyncio.timeout(270):
        while (running_count := (await asyncio.to_thread(status)).replica_states.get("RUNNING", 0)) != count:
            await asyncio.sleep(0.2)
    assert running_count == count


@pytest.mark.slow
async def test_replicas_come_from_none_as_sound_waits_and_go_when_it_is_done(world: World) -> None:
    with serving(world.database.url) as status:
        await running(status, 0)
        await world.submit(recording_url="https://store.example/a.wav", duration=200)
        await world.all_fetched()
        await running(status, 1)  # 20 s of work, and 30 s to do it in
        await world.submit(call_id=uuid4(), recording_url="https://store.example/b.wav", duration=200)
        await world.all_fetched()
        await running(status, 2)
        assert await asyncio.to_thread(replica_counts) == {"Transcriber": (2, 2)}
        await world.execute("UPDATE jobs SET state = 'done', finished_at = now()")
        await running(status, 0)
