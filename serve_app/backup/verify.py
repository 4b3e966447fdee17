"""Verifies a backup: its signature, each file against its digest, and, as a drill, a restore.

Nothing of a backup is used before its signature and files are checked: `check` returns a `CheckedBackup`.
"""

import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from db.server import dump, embedded
from db.server.dump import StoredFile
from pipeline import scratch
from serve_app.backup import call_keys, manifest, recordings
from serve_app.backup.ledger_copies import Chains
from serve_app.backup.manifest import Manifest
from serve_app.backup.progress import BackupProgress
from serve_app.backup.recordings import CopyOutcome

DIGEST_BYTES = 32
MAX_NAMED = 5  # flaws of recordings, the others are counted


@dataclass(frozen=True, slots=True)
class CheckedBackup:
    """A backup whose signature and files were checked; its recordings are checked when they are copied."""

    folder: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification. `flaws` are sentences; none: the backup is complete."""

    manifest: Manifest
    flaws: tuple[str, ...]
    recordings: int  # checked: copies, or in their bucket
    restored_seconds: float | None = None  # of a drill: until the database was restored
    compared_seconds: float | None = None  # of a drill: until every table was compared
    erased_calls: int | None = None  # in the backup, erased since; None: unknown


def check(folder: Path, keys: Sequence[str], progress: BackupProgress, unsigned: bool = False) -> CheckedBackup:
    """Return a backup that one of `keys` signed and whose files are as written; raises `BackupUnfit` for any other.

    `unsigned`: accept a backup without a signature, or with signatures of other keys. Raises `OutOfTime`, `OSError`.
    """
    backup = Manifest.read(folder, keys, unsigned)
    if flaw := next(_flaws(folder, backup, progress), None):
        raise manifest.BackupUnfit(f"{flaw} Nothing of the backup was used.")
    return CheckedBackup(folder, backup)


def verify(
    folder: Path,
    keys: Sequence[str],
    progress: BackupProgress,
    quick: bool = False,
    drill: bool = False,
    unsigned: bool = False,
    ledger: Chains | None = None,
) -> Verified:
    """Check signature and files of a backup, and recordings that stayed in a bucket; changes nothing.

    `quick`: check only the sizes of recordings. `drill`: restore the database into an embedded PostgreSQL in a
    temporary folder, and compare each table. `unsigned`: see `check`. `ledger`: counts erased calls. Raises
    `BackupUnfit`, `OutOfTime`, `StorageError`, those of `db.server.dump`, and `OSError`.
    """
    backup = Manifest.read(folder, keys, unsigned)
    flaws = tuple(_flaws(folder, backup, progress))
    if flaws:
        return Verified(backup, flaws, 0)  # a changed file is not read, nor is the list of recordings
    files = listed_recordings(folder, backup)
    if backup.recordings.how == "copied":
        flaws = _first(_copies(folder.parent / manifest.RECORDINGS, files, progress, quick))
    else:
        flaws = _first(in_storage(files, backup.recordings.storage, progress, quick))
    restored, compared = None, None
    if backup.secrets.sealed.get("calls") and not (folder.parent / call_keys.FILE).is_file():
        flaws = (*flaws, f"The keys of its sealed calls are missing: {folder.parent / call_keys.FILE}.")
    if drill and not flaws:
        flaws, restored, compared = _drill(folder, backup, progress)
    return Verified(backup, flaws, len(files), restored, compared, _erased_calls(folder, backup, ledger))


def _erased_calls(folder: Path, backup: Manifest, ledger: Chains | None) -> int | None:
    if ledger is None or manifest.CALLS not in backup.files:
        return None
    later = [entry for id_, chain in ledger.items() for entry in chain[backup.ledger.get(str(id_), 0) :]]
    erased = {digest for entry in later for digest in entry.digests}
    with (folder / manifest.CALLS).open("rb") as digests:
        return sum(digest in erased for digest in iter(lambda: digests.read(DIGEST_BYTES), b""))


def listed_recordings(folder: Path, backup: Manifest) -> list[StoredFile]:
    """Return the recordings of the backup's moment: copied into it, or listed. Raises `BackupUnfit`."""
    files = []
    with (folder / manifest.LIST).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.rstrip("\n").split("\t")
            # The digest is part of a path, so anything else could lead out of the folder.
            if len(parts) != 4 or not re.fullmatch("[0-9a-f]{64}", parts[0]) or not parts[1].isdecimal():
                raise manifest.BackupUnfit(f"{folder / manifest.LIST}, line {number}: not a recording.")
            if parts[2] == backup.recordings.how:
                files.append(StoredFile(parts[0], int(parts[1]), json.loads(parts[3])))
    return files


def differences(backup: Manifest, restored: dict[str, dump.TableDigest]) -> list[str]:
    """Return in which tables a database differs from a backup, as sentences."""
    wrong = [f"Table {name} was not restored." for name in sorted(backup.tables.keys() - restored.keys())]
    wrong += [f"Table {name} is not in the backup." for name in sorted(restored.keys() - backup.tables.keys())]
    for name in sorted(backup.tables.keys() & restored.keys()):
        expected, actual = backup.tables[name], restored[name]
        if (expected.rows, expected.digest) != (actual.rows, actual.digest):
            wrong.append(
                f"Table {name} has {actual.rows} rows ({actual.digest}), not {expected.rows} ({expected.digest})."
            )
    return wrong


def restore_database(folder: Path, backup: Manifest, url: str, progress: BackupProgress) -> None:
    """Restore a backup's database into an empty one, and report the progress."""
    sizes = {name: content.rows + 1 for name, content in backup.tables.items()}
    done = 0

    def next_table(name: str) -> None:
        nonlocal done
        progress.report("database", done, sum(sizes.values()))
        done += sizes.get(name, 0)

    dump.restore(url, folder / manifest.DATABASE, backup.pg_dump, progress.remaining(), next_table)


def compare(backup: Manifest, url: str, progress: BackupProgress) -> list[str]:
    """Return in which tables a database differs from a backup, as sentences, after reading every table."""
    done, total = 0, sum(content.rows for content in backup.tables.values())

    def next_table(table: dump.DumpedTable) -> None:
        nonlocal done
        done += backup.tables[table.full_name].rows if table.full_name in backup.tables else 0
        progress.report("comparing", done, total)

    return differences(backup, dump.digests(url, progress.remaining(), next_table))


def _flaws(folder: Path, backup: Manifest, progress: BackupProgress) -> Iterator[str]:
    """Yield what is missing, changed or added in a backup's folder, as sentences."""
    total, done = sum(content.bytes for content in backup.files.values()), 0
    expected = {*backup.files, manifest.FILE, manifest.SIGNATURE}
    existing: set[str] = set()
    for path in _below(folder):
        name = path.relative_to(folder).as_posix()
        if not stat.S_ISREG(path.lstat().st_mode):
            yield f"{path} is not a regular file."
        elif name not in expected:
            yield f"{path} was added to the backup."
        existing.add(name)
    for name, content in backup.files.items():
        path = folder / name
        progress.remaining()
        if name not in existing:
            yield f"{path} is missing."
        elif stat.S_ISREG(path.lstat().st_mode) and manifest.file_content(path) != content:
            yield f"{path} is not what was written."
        done += content.bytes
        progress.report("files", done, total)


def _below(folder: Path) -> Iterator[Path]:
    """Yield everything but folders, without following symbolic links."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))
            else:
                yield Path(entry.path)


def in_storage(files: list[StoredFile], storage: str, progress: BackupProgress, quick: bool) -> Iterator[str]:
    """Yield the flaws of listed recordings where they are stored, as sentences; with `quick` only sizes are compared.

    Raises `StorageError`, `OutOfTime`.
    """
    if quick:
        outcomes = recordings.look_for(files, storage, progress)
    else:
        outcomes = recordings.read_all(files, progress, sum(file.size for file in files))
    for file, outcome in outcomes:
        if outcome != CopyOutcome.LISTED:
            yield f"{file.uri} is {'missing' if outcome == CopyOutcome.MISSING else 'not what was stored'}."


def _copies(pool: Path, copies: list[StoredFile], progress: BackupProgress, quick: bool) -> Iterator[str]:
    total, done = sum(file.size for file in copies), 0
    for file in copies:
        if not recordings.has(pool, file):
            yield f"{recordings.place(pool, file.sha256)} is missing or cut short."
        elif not quick and recordings.sha256_of(recordings.place(pool, file.sha256), progress) != file.sha256:
            yield f"{recordings.place(pool, file.sha256)} is damaged."
        done += file.size
        progress.report("recordings", done, total)


def _first(flaws: Iterator[str]) -> tuple[str, ...]:
    wrong = tuple(flaws)
    more = (f"{len(wrong) - MAX_NAMED} more recordings are missing or damaged.",) if len(wrong) > MAX_NAMED else ()
    return wrong[:MAX_NAMED] + more


def _drill(folder: Path, backup: Manifest, progress: BackupProgress) -> tuple[tuple[str, ...], float, float]:
    with tempfile.TemporaryDirectory(dir=scratch.local_folder(), ignore_cleanup_errors=True) as folder_of_drill:
        place = Path(folder_of_drill)
        if shutil.disk_usage(place).free < 3 * backup.database_bytes:  # tables, indexes, write-ahead log
            raise manifest.BackupUnfit(
                f"A drill needs up to {3 * backup.database_bytes / 1e6:,.0f} MB in {tempfile.gettempdir()}, "
                "and less is free. TMPDIR names another folder."
            )
        url = embedded.start(place, outlives=False)
        try:
            began = time.monotonic()
            restore_database(folder, backup, url, progress)
            restored = time.monotonic() - began
            wrong = tuple(compare(backup, url, progress))
            return wrong, restored, time.monotonic() - began
        finally:
            embedded.stop(place)
