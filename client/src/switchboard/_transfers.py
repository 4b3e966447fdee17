import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Protocol, Self
from uuid import uuid4

import httpx

from switchboard import _answers
from switchboard.errors import TransferCut, UnexpectedAnswer

OnBytes = Callable[[int, int | None], None]  # bytes received, and total if known
MIN_PIECE: Final = 8 << 20  # bytes of a part of an upload
MAX_PIECES: Final = 500  # of an upload; the service allows 1,000
EXPORT_SECONDS: Final = 60.0  # max. time between two chunks, each of up to a few hundred calls
SOUND: Final = ("audio/", "application/octet-stream")
MEDIA: Final = {"ndjson": "application/x-ndjson", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


class PartFile:
    """A temporary file next to `path` that replaces it when complete, and is deleted otherwise."""

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
        """Move the complete file to its path and return the path."""
        self.file.close()
        self._part.replace(self._path)
        return self._path


def piece_size(size: int) -> int:
    """Return the bytes of each part of an upload."""
    return max(MIN_PIECE, -(-size // MAX_PIECES))


def piece_of(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def file_digest(path: Path) -> str:
    """Return the digest of a file as in the header Repr-Digest (RFC 9530)."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return f"sha-256=:{base64.b64encode(digest).decode()}:"


def check_whole(file: BinaryIO, form: str) -> None:
    """Raise `TransferCut` if the end of an export is missing."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4))
    tail = file.read()
    if not {"parquet": tail == b"PAR1", "ndjson": not tail or tail.endswith(b"\n")}.get(form, tail.endswith(b"\n")):
        raise TransferCut(f"the export is incomplete after {size} bytes. Retry.")


class Sink(Protocol):
    """Target of a recording."""

    def seek(self, offset: int, /) -> int: ...
    def truncate(self, size: int, /) -> int: ...
    def write(self, data: bytes, /) -> int: ...


class Recording:
    """A download of a recording that resumes after lost connections."""

    def __init__(self, sink: Sink, on_progress: OnBytes | None) -> None:
        self._sink = sink
        self._on_progress = on_progress
        self._tag: str | None = None
        self._total: int | None = None
        self.received = 0

    def headers(self) -> dict[str, str]:
        """Return the headers of the next request. Without an ETag the download restarts."""
        whole = {"Accept-Encoding": "identity"}
        if not self.received or self._tag is None:
            return whole
        return whole | {"Range": f"bytes={self.received}-", "If-Range": self._tag}

    def begin(self, answer: httpx.Response) -> None:
        """Read the headers of a response. Raises `UnexpectedAnswer`."""
        self._tag = answer.headers.get("etag")
        if answer.status_code == httpx.codes.PARTIAL_CONTENT:
            first, total = _content_range(answer)
            if first != self.received:
                raise UnexpectedAnswer(f"requested bytes from {self.received}, received bytes from {first}.")
            self._total = total
            return
        self.received, self._total = 0, _number(answer.headers.get("content-length"))
        self._sink.seek(0)
        self._sink.truncate(0)

    def add(self, piece: bytes) -> None:
        """Write a chunk."""
        self._sink.write(piece)
        self.received += len(piece)
        if self._on_progress:
            self._on_progress(self.received, self._total)

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are received, as far as the total is known."""
        return self._total is None or self.received == self._total


def _content_range(answer: httpx.Response) -> tuple[int, int | None]:
    header = answer.headers.get("content-range", "")
    unit, _, places = header.partition(" ")
    span, _, total = places.partition("/")
    first = _number(span.partition("-")[0])
    if unit != "bytes" or first is None:
        raise _answers.unexpected(answer)
    return first, _number(total)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
