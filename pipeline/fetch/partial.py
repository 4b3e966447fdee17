"""Partial files of interrupted transfers, so that only the rest is requested.

A part is useful only as the beginning of the same content. It is stored with the server's validator, and the rest is
requested on that condition (RFC 9110, 13.1.5 and 14). The response must agree in the validator, the total length and
the last received bytes; otherwise the recording is fetched from the start.
"""

import contextlib
import email.utils
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

OVERLAP = 16 * 1024  # bytes requested again and compared: a server may use one validator for two contents
ABANDONED_AFTER = 24 * 3600.0  # seconds; no fetch resumes a part that is older
LIMIT = 4 << 30  # bytes of all partial files of a folder; the oldest are removed first

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.IGNORECASE)


def is_whole(headers: httpx.Headers) -> bool:
    """Return whether a 206 has all bytes: some servers answer so to a request without a range."""
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
    if match is None:
        return False
    first, last, total = (int(number) for number in match.groups())
    return first == 0 and last == total - 1


@dataclass(frozen=True, slots=True)
class Version:
    """Identifies the content of a response.

    `validator`: a strong entity tag or a date of last modification; `total`: its length in bytes, None if unknown.
    """

    validator: str
    total: int | None
    media_type: str | None

    @property
    def is_tag(self) -> bool:
        return self.validator.startswith('"')


class RangeRefused(Exception):
    """The server does not resume the transfer: the recording must be fetched from the start."""


def version_of(headers: httpx.Headers, total: int | None) -> Version | None:
    """Return what identifies the content of a 200; None if a transfer cannot be resumed safely."""
    if headers.get("accept-ranges", "bytes").strip().lower() == "none" or _is_encoded(headers):
        return None
    tag = headers.get("etag", "").strip()
    if len(tag) > 2 and tag[0] == tag[-1] == '"':  # a weak tag (W/) does not identify bytes
        return Version(tag, total, headers.get("content-type"))
    modified = headers.get("last-modified", "").strip()
    if modified and _is_strong(modified, headers.get("date", "")):
        return Version(modified, total, headers.get("content-type"))
    return None


def check_continues(headers: httpx.Headers, start: int, version: Version) -> int:
    """Return the total length that a 206 names. Raises `RangeRefused` if it is not what was requested."""
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
    if match is None or _is_encoded(headers):
        raise RangeRefused
    first, last, total = (int(number) for number in match.groups())
    length = headers.get("content-length")
    if first != start or not first <= last < total or version.total not in (None, total):
        raise RangeRefused
    if length is not None and "transfer-encoding" not in headers and int(length) != last - first + 1:
        raise RangeRefused
    validator = headers.get("etag" if version.is_tag else "last-modified")
    if validator is not None and validator.strip() != version.validator:
        raise RangeRefused
    return total


def _is_encoded(headers: httpx.Headers) -> bool:
    return headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


def _is_strong(modified: str, date: str) -> bool:
    """Return whether a modification date identifies bytes: at least 1 s before the response (RFC 9110, 8.8.2.2)."""
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


def leave(path: Path, folder: Path, name: str, version: Version, size: int, sha256: str) -> None:
    """Store the file at `path` in `folder` as the part of the recording `name`, replacing an earlier one.

    Raises OSError.
    """
    part, note = _paths(folder, name)
    written = path.with_suffix(".note")
    content = _Note(version.validator, version.total, version.media_type, size, sha256)
    try:
        written.write_text(json.dumps(asdict(content)))
        path.replace(part)
        written.replace(note)
    finally:
        written.unlink(missing_ok=True)
    _make_room(folder)


def take(folder: Path, name: str, path: Path) -> tuple[Version, "hashlib._Hash", int] | None:
    """Move the stored part of the recording `name` to `path`; return its version, running digest and size.

    Returns None if there is no part, another process took it, or its content has changed. Reads the whole part.
    """
    part, note = _paths(folder, name)
    taken = path.with_suffix(".note")
    try:
        note.rename(taken)  # the process that moves the note owns the part
    except OSError:
        return None
    try:
        content = _Note(**json.loads(taken.read_text()))
        part.rename(path)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        if (digest.hexdigest(), path.stat().st_size) != (content.sha256, content.size):
            raise ValueError("content of the part has changed")
    except (OSError, ValueError, TypeError):
        path.unlink(missing_ok=True)
        return None
    finally:
        taken.unlink(missing_ok=True)
    return Version(content.validator, content.total, content.media_type), digest, content.size


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    hashed = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
    return folder / f"{hashed}.part", folder / f"{hashed}.json"


def _make_room(folder: Path) -> None:
    """Keep all parts together below `LIMIT`: the sender decides how many there are."""
    parts = []
    for path in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            state = path.stat()
            parts.append((state.st_mtime, state.st_size, path))
    total = sum(size for _, size, _ in parts)
    for _, size, path in sorted(parts)[:-1]:
        if total <= LIMIT:
            return
        total -= size
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
