"""Forwards the log lines of all processes of a service to one place: standard output, or rotating files in a folder.

Replicas, CPU processes, the standby and Ray write files in the run folder, which goes with the service. The supervisor
calls `LogStream.forward` several times a second; it needs no thread, since a thread would not survive its forks.

Events go the same way: two writers to one pipe would put an event inside a long line, which is written in pieces.
"""

import json
import logging
import os
import re
import select
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Protocol

from pipeline.observability.logs import cleaned

STDOUT = 1
FILE = "switchboard.log"
EVENTS = "events.log"  # in the run folder
FILE_BYTES, FILES = 50 * 2**20, 6  # in a folder: 300 MB at most
SCAN_SECONDS = 1.0  # between two searches for new files
READ_BYTES = 1 << 18  # of a file at once
LINE_BYTES = 1 << 16  # a longer line is cut
LAST_SECONDS = 5.0  # for the last lines, once everything has ended
START = 60  # characters of a line that contain its time
SUFFIXES = (".log", ".out", ".err")
_ROTATED = re.compile(r"\.\d+$")
# A record of Ray's own processes, in C++ and in Python. Their progress, which is much, stays in their files.
_RECORD = re.compile(r"^(?:\[[\d-]+ [\d:,.]+ ([A-Z]) |[\d-]+ [\d:,.]+\t([A-Z]+)\b)")
_PROGRESS = ("I", "D", "T", "INFO", "DEBUG")
_LOCAL_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})\d*(?![\dZ+-])")


def write_event(folder: Path, event: Mapping[str, Any]) -> None:
    """Have an event written to standard output, by the `LogStream` of the run folder."""
    with (folder / EVENTS).open("a") as file:
        file.write(f"{json.dumps(event)}\n")


class Sink(Protocol):
    def write(self, line: bytes) -> bool:
        """Write a line, or return False if there is no room now; then it is offered again."""

    def close(self) -> None: ...


class Descriptor:
    """An open descriptor, such as standard output. A reader that does not read never blocks the service."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._rest = b""

    def write(self, line: bytes) -> bool:
        if not self.drain():
            return False
        self._rest = line
        self.drain()
        return True

    def drain(self) -> bool:
        """Write what remains of the last line; return whether all of it was written."""
        while self._rest:
            if not self._poll.poll(0):
                return False
            try:
                written = os.write(self._descriptor, self._rest[: select.PIPE_BUF])
            except OSError:  # the reader is gone
                written = len(self._rest)
            self._rest = self._rest[written:]
        return True

    def close(self) -> None:
        self.drain()


class Files:
    """Rotating files in a folder that only this user may enter."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._handler = RotatingFileHandler(folder / FILE, maxBytes=FILE_BYTES, backupCount=FILES - 1, encoding="utf-8")
        self._handler.setFormatter(logging.Formatter("%(message)s"))

    def write(self, line: bytes) -> bool:
        text = line.decode("utf-8", "replace").rstrip("\n")
        self._handler.handle(logging.LogRecord("", logging.INFO, "", 0, text, None, None))
        return True

    def close(self) -> None:
        self._handler.close()


@dataclass(slots=True)
class _Followed:
    path: Path
    offset: int = 0
    is_progress: bool | None = None  # the last record, to which lines without a time belong; None before the first one

    @property
    def component(self) -> str:
        return _ROTATED.sub("", self.path.name).rpartition(".")[0]

    @property
    def has_events(self) -> bool:
        return self.path.name == EVENTS

    @property
    def is_ours(self) -> bool:
        """Whether the service's processes log there, and no process of Ray."""
        return self.path.parent.name == "serve" or self.component == "standby"


class LogStream:
    """Follows the log files below `folder`; a renamed file is read to its end under its new name."""

    def __init__(self, folder: Path, as_json: bool, target: Path | None) -> None:
        """`target`: a folder for rotating files; None: standard output, where events go in any case."""
        self._folder, self._as_json = folder, as_json
        (folder / EVENTS).touch(mode=0o600)  # the first search finds it, so that no event waits for the second
        self._stdout = Descriptor(STDOUT)
        self._sink: Sink = Files(target) if target else self._stdout
        self._files: dict[tuple[int, int], _Followed] = {}
        self._waiting: Iterator[tuple[Sink, bytes]] = iter(())
        self._next: tuple[Sink, bytes] | None = None
        self._next_scan = 0.0

    def forward(self) -> bool:
        """Forward what is new; return False if the sink takes no more now."""
        if time.monotonic() >= self._next_scan:
            self._next_scan = time.monotonic() + SCAN_SECONDS
            self._scan()
        if not self._stdout.drain() or not self._write_waiting():
            return False
        for followed in list(self._files.values()):
            self._waiting = self._lines(followed)
            if not self._write_waiting():
                return False
        return self._stdout.drain()

    def close(self) -> None:
        """Forward the last lines of processes that have ended."""
        deadline = time.monotonic() + LAST_SECONDS
        before = -1
        while time.monotonic() < deadline:
            self._next_scan = 0.0
            took_all, read = self.forward(), sum(followed.offset for followed in self._files.values())
            if took_all and read == before:
                break
            before = read if took_all else -1
            time.sleep(0 if took_all else 0.05)
        self._stdout.close()
        self._sink.close()

    def _write_waiting(self) -> bool:
        while True:
            if self._next is None:
                self._next = next(self._waiting, None)
            if self._next is None:
                return True
            sink, line = self._next
            if not sink.write(line):
                return False
            self._next = None

    def _scan(self) -> None:
        """Find new and renamed files, and forget those that are gone."""
        seen: dict[tuple[int, int], _Followed] = {}
        for path in self._paths():
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            identity = status.st_dev, status.st_ino
            followed = self._files.get(identity, _Followed(path))
            followed.path = path
            if status.st_size < followed.offset:  # another file with the number of one that is gone
                followed.offset = 0
            seen[identity] = followed
        self._files = seen

    def _paths(self) -> Iterator[Path]:
        sessions = [path for path in self._folder.glob("ray/session_*/logs") if not path.parent.is_symlink()]
        for path in (*self._folder.glob("*.log*"), *(file for logs in sessions for file in sorted(logs.rglob("*")))):
            if _ROTATED.sub("", path.name).endswith(SUFFIXES) and path.is_file() and not path.is_symlink():
                yield path

    def _lines(self, followed: _Followed) -> Iterator[tuple[Sink, bytes]]:
        """Yield the new complete lines of a file, each with where it goes."""
        sink = self._stdout if followed.has_events else self._sink
        while True:
            try:
                with followed.path.open("rb") as file:
                    file.seek(followed.offset)
                    content = file.read(READ_BYTES)
            except OSError:  # renamed or removed since the last search
                return
            end = content.rfind(b"\n") + 1
            if not end and len(content) == READ_BYTES:
                end = READ_BYTES
            if not end:
                return
            followed.offset += end
            for line in content[:end].splitlines():
                if text := self._formatted(followed, line[:LINE_BYTES].decode("utf-8", "replace")):
                    yield sink, f"{text}\n".encode()

    def _formatted(self, followed: _Followed, line: str) -> str:
        """Return a line in the stream's format, with the zone of its time; "" leaves it out."""
        if followed.has_events:
            return line
        component = followed.component
        if followed.is_ours and (line.startswith("{") or not self._as_json):
            return with_zone(line)
        if not followed.is_ours and _is_progress(followed, line):
            return ""
        text = with_zone(cleaned(line))
        if not self._as_json:
            return f"{component}: {text}"
        fields = {"asctime": datetime.now(UTC).isoformat(timespec="milliseconds"), "component_name": component}
        return json.dumps({**fields, "message": text})


def _is_progress(followed: _Followed, line: str) -> bool:
    if record := _RECORD.match(line):
        followed.is_progress = (record[1] or record[2]) in _PROGRESS
    if followed.is_progress is None:  # what a process prints, such as the trace of its end, is no progress
        is_output = followed.component.startswith("worker-") or ".err" in followed.path.name
        return not is_output or not line.strip() or line.startswith((":job_id:", ":actor_name:", ":task_name:"))
    return followed.is_progress


def with_zone(line: str) -> str:
    """Return a line whose first time, of this machine, has its zone: 2026-11-28T18:10:47.123+01:00."""
    return _LOCAL_TIME.sub(_zoned, line[:START], count=1) + line[START:]


def _zoned(match: "re.Match[str]") -> str:
    local = datetime.fromisoformat(f"{match[1]}T{match[2]}.{match[3]}")
    return local.astimezone().isoformat(timespec="milliseconds")
