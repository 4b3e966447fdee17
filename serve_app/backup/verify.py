"""Whether a backup is whole: each file against its digest, and, as a drill, restored into a PostgreSQL of its own."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from db.server import dump, embedded
from db.server.dump import StoredFile
from serve_app.backup import manifest, recordings
from serve_app.backup.manifest import Manifest
from serve_app.backup.progress import Progress
from serve_app.backup.recordings import CopyOutcome

NAMED = 5  # of what is wrong


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found. `flaws` are sentences; none: the backup is whole."""

    manifest: Manifest
    flaws: tuple[str, ...]
    recordings: int  # that were looked at: copies, or in their bucket
    restored_seconds: float | None = None  # of a drill: until the database was there
    compared_seconds: float | None = None  # of a drill: until each table's digest was compared


def verify(folder: Path, steps: Progress, quick: bool = False, drill: bool = False) -> Verified:
    """Look at every file of a backup, and at recordings that stayed in a bucket; with `quick` only at the sizes of
    recordings. Changes nothing.

    `drill`: restore the database into an embedded PostgreSQL in a temporary folder, and compare each table. Raises
    `BackupUnfit`, `OutOfTime`, `StorageError`, those of `db.server.dump`, and `OSError`.
    """
    told = Manifest.read(folder)
    flaws = list(_files(folder, told, steps))
    files = kept(folder, told) if manifest.LIST in told.files else []
    if told.recordings.how == "copied":
        flaws += _first(_copies(folder.parent / manifest.RECORDINGS, files, steps, quick))
    else:
        flaws += _first(in_storage(files, told.recordings.storage, steps, quick))
    seconds: tuple[float, float] | tuple[None, None] = (None, None)
    if drill and not flaws:
        found, *seconds = _drill(folder, told, steps)  # type: ignore[assignment]
        flaws += found
    return Verified(told, tuple(flaws), len(files), *seconds)


def kept(folder: Path, told: Manifest) -> list[StoredFile]:
    """The recordings that were there when the backup was made: copied into it, or listed. Raises `BackupUnfit`."""
    found = []
    with (folder / manifest.LIST).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.rstrip("\n").split("\t")
            if len(parts) != 4 or not parts[1].isdecimal():
                raise manifest.BackupUnfit(f"{folder / manifest.LIST}, line {number}: not a recording.")
            if parts[2] == told.recordings.how:
                found.append(StoredFile(parts[0], int(parts[1]), json.loads(parts[3])))
    return found


def differences(told: Manifest, found: dict[str, dump.TableDigest]) -> list[str]:
    """In which tables a database is not what a backup holds, as sentences."""
    wrong = [f"Table {name} was not restored." for name in sorted(told.tables.keys() - found.keys())]
    wrong += [f"Table {name} is not in the backup." for name in sorted(found.keys() - told.tables.keys())]
    for name in sorted(told.tables.keys() & found.keys()):
        wanted, there = told.tables[name], found[name]
        if (wanted.rows, wanted.digest) != (there.rows, there.digest):
            wrong.append(f"Table {name} has {there.rows} rows ({there.digest}), not {wanted.rows} ({wanted.digest}).")
    return wrong


def restore_database(folder: Path, told: Manifest, url: str, steps: Progress) -> None:
    """Restore a backup's database into an empty one, and tell how far it is."""
    sizes = {name: content.rows + 1 for name, content in told.tables.items()}
    done = 0

    def next_table(name: str) -> None:
        nonlocal done
        steps.tell("database", done, sum(sizes.values()))
        done += sizes.get(name, 0)

    dump.restore(url, folder / manifest.DATABASE, told.pg_dump, steps.left(), next_table)


def compare(told: Manifest, url: str, steps: Progress) -> list[str]:
    """Compare each table of a database with a backup; what differs, as sentences."""
    done, total = 0, sum(content.rows for content in told.tables.values())

    def tell(table: dump.DumpedTable) -> None:
        nonlocal done
        done += told.tables[table.full_name].rows if table.full_name in told.tables else 0
        steps.tell("comparing", done, total)

    return differences(told, dump.digests(url, steps.left(), tell))


def _files(folder: Path, told: Manifest, steps: Progress) -> Iterator[str]:
    total, done = sum(content.bytes for content in told.files.values()), 0
    for name, content in told.files.items():
        path = folder / name
        steps.left()
        if not path.is_file():
            yield f"{path} is missing."
        elif manifest.file_content(path) != content:
            yield f"{path} is not what was written."
        done += content.bytes
        steps.tell("files", done, total)


def in_storage(files: list[StoredFile], storage: str, steps: Progress, quick: bool) -> Iterator[str]:
    """What is wrong with listed recordings where they are stored, as sentences; with `quick` only sizes are compared.

    Raises `StorageError`, `OutOfTime`.
    """
    if quick:
        found = recordings.look_for(files, storage, steps)
    else:
        found = recordings.read_all(files, steps, sum(file.size for file in files))
    for file, outcome in found:
        if outcome != CopyOutcome.LISTED:
            yield f"{file.uri} is {'missing' if outcome == CopyOutcome.MISSING else 'not what was stored'}."


def _copies(pool: Path, copies: list[StoredFile], steps: Progress, quick: bool) -> Iterator[str]:
    total, done = sum(file.size for file in copies), 0
    for file in copies:
        if not recordings.has(pool, file):
            yield f"{recordings.place(pool, file.sha256)} is missing or cut short."
        elif not quick and recordings.sha256_of(recordings.place(pool, file.sha256), steps) != file.sha256:
            yield f"{recordings.place(pool, file.sha256)} is damaged."
        done += file.size
        steps.tell("recordings", done, total)


def _first(flaws: Iterator[str]) -> list[str]:
    """Name some, and count the others."""
    wrong = list(flaws)
    more = [f"{len(wrong) - NAMED} more recordings are missing or damaged."] if len(wrong) > NAMED else []
    return wrong[:NAMED] + more


def _drill(folder: Path, told: Manifest, steps: Progress) -> tuple[list[str], float, float]:
    with tempfile.TemporaryDirectory(prefix="switchboard-drill-", ignore_cleanup_errors=True) as scratch:
        place = Path(scratch)
        if shutil.disk_usage(place).free < 3 * told.database_bytes:  # tables, indexes, write-ahead log
            raise manifest.BackupUnfit(
                f"A drill needs up to {3 * told.database_bytes / 1e6:,.0f} MB in {place.parent}, and less is free. "
                "TMPDIR names another folder."
            )
        url = embedded.start(place, outlives=False)
        try:
            began = time.monotonic()
            restore_database(folder, told, url, steps)
            restored = time.monotonic() - began
            wrong = compare(told, url, steps)
            return wrong, restored, time.monotonic() - began
        finally:
            embedded.stop(place)
