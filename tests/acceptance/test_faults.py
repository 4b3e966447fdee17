"""Whatever dies in the middle of a call, the call is completed; what was recorded before is not done again."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from db.server import embedded
from serve_app.demo.samples import Sample
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.synthetic_calls import synthetic_calls

SAMPLES: list[Sample] = synthetic_calls()
MAX_SECONDS = 90.0  # prevents hanging; bench/recovery.py measures


async def until(condition: Callable[[], object], timeout: float = 180.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.05)


async def at_stage(client: Client, call_id: str, stage: str) -> None:
    """Wait until the call is at `stage` or a later one."""
    order = ["fetch", "audio", "asr", "prosody", "diarization", "voices", "voiceprint", "speakers", None]
    deadline = time.monotonic() + 60
    while (record := await client.record(call_id)).call.stage not in order[order.index(stage) : -1]:
        assert record.call.state == "transcribing", "the call ended before the fault"
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("deployment", ["Conductor", "Transcriber", "Diarizer"])
async def test_a_call_survives_kill_nine_of(
    deployment: str, service: RunningService, client: Client, files: FileServer
) -> None:
    mono = next(sample for sample in SAMPLES if sample.expected["layout"] == "mono")
    body = mono.submissions(files.add)[-1]
    (victim,) = service.pids(deployment)
    await client.accepted(body)
    await at_stage(client, body["callId"], "asr")
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    (record,) = await client.ended([body["callId"]], timeout=MAX_SECONDS)
    print(f"{deployment}: completed {time.monotonic() - killed:.1f} s after kill -9")
    assert record.call.state == "completed", record.call.failure
    assert [job.kind for job in record.jobs] == ["process"]
    await until(lambda: len(service.pids(deployment)) == 1)
    assert service.pids(deployment) != [victim]


@pytest.mark.slow
async def test_postgresql_restarted_in_the_middle_of_five_calls_loses_none(
    service: RunningService, client: Client, files: FileServer, state_folder: Path
) -> None:
    bodies = [sample.submissions(files.add)[-1] for sample in SAMPLES[:5]]
    for body in bodies:
        await client.accepted(body)
    late = SAMPLES[-1].submissions(files.add)[-1]
    embedded.stop(state_folder / "state")
    try:
        answer = await client.post(late)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["content-type"].startswith("application/problem+json")
    finally:
        embedded.start(state_folder / "state")
    await client.accepted(late)  # the first request after the restart
    records = await client.ended([body["callId"] for body in [*bodies, late]], timeout=450)
    assert [record.call.state for record in records] == ["completed"] * 6
    assert all(job.failures == 0 for record in records for job in record.jobs), "an outage is no failure of a call"


@pytest.mark.slow
async def test_calls_are_taken_while_the_head_is_away(service: RunningService, client: Client) -> None:
    (head,) = [process for process in service.processes() if process.name() == "gcs_server"]
    head.kill()
    await asyncio.to_thread(head.wait)
    restarted = asyncio.create_task(asyncio.to_thread(service.wait_until_ready))
    taken: list[str] = []
    broken: Counter[str] = Counter()
    while not restarted.done():
        body = {
            "callId": str(uuid4()),
            "from": "+14155550100",
            "to": "+14155550101",
            "startTime": "2026-11-20T09:00:00Z",
        }
        while body["callId"] not in taken:
            try:
                answer = await client.post(body)
            except httpx.TransportError as error:
                broken[type(error).__name__] += 1
            else:
                assert answer.status_code == 202 or (answer.status_code == 503 and answer.headers["retry-after"])
                taken += [body["callId"]] if answer.status_code == 202 else []
            await asyncio.sleep(0.05)
    await restarted
    print(f"{len(taken)} calls taken while the head was away, {dict(broken)} attempts broken off")
    assert len(taken) > 20
    assert {(await client.record(call_id)).call.state for call_id in taken} == {"received"}


@pytest.mark.slow
async def test_a_submission_is_taken_while_no_engine_runs(
    service: RunningService, client: Client, files: FileServer
) -> None:
    """Intake and engines are applications of their own: 202 does not wait for a model."""
    for pid in service.pids("Transcriber") + service.pids("Diarizer"):
        os.kill(pid, signal.SIGKILL)
    body = SAMPLES[-1].submissions(files.add)[-1]
    async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
        assert (await client.post(body, http)).status_code == 202
    (record,) = await client.ended([body["callId"]], timeout=MAX_SECONDS)
    assert record.call.state == "completed"
