"""One service per data folder: only the process with the lock may stop its PostgreSQL.

The kernel releases the lock when the process ends. The file contains facts about the process, for people.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

FILE = "service.lock"


class FolderHeld(Exception):
    """Another process has the lock; `facts`: its `pid` and what it passed to `hold`."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(f"held by process {facts.get('pid', 'unknown')}")
        self.facts = facts


class FolderLock:
    """The lock of a data folder, from `hold` to `release`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder.expanduser() / FILE
        self._file: IO[str] | None = None

    @property
    def is_held(self) -> bool:
        return self._file is not None

    def hold(self, **facts: Any) -> None:
        """Take the lock and write this process's number and `facts` into it. Raises `FolderHeld`, `OSError`."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Opened for appending: the holder's facts must survive a process that fails to get the lock.
        file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                raise FolderHeld(_facts(file)) from None
        file.seek(0)
        file.truncate()
        json.dump({"pid": os.getpid(), **facts}, file)
        file.flush()
        self._file = file

    def release(self) -> None:
        """Release the lock, if this process has it."""
        if self._file is not None:
            self._file.close()
            self._file = None


def holder(folder: Path) -> dict[str, Any] | None:
    """Return the facts of the process that has the lock; None if no process does."""
    try:
        with (folder.expanduser() / FILE).open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _facts(file)
    except FileNotFoundError:
        pass
    return None


def _facts(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        facts = json.loads(file.read())
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
