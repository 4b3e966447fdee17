"""Files that `switchboard submit FILE` hands in on the service's machine.

The command copies the file into a folder that only the service's user may enter, and submits a URL whose host can have
no address on any network (RFC 6761) and whose token of 256 bits is part of the copy's name. A sender therefore cannot
name another file or another call's copy. Redirects do not lead here.
"""

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

from pipeline.domain import sniff
from pipeline.domain.speech import Recording
from pipeline.errors import NotAudio, RecordingEmpty, RecordingError, RecordingGone, StorageError
from pipeline.fetch import body, room
from pipeline.fetch.storage import Incoming, Store, flaw_of

HOST = "handed-in.invalid"
TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_CALL_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TAKEN = ".taken"  # suffix of the note that says where a copy is stored, for a job that is retried
ABANDONED_SECONDS = 30 * 86400.0  # the service may be down this long before a copy is removed
UNFINISHED_SECONDS = 86400.0  # age at which the partial copy of a killed command is removed
PIECE_BYTES = 1 << 20
ROOM_BYTES = room.MIN_ROOM_BYTES  # to keep free on the folder's disk, where the embedded PostgreSQL may be as well
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NoRoom(Exception):
    """A file does not fit on the disk of the folder; the message says what to do. Nothing of it remains there."""


def make_private(folder: Path) -> Path:
    """Create the folder if missing; only this user may enter it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def hand_in(folder: Path, file: Path, call_id: UUID, name: str | None = None) -> str:
    """Copy `file` for one call; return the URL to submit. The same content has the same URL, but for its token.

    `name` replaces the file's name in the URL: under another name it is another recording.

    Raises `NoRoom` and `OSError`. A file needs its size twice: the service stores it before the copy is removed.
    """
    _sweep(folder)
    size, free = file.stat().st_size, shutil.disk_usage(folder).free
    if 2 * size + ROOM_BYTES > free:
        raise _no_room(folder, size, free)
    token = secrets.token_urlsafe(32)
    copy, digest = folder / f"{call_id}.{token}", hashlib.sha256()
    unfinished = folder / f"{copy.name}.part"
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with file.open("rb") as source, os.fdopen(descriptor, "wb") as target:
            while piece := source.read(PIECE_BYTES):
                digest.update(piece)
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
        unfinished.rename(copy)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise _no_room(folder, size, shutil.disk_usage(folder).free) from error
        raise
    return f"https://{HOST}/{digest.hexdigest()[:16]}/{quote(name or file.name)}?token={token}"


def _no_room(folder: Path, size: int, free: int) -> NoRoom:
    return NoRoom(
        f"It takes {(2 * size + ROOM_BYTES) / 1e6:.0f} MB in {folder} until it is stored, and {free / 1e6:.0f} MB are "
        "free. Free some space, or wait until the service has stored earlier files, and submit it again."
    )


def withdraw(folder: Path, url: str, call_id: UUID) -> None:
    with contextlib.suppress(OSError, RecordingGone):
        _copy_of(folder, url, call_id).unlink()


def is_handed_in(url: str) -> bool:
    try:
        return urlsplit(url).hostname == HOST
    except ValueError:
        return False


async def take(
    url: str,
    call_id: UUID,
    channel: int,
    storage: str,
    folder: Path | None,
    max_bytes: int,
    key: bytes | None = None,
    keep: bool = False,
) -> Recording:
    """Move the copy into the store, sealed by `key`. A job that is retried gets what an earlier one stored.

    `keep`: the copy stays, and a job that is retried stores it again: `key` may exist in memory only.
    Raises `RecordingGone` where this call has no such copy, else what `fetch` raises.
    """
    if folder is None or not await asyncio.to_thread(_is_private, folder):
        raise _gone()
    copy = _copy_of(folder, url, call_id)
    stored = None if keep else await asyncio.to_thread(_taken, copy, channel)
    if stored is not None:
        return replace(stored, key=key)
    try:
        recording = await _store(copy, channel, storage, max_bytes, key)
    except RecordingError as error:
        if not error.retryable:
            copy.unlink(missing_ok=True)
        raise
    if not keep:
        await asyncio.to_thread(_note, copy, recording)
    return recording


async def _store(copy: Path, channel: int, storage: str, max_bytes: int, key: bytes | None) -> Recording:
    store = Store(storage)
    with store.receive() as incoming, _opened(copy) as source:
        head = source.read(sniff.HEAD_BYTES)
        if not head:
            raise RecordingEmpty("The file that was handed in has zero bytes.")
        if os.fstat(source.fileno()).st_size > max_bytes:
            raise body.too_large(max_bytes)
        if content_type := sniff.detect_type(head, None):
            raise NotAudio(f"The file that was handed in is {content_type} instead of a recording.")
        source.seek(0)
        while await asyncio.to_thread(_copy_piece, source, incoming):
            pass
        uri, sha256 = await asyncio.to_thread(store.keep, incoming, key)
        return Recording(channel, uri, sha256, incoming.size, key=key)


def _copy_piece(source: IO[bytes], incoming: Incoming) -> bool:
    piece = source.read(PIECE_BYTES)
    if piece:
        incoming.write(piece)
    return bool(piece)


def _opened(copy: Path) -> IO[bytes]:
    """Open the copy itself: no link, and no file of another user."""
    try:
        descriptor = os.open(copy, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _gone() from None
    except OSError as error:
        raise StorageError(f"The file that was handed in cannot be read: {error.strerror}.") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise _gone()
    return os.fdopen(descriptor, "rb")


def _taken(copy: Path, channel: int) -> Recording | None:
    try:
        with _opened(copy.with_name(copy.name + TAKEN)) as note:
            recording = Recording(**(json.load(note) | {"channel": channel}))
    except (RecordingGone, ValueError, TypeError):  # none, or one that a crash cut short: the copy is still there
        return None
    if flaw_of(recording):
        raise _gone()
    return recording


def _note(copy: Path, recording: Recording) -> None:
    """Record where the copy is stored, then remove the copy: in this order, one of the two always exists."""
    note = copy.with_name(copy.name + TAKEN)
    try:
        with os.fdopen(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(replace(recording, key=None)), file)
            file.flush()
            os.fsync(file.fileno())
        copy.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"The location of a stored recording could not be written: {error.strerror}.") from error


def _copy_of(folder: Path, url: str, call_id: UUID) -> Path:
    tokens = parse_qs(urlsplit(url).query).get("token", [])
    if len(tokens) != 1 or not TOKEN.fullmatch(tokens[0]):
        raise _gone()
    return folder / f"{call_id}.{tokens[0]}"


def _is_private(folder: Path) -> bool:
    """Return whether this user owns the folder and no other user may enter it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _gone() -> RecordingGone:
    return RecordingGone(
        "No such file was handed in for this call on this machine, or it has been removed: submit it again."
    ).with_facts(host=HOST)


def call_ids(folder: Path) -> set[UUID]:
    names = (path.name.partition(".")[0] for path in folder.iterdir()) if _is_private(folder) else ()
    return {UUID(name) for name in names if _CALL_ID.fullmatch(name)}


def remove(folder: Path, call_id: UUID) -> None:
    """Remove every file of a call. Raises OSError."""
    for path in folder.glob(f"{call_id}.*"):
        path.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    now = time.time()
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < now - (UNFINISHED_SECONDS if path.suffix == ".part" else ABANDONED_SECONDS):
                path.unlink()
