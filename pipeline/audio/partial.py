"""What was received of a recording whose transfer was cut, kept so that only the rest is asked for.

Half a file is worth something only as the beginning of the very same content. So it is kept with what its server said
of that content, and the rest is asked for under that condition (RFC 9110, 13.1.5 and 14). What comes back has to agree
in the validator, in the whole length and in the last bytes that are there already; else all of it is fetched anew.
"""

import contextlib
import email.utils
import hashlib
import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

OVERLAP = 16 * 1024  # bytes asked for once more and compared: a server may call two contents by one validator
ABANDONED_AFTER = 24 * 3600.0  # seconds; no fetch lasts that long, so its process was killed
LIMIT = 4 << 30  # bytes of all partial files of a folder; the oldest give way

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Version:
    """What a server said of the content that it began to send.

    `validator`: a strong entity tag or a date of last modification; `total`: its length in bytes, None if unknown.
    """

    validator: str
    total: int | None
    media_type: str | None

    @property
    def is_tag(self) -> bool:
        return self.validator.startswith('"')


class RangeRefused(Exception):
    """The server does not go on where the transfer was cut: the recording has to be fetched anew."""


def version_of(headers: httpx.Headers, total: int | None) -> Version | None:
    """What identifies the content of a 200; None where a part of it could not be continued safely."""
    if headers.get("accept-ranges", "bytes").strip().lower() == "none" or _is_encoded(headers):
        return None
    tag = headers.get("etag", "").strip()
    if len(tag) > 2 and tag[0] == tag[-1] == '"':  # a weak tag (W/) does not vouch for bytes
        return Version(tag, total, headers.get("content-type"))
    modified = headers.get("last-modified", "").strip()
    if modified and _is_strong(modified, headers.get("date", "")):
        return Version(modified, total, headers.get("content-type"))
    return None


def check_continues(headers: httpx.Headers, start: int, version: Version) -> int:
    """What a 206 says, held against what was asked for: the content's whole length. Raises `RangeRefused`."""
    said = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
    if said is None or _is_encoded(headers):
        raise RangeRefused
    first, last, total = (int(number) for number in said.groups())
    length = headers.get("content-length")
    if first != start or not first <= last < total or version.total not in (None, total):
        raise RangeRefused
    if length is not None and "transfer-encoding" not in headers and int(length) != last - first + 1:
        raise RangeRefused
    named = headers.get("etag" if version.is_tag else "last-modified")
    if named is not None and named.strip() != version.validator:
        raise RangeRefused
    return total


def _is_encoded(headers: httpx.Headers) -> bool:
    return headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


def _is_strong(modified: str, date: str) -> bool:
    """A date of last modification vouches for bytes if it lies a second before the answer (RFC 9110, 8.8.2.2)."""
    try:
        age = email.utils.parsedate_to_datetime(date) - email.utils.parsedate_to_datetime(modified)
    except (ValueError, TypeError, OverflowError):
        return False
    return age.total_seconds() >= 1


@dataclass(frozen=True, slots=True)
class _Note:
    validator: str
    total: int | None
    media_type: str | None
    size: int
    sha256: str


def leave(path: Path, name: str, version: Version, size: int, sha256: str) -> None:
    """Keep the file at `path` as the beginning of the recording `name`, in place of what was kept of it. May raise
    OSError."""
    part, note = _paths(path.parent, name)
    written = path.with_suffix(".note")
    said = _Note(version.validator, version.total, version.media_type, size, sha256)
    try:
        written.write_text(json.dumps(asdict(said)))
        path.replace(part)
        written.replace(note)
    finally:
        written.unlink(missing_ok=True)
    _make_room(path.parent)


def take(folder: Path, name: str, path: Path) -> tuple[Version, "hashlib._Hash", int] | None:
    """Move what is kept of the recording `name` to `path`: (its version, its running digest, its size).

    None where there is nothing, another process has just taken it, or it is not what was left. Reads all of it.
    """
    part, note = _paths(folder, name)
    taken = path.with_suffix(".note")
    try:
        note.rename(taken)  # whoever moves the note owns the part
    except OSError:
        return None
    try:
        said = _Note(**json.loads(taken.read_text()))
        part.rename(path)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        if (digest.hexdigest(), path.stat().st_size) != (said.sha256, said.size):
            raise ValueError("not what was left")
    except (OSError, ValueError, TypeError):
        path.unlink(missing_ok=True)
        return None
    finally:
        taken.unlink(missing_ok=True)
    return Version(said.validator, said.total, said.media_type), digest, said.size


def sweep(folder: Path) -> None:
    """Remove what processes that were killed left behind, and parts for which nobody came.

    By the clock that dates files there, which may be another machine's.
    """
    with tempfile.TemporaryFile(dir=folder) as now:
        before = os.fstat(now.fileno()).st_mtime - ABANDONED_AFTER
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    hashed = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
    return folder / f"{hashed}.part", folder / f"{hashed}.json"


def _make_room(folder: Path) -> None:
    """Senders decide how much is cut: together the parts stay below `LIMIT`."""
    found = []
    for path in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            state = path.stat()
            found.append((state.st_mtime, state.st_size, path))
    held = sum(size for _, size, _ in found)
    for _, size, path in sorted(found)[:-1]:
        if held <= LIMIT:
            return
        held -= size
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
