import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

MIN_ROOM_BYTES = 256 << 20  # below it a disk is reported as full, and no file is handed in


def free_bytes(place: str | Path) -> int | None:
    """Return the bytes that are free on the disk of a folder, which need not exist yet; None for a bucket.

    `place`: a path or an fsspec URL.
    """
    parts = urlsplit(str(place))
    if parts.scheme not in ("", "file", "local"):
        return None
    folder = Path(unquote(parts.path) if parts.scheme else str(place)).absolute()
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
