"""The scaling policy where it lives: in a real Serve controller, which starts and stops replicas by it."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from db import queue
from serve_app.scaling import EngineReplicas, ScalingOptions, autoscaling, replica_config
from tests.chaos.host import patiently
from tests.postgres import World

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ScalingOptions(
    transcriber=EngineReplicas(min_replicas=0, max_replicas=2),
    transcriber_pace=10.0,
    clear_seconds=30,
    up_seconds=0.5,
    down_seconds=0.5,
    idle_seconds=1,
    poll_seconds=0.5,
)


class Engine:
    """Nothing is asked of it: what scales it is the queue alone."""


@contextmanager
def serving(url: str) -> Iterator[Any]:
    """Serve on a small cluster of its own with a Transcriber that the policy scales; yields its status."""
    import ray
    from ray import serve

    environment = {
        "PYTHONPATH": str(ROOT),
        "SWITCHBOARD_DATABASE_URL": url,
        "RAY_AUTH_MODE": "disabled",
        "RAY_worker_niceness": "0",
    }
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    cluster = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 * 2**20, "log_to_driver": False}
    patiently(lambda: ray.init("local", **cluster))
    try:
        serve.start(proxy_location="Disabled")
        deployment = serve.deployment(name="Transcriber")(Engine).options(
            **replica_config(OPTIONS.transcriber, **autoscaling("Transcriber", OPTIONS)),
            ray_actor_options={"num_cpus": 0},
            graceful_shutdown_wait_loop_s=0.1,
        )
        serve.run(deployment.bind(), name="scaled", route_prefix=None)
        yield lambda: serve.status().applications["scaled"].deployments["Transcriber"]
    finally:
        serve.shutdown()
        ray.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


async def running(status: Any, wanted: int) -> None:
    """Returns once so many replicas run."""
    async with asyncio.timeout(90):
        while (found := (await asyncio.to_thread(status)).replica_states.get("RUNNING", 0)) != wanted:
            await asyncio.sleep(0.2)
    assert found == wanted


async def test_replicas_come_from_none_as_sound_waits_and_go_when_it_is_done(world: World) -> None:
    with serving(world.database.url) as status:
        await running(status, 0)
        await world.submit(recording_url="https://store.example/a.wav", duration=200)
        await running(status, 1)  # 20 s of work, and 30 s to do it in
        await world.submit(call_id=uuid4(), recording_url="https://store.example/b.wav", duration=200)
        await running(status, 2)
        told = {one.name: one.wanted for one in (await queue.backlog(world.database)).engines}
        assert told == {"Transcriber": 2}
        await world.execute("UPDATE jobs SET state = 'done', finished_at = now()")
        await running(status, 0)
