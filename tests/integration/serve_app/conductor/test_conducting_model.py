import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import soundfile
from starlette.responses import Response

from db.experiments import runs
from db.records.views import CallRecord
from db.workspace import questions
from pipeline.analysis import AnalysisOptions
from pipeline.domain.questions import Question
from tests.file_server import FileServer
from tests.integration.db.experiments.test_runs import call, create_run, settings  # noqa: F401 (fixtures)
from tests.llm_server import MODEL, Endpoint
from tests.postgres import World
from tests.support.conductors import STEREO, Conduct, WatchedWorkers, completed, finding, shown, until
from tests.support.llm_by_hand import answer
from tests.synthetic_calls import FOLDER


@pytest.fixture
def answered() -> Iterator[threading.Event]:
    """Until it is set, the model does not answer."""
    ended = threading.Event()
    yield ended
    ended.set()


def waits(ended: threading.Event) -> Any:
    def script(body: Any) -> Any:
        ended.wait(120)
        return answer()

    return script


def asking(endpoint: Endpoint) -> AnalysisOptions:
    return AnalysisOptions(engine="llm", base_url=endpoint.base_url, model=MODEL)


async def test_calls_that_wait_for_a_model_keep_no_other_call_waiting(
    world: World,
    files: FileServer,
    short: Path,
    conducting: Conduct,
    endpoint: Endpoint,
    answered: threading.Event,
    tmp_path: Path,
) -> None:
    """One place for running calls, three calls that wait: without a model as many others would be completed."""
    endpoint.answers(waits(answered))
    silence = tmp_path / "silence.flac"
    soundfile.write(silence, np.zeros(2 * 8000), 8000)
    waiting, others = [uuid4() for _ in range(3)], [uuid4() for _ in range(3)]
    async with conducting(concurrency=1, analysis=asking(endpoint)):
        for call_id in waiting:
            await world.submit(call_id=call_id, recording_url=files.add(short))
        await until(lambda: wait(world, 3), timeout=180)
        for call_id in others:
            await world.submit(call_id=call_id, recording_url=files.add(silence))
        for call_id in others:
            await completed(world, call_id)
        assert {(await shown(world, call_id)).call.state for call_id in waiting} == {"transcribing"}
        answered.set()
        records = [await completed(world, call_id) for call_id in waiting]
    assert [finding(record, "tasks").value["engine"] for record in records] == [f"llm {MODEL}"] * 3
    assert len(endpoint.asked) == 3


async def wait(world: World, count: int) -> bool:
    """Wait for this number of calls to reach the model."""
    return len(await world.rows("SELECT id FROM jobs WHERE state = 'running' AND stage = 'answers'")) == count


async def test_a_call_that_is_superseded_while_it_waits_is_no_longer_waited_for(
    world: World,
    workers: WatchedWorkers,
    files: FileServer,
    short: Path,
    conducting: Conduct,
    endpoint: Endpoint,
    answered: threading.Event,
) -> None:
    endpoint.answers(waits(answered), answer())
    async with conducting(concurrency=1, analysis=asking(endpoint)):
        first = await world.submit(recording_url=files.add(short))
        await until(lambda: endpoint.asked, timeout=180)
        second = await world.submit(recording_url=files.add(FOLDER / STEREO / "call.flac"))
        record = await completed(world)
    assert not answered.is_set()
    assert {job.job_id: job.state for job in record.jobs} == {first.job_id: "superseded", second.job_id: "done"}
    assert finding(record, "tasks").value["engine"] == f"llm {MODEL}"
    assert len(endpoint.asked) == 2


@pytest.mark.slow
async def test_what_was_answered_before_a_kill_is_not_asked_again(
    world: World,
    call: CallRecord,  # noqa: F811
    endpoint: Endpoint,
    answered: threading.Event,
    tmp_path: Path,
    postgres_url: str,
) -> None:
    await questions.set_questions(world.database, world.workspace_id, [Question("why", question="Why do they call?")])
    endpoint.answers(answer(), waits(answered), {"q1": None})
    changes = {"analysis": {"engine": "llm", "base_url": endpoint.base_url, "model": MODEL}}
    run = await create_run(world, "asked", changes, call.call.call_id)

    async def ended() -> bool:
        return (await runs.find(world.database, world.workspace_id, run.run_id)).state == "completed"

    async with process(postgres_url, tmp_path):
        await until(lambda: len(endpoint.asked) >= 2, timeout=180)
    assert not await ended()
    async with process(postgres_url, tmp_path):
        await until(ended, timeout=180)
    assert ["The questions:" in body["messages"][0]["content"] for body in endpoint.asked] == [False, True, True]
    rows = await world.rows("SELECT findings FROM run_calls WHERE run_id = :id", id=run.run_id)
    engines = {finding["step"]: finding["value"].get("engine") for finding in rows[0]["findings"]}
    assert engines["tasks"] == engines["questions"] == f"llm {MODEL}"


@asynccontextmanager
async def process(url: str, folder: Path) -> AsyncIterator[None]:
    """Start a process that processes runs, until it is killed."""
    command = ("-m", "tests.support.asking_worker", url, str(folder), str(folder / "asked.log"))
    begun = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        yield
    finally:
        begun.kill()
        assert await begun.wait() == -signal.SIGKILL, "it had ended before"


@pytest.mark.parametrize("said", ["\x00\x1b[2J", "half a character"])
async def test_a_call_is_completed_whatever_its_model_says(
    said: str, world: World, files: FileServer, short: Path, conducting: Conduct, endpoint: Endpoint
) -> None:
    """Neither a NUL nor half a surrogate pair can be stored, and the second is not even Unicode."""
    half = b'{"choices": [{"message": {"content": "\\ud800"}}]}'
    endpoint.answers(said if said[0] == "\x00" else lambda body: Response(half, media_type="application/json"))
    call_id = uuid4()
    async with conducting(concurrency=1, analysis=asking(endpoint)):
        await world.submit(call_id=call_id, recording_url=files.add(short))
        record = await completed(world, call_id)
    assert "analyzed by rules" in str(finding(record, "tasks").note)
