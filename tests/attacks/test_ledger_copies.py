"""The copies of the ledger are complete, and nothing changes them unnoticed."""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from db.records import ledger
from db.records.ledger import BrokenLedger, Entry
from pipeline.errors import StorageError
from pipeline.speakers.profile import Voices
from serve_app.backup.ledger_copies import FOLDER, LedgerCopies
from serve_app.conductor.erasure import ErasureLoop
from serve_app.conductor.options import ErasureOptions
from tests.attacks.test_ledger import chain
from tests.finished import finished
from tests.paths import ROOT
from tests.postgres import World, new_world

KEY, NEXT_KEY, FOREIGN_KEY = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))
Attack = Callable[[Path], object]


def loop(world: World, storage: Path, *keys: str) -> ErasureLoop:
    return ErasureLoop(world.database, ErasureOptions(), LedgerCopies(storage.as_uri(), keys), None, Voices())


async def waiting(world: World) -> list[tuple[UUID, int]]:
    rows = await world.rows("SELECT workspace_id, sequence FROM erasure_ledger_copies ORDER BY 1, 2")
    return [(row["workspace_id"], row["sequence"]) for row in rows]


def write_chain(storage: Path, workspace_id: UUID, count: int = 3) -> list[Entry]:
    """Write copies of a chain that is in no database."""
    copies, entries = LedgerCopies(storage.as_uri(), (KEY,)), list[Entry]()
    for number in range(1, count + 1):
        previous = entries[-1].hash if entries else b""
        at = ledger.datetime(2026, 11, 28, tzinfo=ledger.UTC)
        fields = (workspace_id, number, at, "call", "", "operator", None, {"jobs": 1}, [bytes(32)], previous)
        entries.append(Entry(*fields).with_hash())
        copies.write(entries[-1])
    return entries


async def test_copies_are_the_ledger(world: World, tmp_path: Path) -> None:
    entries = await chain(world)
    assert await loop(world, tmp_path, KEY).copy_ledger() == set()
    assert await waiting(world) == []
    assert LedgerCopies(tmp_path.as_uri(), (NEXT_KEY, KEY)).read() == {world.workspace_id: entries}
    files = sorted(path.name for path in (tmp_path / FOLDER / str(world.workspace_id)).iterdir())
    assert files == ["000000000001.json", "000000000002.json", "000000000003.json"]


async def test_a_storage_that_refuses_is_asked_again_in_order(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await new_world(world.database)
    entries, of_other = await chain(world), await chain(other)
    refused = tmp_path / FOLDER / str(world.workspace_id)
    refused.parent.mkdir()
    refused.write_text("not a folder")
    for _ in range(2):
        assert await loop(world, tmp_path, KEY).copy_ledger() == {world.workspace_id}
        assert await waiting(world) == [(world.workspace_id, number) for number in (1, 2, 3)]
    refused.unlink()
    assert LedgerCopies(tmp_path.as_uri(), (KEY,)).read() == {other.workspace_id: of_other}
    monkeypatch.setattr(ErasureOptions, "POLL_SECONDS", 0.05)
    running = loop(world, tmp_path, KEY)
    await running.start()
    try:
        async with asyncio.timeout(60):
            while await waiting(world):
                await asyncio.sleep(0.05)
    finally:
        await running.stop()
    assert LedgerCopies(tmp_path.as_uri(), (KEY,)).read()[world.workspace_id] == entries


async def test_another_database_does_not_overwrite_copies(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = write_chain(tmp_path, world.workspace_id)
    await chain(world)
    assert await loop(world, tmp_path, KEY).copy_ledger() == {world.workspace_id}
    assert "another database" in caplog.text and len(await waiting(world)) == 3
    assert LedgerCopies(tmp_path.as_uri(), (KEY,)).read() == {world.workspace_id: entries}


KILLED = """
import asyncio, os, signal, sys
from uuid import UUID
from db.core.database import Database
from db.records import erase
from pipeline.speakers.profile import Voices
from serve_app.backup.ledger_copies import LedgerCopies
from serve_app.conductor.erasure import ErasureLoop
from serve_app.conductor.options import ErasureOptions

class Killed(LedgerCopies):
    __slots__ = ()
    def write(self, entry):
        if sys.argv[5] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(entry)
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    url, workspace, call, storage, _, key = sys.argv[1:]
    async with await Database.open(url) as database:
        await erase.erase_call(database, UUID(workspace), UUID(call), Voices())
        await ErasureLoop(database, ErasureOptions(), Killed(storage, (key,)), None, Voices()).copy_ledger()

asyncio.run(main())
"""


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_killed_process_loses_no_copy(world: World, tmp_path: Path, moment: str) -> None:
    call_id = await finished(world)
    arguments = [world.database.url, world.workspace_id, call_id, tmp_path.as_uri(), moment, KEY]
    command = [sys.executable, "-c", KILLED, *map(str, arguments)]
    assert subprocess.run(command, cwd=ROOT, timeout=300, check=False).returncode == -signal.SIGKILL
    assert await world.rows("SELECT * FROM calls") == []
    assert len(await waiting(world)) == 1
    assert await loop(world, tmp_path, KEY).copy_ledger() == set()
    ((entry,),) = LedgerCopies(tmp_path.as_uri(), (KEY,)).read().values()
    assert entry.kind == "call" and await waiting(world) == []


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change an entry, and write a fitting hash: only the chain or the signature shows it."""
    copy = json.loads(path.read_text())
    change(copy["entry"])
    copy["entry"] = Entry.from_content(copy["entry"]).with_hash().content()
    path.write_text(json.dumps(copy))


def rewrite_all(folder: Path) -> None:
    """Write a whole chain that fits, without an entry, under the former signatures."""
    last = folder / "000000000003.json"
    signatures = json.loads(last.read_text())["signatures"]
    shutil.rmtree(folder)
    write_chain(folder.parents[1], UUID(folder.name), 2)
    copy = json.loads((folder / "000000000002.json").read_text())
    (folder / "000000000002.json").write_text(json.dumps({**copy, "signatures": signatures}))


def sign_with(key: str, folder: Path) -> None:
    workspace_id = UUID(folder.name)
    shutil.rmtree(folder)
    write_chain(folder.parents[1], workspace_id, 2)
    for path in folder.iterdir():
        entry = Entry.from_content(json.loads(path.read_text())["entry"])
        path.unlink()
        LedgerCopies(folder.parents[1].as_uri(), (key,) if key else ()).write(entry)


ATTACKS: dict[str, Attack] = {
    "a field": lambda folder: edit(folder / "000000000002.json", lambda entry: entry.update(who="other")),
    "the last entry": lambda folder: edit(folder / "000000000003.json", lambda entry: entry.update(digests=[])),
    "the first entry": lambda folder: edit(folder / "000000000001.json", lambda entry: entry.update(counts={})),
    "without the first": lambda folder: (folder / "000000000001.json").unlink(),
    "without one between": lambda folder: (folder / "000000000002.json").unlink(),
    "an entry in place of another": lambda folder: shutil.copy(
        folder / "000000000001.json", folder / "000000000002.json"
    ),
    "a gap closed": lambda folder: (folder / "000000000003.json").rename(folder / "000000000002.json"),
    "of another workspace": lambda folder: folder.rename(folder.with_name(str(uuid4()))),
    "an added entry": lambda folder: shutil.copy(folder / "000000000003.json", folder / "000000000004.json"),
    "a pipe": lambda folder: os.mkfifo(folder / "000000000004.json"),
    "no JSON": lambda folder: (folder / "000000000002.json").write_bytes(b"\xff{"),
    "deep JSON": lambda folder: (folder / "000000000002.json").write_text("[" * 100_000),
    "other fields": lambda folder: (folder / "000000000002.json").write_text('{"entry": {}, "signatures": {}}'),
    "another form": lambda folder: (folder / "000000000002.json").write_text('{"entry": [], "signatures": []}'),
    "signatures of another chain": rewrite_all,
    "a foreign key": lambda folder: sign_with(FOREIGN_KEY, folder),
    "no signature": lambda folder: sign_with("", folder),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_tampered_copies_are_refused(tmp_path: Path, attack: str) -> None:
    workspace_id = uuid4()
    write_chain(tmp_path, workspace_id)
    copies = LedgerCopies(tmp_path.as_uri(), (KEY,))
    assert len(copies.read()[workspace_id]) == 3
    ATTACKS[attack](tmp_path / FOLDER / str(workspace_id))
    with pytest.raises(BrokenLedger):
        copies.read()


@pytest.mark.parametrize("attack", ["a foreign key", "no signature"])
def test_unsigned_copies_are_read_on_request(tmp_path: Path, attack: str) -> None:
    workspace_id = uuid4()
    write_chain(tmp_path, workspace_id)
    ATTACKS[attack](tmp_path / FOLDER / str(workspace_id))
    assert len(LedgerCopies(tmp_path.as_uri(), (KEY,)).read(unsigned=True)[workspace_id]) == 2


def test_a_wrong_signature_is_refused_even_on_request(tmp_path: Path) -> None:
    workspace_id = uuid4()
    write_chain(tmp_path, workspace_id)
    rewrite_all(tmp_path / FOLDER / str(workspace_id))
    with pytest.raises(BrokenLedger, match="wrong signature"):
        LedgerCopies(tmp_path.as_uri(), (KEY,)).read(unsigned=True)


def test_a_file_that_is_being_written_is_no_copy(tmp_path: Path) -> None:
    workspace_id = uuid4()
    entries = write_chain(tmp_path, workspace_id)
    (tmp_path / FOLDER / str(workspace_id) / ".0123").write_text("{")
    assert LedgerCopies(tmp_path.as_uri(), (KEY,)).read() == {workspace_id: entries}


def test_a_storage_that_cannot_be_read_is_no_empty_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_chain(tmp_path, uuid4())

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(StorageError):
        LedgerCopies(tmp_path.as_uri(), (KEY,)).read()


def test_a_storage_without_copies_has_an_empty_ledger(tmp_path: Path) -> None:
    assert LedgerCopies((tmp_path / "none").as_uri(), (KEY,)).read() == {}


def test_copies_are_set_aside(tmp_path: Path) -> None:
    workspace_id = uuid4()
    entries = write_chain(tmp_path, workspace_id)
    copies = LedgerCopies(tmp_path.as_uri(), (KEY,))
    copies.set_aside()
    assert copies.read() == {}
    (former,) = tmp_path.iterdir()
    former.rename(tmp_path / FOLDER)
    assert copies.read() == {workspace_id: entries}
    shutil.rmtree(tmp_path / FOLDER)
    copies.set_aside()
