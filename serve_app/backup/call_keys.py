"""The keys of sealed calls, in one file next to all backups of a folder, which each backup replaces.

The dumps do not contain them. So the next backup after an erasure makes the call unreadable in all earlier ones.
"""

import base64
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

from db.server.dump import CallKey
from serve_app.backup.manifest import BackupUnfit

FILE = "call-keys.tsv"


def write(repository: Path, keys: Iterable[CallKey]) -> None:
    """Replace the file by one with exactly these keys; without keys no file is created."""
    path = repository / FILE
    unfinished = path.with_name(f".{FILE}")
    with unfinished.open("w", encoding="ascii") as file:
        for workspace_id, call_id, key in keys:
            file.write(f"{workspace_id}\t{call_id}\t{base64.b64encode(key).decode('ascii')}\n")
        file.flush()
        os.fsync(file.fileno())
    if unfinished.stat().st_size or path.exists():
        unfinished.replace(path)
    else:
        unfinished.unlink()


def read(repository: Path) -> Iterator[CallKey]:
    """Yield the keys; none without a file. Raises `BackupUnfit`."""
    path = repository / FILE
    if not path.exists():
        return
    with path.open(encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            try:
                workspace_id, call_id, key = line.split("\t")
                yield CallKey(UUID(workspace_id), UUID(call_id), base64.b64decode(key.strip(), validate=True))
            except ValueError:
                raise BackupUnfit(f"{path}, line {number}: not the key of a call.") from None
