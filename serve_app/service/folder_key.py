"""The key that seals secrets in the embedded PostgreSQL of a data folder, where none is set: a file beside it.

A dump of the database alone opens nothing then. A copy of the whole folder holds the key as well, and is as good as the
service: it is for its user alone.
"""

import base64
import contextlib
import os
import secrets
import tempfile
from pathlib import Path

FILE = "secrets.key"


def find_key(data_dir: Path) -> str | None:
    """The folder's key, 32 bytes in base64; None where it has none."""
    try:
        return (data_dir.expanduser() / FILE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None


def make_key(data_dir: Path, key: str | None = None) -> str:
    """The folder's key; where it had none it gets `key`, or a random one. Of several that make one, one wins."""
    folder = data_dir.expanduser()
    known = find_key(folder)
    if known is not None:
        return known
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=FILE, dir=folder)  # for this user alone
    made = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write((key or base64.b64encode(secrets.token_bytes(32)).decode("ascii")) + "\n")
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(made, folder / FILE)  # whole or not at all
    finally:
        made.unlink()
    _flush(folder)
    return (folder / FILE).read_text(encoding="ascii").strip()


def _flush(folder: Path) -> None:
    """What is sealed with the key must not outlive it, whatever the power does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
