"""The folder of the service's state: one for each user, unless a setting names another.

A dump of the embedded database alone contains no readable secret: the key that seals them is a file in this folder. A
copy of the whole folder contains the key and must be protected like the service itself.
"""

import base64
import contextlib
import os
import secrets
import tempfile
from pathlib import Path

KEY_FILE = "secrets.key"


def default() -> Path:
    """Return the default: a folder in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("switchboard") / "data"


def has_database(folder: Path) -> bool:
    """Return whether the folder has an embedded PostgreSQL, running or not."""
    return (folder / "cluster").is_dir()


def find_key(data_dir: Path) -> str | None:
    """Return the folder's key, 32 bytes in base64; None without one."""
    try:
        return (data_dir.expanduser() / KEY_FILE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None


def make_key(data_dir: Path, key: str | None = None) -> str:
    """Return the folder's key; create it from `key`, or at random, if there is none. Of several processes one wins."""
    folder = data_dir.expanduser()
    existing = find_key(folder)
    if existing is not None:
        return existing
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=KEY_FILE, dir=folder)  # for this user alone
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write((key or base64.b64encode(secrets.token_bytes(32)).decode("ascii")) + "\n")
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(draft, folder / KEY_FILE)  # whole or not at all
    finally:
        draft.unlink()
    flush(folder)  # data that is sealed with the key must not survive a power failure without it
    return (folder / KEY_FILE).read_text(encoding="ascii").strip()


def flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, so that a power failure cannot undo it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
