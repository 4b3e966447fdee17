"""A recording that kills the process that works on it: it alone fails. Real Ray, real replicas, processes that die."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.actors import RayWorkers, TaskLost
from pipeline.audio.hear import Loaded
from pipeline.domain.speech import AudioInMemory, Chunk, Layout, LayoutKind
from pipeline.errors import WorkerLost
from pipeline.workers import Held
from tests.chaos.host import patiently

ROOT = Path(__file__).resolve().parents[2]
CHUNKS = [Chunk(0, float(start), start + 1.0, "en") for start in range(3)]


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("died")


@pytest.fixture(scope="module")
def transcriber(died: Path) -> Iterator[Any]:
    """A handle to one replica of the deadly Transcriber, on a small cluster of the module's own."""
    import ray
    from ray import serve

    from tests.chaos.deadly import ONCE, DeadlyReplica

    environment = {"PYTHONPATH": str(ROOT), ONCE: str(died), "RAY_AUTH_MODE": "disabled"}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    options = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 * 2**20, "log_to_driver": False}
    patiently(lambda: ray.init("local", **options))
    try:
        serve.start(proxy_location="Disabled")
        deployment = serve.deployment(name="Transcriber")(DeadlyReplica)
        options = {"ray_actor_options": {"num_cpus": 0}, "health_check_period_s": 1, "max_ongoing_requests": 64}
        yield serve.run(deployment.options(**options).bind(), name="poison", route_prefix=None)
    finally:
        serve.shutdown()
        ray.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def held(level: float) -> Held:
    import ray

    sound = np.full((1, 3 * 16000), int(level * 32767), np.int16)
    loaded = Loaded(AudioInMemory(sound), Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand"))
    return Held(ray.put(loaded))


async def test_a_recording_that_kills_its_engine_fails_alone_though_others_share_its_batches(transcriber: Any) -> None:
    """Two Conductors, each with innocent calls, one of them with the poison too."""
    one, two = RayWorkers(transcriber, transcriber), RayWorkers(transcriber, transcriber)
    poison = asyncio.create_task(one.transcribe(held(1.0), CHUNKS))
    innocent = 0

    async def ask(workers: RayWorkers) -> None:
        nonlocal innocent
        while not poison.done():
            texts = await asyncio.wait_for(workers.transcribe(held(0.1), CHUNKS), 120)
            assert [text.chunk for text in texts] == CHUNKS
            innocent += 1

    asking = [asyncio.create_task(ask(workers)) for workers in (one, one, two, two)]
    with pytest.raises(WorkerLost, match="nothing else at work"):
        await asyncio.wait_for(poison, 240)
    await asyncio.gather(*asking)
    assert innocent >= 4


async def test_an_engine_that_dies_in_the_middle_of_a_careful_pass_is_asked_again(transcriber: Any, died: Path) -> None:
    texts = await asyncio.wait_for(RayWorkers(transcriber, transcriber).transcribe(held(0.1), CHUNKS, (), True), 120)
    assert [(text.chunk, text.careful) for text in texts] == [(chunk, True) for chunk in CHUNKS]
    assert len(list(died.iterdir())) == 1


async def test_a_cpu_task_whose_process_dies_each_time_is_a_failure_of_its_call(transcriber: Any) -> None:
    with pytest.raises(TaskLost):
        await asyncio.wait_for(RayWorkers(transcriber, transcriber).compute(os._exit, 1), 240)
