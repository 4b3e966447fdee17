"""Two Conductors and a language model that answers slowly, wrongly, not at all: every call gets its record."""

import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import soundfile

from db.records.views import CallRecord
from db.server import embedded, migrate
from tests.acceptance.conftest import free_port
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.llm_server import MODEL, Endpoint, error
from tests.support.conductors import STEREO, finding, until
from tests.support.llm_by_hand import answer
from tests.synthetic_calls import FOLDER

pytestmark = pytest.mark.slow
PATIENCE = 30.0  # seconds that a call has for its model
CALLS = 6  # of each kind
BY_MODEL = f"llm {MODEL}"


@pytest.fixture(scope="module")
def asking(llm_server: Endpoint) -> Iterator[RunningService]:
    with tempfile.TemporaryDirectory(prefix="switchboard-asking-") as folder:
        url = embedded.start(Path(folder) / "state")
        migrate.migrate(url)
        extra = {
            "SWITCHBOARD_SCALING__CONDUCTOR": '{"min_replicas": 2, "max_replicas": 2}',
            "SWITCHBOARD_PROCESSING__CONCURRENCY": "4",
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
    """Return the URL of a recording without a request to the model."""
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
    for submission in bodies:
        await client.accepted(submission)
    return [submission["callId"] for submission in bodies]


def engines(records: list[CallRecord]) -> Counter[str]:
    """Return the engines that produced the tasks of completed calls."""
    assert {record.call.state for record in records} == {"completed"}
    return Counter(str(finding(record, "tasks").value.get("engine", "rules")) for record in records)


def ended_at(record: CallRecord) -> datetime:
    assert record.call.completed_at is not None
    return record.call.completed_at


async def all_by_model(client: Client, url: str) -> bool:
    """While the model counts as down one call at a time tries it, so the first ones may still be made by rules."""
    return engines(await client.ended(await sent(client, url), 400)) == {BY_MODEL: CALLS}


@pytest.fixture
def thinking() -> Iterator[Callable[[float], Any]]:
    """Makes scripts that answer after so many seconds, or at the end of the test."""
    ended = threading.Event()

    def after(seconds: float) -> Any:
        def script(_: Any) -> Any:
            ended.wait(seconds)
            return answer()

        return script

    yield after
    ended.set()


async def test_a_slow_model_slows_calls_and_a_silent_one_leaves_them_to_the_rules(
    asking: RunningService, files: FileServer, endpoint: Endpoint, silence: str, thinking: Callable[[float], Any]
) -> None:
    client = await Client.of(asking)
    spoken = files.add(FOLDER / STEREO / "call.flac")
    endpoint.answers(thinking(5.0))
    assert engines(await client.ended(await sent(client, spoken), 300)) == {BY_MODEL: CALLS}

    endpoint.answers(thinking(600.0))
    waiting = await sent(client, spoken)
    await until(lambda: len(endpoint.asked) >= 2, 120)
    others = await client.ended(await sent(client, silence, 2), 120)
    assert engines(others) == {"rules": 2}
    silent = await client.ended(waiting, 300)
    assert engines(silent) == {"rules": CALLS}
    assert all((job.failures, job.crashes) == (0, 0) for record in silent for job in record.jobs), (
        "it is no fault of calls"
    )
    assert min(map(ended_at, silent)) > max(map(ended_at, others)), (
        "a call that asks for nothing waited behind those that wait for the model"
    )
    await client.close()


async def test_a_wrong_and_an_overloaded_model_leave_calls_to_the_rules_until_it_answers_again(
    asking: RunningService, files: FileServer, endpoint: Endpoint
) -> None:
    client = await Client.of(asking)
    spoken = files.add(FOLDER / STEREO / "call.flac")
    for reply in ("I cannot say.", lambda _: error(503, "overloaded")):
        endpoint.answers(reply)
        records = await client.ended(await sent(client, spoken), 300)
        assert engines(records) == {"rules": CALLS}
        assert all(
            "analyzed by rules, not by the language model" in (finding(record, "tasks").note or "")
            for record in records
        )
    endpoint.answers(answer())
    await until(lambda: all_by_model(client, spoken), 300)
    await client.close()


async def test_calls_of_a_conductor_that_dies_while_the_model_thinks_are_asked_by_the_other(
    asking: RunningService, files: FileServer, endpoint: Endpoint, thinking: Callable[[float], Any]
) -> None:
    client = await Client.of(asking)
    endpoint.answers(thinking(15.0))
    calls = await sent(client, files.add(FOLDER / STEREO / "call.flac"))
    await until(lambda: len(endpoint.asked) >= CALLS, 300)
    os.kill(asking.pids("Conductor")[0], signal.SIGKILL)
    records = await client.ended(calls, 400)
    assert engines(records) == {BY_MODEL: CALLS}
    assert CALLS < len(endpoint.asked) <= 2 * CALLS, "only requests without a response are sent again"
    await client.close()
