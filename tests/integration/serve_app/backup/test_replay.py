"""A restored backup has nothing that was erased after it."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from typer.testing import CliRunner, Result

from db.core.database import Database
from db.records import erase, ledger
from pipeline.speakers.profile import Voices
from serve_app.backup import replay
from serve_app.backup.ledger_copies import FOLDER, LedgerCopies
from serve_app.cli import app
from serve_app.conductor.erasure import ErasureLoop
from serve_app.conductor.options import ErasureOptions
from tests.postgres import World, fresh_database

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


class Installation:
    """Calls with a recording each, a backup of them, and an empty database to restore into."""

    def __init__(self, world: World, folder: Path, empty: str, patch: pytest.MonkeyPatch) -> None:
        self.world, self.folder, self.empty, self.patch = world, folder, empty, patch
        self.storage, self.elsewhere = folder / "recordings", folder / "elsewhere"
        self.calls: list[UUID] = []
        self.backup_folder = Path()

    async def submit(self, call_id: UUID | None = None) -> UUID:
        self.world.call_id = call_id or uuid4()
        await self.world.submit(recording_url="https://pbx.example/a.wav")
        sound = self.world.call_id.bytes
        path = self.file_of(self.world.call_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sound)
        await self.world.execute(
            "INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)"
            " SELECT jobs.id, 0, call_pk, :uri, :sha256, :size FROM jobs JOIN calls ON calls.id = call_pk"
            " WHERE call_id = :call",
            uri=path.as_uri(), sha256=path.name, size=len(sound), call=self.world.call_id,
        )  # fmt: skip
        return self.world.call_id

    def file_of(self, call_id: UUID, storage: Path | None = None) -> Path:
        name = hashlib.sha256(call_id.bytes).hexdigest()
        return (storage or self.storage) / name[:2] / name

    async def erase(self, call_id: UUID) -> None:
        await erase.erase_call(self.world.database, self.world.workspace_id, call_id, Voices())
        self.file_of(call_id).unlink()

    async def append(self, kind: str, *objects: UUID) -> None:
        """Add an entry for objects of any kind."""
        workspace_id = self.world.workspace_id
        async with self.world.database.transaction(workspace_id) as connection:
            digests = [hashlib.sha256(workspace_id.bytes + object_id.bytes).digest() for object_id in objects]
            await ledger.append(connection, workspace_id, kind, "operator", {}, digests)

    async def copy(self) -> None:
        copies = LedgerCopies(self.storage.as_uri(), (KEY,))
        assert not await ErasureLoop(self.world.database, ErasureOptions(), copies, None, Voices()).copy_ledger()

    async def command(self, url: str, storage: Path, *arguments: str | Path) -> Result:
        self.patch.setenv("SWITCHBOARD_DATABASE_URL", url)
        self.patch.setenv("SWITCHBOARD_STORAGE", storage.as_uri())
        self.patch.setenv("SWITCHBOARD_DATA_DIR", str(self.folder / "data"))
        self.patch.setenv("SWITCHBOARD_SECRETS_KEYS", json.dumps([KEY]))
        texts = [str(argument) for argument in arguments]
        return await asyncio.to_thread(CliRunner().invoke, app, texts, env={"COLUMNS": "1000"})

    async def back_up(self) -> None:
        url = self.world.database.url
        done = await self.command(url, self.storage, "backup", "create", self.folder / "backups", "--json")
        assert done.exit_code == 0, done.output
        self.backup_folder = Path(json.loads(done.stdout)["backup"])

    async def restore(self, storage: Path, *options: str | Path) -> Result:
        return await self.command(self.empty, storage, "restore", self.backup_folder, *options)

    def restored(self, query: str) -> list[Any]:
        with psycopg.connect(self.empty, options="-c switchboard.workspace=*") as connection:
            return [row[0] for row in connection.execute(query.encode()).fetchall()]

    def restored_calls(self) -> set[UUID]:
        return set(self.restored("SELECT call_id FROM calls"))


@pytest.fixture
def empty(postgres_server: str) -> Iterator[str]:
    yield from fresh_database(postgres_server, "template0")


@pytest.fixture
async def installation(world: World, tmp_path: Path, empty: str, monkeypatch: pytest.MonkeyPatch) -> Installation:
    new = Installation(world, tmp_path, empty, monkeypatch)
    new.calls = [await new.submit() for _ in range(4)]
    return new


async def test_what_was_erased_after_the_backup_is_erased_again(installation: Installation) -> None:
    early, first, second, remaining = installation.calls
    await installation.erase(early)
    await installation.back_up()
    for call_id in (first, second, await installation.submit()):
        await installation.erase(call_id)
    await installation.copy()
    entries = LedgerCopies(installation.storage.as_uri(), (KEY,)).read()[installation.world.workspace_id]
    assert len(entries) == 4
    checked = await installation.command(
        installation.empty, installation.storage, "backup", "verify", installation.backup_folder, "--json"
    )
    assert json.loads(checked.stdout)["erasedCalls"] == 2, "the third was submitted after the backup"
    done = await installation.restore(installation.elsewhere, "--ledger", installation.storage.as_uri(), "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["ledger"] == {"entries": 3, "erased": {"calls": 2}}
    assert installation.restored_calls() == {remaining}
    files = {path for path in installation.elsewhere.rglob("*") if len(path.name) == 64}
    assert files == {installation.file_of(remaining, installation.elsewhere)}
    assert installation.restored("SELECT count(*) FROM erased_calls") == [3]
    assert installation.restored("SELECT sequence FROM erasure_ledger ORDER BY 1") == [1, 2, 3, 4]
    # The chain goes on in the new storage, with a copy of each entry.
    async with await Database.open(installation.empty) as database:
        await erase.erase_call(database, installation.world.workspace_id, remaining, Voices())
        copies = LedgerCopies(installation.elsewhere.as_uri(), (KEY,))
        assert not await ErasureLoop(database, ErasureOptions(), copies, None, Voices()).copy_ledger()
    continued = copies.read()[installation.world.workspace_id]
    assert continued[:4] == entries and len(continued) == 5


async def test_files_in_the_same_storage_are_queued(installation: Installation) -> None:
    await installation.back_up()
    call_id, *others = installation.calls
    await erase.erase_call(installation.world.database, installation.world.workspace_id, call_id, Voices())
    await installation.copy()
    done = await installation.restore(installation.storage)
    assert done.exit_code == 0, done.output
    assert "Erased again by 1 entry of the ledger: calls: 1." in done.stdout
    assert installation.restored_calls() == set(others)
    # Another database may refer to it: the service asks again before it deletes it.
    assert installation.restored("SELECT uri FROM file_deletions") == [installation.file_of(call_id).as_uri()]
    assert installation.file_of(call_id).exists()


async def test_a_call_that_came_back_before_the_backup_remains(installation: Installation) -> None:
    call_id = installation.calls[0]
    await installation.erase(call_id)
    await installation.world.execute("DELETE FROM erased_calls")  # as after SWITCHBOARD_ERASURE__REMEMBER_DAYS
    await installation.submit(call_id)
    await installation.back_up()
    await installation.copy()
    done = await installation.restore(installation.storage)
    assert done.exit_code == 0, done.output
    assert installation.restored_calls() == set(installation.calls)


async def test_an_interrupted_replay_is_finished_by_the_next(installation: Installation) -> None:
    await installation.back_up()
    for call_id in installation.calls[:3]:
        await installation.erase(call_id)
    await installation.copy()
    erase_call, erased = erase.erase_call, list[UUID]()

    async def interrupted(database: Database, workspace_id: UUID, call_id: UUID, *more: Any, **named: Any) -> Any:
        if erased:
            raise KeyboardInterrupt
        erased.append(call_id)
        return await erase_call(database, workspace_id, call_id, *more, **named)

    options = ("--ledger", installation.storage.as_uri(), "--json")
    with installation.patch.context() as patch:
        patch.setattr("db.records.erase.erase_call", interrupted)
        assert (await installation.restore(installation.elsewhere, *options)).exit_code == 130
    assert len(installation.restored_calls()) == 3
    done = await installation.restore(installation.elsewhere, *options)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["ledger"] == {"entries": 2, "erased": {"calls": 2}}
    assert installation.restored_calls() == {installation.calls[3]}
    left = installation.restored("SELECT sha256 FROM file_deletions")
    assert set(left) == {installation.file_of(call_id).name for call_id in installation.calls[:3]}
    # The restore is over: another one finds a database that is in use.
    again = await installation.restore(installation.elsewhere, *options)
    assert again.exit_code == 1 and "not empty" in again.stderr


async def test_teams_and_workspaces_are_removed_again(installation: Installation) -> None:
    await installation.back_up()
    await installation.append("team", installation.world.team_id)
    await installation.append("retention")
    await installation.append("workspace", installation.world.workspace_id)
    await installation.append("number", *installation.calls)
    await installation.copy()
    done = await installation.restore(installation.storage, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["ledger"] == {"entries": 4, "erased": {"teams": 1, "workspaces": 1}}
    assert installation.restored("SELECT count(*) FROM workspaces") == [0]
    assert installation.restored("SELECT count(*) FROM erasure_ledger") == [4]


async def test_an_entry_of_several_calls(installation: Installation) -> None:
    await installation.back_up()
    *listed, other = installation.calls
    await installation.append("contact", uuid4(), *listed)
    await installation.append("number", listed[0])
    await installation.copy()
    done = await installation.restore(installation.storage, "--json")
    assert json.loads(done.stdout)["ledger"] == {"entries": 2, "erased": {"calls": 3}}, done.output
    assert installation.restored_calls() == {other}


async def test_an_unknown_kind_stops_the_restore(installation: Installation) -> None:
    await installation.back_up()
    await installation.append("planet")
    await installation.copy()
    done = await installation.restore(installation.storage)
    assert done.exit_code == 1 and "is of a newer version" in done.stderr


async def test_a_broken_ledger_stops_the_restore_before_it_begins(installation: Installation) -> None:
    await installation.back_up()
    for call_id in installation.calls[:2]:
        await installation.erase(call_id)
    await installation.copy()
    (first, _) = sorted((installation.storage / FOLDER).rglob("*.json"))
    content = first.read_text()
    first.unlink()
    done = await installation.restore(installation.storage)
    assert done.exit_code == 1 and "is missing" in done.stderr and "--without-ledger" in done.stderr
    assert installation.restored("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [0]
    first.write_text(content)
    installation.patch.setattr("tests.integration.serve_app.backup.test_replay.KEY", "A" * 43 + "=")
    done = await installation.restore(installation.storage, "--unsigned")
    assert done.exit_code == 0, done.output
    assert installation.restored_calls() == set(installation.calls[2:])


async def test_a_ledger_that_lacks_what_the_backup_has_stops_the_restore(installation: Installation) -> None:
    await installation.erase(installation.calls[0])
    await installation.copy()
    await installation.back_up()
    await installation.erase(installation.calls[1])
    await installation.copy()
    done = await installation.restore(installation.elsewhere)
    assert done.exit_code == 1 and "It lacks entry 1" in done.stderr
    assert installation.restored("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [0]
    done = await installation.restore(installation.elsewhere, "--ledger", installation.storage.as_uri())
    assert done.exit_code == 0, done.output
    assert installation.restored_calls() == set(installation.calls[2:])


async def test_another_chain_stops_the_restore(installation: Installation) -> None:
    await installation.back_up()
    await installation.erase(installation.calls[0])
    await installation.copy()
    await installation.restore(installation.storage)
    async with await Database.open(installation.empty) as database:
        for call_id in installation.calls[1:3]:
            await erase.erase_call(database, installation.world.workspace_id, call_id, Voices())
    await installation.append("number")
    await installation.copy()
    chains = LedgerCopies(installation.storage.as_uri(), (KEY,)).read()
    with pytest.raises(ledger.BrokenLedger, match="not the one of the backup"):
        await replay._replay(installation.empty, chains, Voices(), (), replay.BackupProgress(60))


async def test_entries_without_a_copy_are_no_flaw(installation: Installation) -> None:
    await installation.erase(installation.calls[0])
    await installation.back_up()
    done = await installation.restore(installation.elsewhere, "--json")
    assert done.exit_code == 0, done.output
    assert installation.restored("SELECT sequence FROM erasure_ledger_copies") == [1]


async def test_a_restore_without_the_ledger_says_so_and_begins_a_copy(installation: Installation) -> None:
    await installation.erase(installation.calls[0])
    await installation.copy()
    await installation.back_up()
    await installation.erase(installation.calls[1])
    await installation.copy()
    refused = await installation.restore(installation.storage, "--ledger", "file:///a", "--without-ledger")
    assert refused.exit_code == 2
    done = await installation.restore(installation.storage, "--without-ledger", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["ledger"] is None
    assert installation.restored_calls() == set(installation.calls[1:])
    async with await Database.open(installation.empty) as database:
        await erase.erase_call(database, installation.world.workspace_id, installation.calls[2], Voices())
        copies = LedgerCopies(installation.storage.as_uri(), (KEY,))
        assert not await ErasureLoop(database, ErasureOptions(), copies, None, Voices()).copy_ledger()
    assert len(copies.read()[installation.world.workspace_id]) == 2
    (former,) = installation.storage.glob(f"{FOLDER}-*")
    assert len(list(former.rglob("*.json"))) == 2


async def test_a_storage_without_a_ledger_is_reported(installation: Installation) -> None:
    await installation.back_up()
    done = await installation.restore(installation.elsewhere)
    assert done.exit_code == 0 and "has no ledger of erasures" in done.stderr, done.output


async def test_a_backup_is_verified_without_a_ledger(installation: Installation) -> None:
    await installation.back_up()
    await installation.erase(installation.calls[0])
    await installation.copy()
    arguments = ("backup", "verify", installation.backup_folder)
    done = await installation.command(installation.empty, installation.storage, *arguments)
    assert done.exit_code == 0 and "It has 1 call that was erased since" in done.stdout.replace("\n", " ")
    for path in (installation.storage / FOLDER).rglob("*.json"):
        path.write_text("{}")
    done = await installation.command(installation.empty, installation.storage, *arguments)
    assert done.exit_code == 0 and "Erased calls were not counted" in done.stderr
    unknown = await installation.command(installation.empty, installation.storage, *arguments, "--json")
    assert json.loads(unknown.stdout)["erasedCalls"] is None
