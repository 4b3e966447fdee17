"""Rehearses the runbook's failover: the database's machine is lost, and its synchronous standby takes over."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, OUTAGES, Database
from db.intake.group_commit import GroupCommitter
from db.server import embedded, migrate
from pipeline.domain.call import Submission
from tests.postgres import World, new_world


@pytest.fixture
def pair() -> Iterator[tuple[Path, Path]]:
    """Return the folders of a primary and of its standby, which every commit waits for."""
    first, second = (Path(tempfile.mkdtemp(prefix="swb-own-")) for _ in range(2))
    try:
        migrate.migrate(embedded.start(first))
        replication = f"host={first / 'socket'} user=postgres application_name=standby"
        standby = embedded._Server(embedded._prepare(second))
        embedded._make_private(standby.cluster, embedded._Server(first).user())
        standby.run("pg_basebackup", "-d", replication, "-D", standby.cluster, "-R", "--checkpoint=fast")
        embedded.stop(first)  # a running server applies the setting with a delay
        embedded.start(second)
        embedded.start(first, {"synchronous_standby_names": "standby"})
        yield first, second
    finally:
        for folder in (first, second):
            embedded.stop(folder)
            shutil.rmtree(folder)


def kill(folder: Path) -> None:
    """Kill every process of the server at once, as when a machine dies."""
    postmaster = embedded.postmaster(folder)
    assert postmaster is not None
    for process in (postmaster, *postmaster.children(recursive=True)):
        with suppress(Exception):
            process.kill()


async def submitting(world: World, accepted: list[tuple[float, float, UUID]]) -> None:
    """Submit calls, retrying until a 202; yield when the successful attempt began and ended."""
    while True:
        call_id = uuid4()
        sent = Submission(call_id, "+49301", "+49302", datetime.now(UTC), "https://pbx.example/1.wav")
        while True:
            try:
                begun = time.monotonic()
                async with asyncio.timeout(5):  # wait_for of Python 3.11 can swallow that it is canceled
                    await GroupCommitter(world.database).submit(world.scoped, sent, {})
                break
            except (*OUTAGES, TimeoutError):
                await asyncio.sleep(0.1)
        accepted.append((begun, time.monotonic(), call_id))


async def until_more(accepted: list[tuple[float, float, UUID]], than: int) -> None:
    async with asyncio.timeout(120):
        while len(accepted) <= than:
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_no_accepted_call_is_lost_with_the_databases_machine_and_the_service_finds_the_standby_by_itself(
    pair: tuple[Path, Path],
) -> None:
    first, second = pair
    hosts = ",".join(quote(str(folder / "socket"), safe="/") for folder in pair)
    url = f"postgresql://postgres@/switchboard?host={hosts}&target_session_attrs=read-write"
    async with await Database.open(url, wait_seconds=5) as database:
        world = await new_world(database)
        accepted: list[tuple[float, float, UUID]] = []
        sender = asyncio.create_task(submitting(world, accepted))
        try:
            await until_more(accepted, 20)
            died = time.monotonic()
            kill(first)
            before = len(accepted)
            standby = embedded._Server(second)
            await asyncio.to_thread(standby.run, "pg_ctl", "-D", standby.cluster, "-w", "promote")
            await until_more(accepted, before + 20)
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
        again = min(ended for begun, ended, _ in accepted if begun > died)
        async with database.transaction(EVERY_WORKSPACE) as connection:
            query = sa.text("SELECT count(*) FROM calls WHERE call_id = ANY (:ids)")
            there = (await connection.execute(query, {"ids": [call_id for *_, call_id in accepted]})).scalar_one()
    print(f"accepted again {again - died:.1f} s after the loss; {len(accepted)} calls accepted, {there} there")
    assert there == len(accepted)
