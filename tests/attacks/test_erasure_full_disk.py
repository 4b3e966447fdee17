"""Erasures while a disk is full: nothing is half erased, and nothing that has to be deleted or copied is forgotten."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from db.core.database import Reader
from db.records import erasures, file_deletions
from serve_app.backup.ledger_copies import FOLDER, LedgerCopies
from tests.attacks.test_erase import erased, stored
from tests.attacks.test_erase_person import NUMBER, PERSON, call_ids, eraser
from tests.attacks.test_ledger_copies import KEY, loop, waiting
from tests.finished import received
from tests.postgres import World
from tests.small_disk import fill, small_disk

MB = 1 << 20


async def test_a_full_storage_is_emptied_first_and_gets_the_ledger_then(world: World, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", MB) as disk:
        path = await stored(world, disk, os.urandom(MB // 2))
        fill(disk)
        await erased(world, world.call_id)
        running = loop(world, disk, KEY)
        assert await running.copy_ledger() == {world.workspace_id}
        assert await waiting(world) == [(world.workspace_id, 1)]
        assert [file for file in (disk / FOLDER).rglob("*") if file.is_file()] == []
        assert await running.delete_due() == 1
        assert not path.exists() and await file_deletions.waiting(world.database) == 0
        assert await running.copy_ledger() == set()
        assert len(LedgerCopies(disk.as_uri(), (KEY,)).read()[world.workspace_id]) == 1


@pytest.fixture
def ledger_disk(world: World, postgres_url: str, tmp_path: Path) -> Iterator[Path]:
    """Move the ledger and the log of changes onto a disk of their own."""
    place = tmp_path / "tables"
    with small_disk(place, 2 * MB) as disk, psycopg.connect(postgres_url, autocommit=True) as connection:
        owner = Path(connection.execute("SHOW data_directory").fetchone()[0])  # type: ignore[index]
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(0o755)
        os.chown(disk, owner.stat().st_uid, owner.stat().st_gid)
        name = f"small_{os.getpid()}"
        connection.execute(f"CREATE TABLESPACE {name} LOCATION '{disk}'".encode())
        connection.execute(b"SET session_replication_role = replica")  # the ledger refuses
        connection.execute(b"TRUNCATE erasure_ledger")  # a page with room would be enough for an entry
        connection.execute(f"ALTER TABLE erasure_ledger SET TABLESPACE {name}".encode())
        try:
            yield disk
        finally:
            connection.execute(b"ALTER TABLE erasure_ledger SET TABLESPACE pg_default")
            connection.execute(f"DROP TABLESPACE {name}".encode())


async def test_a_full_database_erases_completely_or_not_at_all(world: World, ledger_disk: Path) -> None:
    calls = {await received(world, from_number=NUMBER) for _ in range(3)}
    filler = fill(ledger_disk)
    for call_id in calls:
        with pytest.raises(sa.exc.DBAPIError, match="No space left on device"):
            await erased(world, call_id)
    target = await erasures.resolve(world.database, Reader(world.workspace_id), PERSON)
    erasure = await erasures.create(world.database, world.workspace_id, target)
    with pytest.raises(sa.exc.DBAPIError, match="No space left on device"):
        await eraser(world).erase_next()
    assert await call_ids(world) == calls
    filler.unlink()
    await world.execute("UPDATE erasures SET lease_until = now()")
    assert await eraser(world).erase_next()
    finished = await erasures.find(world.database, Reader(world.workspace_id), erasure.erasure_id)
    assert finished is not None and (finished.state, finished.counts["calls"]) == ("done", 3)
    assert await call_ids(world) == set()
