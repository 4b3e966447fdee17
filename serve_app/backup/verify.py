"""Verifies a backup: each file against its digest, and, as a drill, restored into a temporary PostgreSQL."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from db.server import dump, embedded
from db.server.dump import StoredFile
from pipeline import scratch
from serve_app.backup import manifest, recordings
from serve_app.backup.manifest import Manifest
from serve_app.backup.progress import BackupProgress
from serve_app.backup.recordings import CopyOutcome

MAX_NAMED = 5  # flaws of recordings, the others are counted


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification. `flaws` are sentences; none: the backup is complete."""

    manifest: Manifest
    flaws: tuple[str, ...]
    recordings: int  # checked: copies, or in their bucket
    restored_seconds: float | None = None  # of a drill: until the database was restored
    compared_seconds: float | None = None  # of a drill: until every table was compared


def verify(folder: Path, progress: BackupProgress, quick: bool = False, drill: bool = False) -> Verified:
    """Check every file of a backup, and recordings that stayed in a bucket; changes nothing.

    `quick`: check only the sizes of recordings. `drill`: restore the database into an embedded PostgreSQL in a
    temporary folder, and compare each table. Raises `BackupUnfit`, `OutOfTime`, `StorageError`, those of
    `db.server.dump`, and `OSError`.
    """
    backup = Manifest.read(folder)
    flaws = list(_files(folder, backup, progress))
    files = listed_recordings(folder, backup) if manifest.LIST in backup.files else []
    if backup.recordings.how == "copied":
        flaws += _first(_copies(folder.parent / manifest.RECORDINGS, files, progress, quick))
    else:
        flaws += _first(in_storage(files, backup.recordings.storage, progress, quick))
    seconds: tuple[float, float] | tuple[None, None] = (None, None)
    if drill and not flaws:
        differing, *seconds = _drill(folder, backup, progress)  # type: ignore[assignment]
        flaws += differing
    return Verified(backup, tuple(flaws), len(files), *seconds)


def listed_recordings(folder: Path, backup: Manifest) -> list[StoredFile]:
    """Return the recordings of the backup's moment: copied into it, or listed. Raises `BackupUnfit`."""
    files = []
    with (folder / manifest.LIST).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.rstrip("\n").split("\t")
            if len(parts) != 4 or not parts[1].isdecimal():
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


def _files(folder: Path, backup: Manifest, progress: BackupProgress) -> Iterator[str]:
    total, done = sum(content.bytes for content in backup.files.values()), 0
    for name, content in backup.files.items():
        path = folder / name
        progress.remaining()
        if not path.is_file():
            yield f"{path} is missing."
        elif manifest.file_content(path) != content:
            yield f"{path} is not what was written."
        done += content.bytes
        progress.report("files", done, total)


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


def _first(flaws: Iterator[str]) -> list[str]:
    wrong = list(flaws)
    more = [f"{len(wrong) - MAX_NAMED} more recordings are missing or damaged."] if len(wrong) > MAX_NAMED else []
    return wrong[:MAX_NAMED] + more


def _drill(folder: Path, backup: Manifest, progress: BackupProgress) -> tuple[list[str], float, float]:
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
            wrong = compare(backup, url, progress)
            return wrong, restored, time.monotonic() - began
        finally:
            embedded.stop(place)
