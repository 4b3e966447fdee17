"""The store of recordings: an fsspec folder in which each file is named by the sha256 of its bytes, sealed or not."""

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, TypeAlias
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pipeline import scratch, sealed_files
from pipeline.domain.speech import Recording
from pipeline.errors import CallError, StorageError
from pipeline.fetch import partial
from pipeline.fetch.partial import Version

INCOMING = "incoming"
MIN_AGE_SECONDS = 60.0  # of a file that is deleted: a younger one may not be recorded yet
CHECKED_BYTES = 1 << 30  # larger local files are not read again just to verify them
_DAMAGED = "was not what had been stored"

StoredFiles: TypeAlias = list[tuple[str, str]]
stored_files: ContextVar[StoredFiles | None] = ContextVar("stored_files", default=None)
"""Gets the URI and SHA-256 of each file that the task and its threads store, before it is stored: also of a file that a
canceled task stores later."""


class Incoming:
    """A file being received: hashed while it is written, then stored, kept as a part for the next attempt, or removed.

    `size`: bytes received; `version`: identifies their content, None if the rest cannot be requested.
    """

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self._folder, self._name = folder, name  # the parts are in the folder, the file is below it
        self.path = folder / uuid4().hex
        self._file: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self.size = 0
        self.version: Version | None = None

    @property
    def can_resume(self) -> bool:
        """Whether a range request for the rest is possible."""
        return self.version is not None and self.size > partial.OVERLAP

    def resume(self) -> None:
        """Continue the part of an earlier attempt, if any. Reads the whole part. Raises `StorageError`."""
        with _writing():
            self._prepare()
            part = partial.take(self._folder, self._name, self.path) if self._name else None
            if part is not None:
                self.version, self._digest, self.size = part
                self._file = self.path.open("r+b", buffering=1 << 20)
                self._file.seek(self.size)

    def restart(self, version: Version | None = None) -> None:
        """Discard the received bytes and start over with `version`. Raises `StorageError`."""
        self._digest, self.size, self.version = hashlib.sha256(), 0, version
        with _writing():
            if self._file is not None:
                self._file.seek(0)
                self._file.truncate()

    def write(self, data: bytes) -> None:
        with _writing():
            if self._file is None:
                self._prepare()
                self._file = self.path.open("x+b", buffering=1 << 20)
            self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def tail(self) -> bytes:
        with _writing():
            assert self._file is not None
            self._file.seek(max(0, self.size - partial.OVERLAP))
            data = self._file.read()
            self._file.seek(self.size)
            return data

    def finish(self) -> str:
        """Flush the bytes to disk; return their sha256, hexadecimal."""
        with _writing():
            assert self._file is not None
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._digest.hexdigest()

    def seal(self, key: bytes) -> None:
        """Replace the received bytes by their sealed form; see `pipeline.sealed_files`. Raises `StorageError`."""
        plain, plain_path, size, sha256 = self._file, self.path, self.size, self._digest.digest()
        assert plain is not None
        with _writing():
            plain.seek(0)  # only in memory, as a rule: it is removed before the system writes it to disk
        self._file, self._digest, self.size, self.version = None, hashlib.sha256(), 0, None
        self.path = plain_path.with_name(uuid4().hex)
        try:
            for piece in sealed_files.sealed_pieces(plain, size, sha256, key):
                self.write(piece)
        finally:
            plain.close()
            plain_path.unlink(missing_ok=True)

    def leave(self) -> None:
        """Keep a resumable part for the next attempt; a failure to keep it is ignored."""
        if self._file is None or self._name is None or self.version is None or not self.can_resume:
            return
        with contextlib.suppress(OSError):
            self._file.flush()
            partial.leave(self.path, self._folder, self._name, self.version, self.size, self._digest.hexdigest())

    def close(self) -> None:
        """Remove the file unless it was moved away."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _prepare(self) -> None:
        self.path = scratch.process_folder(self._folder, partial.ABANDONED_AFTER) / self.path.name


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"A recording could not be written: {error.strerror}.") from error


class Store:
    """`folder` is an fsspec address such as `file:///srv/recordings` or `s3://bucket/recordings`.

    Every method may raise `StorageError`, and blocks: call them from a thread.
    """

    def __init__(self, folder: str) -> None:
        try:
            self._fs, self._root = fsspec.core.url_to_fs(folder)
        except (ImportError, ValueError, OSError) as error:
            raise StorageError(f"The recording storage cannot be used ({type(error).__name__}).") from error
        self._is_local = isinstance(self._fs, LocalFileSystem)

    @contextlib.contextmanager
    def receive(self, name: str | None = None) -> Iterator[Incoming]:
        """Yield a file to receive into; it is removed at the end of the block unless `keep` moved it.

        If the block raises a retryable error, the received part is kept under `name` for the next attempt.
        """
        incoming = Incoming(self._incoming_root(), f"{self._root} {name}" if name else None)
        try:
            yield incoming
        except (CallError, asyncio.CancelledError) as error:
            if not isinstance(error, CallError) or error.retryable:
                incoming.leave()
            raise
        finally:
            incoming.close()

    def claim_incoming(self) -> None:
        """Create the folder of this process for files being received; see `pipeline.scratch`."""
        scratch.process_folder(self._incoming_root(), partial.ABANDONED_AFTER)

    def _incoming_root(self) -> Path:
        """Return a folder next to the stored files if they are local, so that keeping a file is a rename."""
        return (Path(self._root) if self._is_local else scratch.temporary_root()) / INCOMING

    def keep(self, incoming: Incoming, key: bytes | None = None) -> tuple[str, str]:
        """Store a received file, sealed by `key`, under the name of its content; return its URI and sha256."""
        if key is not None:
            incoming.seal(key)
        sha256 = incoming.finish()
        target = f"{self._root.rstrip('/')}/{sha256[:2]}/{sha256}"
        uri = self._fs.unstrip_protocol(target)
        if (files := stored_files.get()) is not None:
            files.append((uri, sha256))
        try:
            # A local file replaces one that may have been damaged since; a remote one would cost an upload.
            if self._is_local or not self._has(target, incoming.size):
                self._place(incoming.path, target)
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"A recording could not be stored ({type(error).__name__}).") from error
        return uri, sha256

    def place(self, incoming: Incoming, name: str, key: bytes | None = None) -> None:
        """Store a received file, sealed by `key`, under a name below the root; it replaces one of that name."""
        if key is not None:
            incoming.seal(key)
        incoming.finish()
        try:
            self._place(incoming.path, f"{self._root.rstrip('/')}/{name}")
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"A recording could not be stored ({type(error).__name__}).") from error

    def _has(self, target: str, size: int) -> bool:
        return bool(self._fs.exists(target)) and self._fs.size(target) == size

    def _place(self, path: Path, target: str) -> None:
        if self._is_local:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        else:
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(path), target)  # an object store shows an object when it is complete


def delete(uri: str) -> bool:
    """Delete a stored file, if it exists; return False if it is younger than `MIN_AGE_SECONDS`.

    Raises `StorageError`.
    """
    try:
        fs, path = fsspec.core.url_to_fs(uri)
        if fs.exists(path):
            if time.time() - fs.modified(path).timestamp() < MIN_AGE_SECONDS:
                return False
            fs.rm_file(path)
    except FileNotFoundError:
        return True
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A stored recording could not be deleted ({type(error).__name__}).") from error
    return True


def all_stored(recordings: Sequence[Recording]) -> bool:
    """Return whether every recording is still in the store. Raises `StorageError` if the store cannot be read."""
    return not any(flaw_of(recording, deep=False) for recording in recordings)


def flaw_of(recording: Recording, deep: bool = True) -> str | None:
    """Return why a stored recording cannot be used; None if it is intact.

    Its size is checked and, with `deep`, a local file of up to `CHECKED_BYTES` is read and hashed: object stores have
    checksums of their own. Raises `StorageError` if the store cannot be read.
    """
    try:
        fs, path = fsspec.core.url_to_fs(recording.uri)
        return _flaw(fs, path, recording, deep)
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"The recording storage cannot be read ({type(error).__name__}).") from error


def _flaw(fs: Any, path: str, recording: Recording, deep: bool) -> str | None:
    if not fs.exists(path):
        return "was gone"
    if fs.size(path) != recording.size_bytes:
        return _DAMAGED
    if not deep or not isinstance(fs, LocalFileSystem) or recording.size_bytes > CHECKED_BYTES:
        return None
    with Path(path).open("rb") as file:
        return None if hashlib.file_digest(file, "sha256").hexdigest() == recording.sha256 else _DAMAGED
