"""Deleting old backups deletes nothing that another backup needs."""

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.backup import manifest, recordings
from serve_app.backup.create import UNFINISHED, BackupUnderWay, alone_in
from serve_app.backup.manifest import BackupUnfit, Manifest, Secrets, StoredRecordings
from serve_app.backup.progress import BackupProgress
from serve_app.backup.prune import Pruned, PruneOptions, prune
from serve_app.cli import app

KEY, FOREIGN_KEY = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))


def backup(repository: Path, days: int, sounds: Sequence[str], key: str = KEY) -> Path:
    """Write a backup of so many days ago; its recordings are shared with the others."""
    at = datetime.now(UTC) - timedelta(days=days)
    folder = repository / at.strftime("%Y-%m-%dT%H%M%SZ")
    folder.mkdir(parents=True)
    lines = []
    for sound in sounds:
        path = copy_of(repository, sound)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sound)
        lines.append(f"{path.name}\t{len(sound)}\tcopied\t{json.dumps(path.as_uri())}\n")
    (folder / manifest.LIST).write_text("".join(lines))
    (folder / manifest.CALLS).write_bytes(bytes(32))
    files = {path.name: manifest.file_content(path) for path in folder.iterdir()}
    stored = StoredRecordings(how="copied", storage="file:///s", count=len(sounds), bytes=len(sounds))
    Manifest(
        name=folder.name, taken_at=at, seconds=1, switchboard="0", revision="0001", postgresql="18", pg_dump=18,
        database_bytes=1, tables={}, files=files, recordings=stored, handed_in=0,
        secrets=Secrets(sealed={}, keys=(), included=False),
    ).write(folder, (key,))  # fmt: skip
    return folder


def copy_of(repository: Path, sound: str) -> Path:
    return recordings.place(repository / manifest.RECORDINGS, hashlib.sha256(sound.encode()).hexdigest())


def copies(repository: Path) -> set[str]:
    return {path.read_text() for path in (repository / manifest.RECORDINGS).glob("*/*")}


def pruned(repository: Path, days: int = 30, keep: int = 1, dry_run: bool = False, unsigned: bool = False) -> Pruned:
    options = PruneOptions(datetime.now(UTC) - timedelta(days=days), keep, dry_run, unsigned)
    return prune(repository, (KEY,), options, BackupProgress(60))


def test_old_backups_are_deleted_with_what_they_alone_list(tmp_path: Path) -> None:
    old, older = backup(tmp_path, 40, ["a", "b"]), backup(tmp_path, 50, ["a", "c"])
    new = backup(tmp_path, 10, ["b", "d"])
    expected = Pruned((older.name, old.name), 2, 2, 1, ())
    assert pruned(tmp_path, dry_run=True) == expected
    assert copies(tmp_path) == {"a", "b", "c", "d"} and older.exists()
    assert pruned(tmp_path) == expected
    assert manifest.backups(tmp_path) == [new] and copies(tmp_path) == {"b", "d"}
    assert pruned(tmp_path) == Pruned((), 0, 0, 1, ())


def test_the_latest_complete_backup_is_never_deleted(tmp_path: Path) -> None:
    complete, damaged = backup(tmp_path, 50, ["a"]), backup(tmp_path, 40, ["b"])
    (damaged / manifest.CALLS).write_bytes(bytes(31))
    assert pruned(tmp_path).backups == (damaged.name,)
    assert manifest.backups(tmp_path) == [complete] and copies(tmp_path) == {"a"}
    (complete / manifest.CALLS).unlink()
    with pytest.raises(BackupUnfit, match="None was deleted"):
        pruned(tmp_path)
    assert complete.exists() and copies(tmp_path) == {"a"}


def test_so_many_remain_whatever_their_age(tmp_path: Path) -> None:
    folders = [backup(tmp_path, days, [str(days)]) for days in (60, 50, 40)]
    assert pruned(tmp_path, keep=2).backups == (folders[0].name,)
    assert copies(tmp_path) == {"50", "40"}


@pytest.mark.parametrize("flaw", ["the manifest", "the list", "no list", "a foreign key", "no signature"])
def test_recordings_of_an_unfit_backup_remain(tmp_path: Path, flaw: str) -> None:
    unfit = backup(tmp_path, 50, ["a"], FOREIGN_KEY if flaw == "a foreign key" else KEY)
    old = backup(tmp_path, 40, ["b"])
    backup(tmp_path, 10, ["c"])
    if flaw == "the manifest":
        (unfit / manifest.FILE).write_text("{}")
    elif flaw == "the list":
        (unfit / manifest.LIST).write_text("")
    elif flaw == "no list":
        (unfit / manifest.LIST).unlink()
    elif flaw == "no signature":
        (unfit / manifest.SIGNATURE).unlink()
    assert pruned(tmp_path) == Pruned((old.name,), 0, 0, 1, (unfit.name,))
    assert copies(tmp_path) == {"a", "b", "c"} and unfit.exists()


def test_an_interrupted_run_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = backup(tmp_path, 40, ["a"])
    backup(tmp_path, 10, ["b"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("serve_app.backup.prune.shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pruned(tmp_path)
    assert not old.exists() and copies(tmp_path) == {"a", "b"}
    assert len(list(tmp_path.glob(f"{UNFINISHED}*"))) == 1
    assert pruned(tmp_path) == Pruned((), 1, 1, 1, ())
    assert copies(tmp_path) == {"b"} and not list(tmp_path.glob(f"{UNFINISHED}*"))


def test_a_backup_that_is_being_written_loses_no_recording(tmp_path: Path) -> None:
    backup(tmp_path, 10, ["a"])
    copy_of(tmp_path, "of the next").parent.mkdir(parents=True)
    copy_of(tmp_path, "of the next").write_text("of the next")
    with alone_in(tmp_path), pytest.raises(BackupUnderWay):
        pruned(tmp_path)
    assert copies(tmp_path) == {"a", "of the next"}


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", json.dumps([KEY]))
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://nowhere")
    folder = tmp_path / "backups"
    old, foreign, new = backup(folder, 40, ["a"]), backup(folder, 35, ["b"], FOREIGN_KEY), backup(folder, 10, ["c"])

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["backup", *arguments], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.stdout

    rows = json.loads(run("list", str(folder), "--json"))
    assert [row["backup"] for row in rows] == [new.name, foreign.name, old.name]
    assert rows[0]["recordings"] == 1 and "signed with other keys" in rows[1]["flaw"]
    assert old.name in run("list", str(folder))
    arguments = ("prune", str(folder), "--older-than", "30d")
    assert "Would delete 1 backup and 0 recordings" in run(*arguments, "--dry-run")
    answer = json.loads(run(*arguments, "--json"))
    assert (answer["backups"], answer["unfit"], answer["remaining"]) == ([old.name], [foreign.name], 1)
    assert json.loads(run(*arguments, "--unsigned", "--json"))["recordings"] == 2
    assert copies(folder) == {"c"}
    for wrong in ("2026-11-24", "0d", "x"):
        failed = CliRunner().invoke(app, ["backup", "prune", str(folder), "--older-than", wrong])
        assert failed.exit_code == 2, failed.output
