"""Recordings that senders upload, in parts, in the storage of recordings: every replica and every node can read them.

The parts of an upload are files in a folder that is named by the call and a token of 256 bits. The job of the call gets
a URL with that token, whose host can have no address on any network (RFC 6761), and copies the parts into one stored
file. The parts stay until the call has no job that could need them.
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import fsspec

from pipeline.domain.speech import Recording
from pipeline.errors import RecordingGone, StorageError
from pipeline.fetch.storage import Incoming, Store
from pipeline.sealed_files import open_stored

HOST = "uploaded.invalid"
FOLDER = "uploads"
RESUME_SECONDS = 86400.0  # after which an unfinished upload is removed
SETTLE_SECONDS = 600.0  # in which a finished upload is submitted
MAX_PARTS = 1000
MAX_OPEN = 8  # uploads of a call at the same time
PIECE_BYTES = 1 << 20
_FACTS = "upload.json"
_SUBMITTED = "submitted"  # holds the time
_ID = re.compile(r"[0-9a-f]{8}[A-Za-z0-9_-]{43}")  # the time of its creation, and the token
_NAME = re.compile(r"([0-9a-f-]{36})\.([0-9a-f]{8}[A-Za-z0-9_-]{43})")
_PART = re.compile(r"([0-9]{15})-([0-9]{15})")


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload of `length` bytes for a call. `sha256`: of the whole, hexadecimal; None: not declared."""

    call_id: UUID
    upload_id: str
    workspace_id: UUID
    length: int
    sha256: str | None = None

    @property
    def name(self) -> str:
        return f"{self.call_id}.{self.upload_id}"

    @property
    def expires(self) -> float:
        """Time after which an unfinished upload is removed, in seconds since 1970."""
        return int(self.upload_id[:8], 16) + RESUME_SECONDS

    def url(self, sha256: str) -> str:
        """Return the URL to submit. The same content has the same URL, but for its token."""
        return f"https://{HOST}/{sha256}?token={self.upload_id}"


@dataclass(frozen=True, slots=True)
class Part:
    """Received bytes from `offset` to `end`."""

    offset: int
    end: int
    path: str


def new_upload(call_id: UUID, workspace_id: UUID, length: int, sha256: str | None = None) -> Upload:
    return Upload(call_id, f"{int(time.time()):08x}{secrets.token_urlsafe(32)}", workspace_id, length, sha256)


def is_uploaded(url: str) -> bool:
    try:
        return urlsplit(url).hostname == HOST
    except ValueError:
        return False


@contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"The storage of uploads cannot be used ({type(error).__name__}).") from error


class Uploads:
    """The uploads in a storage of recordings, an fsspec address. Methods block, and raise `StorageError`."""

    def __init__(self, storage: str) -> None:
        self.store = Store(storage)
        self._fs, root = fsspec.core.url_to_fs(storage)
        self._root = f"{root.rstrip('/')}/{FOLDER}"

    def create(self, upload: Upload) -> None:
        facts = {name: str(value) if isinstance(value, UUID) else value for name, value in asdict(upload).items()}
        with _storing():
            self._fs.makedirs(self._folder(upload), exist_ok=True)
            self._fs.pipe_file(f"{self._folder(upload)}/{_FACTS}", json.dumps(facts).encode())

    def find(self, call_id: UUID, upload_id: str) -> Upload | None:
        """Return an upload of a call; None if there is none, or it has been removed."""
        if not _ID.fullmatch(upload_id):
            return None
        with _storing():
            try:
                facts = json.loads(self._fs.cat_file(f"{self._root}/{call_id}.{upload_id}/{_FACTS}"))
            except (FileNotFoundError, json.JSONDecodeError):
                return None
            return Upload(call_id, upload_id, UUID(facts["workspace_id"]), facts["length"], facts["sha256"])

    def add(self, upload: Upload, offset: int, incoming: Incoming, key: bytes | None) -> None:
        """Store received bytes as a part, sealed by `key`."""
        end = offset + incoming.size
        self.store.place(incoming, f"{FOLDER}/{upload.name}/{offset:015}-{end:015}", key)

    def note_submission(self, upload: Upload) -> None:
        """Record that the upload is whole and is being submitted."""
        with _storing():
            self._fs.pipe_file(f"{self._folder(upload)}/{_SUBMITTED}", str(int(time.time())).encode())

    def parts(self, upload: Upload) -> list[Part]:
        """Return the parts that lead furthest without a gap, in order. Other parts were sent twice."""
        with _storing():
            names = self._names(self._folder(upload))
        matches = [match for name in sorted(names) if (match := _PART.fullmatch(name.rpartition("/")[2]))]
        received = [Part(int(match[1]), int(match[2]), f"{self._folder(upload)}/{match[0]}") for match in matches]
        leads_to: dict[int, Part | None] = {0: None}
        for part in received:
            if part.offset in leads_to:
                leads_to.setdefault(part.end, part)
        chain: list[Part] = []
        previous = leads_to[max(leads_to)]
        while previous is not None:
            chain.append(previous)
            previous = leads_to[previous.offset]
        return chain[::-1]

    def read(self, parts: list[Part], key: bytes | None) -> Iterator[bytes]:
        """Yield the bytes of parts, which `key` opens if they are sealed."""
        for part in parts:
            with open_stored(self._fs.unstrip_protocol(part.path), key) as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece

    def remove(self, upload: Upload) -> None:
        self._remove(self._folder(upload))

    def of_call(self, call_id: UUID) -> int:
        return sum(name.rpartition("/")[2].startswith(f"{call_id}.") for name in self._all())

    def call_ids(self) -> set[UUID]:
        return {UUID(match[1]) for match in self._matches()}

    def remove_unneeded(self, erased: set[UUID], waiting: set[UUID], now: float) -> int:
        """Remove uploads of erased calls, and old ones of calls that do not wait for them; return how many.

        `waiting`: calls with a job that is not done.
        """
        removed = 0
        for match in self._matches():
            call_id, folder = UUID(match[1]), f"{self._root}/{match[0]}"
            submitted = self._submitted(folder)
            if submitted is None:
                is_old = now - int(match[2][:8], 16) > RESUME_SECONDS
            else:
                is_old = now - submitted > SETTLE_SECONDS and call_id not in waiting
            if call_id in erased or is_old:
                self._remove(folder)
                removed += 1
        return removed

    def _submitted(self, folder: str) -> int | None:
        with _storing():
            try:
                text = self._fs.cat_file(f"{folder}/{_SUBMITTED}")
            except FileNotFoundError:
                return None
        return int(text) if text.isdigit() else None

    def _matches(self) -> list[re.Match[str]]:
        return [match for name in self._all() if (match := _NAME.fullmatch(name.rpartition("/")[2]))]

    def _all(self) -> list[str]:
        with _storing():
            return self._names(self._root)

    def _names(self, folder: str) -> list[str]:
        self._fs.invalidate_cache()
        try:
            return [name.rstrip("/") for name in self._fs.ls(folder, detail=False)]
        except FileNotFoundError:
            return []

    def _folder(self, upload: Upload) -> str:
        return f"{self._root}/{upload.name}"

    def _remove(self, folder: str) -> None:
        with _storing():
            try:
                self._fs.rm(folder, recursive=True)
            except FileNotFoundError:
                return


def end_of(parts: list[Part]) -> int:
    """Return the number of received bytes."""
    return parts[-1].end if parts else 0


async def take(
    url: str, call_id: UUID, channel: int, storage: str, max_bytes: int, key: bytes | None = None
) -> Recording:
    """Copy an upload into one stored file, sealed by `key`.

    Raises `RecordingGone` where this call has no such upload, `StorageError`.
    """
    uploads: Any = await asyncio.to_thread(Uploads, storage)
    tokens = parse_qs(urlsplit(url).query).get("token", [])
    upload = await asyncio.to_thread(uploads.find, call_id, tokens[0]) if len(tokens) == 1 else None
    parts = await asyncio.to_thread(uploads.parts, upload) if upload is not None else []
    if upload is None or not parts or end_of(parts) != upload.length or upload.length > max_bytes:
        raise RecordingGone(
            "No such recording was uploaded for this call, or it has been removed: upload it again."
        ).with_facts(host=HOST)
    with uploads.store.receive() as incoming:
        pieces = uploads.read(parts, key)
        while piece := await asyncio.to_thread(next, pieces, b""):
            await asyncio.to_thread(incoming.write, piece)
        uri, sha256 = await asyncio.to_thread(uploads.store.keep, incoming, key)
        return Recording(channel, uri, sha256, incoming.size, key=key)
