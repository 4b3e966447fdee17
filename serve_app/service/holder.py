"""One service per data folder: only the process that holds the folder may stop its PostgreSQL.

The kernel releases the lock when its process ends, however it ends. The file says who holds it, for people.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

FILE = "service.lock"


class FolderHeld(Exception):
    """Another process holds the folder; `facts` are what it wrote about itself (`pid`, and what `hold` was given)."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(f"held by process {facts.get('pid', 'unknown')}")
        self.facts = facts


class FolderLock:
    """Holds a data folder for this process, from `hold` to `release`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder.expanduser() / FILE
        self._file: IO[str] | None = None

    @property
    def held(self) -> bool:
        return self._file is not None

    def hold(self, **facts: Any) -> None:
        """Take the lock and write `facts` about this process beside its number. Raises `FolderHeld`, `OSError`."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Opened for appending: the holder's facts must survive somebody who only tries.
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
        """Let go of the folder. Nothing happens where this process does not hold it."""
        if self._file is not None:
            self._file.close()
            self._file = None


def holder(folder: Path) -> dict[str, Any] | None:
    """What the process that holds the folder wrote about itself; None where none does."""
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
    """What the holder wrote; nothing where it has not written yet."""
    file.seek(0)
    try:
        found = json.loads(file.read())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
