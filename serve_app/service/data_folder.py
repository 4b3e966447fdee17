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
    """Return the folder where no setting names one: in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("switchboard") / "data"


def has_database(folder: Path) -> bool:
    """Whether the folder has an embedded PostgreSQL, running or not."""
    return (folder / "cluster").is_dir()


def find_key(data_dir: Path) -> str | None:
    """The folder's key, 32 bytes in base64; None where it has none."""
    try:
        return (data_dir.expanduser() / KEY_FILE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None


def make_key(data_dir: Path, key: str | None = None) -> str:
    """The folder's key; where it had none it gets `key`, or a random one. Of several that make one, one wins."""
    folder = data_dir.expanduser()
    known = find_key(folder)
    if known is not None:
        return known
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=KEY_FILE, dir=folder)  # for this user alone
    made = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write((key or base64.b64encode(secrets.token_bytes(32)).decode("ascii")) + "\n")
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(made, folder / KEY_FILE)  # whole or not at all
    finally:
        made.unlink()
    _flush(folder)
    return (folder / KEY_FILE).read_text(encoding="ascii").strip()


def _flush(folder: Path) -> None:
    """What is sealed with the key must not outlive it, whatever the power does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
