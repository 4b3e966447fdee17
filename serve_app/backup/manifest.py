"""The manifest of a backup, manifest.json, the last file to be written into it, and its signature, manifest.sig.

The signature is an HMAC of the file's bytes with each secrets key of the service, and is checked before the manifest is
parsed. It covers the whole backup: the manifest has a digest of every file. A key that is stored in a backup never
verifies it: a person who can change the backup could sign the change as well.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

FILE = "manifest.json"
SIGNATURE = "manifest.sig"  # a line for each key: its fingerprint, and the HMAC of manifest.json
PURPOSE = b"switchboard backup manifest"
FORMAT = 1
DATABASE = "database"  # pg_dump's folder
RECORDINGS = "recordings"  # next to the backups and shared by them; files are named by their digest
LIST = "recordings.tsv"  # sha256, bytes, outcome, URI
CALLS = "calls.digests"  # SHA-256 of each call, by which the ledger of erasures names it
HANDED_IN = "handed-in"
KEYS = "secrets.keys"
MAX_BYTES = 64 << 20  # of the manifest: it is read into memory
TRUST = "If you trust every person who could write to the backup, pass --unsigned."


class BackupUnfit(Exception):
    """A folder is no complete backup; the message names the flaw."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TableContent(_Part):
    """A table at the moment of the backup; `db.server.dump` documents the digest."""

    rows: int
    digest: str


class FileContent(_Part):
    bytes: int
    sha256: str


class StoredRecordings(_Part):
    """The recordings that the database refers to."""

    how: Literal["copied", "listed"]  # listed: they stay in the bucket
    storage: str
    count: int
    bytes: int
    missing: int = 0  # not in the storage, or not with the digest that was stored


class Secrets(_Part):
    """What is needed to read sealed values of the database."""

    sealed: dict[str, int]  # count by kind
    keys: tuple[str, ...]  # fingerprints of the keys that were set
    included: bool  # whether the keys are in the backup


class Manifest(_Part):
    format: int = FORMAT
    name: str
    taken_at: datetime  # the moment of its state, by the database's clock
    seconds: float  # duration
    switchboard: str  # version
    revision: str  # of the schema
    postgresql: str  # version of the server
    pg_dump: int  # major version
    database_bytes: int  # of the tables in the server
    tables: dict[str, TableContent]
    files: dict[str, FileContent]
    recordings: StoredRecordings
    handed_in: int  # files that were handed in and not fetched yet
    secrets: Secrets
    ledger: dict[str, int] = {}  # of erasures: number of entries of each workspace

    @field_validator("files")
    @classmethod
    def _inside_the_backup(cls, files: dict[str, FileContent]) -> dict[str, FileContent]:
        if LIST not in files:
            raise ValueError(f"must contain {LIST}")
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or str(path) != name or "\0" in name:
                raise ValueError("must be paths below the backup's folder")
        return files

    def write(self, folder: Path, keys: Sequence[str]) -> None:
        """Write the manifest with a digest of itself, signed with each of `keys`, and flush it to disk."""
        body = self.model_dump(mode="json")
        content = json.dumps({**body, "digest": _digest(body)}, indent=1).encode()
        if keys:
            lines = [f"{fingerprint(key)} {sign(key, PURPOSE, content)}\n" for key in keys]
            write(folder / SIGNATURE, "".join(lines).encode())
        write(folder / FILE, content)

    @classmethod
    def read(cls, folder: Path, keys: Sequence[str], unsigned: bool = False) -> Self:
        """Return the manifest of a backup that one of `keys` signed. Raises `BackupUnfit`.

        `unsigned`: accept one without a signature, or with signatures of other keys; a wrong one is refused.
        """
        try:
            content = _content(folder / FILE)
        except FileNotFoundError:
            raise BackupUnfit(_not_a_backup(folder)) from None
        _check_signature(folder, content, keys, unsigned)
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise BackupUnfit(f"{folder / FILE} cannot be read: {error}") from error
        digest = body.pop("digest", None) if isinstance(body, dict) else None
        if digest != _digest(body):
            raise BackupUnfit(f"{folder / FILE} has changed since it was written.")
        if body.get("format") != FORMAT:
            raise BackupUnfit(f"{folder} has format {body.get('format')}; this version of Switchboard reads {FORMAT}.")
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise BackupUnfit(f"{folder / FILE} is not a manifest: {error.error_count()} fields are wrong.") from error


def backups(repository: Path) -> list[Path]:
    """Return the backups in a folder, the oldest first."""
    return sorted(path.parent for path in repository.glob(f"[!.]*/{FILE}"))


def fingerprint(key: str) -> str:
    """Return an identifier of a key, the same for both alphabets; it reveals nothing of a key with 256 random bits."""
    return hashlib.sha256(b"switchboard secrets key " + base64.b64encode(_bytes_of(key))).hexdigest()[:12]


def sign(key: str, purpose: bytes, content: bytes) -> str:
    """Return the HMAC-SHA256; `purpose` separates it from other uses of the key."""
    return hmac.digest(_bytes_of(key), purpose + b"\n" + content, "sha256").hex()


def is_signed(signatures: Mapping[str, str], keys: Sequence[str], purpose: bytes, content: bytes) -> bool | None:
    """Return whether one of `keys` signed `content`; None if none of the signatures is of one of them.

    `signatures`: by the fingerprint of their key.
    """
    by_fingerprint = {fingerprint(key): key for key in keys}
    shared = by_fingerprint.keys() & signatures.keys()
    if not shared:
        return None
    return any(
        hmac.compare_digest(
            signatures[name].encode("utf-8", "replace"), sign(by_fingerprint[name], purpose, content).encode()
        )
        for name in shared
    )


def file_content(path: Path) -> FileContent:
    with path.open("rb") as file:
        return FileContent(bytes=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def _bytes_of(key: str) -> bytes:
    return base64.urlsafe_b64decode(key.strip())  # either alphabet, as `Sealer` reads it


def _check_signature(folder: Path, content: bytes, keys: Sequence[str], unsigned: bool) -> None:
    """Raise `BackupUnfit` unless one of `keys` signed `content`."""
    try:
        lines = _content(folder / SIGNATURE)
    except FileNotFoundError:
        lines = b""
    signatures = dict(re.findall(r"^([0-9a-f]{12}) ([0-9a-f]{64})$", lines.decode("ascii", "replace"), re.MULTILINE))
    is_right = is_signed(signatures, keys, PURPOSE, content)
    if is_right:
        return
    if is_right is not None:
        raise BackupUnfit(f"{folder / FILE} or its signature has changed since it was written. Use another backup.")
    if unsigned:
        return
    if not signatures:
        raise BackupUnfit(f"{folder} is not signed: it has no {SIGNATURE} of its service. {TRUST}")
    carried = f" The keys in its {KEYS} do not count." if (folder / KEYS).exists() else ""
    raise BackupUnfit(
        f"{folder} is signed with other keys than those that are set: {', '.join(signatures)} (fingerprints).{carried} "
        "Add one of them to SWITCHBOARD_SECRETS_KEYS, or copy secrets.key of the former data folder into this one. "
        + TRUST
    )


def _content(path: Path) -> bytes:
    """Return the content of a regular file. Raises `FileNotFoundError` and `BackupUnfit`."""
    try:
        # Without O_NONBLOCK a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
                raise BackupUnfit(f"{path} is not a regular file of at most {MAX_BYTES >> 20} MiB.")
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BackupUnfit(f"{path} cannot be read: {error.strerror}.") from error


def write(path: Path, content: bytes) -> None:
    """Write a new file and flush it to disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _not_a_backup(folder: Path) -> str:
    existing = backups(folder) if folder.is_dir() else []
    if existing:
        return f"{folder} contains {len(existing)} backups; choose one of them, such as {existing[-1]}, the latest."
    return f"{folder} is not a backup: it has no {FILE}."
