import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from typer.testing import CliRunner, Result

from db.secrets import credentials
from db.secrets.encryption import Sealer
from db.server import dump, embedded, migrate, pg_tools
from pipeline.fetch import handed_in
from serve_app.backup import create as creating
from serve_app.backup import manifest
from serve_app.backup.create import BackupSource, BackupUnderWay, NoRoomForBackup, create
from serve_app.backup.manifest import Manifest
from serve_app.backup.progress import BackupProgress, OutOfTime
from serve_app.cli import app
from tests.postgres import World, fresh_database

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
SOUNDS = [bytes([n]) * (1000 + n) for n in range(5)]


def switchboard(*arguments: str | Path, columns: int = 80) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(columns)})


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    folder = tmp_path / "recordings"
    for sound in SOUNDS:
        name = hashlib.sha256(sound).hexdigest()
        path = folder / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sound)
    return folder


@pytest.fixture
async def filled(world: World, storage: Path) -> World:
    """Calls with recordings, a sealed credential."""
    for sound in SOUNDS:
        world.call_id = uuid4()
        await world.submit(recording_url=f"https://pbx.example/{len(sound)}.wav")
        name = hashlib.sha256(sound).hexdigest()
        await world.execute(
            "INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)"
            " SELECT jobs.id, 0, call_pk, :uri, :sha256, :size FROM jobs JOIN calls ON calls.id = call_pk"
            " WHERE call_id = :call",
            uri=(storage / name[:2] / name).as_uri(), sha256=name, size=len(sound), call=world.call_id,
        )  # fmt: skip
    server, secret = credentials.Server("pbx.example", 443), credentials.NewCredential("bearer", None, "hush")
    await credentials.put(world.database, world.workspace_id, server, secret, Sealer([KEY]))
    return world


@pytest.fixture
def backup_folder(filled: World, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a backup of `filled`, created by the command."""
    use(monkeypatch, filled.database.url, storage, tmp_path / "data")
    done = switchboard("backup", "create", tmp_path / "backups", "--json")
    assert done.exit_code == 0, done.output
    return Path(json.loads(done.stdout)["backup"])


def use(monkeypatch: pytest.MonkeyPatch, url: str, storage: Path, data: Path) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", url)
    monkeypatch.setenv("SWITCHBOARD_STORAGE", storage.as_uri())
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(data))
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", json.dumps([KEY]))


@pytest.fixture
def empty(postgres_server: str) -> Iterator[str]:
    yield from fresh_database(postgres_server, "template0")


def source(world: World, storage: Path, tmp_path: Path, **more: Any) -> BackupSource:
    return BackupSource(world.database.url, storage.as_uri(), tmp_path / "handed-in", (KEY,), **more)


def test_a_backup_is_restored_elsewhere_to_the_digit_and_its_recordings_are_found_there(
    backup_folder: Path, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = Manifest.read(backup_folder, (KEY,))
    assert (
        manifest.tables["public.calls"].rows == 5
        and manifest.recordings.count == 5
        and manifest.recordings.missing == 0
    )
    elsewhere = tmp_path / "elsewhere"
    use(monkeypatch, empty, elsewhere, tmp_path / "data")
    done = switchboard("restore", backup_folder, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["recordingsCopied"], answer["recordingsMoved"], answer["missingKeys"]) == (5, 5, [])
    assert migrate.is_current(empty)
    with psycopg.connect(empty, options="-c switchboard.workspace=*") as connection:
        for uri, sha256 in connection.execute("SELECT uri, sha256 FROM recordings").fetchall():
            assert uri.startswith(elsewhere.as_uri())
            assert hashlib.sha256((elsewhere / sha256[:2] / sha256).read_bytes()).hexdigest() == sha256
        (last,) = connection.execute("SELECT max(id) FROM calls").fetchone() or (0,)
        (following,) = connection.execute("SELECT nextval(pg_get_serial_sequence('calls', 'id'))").fetchone() or (0,)
        assert following > last, "what is submitted next meets no old number"


@pytest.mark.parametrize("creator", ["this version", "another version"])
def test_a_backup_of_a_later_schema_is_restored_by_the_version_that_created_it(
    creator: str, filled: World, empty: str, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rollback, the former version creates backups of the later version's schema."""
    with psycopg.connect(filled.database.url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9999'")
    use(monkeypatch, filled.database.url, storage, tmp_path / "data")
    if creator == "another version":
        monkeypatch.setattr(creating, "version", lambda _: "9.9.9")
    backup = json.loads(switchboard("backup", "create", tmp_path / "backups", "--json").stdout)["backup"]
    use(monkeypatch, empty, tmp_path / "elsewhere", tmp_path / "data")
    done = switchboard("restore", backup)
    if creator == "this version":
        assert done.exit_code == 0, done.output
        assert migrate.is_current(empty)
    else:
        assert done.exit_code != 0
        assert "schema v9999, of Switchboard 9.9.9" in " ".join(done.output.split())


def test_what_a_backup_holds_is_its_users_alone_and_no_key_is_in_it(backup_folder: Path) -> None:
    for path in (backup_folder.parent, *backup_folder.parent.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    everything = b"".join(path.read_bytes() for path in backup_folder.rglob("*") if path.is_file())
    assert KEY.encode() not in everything
    manifest = Manifest.read(backup_folder, (KEY,))
    assert (
        manifest.secrets.sealed["credentials"] == 1
        and len(manifest.secrets.keys) == 1
        and not manifest.secrets.included
    )


@pytest.mark.slow
def test_keys_are_in_a_backup_where_that_is_asked_for_and_a_new_data_folder_gets_its_key(
    filled: World, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, filled.database.url, storage, tmp_path / "data")
    done = switchboard("backup", "create", tmp_path / "backups", "--with-keys", "--json")
    backup = Path(json.loads(done.stdout)["backup"])
    monkeypatch.delenv("SWITCHBOARD_DATABASE_URL")
    monkeypatch.delenv("SWITCHBOARD_SECRETS_KEYS")
    monkeypatch.delenv("SWITCHBOARD_STORAGE")
    # Not pytest's folder: another run that starts takes from the server's user the right to pass through it.
    new = Path(tempfile.mkdtemp(prefix="swb-own-"))
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(new))
    try:
        refused = switchboard("restore", backup, "--json")
        assert refused.exit_code == 1 and "--unsigned" in refused.stderr, "a key in a backup does not verify it"
        restored = switchboard("restore", backup, "--unsigned", "--json")
        assert restored.exit_code == 0, restored.output
        assert json.loads(restored.stdout)["missingKeys"] == []
        assert (new / "secrets.key").read_text().strip() == KEY
        assert json.loads(switchboard("calls", "list", "--json").stdout)
    finally:
        embedded.stop(new)
        shutil.rmtree(new)


def test_a_restore_without_the_keys_names_what_stays_sealed(
    backup_folder: Path, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, empty, tmp_path / "there", tmp_path / "data")
    monkeypatch.delenv("SWITCHBOARD_SECRETS_KEYS")
    done = switchboard("restore", backup_folder, "--unsigned")
    assert done.exit_code == 0
    assert "1 credentials" in done.stderr and "SWITCHBOARD_SECRETS_KEYS" in done.stderr


def test_a_database_that_holds_anything_is_refused_and_stays_as_it_was(
    backup_folder: Path, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("INSERT INTO workspaces (name) VALUES ('another')")
    before = dump.digests(postgres_url, 60)
    use(monkeypatch, postgres_url, tmp_path / "there", tmp_path / "data")
    done = switchboard("restore", backup_folder)
    assert done.exit_code == 1 and "not empty" in done.stderr
    assert dump.digests(postgres_url, 60) == before
    assert not (tmp_path / "there").exists()


def test_a_restore_that_was_interrupted_after_the_database_is_finished_by_the_next(
    backup_folder: Path, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, empty, tmp_path / "there", tmp_path / "data")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(migrate, "migrate", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        assert switchboard("restore", backup_folder).exit_code == 130
    done = switchboard("restore", backup_folder, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["recordingsCopied"] == 0, "they are there already"


@pytest.mark.parametrize(
    "harm", ["a byte of a table", "a table", "a byte of a recording", "a recording", "the manifest"]
)
def test_whatever_is_damaged_or_missing_is_found(backup_folder: Path, harm: str) -> None:
    assert switchboard("backup", "verify", backup_folder).exit_code == 0
    recording = next(path for path in (backup_folder.parent / "recordings").rglob("*") if path.is_file())
    table = next((backup_folder / "database").glob("*.dat.gz"))
    victim = {"byte of a table": table, "table": table, "byte of a recording": recording, "recording": recording}.get(
        harm.partition(" ")[2], backup_folder / "manifest.json"
    )
    if harm.startswith("a byte"):
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    elif harm == "the manifest":
        victim.write_text(victim.read_text().replace('"rows": 5', '"rows": 6', 1))
    else:
        victim.unlink()
    result = switchboard("backup", "verify", backup_folder)
    assert result.exit_code == 1
    assert str(victim.name) in result.stderr.replace("\n", "")


def test_a_drill_restores_into_a_server_of_its_own_and_compares_every_table(backup_folder: Path) -> None:
    done = switchboard("backup", "verify", backup_folder, "--drill", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["whole"] and answer["comparedSeconds"] > answer["restoredSeconds"] > 0


async def test_what_is_written_while_a_backup_is_made_is_not_in_it_and_waits_for_nothing(
    filled: World, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()
    digest = dump.Snapshot.digest

    def slow(self: dump.Snapshot, table: dump.DumpedTable, seconds: float) -> dump.TableDigest:
        begun.set()
        assert ended.wait(60)
        return digest(self, table, seconds)

    monkeypatch.setattr(dump.Snapshot, "digest", slow)
    running = asyncio.create_task(
        asyncio.to_thread(create, source(filled, storage, tmp_path), tmp_path / "backups", BackupProgress(300))
    )
    await asyncio.to_thread(begun.wait, 60)
    filled.call_id = uuid4()
    began = time.monotonic()
    await filled.submit()
    assert time.monotonic() - began < 30
    ended.set()
    where, manifest = await running
    assert manifest.tables["public.calls"].rows == 5
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", KEY)
    assert switchboard("backup", "verify", where, "--drill").exit_code == 0, "dump and digests are of one moment"


@pytest.mark.slow
def test_a_backup_that_is_killed_leaves_none_and_the_next_goes_on_with_its_recordings(
    filled: World, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "backups"
    use(monkeypatch, filled.database.url, storage, tmp_path / "data")
    kill = (
        "import os, signal\n"
        "from serve_app.backup import manifest\n"
        "manifest.Manifest.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from serve_app.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", kill, "backup", "create", str(repository)], check=False)
    assert done.returncode == -9
    assert manifest.backups(repository) == []
    copies = {path: path.stat().st_ino for path in (repository / "recordings").rglob("*") if path.is_file()}
    assert len(copies) == 5
    where, _ = create(source(filled, storage, tmp_path), repository, BackupProgress(300))
    assert switchboard("backup", "verify", where).exit_code == 0
    assert {path: path.stat().st_ino for path in (repository / "recordings").rglob("*") if path.is_file()} == copies
    assert not list(repository.glob(".unfinished*"))


def test_a_failure_on_the_way_leaves_nothing_that_looks_like_a_backup(
    filled: World, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutOfTime):
        create(source(filled, storage, tmp_path), tmp_path / "backups", BackupProgress(0))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))  # type: ignore[attr-defined]
    with pytest.raises(NoRoomForBackup, match="Nothing was started"):
        create(source(filled, storage, tmp_path), tmp_path / "backups", BackupProgress(300))
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [".lock"]


def test_two_backups_at_once_in_one_folder_are_one_and_a_refusal(filled: World, storage: Path, tmp_path: Path) -> None:
    with creating.alone_in(tmp_path), pytest.raises(BackupUnderWay):
        create(source(filled, storage, tmp_path), tmp_path, BackupProgress(300))


def test_recordings_that_the_storage_lost_are_named_and_do_not_keep_the_rest_from_being_saved(
    filled: World, storage: Path, tmp_path: Path
) -> None:
    missing, damaged, *_ = sorted(path for path in storage.rglob("*") if path.is_file())
    missing.unlink()
    damaged.write_bytes(b"?" * damaged.stat().st_size)
    where, manifest = create(source(filled, storage, tmp_path), tmp_path / "backups", BackupProgress(300))
    assert manifest.recordings.missing == 2
    lines = {line.split("\t")[0]: line.split("\t")[2] for line in (where / "recordings.tsv").read_text().splitlines()}
    assert (lines[missing.name], lines[damaged.name]) == ("missing", "damaged")
    assert sorted(lines.values()).count("copied") == 3


def test_recordings_of_a_bucket_are_listed_with_their_digests_and_stay_where_they_are(
    filled: World, storage: Path, tmp_path: Path
) -> None:
    where, manifest = create(source(filled, storage, tmp_path, copies=False), tmp_path / "backups", BackupProgress(300))
    assert (manifest.recordings.how, manifest.recordings.count, manifest.recordings.missing) == ("listed", 5, 0)
    assert not (where.parent / "recordings").exists()
    assert "listed" in (where / "recordings.tsv").read_text()


async def test_files_that_were_handed_in_and_not_yet_fetched_come_back(
    filled: World, storage: Path, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = handed_in.make_private(tmp_path / "handed-in")
    file = tmp_path / "call.wav"
    file.write_bytes(b"RIFF of a call")
    for call in (filled.call_id, UUID(int=7)):  # the second is no call of this database
        handed_in.hand_in(folder, file, call)
    where, manifest = create(source(filled, storage, tmp_path), tmp_path / "backups", BackupProgress(300))
    assert manifest.handed_in == 1
    use(monkeypatch, empty, tmp_path / "there", tmp_path / "data")
    assert (await asyncio.to_thread(switchboard, "restore", where)).exit_code == 0
    (copy,) = (tmp_path / "data" / "handed-in").iterdir()
    assert copy.read_bytes() == file.read_bytes() and copy.name.startswith(str(filled.call_id))
    assert copy.stat().st_mode & 0o077 == 0


def test_a_password_of_the_database_is_no_argument_of_any_process(tmp_path: Path) -> None:
    script = tmp_path / "pg_dump"
    script.write_text('#!/bin/sh\necho "$@"; echo "$PGPASSWORD"\n')
    script.chmod(0o755)
    lines = pg_tools.Programs(tmp_path, 18).run("pg_dump", [], "postgresql://me:hush@db/calls", 60).splitlines()
    assert "hush" not in lines[0] and lines[1] == "hush"
    assert "switchboard.workspace=*" in lines[0]


@pytest.mark.parametrize(
    ("major", "server", "archive", "fits"),
    [(15, 15, None, True), (18, 15, None, True), (15, 16, None, False), (18, 18, 18, True), (18, 17, 15, True),
     (18, 15, 15, False), (15, 15, 15, True), (15, 15, 18, False), (17, 18, 17, False)],
)  # fmt: skip
def test_a_program_fits_its_server_and_what_it_is_to_read(
    major: int, server: int, archive: int | None, fits: bool
) -> None:
    assert pg_tools.is_fit(major, server, archive) is fits


def test_a_server_that_no_program_fits_is_answered_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pg_tools, "SYSTEM", ())
    with pytest.raises(pg_tools.ProgramMissing, match="Install postgresql-client-99"):
        pg_tools.find(99, tls=False)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(pg_tools.ProgramMissing, match="installed: none"):
        pg_tools.find(18, tls=True)


def test_digests_depend_on_what_rows_hold_and_not_on_their_order(empty: str, postgres_url: str) -> None:
    def content(url: str, rows: Callable[[int], int]) -> dump.TableDigest:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS things (n int, at timestamptz, x float8, v jsonb)")
            connection.execute("DELETE FROM things")
            for n in map(rows, range(20)):
                connection.execute("INSERT INTO things VALUES (%s, '2026-01-01Z', 0.1, '{\"a\": 1}')", (n,))
        return dump.digests(url, 60)["public.things"]

    straight = content(empty, lambda n: n)
    assert straight.rows == 20
    assert content(postgres_url, lambda n: 19 - n) == straight
    assert content(postgres_url, lambda n: n + (n == 7)) != straight
    assert content(postgres_url, lambda n: min(n, 18)).digest != straight.digest
