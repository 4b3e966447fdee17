"""Restores a backup: recordings first, then the database in one transaction, then a comparison of every table.

An interrupted restore may be run again: existing recordings are not copied again, and a database that equals the backup
counts as restored.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from db.server import dump, migrate
from pipeline.fetch import handed_in
from serve_app.backup import call_keys, manifest, recordings
from serve_app.backup.manifest import BackupUnfit, Manifest
from serve_app.backup.progress import BackupProgress
from serve_app.backup.recordings import CopyOutcome
from serve_app.backup.verify import CheckedBackup, compare, in_storage, listed_recordings, restore_database


class NotRestored(Exception):
    """A restored database differs from the backup; the message names the table."""


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The target of a restore. `keys`: those that are set there."""

    url: str
    storage: str
    handed_in: Path
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    manifest: Manifest
    seconds: float
    recordings: int  # copied into the storage
    moved: int  # rows of recordings whose place was changed
    unavailable: int  # recordings that are missing or changed, in their bucket or in the backup
    without_key: int  # sealed transcripts whose call has no key: erased since, or the file of keys is missing
    missing_keys: tuple[str, ...]  # fingerprints of keys that sealed values may need and that are not set


def restore(checked: CheckedBackup, target: RestoreTarget, progress: BackupProgress) -> Restored:
    """Restore a backup into an empty database, and migrate that to the schema of this version.

    A recording that is missing or changed in the backup is counted and not stored.
    Raises `BackupUnfit`, `DatabaseNotEmpty`, `NotRestored`, `OutOfTime`, `StorageError`, those of `db.server.dump` and
    `db.server.migrate`, and `OSError`.
    """
    folder, backup = checked.folder, checked.manifest
    if not dump.knows_revision(backup.revision):
        raise BackupUnfit(
            f"The backup has schema {backup.revision}, of Switchboard {backup.switchboard}, which this version cannot "
            "restore. Use the version that created the backup."
        )
    restored_before = not dump.is_empty(target.url)
    if restored_before and compare(backup, target.url, progress):
        raise dump.DatabaseNotEmpty("The database is not empty, and its content is not that of this backup.")
    done, moved, unavailable = 0, 0, 0
    files = listed_recordings(folder, backup)
    if backup.recordings.how == "copied":
        _check_room(backup, target.storage)
        outcomes = recordings.put_all(files, folder.parent / manifest.RECORDINGS, target.storage, progress)
        done = outcomes[CopyOutcome.COPIED]
        unavailable = outcomes[CopyOutcome.MISSING] + outcomes[CopyOutcome.DAMAGED]
    else:
        unavailable = sum(1 for _ in in_storage(files, backup.recordings.storage, progress, quick=True))
    _put_handed_in(folder / manifest.HANDED_IN, target.handed_in)
    if not restored_before:
        restore_database(folder, backup, target.url, progress)
        if wrong := compare(backup, target.url, progress):
            raise NotRestored(f"The restored database differs from the backup. {wrong[0]}")
    progress.report("schema", 0, 0)
    migrate.migrate(target.url)
    without_key = dump.put_call_keys(target.url, call_keys.read(folder.parent))
    if backup.recordings.how == "copied":
        moved = dump.move_files(target.url, recordings.address(target.storage))
    there = {manifest.fingerprint(key) for key in target.keys}
    lacking = (
        tuple(key for key in backup.secrets.keys if key not in there) if sum(backup.secrets.sealed.values()) else ()
    )
    return Restored(backup, progress.elapsed(), done, moved, unavailable, without_key, lacking)


def _check_room(backup: Manifest, storage: str) -> None:
    """Raise `BackupUnfit` if a folder has no space for all recordings."""
    if not recordings.is_local(storage):
        return
    place = Path(recordings.opened(storage)[1])
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    there = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    free = shutil.disk_usage(place).free
    if backup.recordings.bytes - there > free:
        raise BackupUnfit(
            f"The recordings need {backup.recordings.bytes / 1e6:,.0f} MB in {place}, but {free / 1e6:,.0f} MB are "
            "free. Nothing was restored."
        )


def _put_handed_in(folder: Path, target: Path) -> None:
    for path in sorted(folder.glob("*")):
        copy = handed_in.make_private(target) / path.name
        if not copy.exists() and not copy.with_name(copy.name + handed_in.TAKEN).exists():
            unfinished = copy.with_name(f"{copy.name}.part")
            unfinished.unlink(missing_ok=True)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with path.open("rb") as source, os.fdopen(descriptor, "wb") as written:
                shutil.copyfileobj(source, written)
                written.flush()
                os.fsync(descriptor)
            unfinished.rename(copy)
