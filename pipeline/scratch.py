"""Folders for what exists only while a process works: decoded sound, outlines, unfinished copies of recordings.

A root contains a folder for each process, and next to it a file that the process locks. The system releases the lock
however the process ends, so every other process that uses the root can tell and removes the folder: at its start, then
every `SWEEP_SECONDS`, and at its end. Not every file system carries locks to other machines, so the folder of another
machine counts as abandoned only if its owner has also not renewed it for `ABANDONED_AFTER`.
"""

import atexit
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pipeline.errors import StorageError

SWEEP_SECONDS = 60.0
ABANDONED_AFTER = 600.0  # seconds without a renewal
OWNER = ".owner"  # suffix of the file that the owner of a folder locks
FOLDER_NAME = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}")  # the machine, a random number: nothing else is ever swept


@dataclass(frozen=True, slots=True)
class ProcessFolder:
    """The folder of this process in a root. `_lock`: an open descriptor of the locked owner file.

    `max_age`: seconds without a change after which a file directly in the root is removed; None: such files stay.
    """

    path: Path
    max_age: float | None
    _lock: int

    @property
    def is_owned(self) -> bool:
        """False if someone has removed the owner file, as a cleaner of temporary folders may."""
        return _owner_of(self.path).exists()

    def renew(self) -> float:
        """Return the present time by the clock of the file server, which may be another machine. Raises `OSError`."""
        os.utime(self._lock)
        return os.fstat(self._lock).st_mtime

    def sweep(self, now: float) -> None:
        """Remove the folders of processes that have ended, and files beyond the age. The next sweep retries errors."""
        with contextlib.suppress(OSError):
            entries = list(self.path.parent.iterdir())
            for path in {entry.with_suffix("") if entry.suffix == OWNER else entry for entry in entries}:
                if FOLDER_NAME.fullmatch(path.name) and path != self.path:
                    _remove_abandoned(path, now)
            for path in entries if self.max_age is not None else ():
                _remove_older(path, now - (self.max_age or 0.0))

    def remove(self) -> None:
        _remove(self.path)
        os.close(self._lock)


def process_folder(root: Path, max_age: float | None = None) -> Path:
    """Return the folder of this process in a local root, which is created if necessary; only this user may enter it.

    See `ProcessFolder` for `max_age`. Raises `StorageError`.
    """
    try:
        with _CHANGING:
            folder = _FOLDERS.get(root)
            is_new = folder is None or not folder.is_owned
            if folder is None or is_new:
                folder = _FOLDERS[root] = _create(root, max_age)
            folder.path.mkdir(mode=0o700, exist_ok=True)
            now = folder.renew() if is_new else None
        if now is not None:
            folder.sweep(now)
            _start_sweeping()
        return folder.path
    except OSError as error:
        raise StorageError(f"The scratch folder {root} cannot be used: {error.strerror}.") from error


def shared_folder(root: str) -> str:
    """Return the address of this process's folder in a root that every node can reach. Raises `StorageError`.

    An object store has no locks: there it is the root itself, and only their age tells abandoned files
    (`pipeline.audio.decode.sound.sweep`).
    """
    path = _local(root)
    return root if path is None else process_folder(path).as_uri()


def local_folder(root: str | None = None) -> Path:
    """Return the folder of this process on this machine: in `root` if that is a folder, else in the temporary folder.

    Raises `StorageError`.
    """
    path = _local(root) if root is not None else None
    return process_folder(path or temporary_root())


def temporary_root() -> Path:
    """Return this user's root in the temporary folder. Raises `StorageError` if another user has taken its name."""
    root = Path(tempfile.gettempdir()) / f"switchboard-scratch-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise StorageError(f"The scratch folder {root} cannot be used: it is not a folder of this user.")
    return root


def close() -> None:
    """Remove the folders of this process, and once more those of processes that have ended."""
    with _CHANGING:
        while _FOLDERS:
            _, folder = _FOLDERS.popitem()
            folder.sweep(folder.renew())
            folder.remove()


_CHANGING = threading.Lock()
_FOLDERS: dict[Path, ProcessFolder] = {}
atexit.register(close)


@cache
def _start_sweeping() -> None:
    threading.Thread(target=_sweep_forever, name="scratch", daemon=True).start()


def _sweep_forever() -> None:
    while True:
        time.sleep(SWEEP_SECONDS)
        renewed = []
        with _CHANGING:
            for folder in _FOLDERS.values():
                with contextlib.suppress(OSError):
                    renewed.append((folder, folder.renew()))
        for folder, now in renewed:
            folder.sweep(now)


def _create(root: Path, max_age: float | None) -> ProcessFolder:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = root / f"{_machine()}-{uuid4().hex}"
    while True:
        lock = os.open(_owner_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _owner_of(path).exists():  # otherwise another process swept it before it was locked
            return ProcessFolder(path, max_age, lock)
        os.close(lock)


def _remove_abandoned(path: Path, now: float) -> None:
    with contextlib.suppress(OSError), _lock_of(path) as lock:
        if lock is None or path.name.startswith(_machine()) or os.fstat(lock).st_mtime < now - ABANDONED_AFTER:
            _remove(path)


def _remove_older(path: Path, before: float) -> None:
    with contextlib.suppress(OSError):
        if path.suffix != OWNER and path.lstat().st_mtime < before:
            path.unlink()


@contextlib.contextmanager
def _lock_of(path: Path) -> Iterator[int | None]:
    """Lock the owner file of a folder; yield None if it has none. Raises `OSError` if its owner lives."""
    try:
        lock = os.open(_owner_of(path), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    finally:
        os.close(lock)


def _remove(path: Path) -> None:
    """Remove a folder, then its owner file: with it, the next sweep tries a folder again that could not be removed."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        _owner_of(path).unlink(missing_ok=True)


def _owner_of(path: Path) -> Path:
    return path.with_name(path.name + OWNER)


@cache
def _machine() -> str:
    """Return a name of the running kernel, within which locks are reliable, also across containers."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        name = socket.gethostname()
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def _local(root: str) -> Path | None:
    try:
        fs, path = fsspec.core.url_to_fs(root)
    except (ImportError, ValueError, OSError) as error:
        raise StorageError(f"The scratch folder cannot be used ({type(error).__name__}).") from error
    return Path(path) if isinstance(fs, LocalFileSystem) else None
