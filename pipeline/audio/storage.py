"""Our own store of recordings: an fsspec folder in which a file is named by the sha256 of its content."""

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pipeline.domain.speech import Recording
from pipeline.errors import StorageError

INCOMING = "incoming"
ABANDONED_AFTER = 24 * 3600.0  # seconds; no fetch lasts that long, so its process was killed


class Incoming:
    """A file being received: written once, hashed on the way, then kept or removed."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self.path = file, path
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise StorageError(f"A recording could not be written: {error.strerror}.") from error
        self._digest.update(data)
        self.size += len(data)

    def finish(self) -> str:
        """Make sure that the bytes are on the disk; the sha256, hexadecimal."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"A recording could not be written: {error.strerror}.") from error
        return self._digest.hexdigest()


class Store:
    """`folder` is an fsspec address such as `file:///srv/recordings` or `s3://bucket/recordings`.

    Every method may raise `StorageError`, and blocks: call them from a thread.
    """

    def __init__(self, folder: str) -> None:
        try:
            self._fs, self._root = fsspec.core.url_to_fs(folder)
        except (ImportError, ValueError, OSError) as error:
            raise StorageError(f"The recording storage cannot be used: {error}.") from error
        self._is_local = isinstance(self._fs, LocalFileSystem)

    @contextlib.contextmanager
    def receive(self) -> Iterator[Incoming]:
        """A temporary file, gone when the block ends unless `keep` moved it away."""
        # In a local store it lies beside the stored files, so that keeping it is a rename.
        folder = Path(self._root) / INCOMING if self._is_local else Path(tempfile.gettempdir()) / "switchboard-incoming"
        path = folder / uuid4().hex
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _sweep(folder)
            file = path.open("xb", buffering=1 << 20)
        except OSError as error:
            raise StorageError(f"The recording storage cannot be written: {error.strerror}.") from error
        try:
            yield Incoming(file, path)
        finally:
            with contextlib.suppress(OSError):
                file.close()
            path.unlink(missing_ok=True)

    def keep(self, incoming: Incoming) -> tuple[str, str]:
        """Store a received file under its content's name; (uri, sha256). The same content gives the same file."""
        sha256 = incoming.finish()
        target = f"{self._root.rstrip('/')}/{sha256[:2]}/{sha256}"
        try:
            if not self._has(target, incoming.size):
                self._place(incoming.path, target)
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"A recording could not be stored ({type(error).__name__}).") from error
        return self._fs.unstrip_protocol(target), sha256

    def _has(self, target: str, size: int) -> bool:
        return bool(self._fs.exists(target)) and self._fs.size(target) == size

    def _place(self, path: Path, target: str) -> None:
        if self._is_local:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        else:
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(path), target)  # an object store shows an object when it is complete


def open_stored(uri: str) -> Any:
    """A readable, seekable file of the store. Raises `StorageError`."""
    try:
        return fsspec.open(uri, "rb").open()
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A stored recording cannot be read ({type(error).__name__}).") from error


def all_stored(recordings: Sequence[Recording]) -> bool:
    """True where every recording still lies in the store. Raises `StorageError` where the store cannot say."""
    try:
        return all(fs.exists(path) for fs, path in (fsspec.core.url_to_fs(one.uri) for one in recordings))
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"The recording storage cannot be read ({type(error).__name__}).") from error


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed left behind."""
    before = time.time() - ABANDONED_AFTER
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()
