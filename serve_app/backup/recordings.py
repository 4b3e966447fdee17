"""Recordings on their way into a backup and out of it. Each is known by the SHA-256 of its content.

Backups of one folder share their copies: what an earlier one has is not copied again, so a backup that was interrupted
goes on where it was.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from db.server.dump import StoredFile
from pipeline.errors import StorageError
from serve_app.backup.progress import OutOfTime, Progress

PIECE = 1 << 20
AT_ONCE = 8  # with an object store, whose answers take long


class CopyOutcome(StrEnum):
    """What became of a recording."""

    COPIED = "copied"
    LISTED = "listed"
    MISSING = "missing"
    DAMAGED = "damaged"  # not what had been stored


def is_local(storage: str) -> bool:
    """Whether recordings lie in a folder of this machine. Raises `StorageError`."""
    return isinstance(opened(storage)[0], LocalFileSystem)


def opened(storage: str) -> tuple[Any, str]:
    """The file system of an fsspec URL, and the path in it. Raises `StorageError`."""
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(storage)
    except (ImportError, ValueError, OSError) as error:
        raise StorageError(f"The recording storage cannot be used ({type(error).__name__}).") from error
    return found


def place(folder: Path, sha256: str) -> Path:
    """Where a recording lies in a folder of copies."""
    return folder / sha256[:2] / sha256


def has(folder: Path, file: StoredFile) -> bool:
    """Whether an earlier backup copied it."""
    path = place(folder, file.sha256)
    return path.is_file() and path.stat().st_size == file.size


def copy_all(
    files: Iterable[StoredFile], folder: Path, steps: Progress, total: int
) -> Iterator[tuple[StoredFile, CopyOutcome]]:
    """Copy recordings into `folder`, each whole or not at all; what became of each, in their order."""
    done = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in _batches(files, 8 * AT_ONCE):
            for file, outcome in zip(some, pool.map(lambda file: _copied(file, folder, steps), some), strict=True):
                done += file.size
                steps.tell("recordings", done, total)
                yield file, outcome


def look_for(files: Iterable[StoredFile], storage: str, steps: Progress) -> Iterator[tuple[StoredFile, CopyOutcome]]:
    """Whether recordings are in their storage with their size; nothing is read."""
    fs, root = opened(storage)
    steps.tell("listing the storage", 0, 0)
    sizes = {path: int(facts["size"]) for path, facts in fs.find(root, detail=True).items()}
    for file in files:
        steps.left()
        path = opened(file.uri)[1]
        size = sizes.get(path) if path in sizes else _size_elsewhere(file.uri)
        yield (
            file,
            CopyOutcome.MISSING if size is None else CopyOutcome.LISTED if size == file.size else CopyOutcome.DAMAGED,
        )


def read_all(files: Iterable[StoredFile], steps: Progress, total: int) -> Iterator[tuple[StoredFile, CopyOutcome]]:
    """Read recordings where they are stored, and compare them with their digests. Raises `StorageError`."""
    done = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in _batches(files, 8 * AT_ONCE):
            for file, outcome in zip(some, pool.map(lambda file: _looked_at(file, steps), some), strict=True):
                done += file.size
                steps.tell("recordings", done, total)
                yield file, outcome


def put_all(files: list[StoredFile], folder: Path, storage: str, steps: Progress) -> int:
    """Copy recordings from `folder` into a storage, those that it has not; returns how many. Raises `StorageError`."""
    fs, root = opened(storage)
    done, total = 0, sum(file.size for file in files)
    copied = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in _batches(files, 8 * AT_ONCE):
            steps.left()
            copied += sum(pool.map(lambda file: _put(fs, root, file, folder), some))
            done += sum(file.size for file in some)
            steps.tell("recordings", done, total)
    return copied


def address(storage: str) -> str:
    """The beginning of the URIs of recordings that are stored in `storage`."""
    fs, root = opened(storage)
    return str(fs.unstrip_protocol(root)).rstrip("/")


def sha256_of(path: Path, steps: Progress) -> str:
    """Read a file whole."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            steps.left()
    return digest.hexdigest()


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    some: list[StoredFile] = []
    for file in files:
        some.append(file)
        if len(some) == size:
            yield some
            some = []
    yield some


def _copied(file: StoredFile, folder: Path, steps: Progress) -> CopyOutcome:
    target = place(folder, file.sha256)
    if has(folder, file):
        return CopyOutcome.COPIED
    unfinished = folder / f".{uuid4().hex}"
    try:
        with unfinished.open("xb") as copy:
            outcome = _read(file, copy.write, steps, CopyOutcome.COPIED)
            copy.flush()
            os.fsync(copy.fileno())
        if outcome == CopyOutcome.COPIED:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return outcome


def _looked_at(file: StoredFile, steps: Progress) -> CopyOutcome:
    return _read(file, len, steps, CopyOutcome.LISTED)


def _read(file: StoredFile, take: Callable[[bytes], object], steps: Progress, whole: CopyOutcome) -> CopyOutcome:
    """Hand a stored recording on in pieces; `whole` where it is what had been stored."""
    fs, path = opened(file.uri)
    digest = hashlib.sha256()
    try:
        with fs.open(path, "rb") as source:
            while piece := source.read(PIECE):
                digest.update(piece)
                take(piece)
                steps.left()
    except FileNotFoundError:
        return CopyOutcome.MISSING
    except OutOfTime:
        raise
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A recording could not be read or copied ({type(error).__name__}).") from error
    return whole if digest.hexdigest() == file.sha256 else CopyOutcome.DAMAGED


def _size_elsewhere(uri: str) -> int | None:
    """Of a recording from the time before the storage was moved."""
    fs, path = opened(uri)
    try:
        return int(fs.size(path))
    except FileNotFoundError:
        return None


def _put(fs: Any, root: str, file: StoredFile, folder: Path) -> int:
    """How many were copied: 0 where the storage has it."""
    try:
        return _put_one(fs, root, file, folder)
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A recording could not be stored ({type(error).__name__}).") from error


def _put_one(fs: Any, root: str, file: StoredFile, folder: Path) -> int:
    target = f"{root.rstrip('/')}/{file.sha256[:2]}/{file.sha256}"
    if fs.exists(target) and fs.size(target) == file.size:
        return 0
    source = place(folder, file.sha256)
    fs.makedirs(target.rpartition("/")[0], exist_ok=True)
    if isinstance(fs, LocalFileSystem):  # never half of one under its name
        unfinished = Path(f"{target}.{uuid4().hex}")
        try:
            fs.put_file(str(source), str(unfinished))
            with unfinished.open("rb") as copy:
                os.fsync(copy.fileno())
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
    else:
        fs.put_file(str(source), target)
    return 1
