"""The output folder: Parquet parts, which are also the memory of what is done; and whose turn it is to write.

A part appears whole or not at all, and holds all recordings of a block. What is done is read from the parts: there is
no second account that could say something else. One run at a time owns the folder, and a process of an earlier run
that is still alive writes nothing more.
"""

import io
import json
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from pipeline.backfill.rows import FAILED, SCHEMA
from pipeline.backfill.source import FolderUnusable, opened
from pipeline.errors import StorageError

MANIFEST, OWNER, STARTED = "_backfill.json", "_owner.json", "_started"  # readers of Parquet leave out names with "_"
HEARTBEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0  # after which an owner on another machine counts as dead


class FolderTaken(StorageError):
    """Another run writes into this folder."""

    code = "folder_taken"
    retryable = False


class OtherBackfill(StorageError):
    """The folder holds what another source or other engines gave."""

    code = "other_backfill"
    retryable = False


@dataclass(frozen=True, slots=True)
class Done:
    """What the parts hold: `failed` of the `paths`, with the error code of each."""

    paths: frozenset[str]
    failed: Mapping[str, str]


class Output:
    """`url` is an fsspec folder, made where there is none. Every method may raise `StorageError`, and blocks."""

    def __init__(self, url: str) -> None:
        self._fs, root = opened(url)
        self._root = root.rstrip("/")
        self._is_local = isinstance(self._fs, LocalFileSystem)

    # The run

    def own(self, about: Mapping[str, Any]) -> str:
        """Take the folder for a run and return the run's id.

        `about`: source and configuration, which stay the same for the folder. Raises `FolderTaken`, `OtherBackfill`.
        """
        there = self._json(MANIFEST)
        if there is not None and there != (told := json.loads(json.dumps(about))):
            different = ", ".join(sorted(name for name in there | told if there.get(name) != told.get(name)))
            raise OtherBackfill(
                f"The output folder was begun with another {different}: give another folder, or what {MANIFEST} says."
            )
        self._refuse_owner(self._json(OWNER))
        if there is None:
            self._write_json(MANIFEST, dict(about))
        run = uuid4().hex
        self.renew(run)
        return run

    def renew(self, run: str) -> None:
        """Say that `run` is alive."""
        process = psutil.Process()
        owner = {"run": run, "host": socket.gethostname(), "pid": process.pid, "began": process.create_time()}
        self._write_json(OWNER, owner | {"at": time.time()})

    def owned_by(self, run: str) -> bool:
        """Whether the folder is still that run's."""
        return (self._json(OWNER) or {}).get("run") == run

    def leave(self, run: str) -> None:
        """End a run."""
        if self.owned_by(run):
            self._guarded(lambda: self._fs.rm_file(self._at(OWNER)))

    def _refuse_owner(self, owner: dict[str, Any] | None) -> None:
        if owner is None:
            return
        if owner["host"] == socket.gethostname():
            alive = _lives(owner["pid"], owner["began"])
        else:
            alive = time.time() - owner["at"] < SILENT_SECONDS
        if alive:
            raise FolderTaken(
                f"Process {owner['pid']} on {owner['host']} writes into the output folder: wait until it has ended."
            )

    # The parts

    def done(self) -> Done:
        """What was done by all runs so far."""
        paths: set[str] = set()
        failed: dict[str, str] = {}
        for part in self._parts():
            table = self._read(part, ["path", "state", "code"])
            paths.update(table["path"].to_pylist())
            lost = table.filter(pc.equal(table["state"], FAILED))
            failed.update(zip(lost["path"].to_pylist(), lost["code"].to_pylist(), strict=True))
        return Done(frozenset(paths), failed)

    def forget(self, paths: Iterable[str]) -> None:
        """Take the rows of these recordings out of the parts."""
        out = pa.array(sorted(paths), pa.string())
        for part in self._parts():
            table = self._read(part)
            kept = table.filter(pc.invert(pc.is_in(table["path"], out)))
            if kept.num_rows == table.num_rows:
                continue
            if kept.num_rows:
                self._write(part, _parquet(kept))
            else:
                self._guarded(lambda part=part: self._fs.rm_file(self._at(part)))

    def part(self, block: str) -> pa.Table | None:
        """The rows of a block that was written; None: it was not."""
        name = f"{block}.parquet"
        self._fs.invalidate_cache(self._root)  # another process may have written it
        return self._read(name) if self._guarded(lambda: self._fs.exists(self._at(name))) else None

    def write(self, block: str, rows: Sequence[Mapping[str, Any]], run: str) -> pa.Table:
        """Write the part of a block, for as long as the folder is that run's. Raises `FolderTaken`."""
        if not self.owned_by(run):
            raise FolderTaken("The output folder belongs to a later run.")
        table = pa.Table.from_pylist([dict(row) for row in rows], SCHEMA)
        self._write(f"{block}.parquet", _parquet(table))
        return table

    # What was started, to find the recording that ends its process

    def started(self, block: str, run: str) -> dict[str, Any] | None:
        """What this run has noted of a block that it has started before; None: nothing."""
        noted = self._json(f"{STARTED}/{block}.json")
        return noted if noted is not None and noted["run"] == run else None

    def note_started(self, block: str, run: str, alone: str | None, deaths: Mapping[str, int]) -> None:
        self._write_json(f"{STARTED}/{block}.json", {"run": run, "alone": alone, "deaths": dict(deaths)})

    def forget_started(self) -> None:
        """Remove the notes, at the end of a run."""
        folder = self._at(STARTED)
        self._guarded(lambda: self._fs.rm(folder, recursive=True) if self._fs.exists(folder) else None)

    # Files

    def _parts(self) -> list[str]:
        def listed() -> list[str]:
            if not self._fs.exists(self._root):
                return []
            self._fs.invalidate_cache(self._root)
            return [str(name).rpartition("/")[2] for name in self._fs.ls(self._root, detail=False)]

        return sorted(name for name in self._guarded(listed) if name.endswith(".parquet"))

    def _read(self, part: str, columns: list[str] | None = None) -> pa.Table:
        def read() -> pa.Table:
            with self._fs.open(self._at(part), "rb") as file:
                return pq.read_table(file, columns=columns)

        return self._guarded(read)

    def _json(self, name: str) -> dict[str, Any] | None:
        def read() -> dict[str, Any] | None:
            try:
                found: dict[str, Any] = json.loads(self._fs.cat_file(self._at(name)))
                return found
            except FileNotFoundError:
                return None

        return self._guarded(read)  # type: ignore[no-any-return]

    def _write_json(self, name: str, data: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(data, indent=1).encode())

    def _write(self, name: str, data: bytes) -> None:
        """An object store shows an object when it is complete; a local file is renamed when it is."""
        target = self._at(name)
        if not self._is_local:
            self._guarded(lambda: self._fs.pipe_file(target, data))
            return
        path = Path(target)
        unfinished = path.with_name(f".{path.name}.{uuid4().hex}")

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)

        self._guarded(write)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _guarded(self, work: Any) -> Any:
        try:
            return work()
        except StorageError:
            raise
        except Exception as error:
            raise FolderUnusable.because("The output folder cannot be read or written", error) from error


def _parquet(table: pa.Table) -> bytes:
    held = io.BytesIO()
    pq.write_table(table, held, compression="zstd")
    return held.getvalue()


def _lives(pid: int, began: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - began) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
