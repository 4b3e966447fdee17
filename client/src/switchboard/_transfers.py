"""Where the bytes of an answer go: a file that is there whole or not at all, and a recording that is resumed."""

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Protocol, Self
from uuid import uuid4

import httpx

from switchboard import _answers
from switchboard.errors import TransferCut, UnexpectedAnswer

OnBytes = Callable[[int, int | None], None]  # bytes so far, and in all where the service says it
EXPORT_SECONDS: Final = 60.0  # between two pieces: the service gathers some hundred calls for each
SOUND: Final = ("audio/", "application/octet-stream")
MEDIA: Final = {"ndjson": "application/x-ndjson", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


class PartFile:
    """A file beside `path`, which takes its place when it is whole; otherwise it is removed."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def __enter__(self) -> Self:
        self._part = self._path.with_name(f".{self._path.name}.{uuid4().hex}.part")
        self.file: BinaryIO = self._part.open("x+b")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.file.close()
        self._part.unlink(missing_ok=True)

    def keep(self) -> Path:
        """The whole file, in its place."""
        self.file.close()
        self._part.replace(self._path)
        return self._path


def check_whole(file: BinaryIO, form: str) -> None:
    """Raise `TransferCut` for an export that lacks its end, though its connection did not say so."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4))
    tail = file.read()
    if not {"parquet": tail == b"PAR1", "ndjson": not tail or tail.endswith(b"\n")}.get(form, tail.endswith(b"\n")):
        raise TransferCut(f"the export ended after {size} bytes, without its end. Ask for it again.")


class Sink(Protocol):
    """What a recording is written to."""

    def seek(self, offset: int, /) -> int: ...
    def truncate(self, size: int, /) -> int: ...
    def write(self, data: bytes, /) -> int: ...


class Recording:
    """A recording as it arrives, in one answer or several: each goes on where the one before was cut."""

    def __init__(self, sink: Sink, on_progress: OnBytes | None) -> None:
        self._sink = sink
        self._tell = on_progress
        self._tag: str | None = None
        self._total: int | None = None
        self.received = 0

    def headers(self) -> dict[str, str]:
        """Of the next request. Without a tag it cannot be known whether it is the same file, and it begins again."""
        whole = {"Accept-Encoding": "identity"}
        if not self.received or self._tag is None:
            return whole
        return whole | {"Range": f"bytes={self.received}-", "If-Range": self._tag}

    def begin(self, answer: httpx.Response) -> None:
        """Take what is said of the bytes that follow. Raises `UnexpectedAnswer`."""
        self._tag = answer.headers.get("etag")
        if answer.status_code == httpx.codes.PARTIAL_CONTENT:
            first, total = _content_range(answer)
            if first != self.received:
                raise UnexpectedAnswer(f"bytes from {self.received} on were asked for, and those from {first} came.")
            self._total = total
            return
        self.received, self._total = 0, _number(answer.headers.get("content-length"))
        self._sink.seek(0)
        self._sink.truncate(0)

    def add(self, piece: bytes) -> None:
        """Write some bytes."""
        self._sink.write(piece)
        self.received += len(piece)
        if self._tell:
            self._tell(self.received, self._total)

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are there, as far as an answer said how many there are."""
        return self._total is None or self.received == self._total


def _content_range(answer: httpx.Response) -> tuple[int, int | None]:
    told = answer.headers.get("content-range", "")
    unit, _, places = told.partition(" ")
    span, _, total = places.partition("/")
    first = _number(span.partition("-")[0])
    if unit != "bytes" or first is None:
        raise _answers.not_ours(answer)
    return first, _number(total)


def _number(told: str | None) -> int | None:
    return int(told) if told is not None and told.isdecimal() else None
