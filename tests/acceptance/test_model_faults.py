"""Two Conductors and a language model that answers slowly, wrongly, not at all: every call gets its record."""

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import soundfile

from db import embedded, migrate
from db.views import CallRecord
from serve_app.cli.file_server import FileServer
from tests.acceptance.conftest import free_port
from tests.acceptance.running import Client, RunningService
from tests.integration.conductors import STEREO, finding, until
from tests.llm_server import MODEL, Endpoint, error
from tests.synthetic_calls import FOLDER
from tests.unit.llm_by_hand import answer

pytestmark = pytest.mark.slow
PATIENCE = 20.0  # seconds that a call has for its model
CALLS = 6  # of each kind
BY_MODEL = f"llm {MODEL}"


@pytest.fixture(scope="module")
def asking(llm_server: Endpoint) -> Iterator[RunningService]:
    with tempfile.TemporaryDirectory(prefix="switchboard-asking-") as folder:
        url = embedded.start(Path(folder) / "state")
        migrate.migrate(url)
        extra = {
            "SWITCHBOARD_SCALING__CONDUCTOR": '{"min_replicas": 2, "max_replicas": 2}',
            "SWITCHBOARD_PROCESSING__LEASE_SECONDS": "10",
            "SWITCHBOARD_ANALYSIS__ENGINE": "llm",
            "SWITCHBOARD_ANALYSIS__BASE_URL": llm_server.base_url,
            "SWITCHBOARD_ANALYSIS__MODEL": MODEL,
            "SWITCHBOARD_ANALYSIS__TIMEOUT_SECONDS": str(PATIENCE),
        }
        running = RunningService(url, Path(folder), free_port(), extra)
        running.start()
        yield running
        assert running.stop() == 0, (Path(folder) / "up.log").read_text()[-3000:]
        embedded.stop(Path(folder) / "state")


@pytest.fixture
def silence(tmp_path: Path, files: FileServer) -> str:
    """The address of a recording in which nobody asks a model for anything."""
    path = tmp_path / "silence.flac"
    soundfile.write(path, np.zeros(2 * 8000), 8000)
    return files.add(path)


def body(url: str) -> dict[str, Any]:
    return {
        "callId": str(uuid4()),
        "from": "+4930123456",
        "to": "+4930123457",
        "startTime": "2026-11-20T09:30:00Z",
        "outgoing": False,
        "recordingUrl": url,
    }


async def sent(client: Client, url: str, count: int = CALLS) -> list[str]:
    bodies = [body(url) for _ in range(count)]
    for one in bodies:
        await client.accepted(one)
    return [one["callId"] for one in bodies]


def engines(records: list[CallRecord]) -> Counter[str]:
    """Who made the tasks of so many completed calls."""
    assert {record.call.state for record in records} == {"completed"}
    return Counter(str(finding(record, "tasks").value.get("engine", "rules")) for record in records)


@pytest.mark.timeout(1500)
async def test_a_slow_a_wrong_and_a_silent_model_keep_no_call_from_its_record(
    asking: RunningService, files: FileServer, endpoint: Endpoint, silence: str
) -> None:
    client = await Client.of(asking)
    said = files.add(FOLDER / STEREO / "call.flac")
    ended = threading.Event()

    def after(seconds: float) -> Any:
        def script(_: Any) -> Any:
            ended.wait(seconds)
            return answer()

        return script

    try:
        endpoint.answers(after(5.0))
        assert engines(await client.ended(await sent(client, said), 400)) == {BY_MODEL: CALLS}

        endpoint.answers("I cannot say.")
        wrong = await client.ended(await sent(client, said), 400)
        assert engines(wrong) == {"rules": CALLS}
        assert all("made by rule, not by the language model" in (finding(one, "tasks").note or "") for one in wrong)

        endpoint.answers(lambda _: error(503, "overloaded"))
        assert engines(await client.ended(await sent(client, said), 400)) == {"rules": CALLS}

        endpoint.answers(after(600.0))
        waiting = await sent(client, said)
        await until(lambda: len(endpoint.asked) >= CALLS, 300)
        begun = time.monotonic()
        others = await client.ended(await sent(client, silence, 2), 100)
        assert {one.call.state for one in others} == {"completed"}
        assert time.monotonic() - begun < PATIENCE, "they waited behind those that wait for the model"
        silent = await client.ended(waiting, 400)
        assert engines(silent) == {"rules": CALLS}
        assert all((job.failures, job.crashes) == (0, 0) for one in silent for job in one.jobs), (
            "it is no fault of calls"
        )
    finally:
        ended.set()
    await client.close()


@pytest.mark.timeout(900)
async def test_calls_of_a_conductor_that_dies_while_the_model_thinks_are_asked_by_the_other(
    asking: RunningService, files: FileServer, endpoint: Endpoint
) -> None:
    client = await Client.of(asking)
    thought = threading.Event()

    def script(_: Any) -> Any:
        thought.wait(15)
        return answer()

    endpoint.answers(script)
    calls = await sent(client, files.add(FOLDER / STEREO / "call.flac"))
    await until(lambda: len(endpoint.asked) >= CALLS, 300)
    os.kill(asking.pids("Conductor")[0], signal.SIGKILL)
    thought.set()
    records = await client.ended(calls, 400)
    assert engines(records) == {BY_MODEL: CALLS}
    assert CALLS < len(endpoint.asked) <= 2 * CALLS, "only what the dead one had not heard is asked again"
    await client.close()
