"""Creates a backup: pg_dump of one moment, the digests of its tables at that moment, and its recordings.

It is written under a hidden name and renamed once all of it is on disk: an incomplete backup never looks like one.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from importlib.metadata import version
from pathlib import Path

from db.server import dump
from db.server.dump import Snapshot, StoredFile
from pipeline.fetch import handed_in
from serve_app.backup import call_keys, manifest, recordings
from serve_app.backup.manifest import Manifest, Secrets, StoredRecordings, TableContent
from serve_app.backup.progress import BackupProgress
from serve_app.backup.recordings import CopyOutcome
from serve_app.data_folder import flush

ROOM_BYTES = 64 << 20  # that stay free on the disk
LOCK = ".lock"
UNFINISHED = ".unfinished-"


class NoRoomForBackup(Exception):
    """The disk has too little space for a backup; nothing was started."""


class BackupUnderWay(Exception):
    """Another process is creating or deleting backups in the same folder."""


@dataclass(frozen=True, slots=True)
class BackupSource:
    """The source of a backup. `keys`: those that are set, which sign it; `with_keys`: whether they go into it."""

    url: str
    storage: str
    handed_in: Path
    keys: tuple[str, ...] = ()
    with_keys: bool = False
    copies: bool | None = None  # of the recordings; None: if they are stored in a folder


def create(source: BackupSource, repository: Path, progress: BackupProgress) -> tuple[Path, Manifest]:
    """Create a backup in `repository`, named after its moment; return its folder and its manifest.

    Raises `NoRoomForBackup`, `BackupUnderWay`, `OutOfTime`, `StorageError`, those of `db.server.dump`, and `OSError`.
    """
    repository.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _private_files(), alone_in(repository), dump.snapshot(source.url) as snapshot:
        name = snapshot.taken_at.astimezone(UTC).strftime("%Y-%m-%dT%H%M%SZ")
        if (repository / name).exists():
            raise BackupUnderWay(f"{repository / name} exists already: max. one backup per second.")
        copies = recordings.is_local(source.storage) if source.copies is None else source.copies
        check_room(snapshot, repository, copies)
        unfinished = repository / f"{UNFINISHED}{name}"
        unfinished.mkdir(mode=0o700)
        try:
            created = _fill(source, snapshot, unfinished, name, copies, progress)
            _flush_all(unfinished)
            call_keys.write(repository, snapshot.call_keys())
            unfinished.rename(repository / name)
            flush(repository)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return repository / name, created


def check_room(snapshot: Snapshot, repository: Path, copies: bool) -> None:
    """Raise `NoRoomForBackup` if the disk has less space than the tables and the recordings to be copied need."""
    pool = repository / manifest.RECORDINGS
    files = sum(file.size for file in snapshot.files() if not recordings.has(pool, file)) if copies else 0
    needed, free = snapshot.size + files + ROOM_BYTES, shutil.disk_usage(repository).free
    if needed > free:
        raise NoRoomForBackup(
            f"The backup needs up to {_megabytes(needed)} in {repository} ({_megabytes(snapshot.size)} of tables, "
            f"{_megabytes(files)} of recordings), but {_megabytes(free)} are free. Nothing was started."
        )


def _fill(
    source: BackupSource, snapshot: Snapshot, folder: Path, name: str, copies: bool, progress: BackupProgress
) -> Manifest:
    handed = _copy_handed_in(source.handed_in, folder / manifest.HANDED_IN, snapshot.waiting())
    pg_dump, tables = _dump(snapshot, folder / manifest.DATABASE, progress)
    with (folder / manifest.CALLS).open("xb") as calls:
        calls.writelines(snapshot.calls())
    stored = _recordings(source, snapshot, folder, copies, progress)
    if source.with_keys:
        (folder / manifest.KEYS).write_text("\n".join(source.keys) + "\n", encoding="ascii")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    created = Manifest(
        name=name,
        taken_at=snapshot.taken_at,
        seconds=round(progress.elapsed(), 3),
        switchboard=version("switchboard-calls"),
        revision=snapshot.revision(),
        postgresql=snapshot.server,
        pg_dump=pg_dump,
        database_bytes=snapshot.size,
        tables=tables,
        files={path.relative_to(folder).as_posix(): manifest.file_content(path) for path in paths},
        recordings=stored,
        handed_in=handed,
        ledger=snapshot.ledger(),
        secrets=Secrets(
            sealed=snapshot.sealed(),
            keys=tuple(manifest.fingerprint(key) for key in source.keys),
            included=source.with_keys,
        ),
    )
    created.write(folder, source.keys)
    return created


def _dump(snapshot: Snapshot, folder: Path, progress: BackupProgress) -> tuple[int, dict[str, TableContent]]:
    """Run pg_dump and the digests in parallel: each reads every table once."""
    sizes = {table.full_name: max(1, table.size) for table in snapshot.tables}
    total, done = 2 * sum(sizes.values()), 0
    running: list[str] = []

    def next_table(name: str) -> None:
        nonlocal done
        done += sum(sizes.get(table, 0) for table in running)
        running[:] = [name]
        progress.report("database", done, total)

    with ThreadPoolExecutor(1) as pool:
        dumped = pool.submit(snapshot.dump, folder, progress.remaining(), next_table)
        tables = {}
        for table in snapshot.tables:
            if dumped.done():
                dumped.result()  # raises: pg_dump ends first only if it failed
            content = snapshot.digest(table, progress.remaining())
            tables[table.full_name] = TableContent(rows=content.rows, digest=content.digest)
            done += sizes[table.full_name]
            progress.report("database", min(done, total), total)
        return dumped.result(), tables


def _recordings(
    source: BackupSource, snapshot: Snapshot, folder: Path, copies: bool, progress: BackupProgress
) -> StoredRecordings:
    """Copy the recordings, or check that they exist, and list them."""
    pool = folder.parent / manifest.RECORDINGS
    count, size, missing = 0, 0, 0
    with (folder / manifest.LIST).open("x", encoding="utf-8") as list_:
        for file, outcome in _gathered(source, snapshot.files(), pool, copies, progress):
            count, size = count + 1, size + file.size
            missing += outcome in (CopyOutcome.MISSING, CopyOutcome.DAMAGED)
            list_.write(f"{file.sha256}\t{file.size}\t{outcome}\t{json.dumps(file.uri)}\n")
    if copies:
        _flush_all(pool, files=False)
    return StoredRecordings(
        how="copied" if copies else "listed", storage=source.storage, count=count, bytes=size, missing=missing
    )


def _gathered(
    source: BackupSource, files: Iterator[StoredFile], pool: Path, copies: bool, progress: BackupProgress
) -> Iterable[tuple[StoredFile, CopyOutcome]]:
    if not copies:
        return recordings.look_for(files, source.storage, progress)
    pool.mkdir(mode=0o700, exist_ok=True)
    for leftover in pool.glob(".*"):  # of a killed backup
        leftover.unlink()
    stored_files = list(files)
    return recordings.copy_all(stored_files, pool, progress, sum(file.size for file in stored_files))


def _copy_handed_in(folder: Path, target: Path, waiting: set[str]) -> int:
    """Copy files that were handed in for waiting calls, whose jobs will look for them; return how many.

    A file that a job has taken in the meantime is copied from the store under its original name.
    """
    target.mkdir(mode=0o700)
    for path in sorted(folder.glob("*")):
        call_id, _, token = path.name.partition(".")
        if call_id not in waiting or not handed_in.TOKEN.fullmatch(token.removesuffix(handed_in.TAKEN)):
            continue
        try:
            content = path
            if path.suffix == handed_in.TAKEN:
                content = Path(recordings.opened(json.loads(path.read_text())["uri"])[1])
            copy = target / path.name.removesuffix(handed_in.TAKEN)
            if not copy.exists() and content.is_file():
                shutil.copyfile(content, copy)
        except FileNotFoundError:
            continue  # taken at this moment: its note follows, or the store has it
    return sum(1 for _ in target.iterdir())


@contextmanager
def alone_in(repository: Path) -> Iterator[None]:
    """Lock the folder, and remove the remains of a killed backup or deletion. Raises `BackupUnderWay`."""
    with (repository / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupUnderWay(
                f"Another process is writing to {repository}. Wait for it, or use another folder."
            ) from None
        for unfinished in repository.glob(f"{UNFINISHED}*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        yield


@contextmanager
def _private_files() -> Iterator[None]:
    former = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(former)


def _flush_all(folder: Path, files: bool = True) -> None:
    """Flush all folders and files below to disk, so that a power failure cannot undo them."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() or files:
            flush(path)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
