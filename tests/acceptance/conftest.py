"""One service and one PostgreSQL for all acceptance tests, stopped at the end, since other tests need the cores.

Each test has a separate workspace.
"""

import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from db.server import embedded, migrate
from tests.acceptance.running import Client, RunningService
from tests.collector import Collector, collecting
from tests.file_server import FileServer
from tests.synthetic_calls import synthetic_calls


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="package")
def state_folder() -> Iterator[Path]:
    """Return the folder of a PostgreSQL that tests may stop and start."""
    with tempfile.TemporaryDirectory(prefix="switchboard-acceptance-") as folder:
        yield Path(folder)
        embedded.stop(Path(folder) / "state")


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Collect the traces of the service."""
    with collecting() as trace_collector:
        yield trace_collector


@pytest.fixture(scope="package")
def service(state_folder: Path, collector: Collector) -> Iterator[RunningService]:
    """Start the service on synthetic checkpoints."""
    url = embedded.start(state_folder / "state")
    migrate.migrate(url)
    running = RunningService(url, state_folder, free_port(), {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    running.start()
    yield running
    assert running.stop() == 0, (state_folder / "up.log").read_text()[-3000:]


@pytest.fixture
async def client(service: RunningService) -> AsyncIterator[Client]:
    client = await Client.of(service)
    yield client
    await client.close()


@pytest.fixture(scope="package")
def files() -> Iterator[FileServer]:
    """Serve recordings on 127.0.0.1, which the service may fetch."""
    with FileServer() as server:
        yield server


@dataclass
class SampleCalls:
    """The synthetic calls, processed once for all tests that only read them.

    `ids`: callIds by the names of the samples. `replies`: each body that was sent, and the reply of the service.
    """

    client: Client
    ids: dict[str, str] = field(default_factory=dict)
    replies: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def sample_calls(service: RunningService, files: FileServer) -> AsyncIterator[SampleCalls]:
    sent = SampleCalls(await Client.of(service, "Acme"))
    for sample in synthetic_calls():
        for body in sample.submissions(files.add):
            sent.replies.append((body, await sent.client.accepted(body)))
            sent.ids[sample.name] = body["callId"]
    await sent.client.ended(sent.ids.values(), 450)
    yield sent
    await sent.client.close()
