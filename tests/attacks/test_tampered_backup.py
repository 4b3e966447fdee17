"""A person who can write to the folder of backups cannot make a restore accept anything that the service did not write.

Each attack changes a real backup; `verify` and `restore` refuse it and leave database, storage and data folder alone.
"""

import asyncio
import base64
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner, Result

from db.core.database import Database
from pipeline import scratch
from serve_app.backup import manifest
from serve_app.backup.create import BackupSource, create
from serve_app.backup.manifest import BackupUnfit, Manifest
from serve_app.backup.progress import BackupProgress
from serve_app.cli import app
from tests.postgres import fresh_database, new_world

KEY, NEXT_KEY, FOREIGN_KEY = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))
SOUND = b"RIFF of a call" * 100
SHA256 = hashlib.sha256(SOUND).hexdigest()
Attack = Callable[[Path], object]


def switchboard(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "1000"})


@pytest.fixture(scope="module")
def source(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackupSource]:
    """A database with one recording."""
    folder = tmp_path_factory.mktemp("source")
    place = folder / "recordings" / SHA256[:2] / SHA256
    place.parent.mkdir(parents=True)
    place.write_bytes(SOUND)
    for url in fresh_database(postgres_server, "switchboard"):
        asyncio.run(fill(url, place.as_uri()))
        yield BackupSource(url, (folder / "recordings").as_uri(), folder / "handed-in", (KEY,))


async def fill(url: str, uri: str) -> None:
    async with await Database.open(url) as database:
        world = await new_world(database)
        await world.submit(recording_url="https://pbx.example/1.wav")
        await world.execute(
            "INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)"
            " SELECT jobs.id, 0, call_pk, :uri, :sha256, :size FROM jobs",
            uri=uri, sha256=SHA256, size=len(SOUND),
        )  # fmt: skip


@pytest.fixture(scope="module")
def created(source: BackupSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create(source, tmp_path_factory.mktemp("created"), BackupProgress(300))[0]


@pytest.fixture
def backup(created: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(created.parent, tmp_path / "backups")
    return tmp_path / "backups" / created.name


@pytest.fixture
def empty(postgres_server: str) -> Iterator[str]:
    yield from fresh_database(postgres_server, "template0")


@pytest.fixture
def target(empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", empty)
    monkeypatch.setenv("SWITCHBOARD_STORAGE", (tmp_path / "there").as_uri())
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", KEY)
    return empty


def is_refused(backup: Path, target: str, *options: str) -> str:
    """Return the error of a refused restore, which changed nothing."""
    done = switchboard("restore", backup, *options)
    assert done.exit_code == 1, done.output
    with psycopg.connect(target) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
    storage = Path(os.environ["SWITCHBOARD_STORAGE"].removeprefix("file://"))
    assert not storage.exists() and not (Path(os.environ["SWITCHBOARD_DATA_DIR"]) / "handed-in").exists()
    return done.stderr


def edited(backup: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest, and write a fitting digest: only the signature shows it."""
    path = backup / manifest.FILE
    body = json.loads(path.read_text())
    del body["digest"]
    change(body)
    path.write_text(json.dumps({**body, "digest": manifest._digest(body)}, indent=1))


def content_of(path: Path) -> dict[str, Any]:
    return manifest.file_content(path).model_dump()


def poison_dump(backup: Path) -> None:
    """Replace the dump's list of contents: pg_restore would run any SQL in it."""
    path = backup / "database" / "toc.dat"
    path.write_bytes(path.read_bytes() + b"DROP TABLE calls;")
    edited(backup, lambda body: body["files"].update({"database/toc.dat": content_of(path)}))


def forge_signature(backup: Path) -> None:
    content = (backup / manifest.FILE).read_bytes()
    line = f"{manifest.fingerprint(KEY)} {manifest.sign(FOREIGN_KEY, manifest.PURPOSE, content)}\n"
    (backup / manifest.SIGNATURE).write_text(line)


def change_a_file(backup: Path) -> None:
    table = next((backup / "database").glob("*.dat.gz"))
    table.write_bytes(b"?" * table.stat().st_size)


def replace_by_link(backup: Path) -> None:
    table = next((backup / "database").glob("*.dat.gz"))
    outside = backup.parent / "outside"
    table.rename(outside)
    table.symlink_to(outside)


def link_a_folder(backup: Path) -> None:
    (backup / "database").rename(backup.parent / "outside")
    (backup / "database").symlink_to(backup.parent / "outside")


def replace_by_pipe(backup: Path) -> None:
    table = next((backup / "database").glob("*.dat.gz"))
    table.unlink()
    os.mkfifo(table)


def link_the_manifest(backup: Path) -> None:
    (backup / manifest.FILE).rename(backup.parent / "outside")
    (backup / manifest.FILE).symlink_to(backup.parent / "outside")


def pipe_the_signature(backup: Path) -> None:
    (backup / manifest.SIGNATURE).unlink()
    os.mkfifo(backup / manifest.SIGNATURE)


ATTACKS: dict[str, tuple[Attack, str]] = {
    "a changed file": (change_a_file, "is not what was written"),
    "a changed dump with a fitting manifest": (poison_dump, "has changed since it was written"),
    "a changed manifest": (
        lambda backup: edited(backup, lambda body: body["tables"]["public.calls"].update(rows=7)),
        "has changed since it was written",
    ),
    "no signature": (lambda backup: (backup / manifest.SIGNATURE).unlink(), "is not signed"),
    "a signature that is none": (lambda backup: (backup / manifest.SIGNATURE).write_bytes(b"\xff" * 90), "not signed"),
    "a forged signature": (forge_signature, "has changed since it was written"),
    "an added file for a call": (
        lambda backup: (backup / manifest.HANDED_IN / f"{uuid4()}.{'0' * 32}").write_bytes(b"RIFF"),
        "was added to the backup",
    ),
    "an added key": (lambda backup: (backup / manifest.KEYS).write_text(FOREIGN_KEY), "was added to the backup"),
    "a link in place of a file": (replace_by_link, "is not a regular file"),
    "a link in place of a folder": (link_a_folder, "is not a regular file"),
    "a link to a folder": (
        lambda backup: (backup / "more").symlink_to("/etc", target_is_directory=True),
        "is not a regular file",
    ),
    "a pipe in place of a file": (replace_by_pipe, "is not a regular file"),
    "a link in place of the manifest": (link_the_manifest, "cannot be read"),
    "a pipe in place of the signature": (pipe_the_signature, "is not a regular file"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_tampered_backup_is_refused_before_anything_of_it_is_used(backup: Path, target: str, attack: str) -> None:
    attempt, error = ATTACKS[attack]
    attempt(backup)
    assert error in is_refused(backup, target)
    verified = switchboard("backup", "verify", backup)
    assert verified.exit_code == 1 and error in verified.stderr


def test_the_signature_of_another_backup_does_not_fit(backup: Path, target: str) -> None:
    content = (backup / manifest.FILE).read_bytes().replace(backup.name.encode(), b"2026-01-01T000000Z")
    signature = manifest.sign(KEY, manifest.PURPOSE, content)
    (backup / manifest.SIGNATURE).write_text(f"{manifest.fingerprint(KEY)} {signature}\n")
    assert "has changed since it was written" in is_refused(backup, target)


@pytest.mark.parametrize(
    "name", ["../outside", "database/../../outside", "/etc/hostname", "./recordings.tsv", "a//b", ""]
)
def test_a_manifest_names_no_file_out_of_its_folder(backup: Path, name: str) -> None:
    """Even an unsigned one, which the operator trusts."""
    (backup.parent / "outside").write_text("x")
    edited(backup, lambda body: body["files"].update({name: {"bytes": 1, "sha256": "0" * 64}}))
    (backup / manifest.SIGNATURE).unlink()
    with pytest.raises(BackupUnfit, match="is not a manifest"):
        Manifest.read(backup, (), unsigned=True)


def test_the_list_of_recordings_leads_to_no_file_out_of_the_storage(backup: Path, target: str) -> None:
    path = backup / manifest.LIST
    line = path.read_text()
    path.write_text(line.replace(SHA256, "../../../../../../../etc/hostname"))
    edited(backup, lambda body: body["files"].update({manifest.LIST: content_of(path)}))
    (backup / manifest.SIGNATURE).unlink()
    assert "line 1: not a recording" in is_refused(backup, target, "--unsigned")


def test_a_recording_that_was_changed_is_not_restored(backup: Path, target: str, tmp_path: Path) -> None:
    copy = backup.parent / manifest.RECORDINGS / SHA256[:2] / SHA256
    copy.write_bytes(b"?" * len(SOUND))
    done = switchboard("restore", backup)
    assert done.exit_code == 0 and "1 recording of these are missing or changed" in done.stderr
    files = [path for path in (tmp_path / "there").rglob("*") if path.is_file()]
    assert all(path.suffix == scratch.OWNER for path in files)  # the lock of this process, while it lives


def test_a_manifest_too_deep_to_parse_is_an_error_and_no_crash(backup: Path) -> None:
    (backup / manifest.FILE).write_text("[" * 200_000)
    (backup / manifest.SIGNATURE).unlink()
    with pytest.raises(BackupUnfit, match="cannot be read"):
        Manifest.read(backup, (), unsigned=True)


def test_any_set_key_verifies_and_a_removed_one_does_not(backup: Path, target: str) -> None:
    assert Manifest.read(backup, (NEXT_KEY, KEY))
    other_alphabet = base64.urlsafe_b64encode(base64.b64decode(KEY)).decode()
    assert Manifest.read(backup, (other_alphabet,))
    with pytest.raises(BackupUnfit, match="SWITCHBOARD_SECRETS_KEYS"):
        Manifest.read(backup, (NEXT_KEY,))
    assert Manifest.read(backup, (NEXT_KEY,), unsigned=True)


def test_a_wrong_signature_of_a_set_key_is_refused_even_if_unsigned_backups_are_accepted(
    backup: Path, target: str
) -> None:
    edited(backup, lambda body: body.update(name="another"))
    assert "has changed since it was written" in is_refused(backup, target, "--unsigned")


def test_the_keys_in_a_backup_do_not_verify_it(
    source: BackupSource, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a forged backup would bring its own key and be restored with it."""
    forged = create(replace(source, keys=(FOREIGN_KEY,), with_keys=True), tmp_path / "backups", BackupProgress(300))[0]
    error = is_refused(forged, target)
    assert "is signed with other keys" in error and "do not count" in error and "--unsigned" in error
    monkeypatch.delenv("SWITCHBOARD_SECRETS_KEYS")
    monkeypatch.delenv("SWITCHBOARD_DATABASE_URL")
    done = switchboard("restore", forged)
    assert done.exit_code == 1 and "--unsigned" in done.stderr
    assert not (tmp_path / "data").exists(), "its key is not stored, and no server is started"


def test_an_older_backup_without_a_signature_is_restored_on_request(backup: Path, target: str) -> None:
    (backup / manifest.SIGNATURE).unlink()
    assert "--unsigned" in is_refused(backup, target)
    assert switchboard("backup", "verify", backup, "--unsigned").exit_code == 0
    assert switchboard("restore", backup, "--unsigned").exit_code == 0
