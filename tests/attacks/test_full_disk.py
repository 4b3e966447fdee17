"""A full disk under PostgreSQL and the recordings: submissions are refused, and each place that reports says why."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest

from db.core.database import Database
from db.server import embedded, migrate
from db.workspace import directory, keys
from pipeline.fetch import room
from serve_app.cli.doctor import service as checks
from serve_app.intake.store import open_store
from serve_app.intake.submit import build_api
from tests.integration.db.intake.test_submit_over_http import AUDIO, BODY, UNLIMITED
from tests.serving import served
from tests.small_disk import fill, small_disk

pytestmark = pytest.mark.slow

DISK = 512 << 20
TRIES = 500  # submissions until one needs space that PostgreSQL does not have yet


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK) as place:
        yield place


@pytest.fixture
def database_on_it(disk: Path) -> Iterator[str]:
    url = embedded.start(disk / "data")
    try:
        migrate.migrate(url)
        yield url
    finally:
        embedded.stop(disk / "data")


async def sender(url: str) -> str:
    async with await Database.open(url) as database:
        workspace = (await directory.create_workspace(database, "Acme")).workspace_id
        team = (await directory.create_team(database, workspace, "Sales")).team_id
        _, secret = await keys.create(database, workspace, team, {"submit"}, "pbx")
        return secret


async def until(reached: Any, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not await reached():
            await asyncio.sleep(0.2)


def levels(disk: Path, url: str) -> dict[str, str]:
    settings = SimpleNamespace(data_dir=disk / "data", storage_url=(disk / "recordings").as_uri(), scratch=None)
    results = [*checks.data_folder(settings), *checks.storage(settings), *checks._server(url, "embedded")]
    return {check.name: check.level.value for check in results if check.name not in ("pgvector", "isolation")}


async def test_a_full_disk_is_reported_by_readyz_and_doctor_while_submissions_are_refused(
    disk: Path, database_on_it: str
) -> None:
    url, headers = database_on_it, {"Authorization": f"Bearer {await sender(database_on_it)}"}
    recordings = (disk / "recordings").as_uri()
    api = build_api(UNLIMITED, lambda: open_store(url, UNLIMITED.POOL_SIZE, storage=recordings))
    with served(api) as base:
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=60) as http:

            async def status() -> int:
                body = {**BODY, "callId": str(uuid4()), "recordingUrl": AUDIO}
                return (await http.post("/submit", json=body)).status_code

            async def parts() -> dict[str, Any]:
                return dict((await http.get("/readyz?exclude=Conductor")).json()["parts"])

            async def is_ready() -> bool:
                return all(part["ready"] for part in (await parts()).values())

            assert await status() == 202
            assert await is_ready()
            before = await asyncio.to_thread(levels, disk, url)
            assert "bad" not in before.values()
            filler = fill(disk)
            assert 503 in {await status() for _ in range(TRIES)}
            await asyncio.sleep(2.1)  # responses are cached
            states = await parts()
            assert not states["database"]["ready"] and "full" in states["database"]["why"]
            assert not states["storage"]["ready"] and "0 MB free" in states["storage"]["why"]
            full = await asyncio.to_thread(levels, disk, url)
            assert {name for name, level in full.items() if level == "bad"} == {
                "data folder",
                "storage",
                "disk of PostgreSQL",
            }
            filler.unlink()
            await until(is_ready)
            assert await status() == 202


def test_a_bucket_has_no_limit_and_a_folder_that_is_not_there_yet_has_its_disks(tmp_path: Path) -> None:
    assert room.free_bytes("s3://bucket/recordings") is None
    assert room.free_bytes((tmp_path / "new folder" / "recordings").as_uri()) == room.free_bytes(tmp_path)
