"""A backup is made: the database of one moment by pg_dump, its tables' digests of the same moment, its recordings.

It is written under a hidden name and gets its own when all of it is on disk: a broken one never looks like a whole one.
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
from serve_app.backup import manifest, recordings
from serve_app.backup.manifest import Manifest, Secrets, StoredRecordings, TableContent
from serve_app.backup.progress import Progress
from serve_app.backup.recordings import CopyOutcome

ROOM_BYTES = 64 << 20  # that stay free on the disk
LOCK = ".lock"
UNFINISHED = ".unfinished-"


class NoRoomForBackup(Exception):
    """There is too little space for a backup; nothing was begun."""


class BackupUnderWay(Exception):
    """Another process makes a backup in the same folder."""


@dataclass(frozen=True, slots=True)
class BackupSource:
    """What is backed up. `keys`: those that are set; `with_keys`: whether they go into the backup."""

    url: str
    storage: str
    handed_in: Path
    keys: tuple[str, ...] = ()
    with_keys: bool = False
    copies: bool | None = None  # of the recordings; None: where they lie in a folder


def create(source: BackupSource, repository: Path, steps: Progress) -> tuple[Path, Manifest]:
    """Make a backup in `repository`, named after its moment; return its folder and its manifest.

    Raises `NoRoomForBackup`, `BackupUnderWay`, `OutOfTime`, `StorageError`, those of `db.server.dump`, and `OSError`.
    """
    repository.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _private_files(), _alone_in(repository), dump.snapshot(source.url) as snapshot:
        name = snapshot.taken_at.astimezone(UTC).strftime("%Y-%m-%dT%H%M%SZ")
        if (repository / name).exists():
            raise BackupUnderWay(f"{repository / name} is there already: one backup a second.")
        copies = recordings.is_local(source.storage) if source.copies is None else source.copies
        check_room(snapshot, repository, copies)
        unfinished = repository / f"{UNFINISHED}{name}"
        unfinished.mkdir(mode=0o700)
        try:
            made = _fill(source, snapshot, unfinished, name, copies, steps)
            _flush_all(unfinished)
            unfinished.rename(repository / name)
            _flush(repository)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return repository / name, made


def check_room(snapshot: Snapshot, repository: Path, copies: bool) -> None:
    """Raise `NoRoomForBackup` where the disk has less space than the tables and the recordings to be copied."""
    pool = repository / manifest.RECORDINGS
    files = sum(file.size for file in snapshot.files() if not recordings.has(pool, file)) if copies else 0
    needed, free = snapshot.size + files + ROOM_BYTES, shutil.disk_usage(repository).free
    if needed > free:
        raise NoRoomForBackup(
            f"It needs up to {_megabytes(needed)} in {repository} ({_megabytes(snapshot.size)} of tables, "
            f"{_megabytes(files)} of recordings), and {_megabytes(free)} are free. Nothing was begun."
        )


def _fill(source: BackupSource, snapshot: Snapshot, folder: Path, name: str, copies: bool, steps: Progress) -> Manifest:
    handed = _copy_handed_in(source.handed_in, folder / manifest.HANDED_IN, snapshot.waiting())
    pg_dump, tables = _dump(snapshot, folder / manifest.DATABASE, steps)
    stored = _recordings(source, snapshot, folder, copies, steps)
    if source.with_keys:
        (folder / manifest.KEYS).write_text("\n".join(source.keys) + "\n", encoding="ascii")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    made = Manifest(
        name=name,
        taken_at=snapshot.taken_at,
        seconds=round(steps.took(), 3),
        switchboard=version("switchboard-calls"),
        revision=snapshot.revision(),
        postgresql=snapshot.server,
        pg_dump=pg_dump,
        database_bytes=snapshot.size,
        tables=tables,
        files={path.relative_to(folder).as_posix(): manifest.file_content(path) for path in paths},
        recordings=stored,
        handed_in=handed,
        secrets=Secrets(
            sealed=snapshot.sealed(),
            keys=tuple(manifest.fingerprint(key) for key in source.keys),
            included=source.with_keys,
        ),
    )
    made.write(folder)
    return made


def _dump(snapshot: Snapshot, folder: Path, steps: Progress) -> tuple[int, dict[str, TableContent]]:
    """pg_dump and the digests side by side: each reads every table once."""
    sizes = {table.full_name: max(1, table.size) for table in snapshot.tables}
    total, done = 2 * sum(sizes.values()), 0
    running: list[str] = []

    def next_table(name: str) -> None:
        nonlocal done
        done += sum(sizes.get(one, 0) for one in running)
        running[:] = [name]
        steps.tell("database", done, total)

    with ThreadPoolExecutor(1) as pool:
        dumped = pool.submit(snapshot.dump, folder, steps.left(), next_table)
        tables = {}
        for table in snapshot.tables:
            if dumped.done():
                dumped.result()  # it failed: the rest need not be read
            content = snapshot.digest(table, steps.left())
            tables[table.full_name] = TableContent(rows=content.rows, digest=content.digest)
            done += sizes[table.full_name]
            steps.tell("database", min(done, total), total)
        return dumped.result(), tables


def _recordings(
    source: BackupSource, snapshot: Snapshot, folder: Path, copies: bool, steps: Progress
) -> StoredRecordings:
    """Copy the recordings, or see that they are there, and list them."""
    pool = folder.parent / manifest.RECORDINGS
    count, size, missing = 0, 0, 0
    with (folder / manifest.LIST).open("x", encoding="utf-8") as list_:
        for file, outcome in _gathered(source, snapshot.files(), pool, copies, steps):
            count, size = count + 1, size + file.size
            missing += outcome in (CopyOutcome.MISSING, CopyOutcome.DAMAGED)
            list_.write(f"{file.sha256}\t{file.size}\t{outcome}\t{json.dumps(file.uri)}\n")
    if copies:
        _flush_all(pool, files=False)
    return StoredRecordings(
        how="copied" if copies else "listed", storage=source.storage, count=count, bytes=size, missing=missing
    )


def _gathered(
    source: BackupSource, files: Iterator[StoredFile], pool: Path, copies: bool, steps: Progress
) -> Iterable[tuple[StoredFile, CopyOutcome]]:
    if not copies:
        return recordings.look_for(files, source.storage, steps)
    pool.mkdir(mode=0o700, exist_ok=True)
    for leftover in pool.glob(".*"):  # of one that was killed
        leftover.unlink()
    found = list(files)
    return recordings.copy_all(found, pool, steps, sum(file.size for file in found))


def _copy_handed_in(folder: Path, target: Path, waiting: set[str]) -> int:
    """Copy what was handed in for calls that wait: their jobs will look for it. What a job took meanwhile is in the
    store, and put back under its name. Returns how many."""
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
            continue  # taken in this moment: its note follows, or the store has it
    return sum(1 for _ in target.iterdir())


@contextmanager
def _alone_in(repository: Path) -> Iterator[None]:
    """Hold the folder's lock, and remove what a backup that was killed left. Raises `BackupUnderWay`."""
    with (repository / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupUnderWay(
                f"Another process makes a backup in {repository}. Wait for it, or use another folder."
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
    """Have the disk hold all folders below, and all files: a power failure must not undo them."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() or files:
            _flush(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
