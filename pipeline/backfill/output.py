"""Output folder of a backfill: Parquet parts, which also record what is done, and the folder's owner.

A part is written completely or not at all, and holds all recordings of a block. The parts are the only record of
progress. One run at a time owns the folder; a surviving process of an earlier run writes nothing more.
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

from pipeline.backfill.source import FolderUnusable, opened
from pipeline.errors import StorageError

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # relative to the source
        pa.field("status", pa.string(), nullable=False),  # completed or failed
        pa.field("sha256", pa.string()),  # of the recording; null if it could not be read
        pa.field("bytes", pa.int64()),
        pa.field("modified", pa.timestamp("us", "UTC")),  # of the file; reference date for "tomorrow"
        pa.field("duration", pa.float64()),  # seconds
        pa.field("layout", pa.string()),
        pa.field("language", pa.string()),
        pa.field("text", pa.string()),  # one line per turn
        pa.field("turns", pa.string()),  # JSON: `pipeline.domain.speech.Turn`, with words and their seconds
        pa.field("speakers", pa.string()),  # JSON: `pipeline.domain.speech.Speaker`
        pa.field("findings", pa.string()),  # JSON: `pipeline.domain.insight.Finding`
        pa.field("warnings", pa.list_(pa.string())),
        pa.field("code", pa.string()),  # of a failure, from `pipeline.errors`, with its message
        pa.field("error", pa.string()),
        pa.field("retryable", pa.bool_()),  # whether a retry may succeed
        pa.field("engine", pa.string()),  # recognition engine
        pa.field("seconds", pa.float64()),  # of processing, in parallel with others
        pa.field("done_at", pa.timestamp("us", "UTC")),
    ]
)
COMPLETED, FAILED = "completed", "failed"
MANIFEST, OWNER, STARTED = "_backfill.json", "_owner.json", "_started"  # Parquet readers skip names that begin with "_"
HEARTBEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0  # after which an owner on another machine counts as dead


class FolderTaken(StorageError):
    """Another run writes into this folder."""

    code = "folder_taken"
    retryable = False


class OtherBackfill(StorageError):
    """The folder holds results of another source or other engines."""

    code = "other_backfill"
    retryable = False


@dataclass(frozen=True, slots=True)
class Done:
    """Recordings in the parts: all `paths`, and those that `failed`, with their error codes."""

    paths: frozenset[str]
    failed: Mapping[str, str]


class Output:
    """Output folder; `url`: an fsspec folder, created if missing. Methods may raise `StorageError`, and block."""

    def __init__(self, url: str) -> None:
        self._fs, root = opened(url)
        self._root = root.rstrip("/")
        self._is_local = isinstance(self._fs, LocalFileSystem)

    # The run

    def acquire(self, about: Mapping[str, Any]) -> str:
        """Acquire the folder for a run and return the run's id.

        `about`: source and configuration, which stay the same for the folder. Raises `FolderTaken`, `OtherBackfill`.
        """
        manifest = self._json(MANIFEST)
        if manifest is not None and manifest != (expected := json.loads(json.dumps(about))):
            names = sorted(name for name in manifest | expected if manifest.get(name) != expected.get(name))
            raise OtherBackfill(
                f"The output folder has another {', '.join(names)}: use another folder, or the values in {MANIFEST}."
            )
        self._refuse_owner(self._json(OWNER))
        if manifest is None:
            self._write_json(MANIFEST, dict(about))
        run = uuid4().hex
        self.renew(run)
        return run

    def renew(self, run: str) -> None:
        process = psutil.Process()
        owner = {"run": run, "host": socket.gethostname(), "pid": process.pid, "began": process.create_time()}
        self._write_json(OWNER, owner | {"at": time.time()})

    def owned_by(self, run: str) -> bool:
        return (self._json(OWNER) or {}).get("run") == run

    def release(self, run: str) -> None:
        if self.owned_by(run):
            self._with_storage_errors(lambda: self._fs.rm_file(self._at(OWNER)))

    def _refuse_owner(self, owner: dict[str, Any] | None) -> None:
        if owner is None:
            return
        if owner["host"] == socket.gethostname():
            alive = _lives(owner["pid"], owner["began"])
        else:
            alive = time.time() - owner["at"] < SILENT_SECONDS
        if alive:
            raise FolderTaken(
                f"Process {owner['pid']} on {owner['host']} writes into the output folder: wait until it ends."
            )

    # The parts

    def done(self) -> Done:
        paths: set[str] = set()
        failed: dict[str, str] = {}
        for part in self._parts():
            table = self._read(part, ["path", "status", "code"])
            paths.update(table["path"].to_pylist())
            failures = table.filter(pc.equal(table["status"], FAILED))
            failed.update(zip(failures["path"].to_pylist(), failures["code"].to_pylist(), strict=True))
        return Done(frozenset(paths), failed)

    def remove_rows(self, paths: Iterable[str]) -> None:
        removed = pa.array(sorted(paths), pa.string())
        for part in self._parts():
            table = self._read(part)
            remaining = table.filter(pc.invert(pc.is_in(table["path"], removed)))
            if remaining.num_rows == table.num_rows:
                continue
            if remaining.num_rows:
                self._write(part, _parquet(remaining))
            else:
                self._with_storage_errors(lambda part=part: self._fs.rm_file(self._at(part)))

    def part(self, block: str) -> pa.Table | None:
        name = f"{block}.parquet"
        self._fs.invalidate_cache(self._root)  # another process may have written it
        return self._read(name) if self._with_storage_errors(lambda: self._fs.exists(self._at(name))) else None

    def write(self, block: str, rows: Sequence[Mapping[str, Any]], run: str) -> pa.Table:
        """Write the part of a block if `run` still owns the folder. Raises `FolderTaken`."""
        if not self.owned_by(run):
            raise FolderTaken("The output folder belongs to a later run.")
        table = pa.Table.from_pylist([dict(row) for row in rows], SCHEMA)
        self._write(f"{block}.parquet", _parquet(table))
        return table

    # Started blocks, to find the recording that kills its process

    def started(self, block: str, run: str) -> dict[str, Any] | None:
        note = self._json(f"{STARTED}/{block}.json")
        return note if note is not None and note["run"] == run else None

    def note_started(self, block: str, run: str, alone: str | None, deaths: Mapping[str, int]) -> None:
        self._write_json(f"{STARTED}/{block}.json", {"run": run, "alone": alone, "deaths": dict(deaths)})

    def remove_started(self) -> None:
        folder = self._at(STARTED)
        self._with_storage_errors(lambda: self._fs.rm(folder, recursive=True) if self._fs.exists(folder) else None)

    # Files

    def _parts(self) -> list[str]:
        def listed() -> list[str]:
            if not self._fs.exists(self._root):
                return []
            self._fs.invalidate_cache(self._root)
            return [str(name).rpartition("/")[2] for name in self._fs.ls(self._root, detail=False)]

        return sorted(name for name in self._with_storage_errors(listed) if name.endswith(".parquet"))

    def _read(self, part: str, columns: list[str] | None = None) -> pa.Table:
        def read() -> pa.Table:
            with self._fs.open(self._at(part), "rb") as file:
                return pq.read_table(file, columns=columns)

        return self._with_storage_errors(read)

    def _json(self, name: str) -> dict[str, Any] | None:
        def read() -> dict[str, Any] | None:
            try:
                data: dict[str, Any] = json.loads(self._fs.cat_file(self._at(name)))
                return data
            except FileNotFoundError:
                return None

        return self._with_storage_errors(read)  # type: ignore[no-any-return]

    def _write_json(self, name: str, data: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(data, indent=1).encode())

    def _write(self, name: str, data: bytes) -> None:
        """Write atomically: an object appears when complete, a local file is renamed."""
        target = self._at(name)
        if not self._is_local:
            self._with_storage_errors(lambda: self._fs.pipe_file(target, data))
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

        self._with_storage_errors(write)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _with_storage_errors(self, work: Any) -> Any:
        try:
            return work()
        except StorageError:
            raise
        except Exception as error:
            raise FolderUnusable.from_failure("The output folder cannot be read or written", error) from error


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _lives(pid: int, began: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - began) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
