"""What a watcher has done, in a file that survives `kill -9`.

It holds digests of paths, not names: those contain the numbers of callers.
"""

import fcntl
import hashlib
import os
import sqlite3
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from serve_app.cli.ui.errors import FAILED, CommandError

ABSENT_SECONDS = 90 * 86400.0  # after which a file that is no longer in the folder is forgotten
SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    path BLOB PRIMARY KEY, version TEXT NOT NULL, call_id TEXT NOT NULL, submitted INTEGER NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS files_call ON files (call_id);
CREATE TABLE IF NOT EXISTS uploads (
    call_id TEXT PRIMARY KEY, digest TEXT NOT NULL, upload_id TEXT NOT NULL
) WITHOUT ROWID;
"""


def _digest(path: str) -> bytes:
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()


class State:
    """A context manager that locks the state: two watchers would submit each file twice. Raises `CommandError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.work = path.with_suffix(".work")  # for temporary files, of this watcher only

    def __enter__(self) -> Self:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            advice = "Stop it first, or pass another --state for a folder of its own."
            raise CommandError(f"Another watcher uses {self._path}.", advice, FAILED) from None
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
        self._database = sqlite3.connect(self._path, isolation_level=None)
        self._database.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {SCHEMA}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._database.close()
        os.close(self._lock)

    def note(self, path: str, version: str, call_id: str, submitted: bool) -> None:
        """Record that this version of a file needs no more work."""
        row = (_digest(path), version, call_id, submitted, time.time())
        self._database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", row)

    def outcome(self, path: str, version: str) -> bool | None:
        """Return whether this version was submitted; None if it is new."""
        row = self._database.execute("SELECT version, submitted FROM files WHERE path = ?", (_digest(path),)).fetchone()
        return bool(row[1]) if row and row[0] == version else None

    def was_submitted_with_another(self, call_id: str, paths: list[str]) -> bool:
        """Return whether another file than these was submitted for a call."""
        rows = self._database.execute("SELECT path FROM files WHERE call_id = ? AND submitted", (call_id,)).fetchall()
        return bool({row[0] for row in rows} - {_digest(path) for path in paths})

    def upload_of(self, call_id: str, digest: str) -> str | None:
        """Return the id of an unfinished upload of the same content."""
        query = "SELECT upload_id FROM uploads WHERE call_id = ? AND digest = ?"
        row = self._database.execute(query, (call_id, digest)).fetchone()
        return str(row[0]) if row else None

    def note_upload(self, call_id: str, digest: str, upload_id: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO uploads VALUES (?, ?, ?)", (call_id, digest, upload_id))

    def forget_upload(self, call_id: str) -> None:
        self._database.execute("DELETE FROM uploads WHERE call_id = ?", (call_id,))

    def forget_absent(self, paths: list[str]) -> None:
        """Forget files that have not been in the folder for long. A folder that is not mounted has no files."""
        present = {_digest(path) for path in paths}
        old = self._database.execute("SELECT path FROM files WHERE at < ?", (time.time() - ABSENT_SECONDS,)).fetchall()
        absent = [(row[0],) for row in old if row[0] not in present] if present else []
        self._database.executemany("DELETE FROM files WHERE path = ?", absent)
