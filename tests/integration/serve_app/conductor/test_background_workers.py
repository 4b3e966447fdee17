import asyncio
import os
import time
from pathlib import Path

import pytest

from pipeline.errors import CheckpointMissing
from pipeline.runtime.low_priority import LowPriorityEngine
from pipeline.runtime.workers import RemoteRef

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def me() -> tuple[int, bool]:
    """Return the process number, and whether the process yields to all others."""
    return os.getpid(), os.sched_getscheduler(0) == os.SCHED_IDLE


def together(first: list[int], second: int) -> list[int]:
    return [*first, second]


def numbers(count: int) -> list[int]:
    return list(range(count))


def ends(path: str, how: str) -> None:
    Path(path).write_text(str(os.getpid()))
    if how == "dies":
        os.kill(os.getpid(), 9)
    if how == "fails":
        raise CheckpointMissing("no such model")
    time.sleep(600)


def after(file: Path, processes: int) -> int:
    """Return the number of this process once so many processes are here."""
    with file.open("a") as here:
        print(os.getpid(), file=here)
    while len(set(file.read_text().split())) < processes:
        time.sleep(0.05)
    return os.getpid()


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def gone(pid: int) -> bool:
    async with asyncio.timeout(60):
        while is_there(pid):
            await asyncio.sleep(0.1)
    return True


class Told(LowPriorityEngine):
    replica = "tests.giving_way.Replica"


async def test_an_engine_of_a_run_gives_way_before_its_code_is_imported() -> None:
    from pipeline.runtime.background import OnDemand

    engine = OnDemand(Told, (), 0.0, {})
    assert await engine.ask("imported_idle")
    engine.close()


class Niceness:
    async def now(self) -> int:
        return os.nice(0)


async def test_a_background_process_starts_at_a_lower_priority() -> None:
    """Ray and its actor take seconds to import: until then nothing of ours could lower it."""
    import ray

    from pipeline.runtime.background import START_NICE, _environment

    actor = ray.remote(num_cpus=0, runtime_env=_environment({}))(Niceness).remote()
    assert await actor.now.remote() >= START_NICE
    ray.kill(actor)


async def test_functions_run_in_processes_that_stay_give_way_and_end_with_their_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.runtime import background
    from pipeline.runtime.actors import TaskLost
    from pipeline.runtime.background import BackgroundWorkers, Processes

    shared = Processes(lambda: 1)
    workers, others = (BackgroundWorkers(None, None, shared) for _ in range(2))  # type: ignore[arg-type]  # no engine
    first, gives_way = await workers.compute(me)
    assert gives_way
    reference = await workers.hold(numbers, 3)
    assert isinstance(reference, RemoteRef) and await workers.compute(together, reference, 7) == [0, 1, 2, 7]
    processes = await asyncio.gather(*(workers.compute(me) for _ in range(4)))
    assert {pid for pid, _ in processes} == {first}, "there is room for one"
    assert await others.compute(me) == (first, True), "the process of one run is there for the next"

    with pytest.raises(CheckpointMissing, match="no such model"):
        await workers.compute(ends, str(tmp_path / "pid"), "fails")
    assert await workers.compute(me) == (first, True), "an error ends no process"

    with pytest.raises(TaskLost):
        await workers.hold(ends, str(tmp_path / "pid"), "dies")
    second, _ = await workers.compute(me)
    assert second != first

    many = BackgroundWorkers(None, None, Processes(lambda: 4))  # type: ignore[arg-type]
    idle = set(await asyncio.gather(*(many.compute(after, tmp_path / "go", 4) for _ in range(4))))
    assert len(idle) == 4
    for pid in idle:
        os.kill(pid, 9)
    assert (await many.compute(me))[0] not in idle, "not tried in one dead process after the other"

    canceled = asyncio.create_task(workers.compute(ends, str(tmp_path / "left"), "sleeps"))
    async with asyncio.timeout(60):
        while not (tmp_path / "left").exists():
            await asyncio.sleep(0.05)
    canceled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await canceled
    assert await gone(int((tmp_path / "left").read_text()))

    monkeypatch.setattr(background, "IDLE_SECONDS", 1.0)
    last, _ = await workers.compute(me)
    assert await workers.compute(me) == (last, True), "it is idle for less than a second"
    assert await gone(last)
