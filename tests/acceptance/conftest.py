"""One service and one PostgreSQL for all acceptance tests, stopped when they are over: other tests need the cores.

Each test has a workspace of its own.
"""

import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from db import embedded, migrate
from serve_app.cli.file_server import FileServer
from tests.acceptance.running import Client, RunningService
from tests.collector import Collector, collecting


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="package")
def state_folder() -> Iterator[Path]:
    """The folder of a PostgreSQL that the tests may stop and start."""
    with tempfile.TemporaryDirectory(prefix="switchboard-acceptance-") as folder:
        yield Path(folder)
        embedded.stop(Path(folder) / "state")


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Of the traces of the service."""
    with collecting() as made:
        yield made


@pytest.fixture(scope="package")
def service(state_folder: Path, collector: Collector) -> Iterator[RunningService]:
    """The service on synthetic checkpoints."""
    url = embedded.start(state_folder / "state")
    migrate.migrate(url)
    running = RunningService(url, state_folder, free_port(), {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    running.start()
    yield running
    assert running.stop() == 0, (state_folder / "up.log").read_text()[-3000:]


@pytest.fixture
async def client(service: RunningService) -> AsyncIterator[Client]:
    made = await Client.of(service)
    yield made
    await made.close()


@pytest.fixture(scope="package")
def files() -> Iterator[FileServer]:
    """A server of recordings on 127.0.0.1, which the service is allowed to fetch from."""
    with FileServer() as server:
        yield server
