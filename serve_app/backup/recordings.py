"""Copies recordings into a backup and out of it, by the SHA-256 of their content.

Backups in one folder share their copies: no content is copied again, so an interrupted backup resumes.
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
from pipeline import scratch
from pipeline.errors import StorageError
from pipeline.fetch.partial import ABANDONED_AFTER
from pipeline.fetch.storage import INCOMING
from serve_app.backup.progress import BackupProgress, OutOfTime

PIECE = 1 << 20
AT_ONCE = 8  # against the latency of an object store


class CopyOutcome(StrEnum):
    """The result of copying or checking a recording."""

    COPIED = "copied"
    EXISTING = "existing"  # in the storage already
    LISTED = "listed"
    MISSING = "missing"
    DAMAGED = "damaged"  # not what had been stored


def is_local(storage: str) -> bool:
    """Return whether recordings are stored in a folder of this machine. Raises `StorageError`."""
    return isinstance(opened(storage)[0], LocalFileSystem)


def opened(storage: str) -> tuple[Any, str]:
    """Return the file system of an fsspec URL, and the path in it. Raises `StorageError`."""
    try:
        filesystem_and_path: tuple[Any, str] = fsspec.core.url_to_fs(storage)
    except (ImportError, ValueError, OSError) as error:
        raise StorageError(f"The recording storage cannot be used ({type(error).__name__}).") from error
    return filesystem_and_path


def place(folder: Path, sha256: str) -> Path:
    """Return the path of a recording in a folder of copies."""
    return folder / sha256[:2] / sha256


def has(folder: Path, file: StoredFile) -> bool:
    """Return whether an earlier backup copied this recording."""
    path = place(folder, file.sha256)
    return path.is_file() and path.stat().st_size == file.size


def copy_all(
    files: Iterable[StoredFile], folder: Path, progress: BackupProgress, total: int
) -> Iterator[tuple[StoredFile, CopyOutcome]]:
    """Copy recordings into `folder`, each completely or not at all; yield the outcome of each, in their order."""
    return _each(files, lambda file: _copied(file, folder, progress), progress, total)


def look_for(
    files: Iterable[StoredFile], storage: str, progress: BackupProgress
) -> Iterator[tuple[StoredFile, CopyOutcome]]:
    """Check that recordings exist in their storage with their size, without reading them."""
    fs, root = opened(storage)
    progress.report("listing the storage", 0, 0)
    sizes = {path: int(facts["size"]) for path, facts in fs.find(root, detail=True).items()}
    for file in files:
        progress.remaining()
        path = opened(file.uri)[1]
        size = sizes.get(path) if path in sizes else _size_elsewhere(file.uri)
        yield (
            file,
            CopyOutcome.MISSING if size is None else CopyOutcome.LISTED if size == file.size else CopyOutcome.DAMAGED,
        )


def read_all(
    files: Iterable[StoredFile], progress: BackupProgress, total: int
) -> Iterator[tuple[StoredFile, CopyOutcome]]:
    """Read recordings where they are stored, and compare them with their digests. Raises `StorageError`."""
    return _each(files, lambda file: _read(file, len, progress, CopyOutcome.LISTED), progress, total)


def _each(
    files: Iterable[StoredFile], work: Callable[[StoredFile], CopyOutcome], progress: BackupProgress, total: int
) -> Iterator[tuple[StoredFile, CopyOutcome]]:
    """Yield the outcome of each recording, in their order; several are processed at once."""
    done = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in _batches(files, 8 * AT_ONCE):
            for file, outcome in zip(some, pool.map(work, some), strict=True):
                done += file.size
                progress.report("recordings", done, total)
                yield file, outcome


def put_all(files: list[StoredFile], folder: Path, storage: str, progress: BackupProgress) -> list[CopyOutcome]:
    """Copy recordings from `folder` into a storage that lacks them; return the outcome of each, in their order.

    Content that was changed in the backup is not stored. Raises `StorageError`, `OutOfTime`.
    """
    fs, root = opened(storage)
    done, total = 0, sum(file.size for file in files)
    outcomes: list[CopyOutcome] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in _batches(files, 8 * AT_ONCE):
            progress.remaining()
            outcomes.extend(pool.map(lambda file: _put(fs, root, file, folder, progress), some))
            done += sum(file.size for file in some)
            progress.report("recordings", done, total)
    return outcomes


def delete(storage: str, sha256: str) -> None:
    """Delete a recording that was copied into a storage. Raises `StorageError`."""
    fs, root = opened(storage)
    try:
        fs.rm_file(_target(root, sha256))
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A recording could not be deleted ({type(error).__name__}).") from error


def address(storage: str) -> str:
    """Return the common prefix of the URIs of recordings that are stored in `storage`."""
    fs, root = opened(storage)
    return str(fs.unstrip_protocol(root)).rstrip("/")


def sha256_of(path: Path, progress: BackupProgress) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            progress.remaining()
    return digest.hexdigest()


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    some: list[StoredFile] = []
    for file in files:
        some.append(file)
        if len(some) == size:
            yield some
            some = []
    yield some


def _copied(file: StoredFile, folder: Path, progress: BackupProgress) -> CopyOutcome:
    target = place(folder, file.sha256)
    if has(folder, file):
        return CopyOutcome.COPIED
    unfinished = folder / f".{uuid4().hex}"
    try:
        with unfinished.open("xb") as copy:
            outcome = _read(file, copy.write, progress, CopyOutcome.COPIED)
            copy.flush()
            os.fsync(copy.fileno())
        if outcome == CopyOutcome.COPIED:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return outcome


def _read(
    file: StoredFile, take: Callable[[bytes], object], progress: BackupProgress, intact: CopyOutcome
) -> CopyOutcome:
    """Pass a stored recording on in pieces; return `intact` if its digest is as stored."""
    fs, path = opened(file.uri)
    digest = hashlib.sha256()
    try:
        with fs.open(path, "rb") as source:
            while piece := source.read(PIECE):
                digest.update(piece)
                take(piece)
                progress.remaining()
    except FileNotFoundError:
        return CopyOutcome.MISSING
    except OutOfTime:
        raise
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A recording could not be read or copied ({type(error).__name__}).") from error
    return intact if digest.hexdigest() == file.sha256 else CopyOutcome.DAMAGED


def _size_elsewhere(uri: str) -> int | None:
    """Return the size of a recording that was stored before the storage was moved."""
    fs, path = opened(uri)
    try:
        return int(fs.size(path))
    except FileNotFoundError:
        return None


def _target(root: str, sha256: str) -> str:
    return f"{root.rstrip('/')}/{sha256[:2]}/{sha256}"


def _put(fs: Any, root: str, file: StoredFile, folder: Path, progress: BackupProgress) -> CopyOutcome:
    try:
        return _put_one(fs, root, file, folder, progress)
    except FileNotFoundError:
        return CopyOutcome.MISSING
    except OutOfTime:
        raise
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A recording could not be stored ({type(error).__name__}).") from error


def _put_one(fs: Any, root: str, file: StoredFile, folder: Path, progress: BackupProgress) -> CopyOutcome:
    target = _target(root, file.sha256)
    if fs.exists(target) and fs.size(target) == file.size:
        return CopyOutcome.EXISTING
    source = place(folder, file.sha256)
    if not has(folder, file):
        return CopyOutcome.DAMAGED if source.exists() else CopyOutcome.MISSING
    fs.makedirs(target.rpartition("/")[0], exist_ok=True)
    if isinstance(fs, LocalFileSystem):  # rename: no incomplete file under the final name
        unfinished = scratch.process_folder(Path(root) / INCOMING, ABANDONED_AFTER) / uuid4().hex
        try:
            fs.put_file(str(source), str(unfinished))
            if sha256_of(unfinished, progress) != file.sha256:
                return CopyOutcome.DAMAGED
            with unfinished.open("rb") as copy:
                os.fsync(copy.fileno())
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
    elif sha256_of(source, progress) != file.sha256:
        return CopyOutcome.DAMAGED
    else:
        fs.put_file(str(source), target)
    return CopyOutcome.COPIED
