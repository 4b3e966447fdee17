"""Canceled work ends, with its process, and never runs again: on a real Ray cluster."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.runtime.actors import RayWorkers, TaskLost
from pipeline.runtime.workers import RemoteRef
from tests.attacks.test_decoder import gigabyte_of_silence

pytestmark = pytest.mark.slow


class Slow:
    """An engine that is never done, and knows who asked it and who left."""

    def __init__(self, log: str) -> None:
        self._log = Path(log)

    async def diarize(self, _audio: Any, work: Any) -> None:
        self._note("asked")
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self._note("left")
            raise

    def _note(self, what: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{what}\n")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine") / "log"


@pytest.fixture(scope="module")
def workers(ray_cluster: None, log: Path) -> Iterator[RayWorkers]:
    from ray import serve

    engine = serve.deployment(name="Diarizer")(Slow).options(ray_actor_options={"num_cpus": 0})
    handle = serve.run(engine.bind(str(log)), name="engines", route_prefix=None)
    yield RayWorkers(handle, handle)
    serve.delete("engines")


def work_without_end(notes: str) -> None:
    with Path(notes).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(600)


def die_at_first(notes: str) -> str:
    with Path(notes).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(Path(notes).read_text().splitlines()) < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die(notes: str) -> None:
    with Path(notes).open("a") as file:
        file.write(f"{os.getpid()}\n")
    os.kill(os.getpid(), signal.SIGKILL)


async def until(condition: Callable[[], Any], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def pids(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().split()] if notes.exists() else []


@pytest.mark.parametrize("how", ["compute", "hold"])
async def test_a_task_that_nobody_waits_for_is_killed_and_not_run_again(
    how: str, workers: RayWorkers, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    task = asyncio.create_task(getattr(workers, how)(work_without_end, str(notes)))
    await until(lambda: pids(notes))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not psutil.pid_exists(pids(notes)[0]))
    assert await workers.compute(len, "free") == 4
    await asyncio.sleep(1)
    assert len(pids(notes)) == 1, "Ray ran it again"


async def test_a_task_that_waits_for_its_turn_is_not_begun_when_nobody_waits_for_it(
    workers: RayWorkers, tmp_path: Path
) -> None:
    notes = [tmp_path / str(at) for at in range(6)]
    tasks = [asyncio.create_task(workers.compute(work_without_end, str(note))) for note in notes]
    await until(lambda: sum(map(len, map(pids, notes))) == 2)
    for task in reversed(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(1)
    begun = [pid for note in notes for pid in pids(note)]
    assert len(begun) <= 3
    await until(lambda: not any(map(psutil.pid_exists, begun)))


async def test_a_superseded_decoding_ends_with_its_decoder(workers: RayWorkers, tmp_path: Path) -> None:
    file = gigabyte_of_silence(tmp_path / "call.wav")

    def decoders() -> list[psutil.Process]:
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if "pipeline.audio.decode.sandbox.child" in command and '"max_seconds": 999999.5' in command[-1]:
                    processes.append(process)
        return processes

    options = DecodeOptions(max_seconds=999999.5)
    task = asyncio.create_task(workers.hold(decode_file, file, options, None, (tmp_path / "scratch").as_uri()))
    await until(decoders)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not decoders(), 10)


async def test_a_task_whose_process_dies_is_run_once_more(workers: RayWorkers, tmp_path: Path) -> None:
    assert await workers.compute(die_at_first, str(tmp_path / "once")) == "done"
    assert len(pids(tmp_path / "once")) == 2
    with pytest.raises(TaskLost):
        await workers.compute(die, str(tmp_path / "twice"))
    assert len(pids(tmp_path / "twice")) == 2


async def test_a_request_that_nobody_waits_for_is_dropped_by_its_engine(workers: RayWorkers, log: Path) -> None:
    task = asyncio.create_task(workers.diarize(RemoteRef("sound")))
    await until(lambda: log.exists() and "asked" in log.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: "left" in log.read_text(), 10)
