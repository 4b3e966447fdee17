"""The process for CPU-bound work: results, errors, and what follows a kill, a late job or a canceled caller."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from serve_app.http import worker as workers
from serve_app.http.worker import Worker, WorkerLost


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker()
    yield worker
    await worker.close()


async def test_results_and_errors_come_back_from_another_process(worker: Worker) -> None:
    assert await worker.run(json.loads, '{"a": [1]}') == {"a": [1]}
    with pytest.raises(json.JSONDecodeError):
        await worker.run(json.loads, "{")
    assert await worker.run(os.getpid) != os.getpid()


async def test_a_job_has_a_low_priority_and_what_it_imports_the_normal_one(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import os\nimported = os.getpriority(os.PRIO_PROCESS, 0)\n"
    source += "def priorities() -> tuple[int, int]:\n    return imported, os.getpriority(os.PRIO_PROCESS, 0)\n"
    (tmp_path / "slow_to_import.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    normal = os.getpriority(os.PRIO_PROCESS, 0)
    for _ in range(2):
        assert await worker.run(import_module("slow_to_import").priorities) == (normal, workers.NICE)


async def test_a_killed_process_is_replaced(worker: Worker) -> None:
    pid = await worker.run(os.getpid)
    os.kill(pid, signal.SIGKILL)
    assert await worker.run(os.getpid) not in (pid, os.getpid())


async def test_a_job_that_kills_its_process_is_given_up_after_the_second_time(worker: Worker) -> None:
    with pytest.raises(WorkerLost):
        await worker.run(os._exit, 1)
    assert await worker.run(json.dumps, [1]) == "[1]"


async def test_a_job_over_its_time_ends_with_its_process() -> None:
    worker = Worker(max_seconds=5.0)
    pid = await worker.run(os.getpid)
    with pytest.raises(WorkerLost):
        await worker.run(time.sleep, 60)
    assert not psutil.pid_exists(pid)
    assert await worker.run(os.getpid) != pid
    await worker.close()


def test_a_process_ends_with_its_parent_in_the_middle_of_a_job(tmp_path: Path) -> None:
    code = f"""
import asyncio, os
from pathlib import Path
from serve_app.http.worker import Worker

async def main():
    worker = Worker()
    Path({str(tmp_path / "new")!r}).write_text(str(await worker.run(os.getpid)))
    os.rename({str(tmp_path / "new")!r}, {str(tmp_path / "pid")!r})
    await worker.run(__import__("time").sleep, 600)

asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        eventually((tmp_path / "pid").exists)
    finally:
        parent.kill()
        parent.wait()
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_the_answer_of_a_canceled_job_is_not_that_of_the_next_one(worker: Worker) -> None:
    await worker.run(os.getpid)
    job = asyncio.create_task(worker.run(json.dumps, "canceled"))
    await asyncio.sleep(0)
    job.cancel()
    assert await worker.run(json.dumps, "next") == '"next"'
