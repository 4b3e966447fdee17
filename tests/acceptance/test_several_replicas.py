"""Two Conductors and two of each engine on one queue; engines scale up from none, and down to none."""

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from db.events import endpoints
from db.queue import backlog as queue
from db.secrets.encryption import Sealer
from db.server import embedded, migrate
from serve_app.webhooks import signing
from tests.acceptance.conftest import free_port
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.receiver import receiving
from tests.support.conductors import until
from tests.synthetic_calls import synthetic_calls

pytestmark = pytest.mark.slow
COPIES = 3  # of each sample call
ENGINES = ("Transcriber", "Diarizer")
WALK = ["call.received", "call.transcribing", "call.completed"]


@contextmanager
def serving_several() -> Iterator[RunningService]:
    """A service whose engines run only while there is work."""
    with tempfile.TemporaryDirectory(prefix="switchboard-several-") as folder:
        url = embedded.start(Path(folder) / "state")
        migrate.migrate(url)
        bounds = {"min_replicas": 0, "max_replicas": 2, "price_per_hour": 1.0}
        extra = {f"SWITCHBOARD_SCALING__{name.upper()}": json.dumps(bounds) for name in ENGINES}
        extra |= {
            "SWITCHBOARD_SCALING__CONDUCTOR": '{"min_replicas": 2, "max_replicas": 2}',
            "SWITCHBOARD_SCALING__TARGET_DRAIN_SECONDS": "1",
            "SWITCHBOARD_SCALING__DOWN_SECONDS": "5",
            "SWITCHBOARD_SCALING__IDLE_SECONDS": "10",
        }
        running = RunningService(url, Path(folder), free_port(), extra)
        running.start()
        yield running
        assert running.stop() == 0, (Path(folder) / "up.log").read_text()[-3000:]
        embedded.stop(Path(folder) / "state")


@pytest.fixture(scope="module")
def several() -> Iterator[RunningService]:
    with serving_several() as running:
        yield running


def lines_of(service: RunningService, deployment: str) -> dict[str, list[dict[str, Any]]]:
    """Return the lines about calls by the replica that wrote them."""
    lines = defaultdict(list)
    for file in Path(service.ready["logs"]).glob(f"replica_calls_{deployment}_*.log"):
        for text in file.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # one that is being written
                continue
            if "call_id" in line:
                lines[line["replica"]].append(line)
    return lines


@pytest.mark.timeout(1500)
async def test_no_call_is_done_twice_and_each_keeps_its_order_while_engines_come_from_none_and_go(
    several: RunningService, files: FileServer
) -> None:
    client = await Client.of(several)
    assert [several.pids(name) for name in ENGINES] == [[], []]
    samples = [call for call in synthetic_calls() if call.name.startswith(("01", "08"))]
    samples += [call for call in synthetic_calls() if call.expected["layout"] == "mono"][:1]
    most: Counter[str] = Counter()
    wanted: Counter[str] = Counter()  # as stored every few seconds

    async def seen_two() -> bool:
        for name in ENGINES:
            most[name] = max(most[name], len(several.pids(name)))
        for engine in (await queue.backlog(client.database)).engines:
            wanted[engine.name] = max(wanted[engine.name], engine.wanted)
        return all(most[name] == wanted[name] == 2 for name in ENGINES) and wanted["Conductor"] == 2

    async with receiving() as receiver:
        await endpoints.add(client.database, client.workspace_id, receiver.url, Sealer().seal(signing.new_secret()))
        bodies = [body for _ in range(COPIES) for sample in samples for body in sample.submissions(files.add)]
        for body in (*bodies, *bodies):  # each is sent twice
            await client.accepted(body)
        ids = {body["callId"] for body in bodies}
        assert len(ids) == COPIES * len(samples)
        await until(seen_two, 400)
        records = await client.ended(ids, 900)
        taken = await receiver.until(len(WALK) * len(ids), 120)

    assert all(record.call.state == "completed" for record in records)
    for record in records:
        (job,) = record.jobs
        assert (job.kind, job.state, job.failures, job.crashes) == ("process", "done", 0, 0)
    for call_id in ids:
        assert [event.type for event in taken if event.call_id == call_id] == WALK
    assert len({event.message_id for event in receiver.seen}) == len(receiver.seen), "no event was sent twice"

    def completed() -> dict[str, list[str]]:
        return {
            replica: [line["call_id"] for line in lines if ": completed in" in line["message"]]
            for replica, lines in lines_of(several, "Conductor").items()
        }

    await until(lambda: ids <= {call for calls in completed().values() for call in calls}, 30)  # after the event
    assert len([conductor for conductor in completed().values() if conductor]) == 2, "both Conductors worked"
    assert Counter(call for calls in completed().values() for call in calls) == dict.fromkeys(ids, 1)
    for name in ENGINES:
        assert len(lines_of(several, name)) == 2, f"both {name}s worked"

    await until(lambda: not any(several.pids(name) for name in ENGINES), 300)
    (body,) = samples[0].submissions(files.add)[-1:]
    await client.accepted(body)
    (again,) = await client.ended([body["callId"]], 400)
    assert (again.call.state, again.jobs[0].failures, again.jobs[0].crashes) == ("completed", 0, 0)
    await client.close()
