"""The manifest of a backup, manifest.json: the last file to be written into it."""

import hashlib
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

FILE = "manifest.json"
FORMAT = 1
DATABASE = "database"  # pg_dump's folder
RECORDINGS = "recordings"  # next to the backups and shared by them; files are named by their digest
LIST = "recordings.tsv"  # sha256, bytes, outcome, URI
HANDED_IN = "handed-in"
KEYS = "secrets.keys"


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

    def write(self, folder: Path) -> None:
        """Write the manifest with a digest of itself, and flush it to disk."""
        body = self.model_dump(mode="json")
        path = folder / FILE
        with path.open("x", encoding="utf-8") as file:
            json.dump({**body, "digest": _digest(body)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the manifest of a backup. Raises `BackupUnfit`."""
        try:
            body = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BackupUnfit(_not_a_backup(folder)) from None
        except (ValueError, OSError) as error:
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
    """Return an identifier of a key; it reveals nothing of a key with 256 random bits."""
    return hashlib.sha256(b"switchboard secrets key " + key.strip().encode()).hexdigest()[:12]


def file_content(path: Path) -> FileContent:
    """Return size and digest of a file."""
    with path.open("rb") as file:
        return FileContent(bytes=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _not_a_backup(folder: Path) -> str:
    existing = backups(folder) if folder.is_dir() else []
    if existing:
        return f"{folder} contains {len(existing)} backups; choose one of them, such as {existing[-1]}, the latest."
    return f"{folder} is not a backup: it has no {FILE}."
