"""Restores a backup: recordings first, then the database in one transaction, then a comparison of every table.

What was erased after the backup is then erased again. An interrupted restore may be run again: existing recordings are
not copied again, and a database that equals the backup, or is marked as restored from it, counts as restored.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from uuid import UUID

from db.records.ledger import BrokenLedger
from db.server import dump, migrate
from pipeline.domain.voices import VoicePolicy
from pipeline.fetch import handed_in
from serve_app.backup import call_keys, manifest, recordings, replay
from serve_app.backup.ledger_copies import Chains, LedgerCopies
from serve_app.backup.manifest import BackupUnfit, Manifest
from serve_app.backup.progress import BackupProgress
from serve_app.backup.recordings import CopyOutcome
from serve_app.backup.replay import Replayed
from serve_app.backup.verify import CheckedBackup, compare, in_storage, listed_recordings, restore_database


class NotRestored(Exception):
    """A restored database differs from the backup; the message names the table."""


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The target of a restore. `keys`: those that are set there; `ledger`: None restores what was erased."""

    url: str
    storage: str
    handed_in: Path
    policy: VoicePolicy
    keys: tuple[str, ...] = ()
    ledger: Chains | None = None


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
    replayed: Replayed | None


def restore(checked: CheckedBackup, target: RestoreTarget, progress: BackupProgress) -> Restored:
    """Restore a backup into an empty database, and migrate that to the schema of this version.

    A recording that is missing or changed in the backup is counted and not stored.
    Raises `BackupUnfit`, `BrokenLedger`, `DatabaseNotEmpty`, `NotRestored`, `OutOfTime`, `StorageError`, those of
    `db.server.dump` and `db.server.migrate`, and `OSError`.
    """
    folder, backup = checked.folder, checked.manifest
    # The version that created it works on its schema, also on that of a later release after a rollback.
    if backup.switchboard != version("switchboard-calls") and not dump.knows_revision(backup.revision):
        raise BackupUnfit(
            f"The backup has schema {backup.revision}, of Switchboard {backup.switchboard}, which this version cannot "
            "restore. Use the version that created the backup."
        )
    if target.ledger is not None:
        _require_entries(backup, target.ledger)
    restored_before = not dump.is_empty(target.url)
    if restored_before and dump.marked(target.url) != backup.name and compare(backup, target.url, progress):
        raise dump.DatabaseNotEmpty("The database is not empty, and its content is not that of this backup.")
    copied, unavailable = _put_recordings(checked, target.storage, progress)
    _put_handed_in(folder / manifest.HANDED_IN, target.handed_in)
    if not restored_before:
        restore_database(folder, backup, target.url, progress)
        if wrong := compare(backup, target.url, progress):
            raise NotRestored(f"The restored database differs from the backup. {wrong[0]}")
    dump.mark(target.url, backup.name)
    progress.report("schema", 0, 0)
    migrate.migrate(target.url)
    dump.put_call_keys(target.url, call_keys.read(folder.parent))
    is_copied = backup.recordings.how == "copied"
    moved = dump.move_files(target.url, recordings.address(target.storage)) if is_copied else 0
    replayed = _erase_again(target, copied, progress)
    dump.mark(target.url, None)
    without_key = dump.transcripts_without_key(target.url)
    missing_keys = _missing_keys(backup, target.keys)
    return Restored(backup, progress.elapsed(), len(copied), moved, unavailable, without_key, missing_keys, replayed)


def _put_recordings(checked: CheckedBackup, storage: str, progress: BackupProgress) -> tuple[list[str], int]:
    """Return the SHA-256 of the recordings that were copied into the storage, and the number of unavailable ones."""
    folder, backup = checked.folder, checked.manifest
    files = listed_recordings(folder, backup)
    if backup.recordings.how != "copied":
        return [], sum(1 for _ in in_storage(files, backup.recordings.storage, progress, quick=True))
    _check_room(backup, storage)
    outcomes = recordings.put_all(files, folder.parent / manifest.RECORDINGS, storage, progress)
    copied = [file.sha256 for file, outcome in zip(files, outcomes, strict=True) if outcome == CopyOutcome.COPIED]
    return copied, outcomes.count(CopyOutcome.MISSING) + outcomes.count(CopyOutcome.DAMAGED)


def _missing_keys(backup: Manifest, keys: Sequence[str]) -> tuple[str, ...]:
    if not sum(backup.secrets.sealed.values()):
        return ()
    fingerprints = {manifest.fingerprint(key) for key in keys}
    return tuple(key for key in backup.secrets.keys if key not in fingerprints)


def _require_entries(backup: Manifest, ledger: Chains) -> None:
    """Raise `BrokenLedger` if the ledger lacks an entry that the backup has."""
    for workspace_id, entries in backup.ledger.items():
        if len(ledger.get(UUID(workspace_id), ())) < entries:
            raise BrokenLedger(f"It lacks entry {entries} of workspace {workspace_id}, which the backup has.")


def _erase_again(target: RestoreTarget, copied: Sequence[str], progress: BackupProgress) -> Replayed | None:
    """Erase what the ledger lists, with the recordings that this restore copied; the service deletes others."""
    if target.ledger is None:
        LedgerCopies(target.storage, target.keys).set_aside()
    replayed = replay.replay(target.url, target.ledger, target.policy, copied, progress)
    for sha256 in replayed.unused:
        recordings.delete(target.storage, sha256)
    return replayed if target.ledger is not None else None


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
