"""Conductors on a real queue, with the real engines and recordings from 127.0.0.1. Ray alone is left out."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
import pytest_asyncio
import soundfile

from db.core.database import Database
from pipeline.analysis import AnalysisOptions
from pipeline.fetch.options import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.file_server import FileServer
from tests.postgres import World
from tests.reading_api import api, base  # noqa: F401 (fixtures)
from tests.support.conductors import DEADLINES, LEASE, STEREO, Conduct, Line, WatchedWorkers
from tests.support.console_site import browser
from tests.support.upload_desk import desk  # noqa: F401 (fixture)
from tests.synthetic_calls import FOLDER
from tests.tuned import tuned

RULES = AnalysisOptions()


@pytest.fixture
def workers(transcriber: Any, diarizer: Any) -> WatchedWorkers:
    return WatchedWorkers(transcriber, diarizer)


@pytest.fixture(scope="module")
def files() -> Iterator[FileServer]:
    """A server of recordings."""
    with FileServer() as server:
        yield server


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first sentence of either party of a sample call: seconds matter where every word is recognized again."""
    samples, rate = soundfile.read(FOLDER / STEREO / "call.flac")
    path = tmp_path_factory.mktemp("recordings") / "short.flac"
    soundfile.write(path, samples[: round(6.6 * rate)], rate)
    return path


@pytest.fixture
def conducting(world: World, workers: WatchedWorkers, tmp_path: Path) -> Conduct:
    """Run a Conductor on `world`'s queue, or on that of another `database`; its leases and pauses are short."""

    @asynccontextmanager
    async def run(
        database: Database | None = None,
        workers: LocalWorkers = workers,
        analysis: AnalysisOptions = RULES,
        **options: float,
    ) -> AsyncIterator[ConductorLoop]:
        plain = {"lease_seconds": LEASE, "poll_seconds": 0.1, "backoff_seconds": 0.1, "drain_seconds": 0}
        conductor = ConductorLoop(
            database or world.database,
            workers,
            tuned(ProcessingOptions, **(plain | options)),
            ProcessOptions(
                storage=tmp_path.as_uri(),
                fetch=FetchOptions(allowed_hosts=("127.0.0.1",)),
                deadlines=DEADLINES,
                analysis=analysis,
            ),
        )
        await conductor.start()
        try:
            yield conductor
        finally:
            await conductor.stop()

    return run


@pytest.fixture
async def line(postgres_url: str) -> AsyncIterator[Line]:
    role = f"remote_{uuid4().hex[:8]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
        database = await Database.open(postgres_url.replace("//postgres@", f"//{role}@"), wait_seconds=0.5)
        line = Line(database, admin, role)
        try:
            yield line
        finally:
            await database.close()
            line.cut()
            admin.execute(f"DROP ROLE {role}")


@pytest_asyncio.fixture
async def site(postgres_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The console, as a browser of nobody yet."""
    async with browser(postgres_url, tmp_path) as client:
        yield client
