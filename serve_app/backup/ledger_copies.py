"""Copies of the ledger of erasures, next to the recordings: they survive the restore of an older database.

A copy has an HMAC of its entry's hash with each secrets key of the service. The hash covers all entries before it, so
the signature of the last entry of a workspace covers all of them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4

from fsspec.implementations.local import LocalFileSystem

from db.records import ledger
from db.records.ledger import BrokenLedger, Entry
from pipeline.errors import StorageError
from serve_app.backup import manifest, recordings

FOLDER = "erasure-ledger"
PURPOSE = b"switchboard erasure ledger"
MAX_BYTES = 64 << 20  # of a copy
TRUST = "If you trust every person who could write to it, pass --unsigned."
_COPY = re.compile(r"/([0-9a-f-]{36}/[0-9]{12,})\.json")

Chains: TypeAlias = Mapping[UUID, Sequence[Entry]]
"""All entries of each workspace, in their order."""


@dataclass(frozen=True, slots=True)
class LedgerCopies:
    """The copies in a storage. `keys`: those that are set, which sign and verify them."""

    storage: str
    keys: Sequence[str]

    def write(self, entry: Entry) -> None:
        """Write a copy, or replace an equal one. Raises `StorageError`, also if another entry has its place."""
        signatures = {manifest.fingerprint(key): manifest.sign(key, PURPOSE, entry.hash) for key in self.keys}
        content = json.dumps({"entry": entry.content(), "signatures": signatures}, indent=1).encode()
        try:
            fs, folder = self._opened()
            target = f"{folder}/{_place(entry)}.json"
            is_taken = fs.exists(target) and _parsed(fs.cat_file(target))[0].hash != entry.hash
            if not is_taken:
                _put(fs, target, content)
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"An entry of the ledger could not be stored ({type(error).__name__}).") from error
        if is_taken:
            raise StorageError("Its place in the storage is taken by an entry of another database.")

    def read(self, unsigned: bool = False) -> Chains:
        """Return all entries; each chain and the signature of its last entry were checked.

        `unsigned`: accept chains without a signature, or of other keys. Raises `BrokenLedger`, `StorageError`.
        """
        chains: dict[UUID, list[Entry]] = {}
        signatures: dict[UUID, Mapping[str, str]] = {}
        for place, content in self._contents():
            entry, signatures_of_entry = _parsed(content)
            if place != _place(entry):
                raise BrokenLedger(f"Its file {place}.json has another entry.")
            chains.setdefault(entry.workspace_id, []).append(entry)
            signatures[entry.workspace_id] = signatures_of_entry
        for workspace_id, chain in chains.items():
            ledger.verify_chain(chain)
            self._check_signature(chain[-1], signatures[workspace_id], unsigned)
        return chains

    def set_aside(self) -> None:
        """Rename the folder of the copies, if it exists. Raises `StorageError`."""
        try:
            fs, folder = self._opened()
            fs.invalidate_cache()
            target = f"{folder}-{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
            if isinstance(fs, LocalFileSystem):
                if fs.exists(folder):
                    Path(folder).rename(target)
                return
            files = list(fs.find(folder))  # in a bucket a folder is no object that could be renamed
            for path in files:
                fs.cp_file(path, target + path.removeprefix(folder))
            if files:
                fs.rm(files)
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"The ledger could not be set aside ({type(error).__name__}).") from error

    def _opened(self) -> tuple[Any, str]:
        fs, root = recordings.opened(self.storage)
        return fs, f"{root.rstrip('/')}/{FOLDER}"

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and content of each copy, in the order of the entries."""
        try:
            fs, folder = self._opened()
            fs.invalidate_cache()
            # Without it, a folder that cannot be read would be an empty one.
            strict = {"on_error": "raise"} if isinstance(fs, LocalFileSystem) else {}
            files = fs.find(folder, detail=True, **strict) if fs.exists(folder) else {}
            places = {path: _COPY.fullmatch(path.removeprefix(folder)) for path in sorted(files)}
            copies = {path: place[1] for path, place in places.items() if place}
            if any(files[path]["type"] != "file" or files[path]["size"] > MAX_BYTES for path in copies):
                raise BrokenLedger(f"One of its files is not a regular file of at most {MAX_BYTES >> 20} MiB.")
            with ThreadPoolExecutor(recordings.AT_ONCE) as pool:
                yield from zip(copies.values(), pool.map(fs.cat_file, copies), strict=True)
        except BrokenLedger:
            raise
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"The ledger of erasures cannot be read ({type(error).__name__}).") from error

    def _check_signature(self, last: Entry, signatures: Mapping[str, str], unsigned: bool) -> None:
        is_right = manifest.is_signed(signatures, self.keys, PURPOSE, last.hash)
        if is_right or (is_right is None and unsigned):
            return
        name = f"Entry {last.sequence} of workspace {last.workspace_id}"
        if is_right is not None:
            raise BrokenLedger(f"{name} has a wrong signature.")
        raise BrokenLedger(
            f"{name} is not signed with a key that is set; its keys: {', '.join(signatures) or 'none'} (fingerprints). "
            f"SWITCHBOARD_SECRETS_KEYS must have one of them. {TRUST}"
        )


def _place(entry: Entry) -> str:
    return f"{entry.workspace_id}/{entry.sequence:012}"


def _parsed(content: bytes) -> tuple[Entry, Mapping[str, str]]:
    """Return the entry of a copy, and its signatures by key. Raises `BrokenLedger`."""
    try:
        copy = json.loads(content)
        signatures = {str(key): str(signature) for key, signature in copy["signatures"].items()}
        return Entry.from_content(copy["entry"]), signatures
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise BrokenLedger(f"One of its files cannot be read ({type(error).__name__}).") from error


def _put(fs: Any, target: str, content: bytes) -> None:
    """Write a file completely or not at all, and flush it to disk."""
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(target, content)
        return
    path = Path(target)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{uuid4().hex}")
    try:
        manifest.write(unfinished, content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
