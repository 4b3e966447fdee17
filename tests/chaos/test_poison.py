"""A recording that kills the process that works on it: it alone fails. Real Ray, real replicas, processes that die."""

import asyncio
import io
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import soundfile

from pipeline.audio.analyze import Loaded
from pipeline.domain.speech import AudioInMemory, Chunk, Layout, LayoutKind
from pipeline.errors import WorkerLost
from pipeline.runtime.actors import RayWorkers, TaskLost
from pipeline.runtime.workers import RemoteRef
from tests.chaos.deadly_conductor import OPTIONS
from tests.chaos.recordings import RATE, Recordings, noise
from tests.cluster import ROOT, serving
from tests.postgres import World

pytestmark = pytest.mark.slow  # engines and Conductors die and start again
CHUNKS = [Chunk(0, float(start), start + 1.0, "en") for start in range(3)]


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("died")


@pytest.fixture(scope="module")
def transcriber(died: Path) -> Iterator[Any]:
    """Return a handle to one replica of the deadly Transcriber, on a small cluster of this module."""
    from ray import serve

    from tests.chaos.deadly import ONCE
    from tests.chaos.deadly_replica import DeadlyReplica

    with serving(**{ONCE: str(died)}):
        deployment = serve.deployment(name="Transcriber")(DeadlyReplica)
        options = {"ray_actor_options": {"num_cpus": 0}, "health_check_period_s": 1, "max_ongoing_requests": 64}
        yield serve.run(deployment.options(**options).bind(), name="poison", route_prefix=None)


def held(level: float) -> RemoteRef:
    import ray

    sound = np.full((1, 3 * 16000), int(level * 32767), np.int16)
    loaded = Loaded(AudioInMemory(sound), Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand"))
    return RemoteRef(ray.put(loaded))


async def test_a_recording_that_kills_its_engine_fails_alone_though_others_share_its_batches(transcriber: Any) -> None:
    """Two Conductors, each with innocent calls, one of them with the poison too."""
    first, second = RayWorkers(transcriber, transcriber), RayWorkers(transcriber, transcriber)
    poison = asyncio.create_task(first.transcribe(held(1.0), CHUNKS))
    innocent = 0

    async def ask(workers: RayWorkers) -> None:
        nonlocal innocent
        while not poison.done():
            texts = await asyncio.wait_for(workers.transcribe(held(0.1), CHUNKS), 120)
            assert [text.chunk for text in texts] == CHUNKS
            innocent += 1

    asking = [asyncio.create_task(ask(workers)) for workers in (first, first, second, second)]
    with pytest.raises(WorkerLost, match="nothing else running"):
        await asyncio.wait_for(poison, 450)
    await asyncio.gather(*asking)
    assert innocent >= 4


async def test_an_engine_that_dies_in_the_middle_of_a_careful_pass_is_asked_again(transcriber: Any, died: Path) -> None:
    texts = await asyncio.wait_for(RayWorkers(transcriber, transcriber).transcribe(held(0.1), CHUNKS, (), True), 120)
    assert [(text.chunk, text.with_fallback) for text in texts] == [(chunk, True) for chunk in CHUNKS]
    assert len(list(died.iterdir())) == 1


async def test_a_cpu_task_whose_process_dies_each_time_is_a_failure_of_its_call(transcriber: Any) -> None:
    with pytest.raises(TaskLost):
        await asyncio.wait_for(RayWorkers(transcriber, transcriber).compute(os._exit, 1), 240)


async def test_a_recording_that_kills_its_conductor_each_time_fails_alone(world: World, tmp_path: Path) -> None:
    """Restart the Conductor process whenever it dies, as Serve does; ten harmless calls run in parallel."""
    recordings, rng = Recordings(), random.Random(1)
    with recordings.serving():
        poison = uuid4()
        calls = {poison: loud()} | {uuid4(): noise(rng) for _ in range(10)}
        for call, content in calls.items():
            await world.submit(call_id=call, recording_url=recordings.add("good", content))
        died = await conducted_to_the_end(world, tmp_path)
    assert died == [-signal.SIGKILL] * OPTIONS.MAX_CRASHES
    states = {call: (await world.row(call)) for call in calls}
    assert (states[poison]["state"], states[poison]["failure_code"]) == ("failed", "worker_lost")
    assert "at the same stage" in states[poison]["failure_message"]
    assert {row["state"] for call, row in states.items() if call != poison} == {"completed"}


def loud() -> bytes:
    """Return a second of sound that kills its Conductor."""
    file = io.BytesIO()
    soundfile.write(file, np.resize([0.99, -0.99], RATE), RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


async def conducted_to_the_end(world: World, folder: Path) -> list[int]:
    """Return the exit codes of the Conductors that died until every call had ended."""
    died: list[int] = []
    command = (sys.executable, "-m", "tests.chaos.deadly_conductor", world.database.url, folder.as_uri())
    async with asyncio.timeout(450):
        while True:
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            try:
                while process.returncode is None:
                    if not await world.rows("SELECT FROM calls WHERE state NOT IN ('completed', 'failed')"):
                        return died
                    await asyncio.sleep(0.1)
                died.append(process.returncode)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
