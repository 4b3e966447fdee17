"""A backup is put back: recordings first, then the database in one transaction, then every table compared.

Interrupted, it may be run again: what is there is not copied again, and a database that holds the backup to the digit
counts as restored.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from db.server import dump, migrate
from pipeline.fetch import handed_in
from serve_app.backup import manifest, recordings
from serve_app.backup.manifest import BackupUnfit, Manifest
from serve_app.backup.progress import Progress
from serve_app.backup.verify import compare, in_storage, kept, restore_database


class NotRestored(Exception):
    """A restored database is not what the backup holds; the message says where."""


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """Where a backup goes. `keys`: those that are set there."""

    url: str
    storage: str
    handed_in: Path
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done."""

    manifest: Manifest
    seconds: float
    recordings: int  # copied into the storage
    moved: int  # rows of recordings that say another place now
    lost: int  # listed recordings that are no longer in their bucket, or have another size
    missing_keys: tuple[str, ...]  # fingerprints of keys that sealed values may need, and that are not set


def restore(folder: Path, target: RestoreTarget, steps: Progress) -> Restored:
    """Restore a backup into an empty database, and bring that to the schema of this version.

    Raises `BackupUnfit`, `DatabaseNotEmpty`, `NotRestored`, `OutOfTime`, `StorageError`, those of `db.server.dump` and
    `db.server.migrate`, and `OSError`.
    """
    told = Manifest.read(folder)
    if not dump.knows_revision(told.revision):
        raise BackupUnfit(
            f"The backup has schema {told.revision}, of Switchboard {told.switchboard}, which this version cannot "
            "restore. Use the version that made the backup."
        )
    restored_before = not dump.is_empty(target.url)
    if restored_before and compare(told, target.url, steps):
        raise dump.DatabaseNotEmpty("The database is not empty, and holds something else than this backup.")
    done, moved, lost = 0, 0, 0
    files = kept(folder, told)
    if told.recordings.how == "copied":
        _check_room(told, target.storage)
        done = recordings.put_all(files, folder.parent / manifest.RECORDINGS, target.storage, steps)
    else:
        lost = sum(1 for _ in in_storage(files, told.recordings.storage, steps, quick=True))
    _put_handed_in(folder / manifest.HANDED_IN, target.handed_in)
    if not restored_before:
        restore_database(folder, told, target.url, steps)
        if wrong := compare(told, target.url, steps):
            raise NotRestored(f"The restored database differs from the backup. {wrong[0]}")
    steps.tell("schema", 0, 0)
    migrate.migrate(target.url)
    if told.recordings.how == "copied":
        moved = dump.move_files(target.url, recordings.address(target.storage))
    there = {manifest.fingerprint(key) for key in target.keys}
    lacking = tuple(key for key in told.secrets.keys if key not in there) if sum(told.secrets.sealed.values()) else ()
    return Restored(told, steps.took(), done, moved, lost, lacking)


def _check_room(told: Manifest, storage: str) -> None:
    """Raise `BackupUnfit` where a folder has no space for all recordings."""
    if not recordings.is_local(storage):
        return
    place = Path(recordings.opened(storage)[1])
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    there = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    free = shutil.disk_usage(place).free
    if told.recordings.bytes - there > free:
        raise BackupUnfit(
            f"The recordings take {told.recordings.bytes / 1e6:,.0f} MB in {place}, and {free / 1e6:,.0f} MB are free "
            "there. Nothing was restored."
        )


def _put_handed_in(folder: Path, target: Path) -> None:
    """Put copies back that calls wait for."""
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
