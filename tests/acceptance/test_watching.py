"""What operators watch of a running service: its metrics after a call, and which part is not ready."""

import asyncio
import re
import signal
from os import kill

import httpx
import pytest

from serve_app.operations import metric_names
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.synthetic_calls import synthetic_calls

SHORT = "08_flite_voices_stereo"
ONLY_SOMETIMES = {
    metric_names.BACKUP_AGE,
    metric_names.COST,
    metric_names.JOB_FAILURES,
    metric_names.JOB_RETRIES,
    metric_names.WEBHOOK_ATTEMPTS,
    metric_names.WEBHOOK_DELIVERY,
}
ONLY_SOMETIMES |= {metric_names.MODEL_TOKENS, metric_names.MODEL_NOT_ASKED}  # with a language model


async def readiness(service: RunningService) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        return await http.get(service.submit_url.replace("/submit", "/readyz"))


async def test_every_metric_is_served_after_a_call_on_the_loopback_address(
    service: RunningService, client: Client, files: FileServer
) -> None:
    body = next(call for call in synthetic_calls() if call.name == SHORT).submissions(files.add)[-1]
    assert (await client.post({"callId": "no"})).status_code == 400
    await client.accepted(body)
    await client.ended([body["callId"]])
    url = str(service.ready["metricsUrl"])
    assert url.startswith("http://127.0.0.1:")
    expected = {metric.exposed for metric in metric_names.EVERY if metric not in ONLY_SOMETIMES}
    served: set[str] = set()
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        for _ in range(60):  # processes hand their counts over every ten seconds
            text = (await http.get(url)).text
            names = re.findall(r"^(ray_switchboard\w+)", text, re.MULTILINE)
            served = {re.sub(r"(?<=[a-z])_(bucket|sum|count)$", "", name) for name in names}
            if expected <= served and 'answer="invalid-body"' in text:
                break
            await asyncio.sleep(1)
    assert expected <= served
    assert 'answer="invalid-body"' in text
    assert not re.search(rf"{body['callId']}|{client.workspace_id}", text)


@pytest.mark.slow
async def test_readyz_misses_a_conductor_that_died_and_has_it_back(service: RunningService) -> None:
    for _ in range(120):
        if (answer := await readiness(service)).status_code == 200:
            break
        await asyncio.sleep(0.5)
    assert answer.status_code == 200, answer.text
    parts = {"Intake", "database", "schema", "storage", "Conductor", "Transcriber", "Diarizer"}
    assert set(answer.json()["parts"]) == parts
    (pid,) = service.pids("Conductor")
    kill(pid, signal.SIGKILL)
    seen = set[int]()
    for _ in range(240):
        seen.add((await readiness(service)).status_code)
        if 503 in seen:
            break
        await asyncio.sleep(0.1)
    assert 503 in seen
    for _ in range(240):
        if (answer := await readiness(service)).status_code == 200:
            break
        await asyncio.sleep(0.5)
    assert answer.status_code == 200, answer.text
