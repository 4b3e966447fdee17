"""WAV headers: what they declare about the samples, and whether it is plausible.

Recorders write the header first and the lengths last; if they are killed, or write to a pipe, the lengths stay zero, a
placeholder or an outdated value. Others write a call in several chunks, or concatenate files.
"""

import io
import struct
from dataclasses import dataclass
from typing import Protocol

PLACEHOLDER_FROM = 0x7FFF0000  # common placeholders are between this and 2**32 - 1
HEADER_LIMIT = 1 << 20  # bytes in which the data chunk must begin
UNCOMPRESSED = frozenset({1, 3, 6, 7, 0xFFFE})  # format tags: PCM, float, A-law, mu-law, extensible
MAX_PARTS = 1000  # stretches of samples in one file

Range = tuple[int, int]  # bytes, the last exclusive


class SeekableFile(Protocol):
    """An open, seekable file."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class WavHeader:
    """`promised`: declared seconds, None if a header declares none. `lies`: samples continue after the declared length.

    `parts`: for each stretch of samples the bytes that, joined, are a WAV file of it. `more`: there are more than
    `MAX_PARTS`. Only the last part may have no declared end.
    """

    promised: float | None
    lies: bool
    parts: tuple[tuple[Range, ...], ...] = ()
    more: bool = False


class FileRanges(io.RawIOBase):
    """Ranges of a file's bytes, read as one file."""

    def __init__(self, file: SeekableFile, ranges: tuple[Range, ...]) -> None:
        self._file, self._ranges, self._at = file, ranges, 0
        self._size = sum(last - first for first, last in ranges)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes: fewer at the end of a range, none at the end of the file."""
        begin = 0
        for first, last in self._ranges:
            if self._at < begin + last - first:
                place = first + self._at - begin
                self._file.seek(place)
                data = self._file.read(last - place if size < 0 else min(size, last - place))
                self._at += len(data)
                return data
            begin += last - first
        return b""


def read_header(file: SeekableFile, size: int) -> WavHeader | None:
    """Read the chunks of a RIFF/WAVE file of `size` bytes, or return None. Leaves the file at its start."""
    try:
        file.seek(0)
        return _read(file, size)
    finally:
        file.seek(0)


def chunk_of(file: SeekableFile, size: int, chunk_name: bytes, max_bytes: int) -> bytes:
    """Return max. `max_bytes` of the first chunk of that name in the first form of a WAV file; empty without one."""
    if not _is_wave(file, 0):
        return b""
    position = 12
    for _ in range(MAX_PARTS):
        if position + 8 > size:
            break
        file.seek(position)
        name, length = _chunk(file)
        if name == chunk_name:
            return file.read(min(length, max_bytes))
        position += 8 + length + length % 2
    return b""


@dataclass(slots=True)
class _Form:
    """The RIFF form that begins at `start`."""

    start: int
    bytes_per_second: int = 0
    head_end: int | None = None  # start of its first data chunk
    data: int = 0  # start of its last one

    def part(self, last: int) -> tuple[Range, ...]:
        """Return the last data chunk, up to `last`, preceded by the header it needs."""
        if self.data == self.head_end:
            return ((self.start, last),)
        return ((self.start, self.head_end or 0), (self.data, last))


def _read(file: SeekableFile, size: int) -> WavHeader | None:
    if not _is_wave(file, 0):
        return None
    form, position = _Form(0), 12
    parts: list[tuple[Range, ...]] = []
    promised = 0.0
    while position + 8 <= size and (form.head_end or position < form.start + HEADER_LIMIT):
        file.seek(position)
        name, length = _chunk(file)
        start = position + 8
        if name == b"data":
            if len(parts) == MAX_PARTS:
                return WavHeader(promised, False, tuple(parts), more=True)
            form.head_end, form.data = form.head_end or position, position
            if length == 0 or length >= PLACEHOLDER_FROM or not form.bytes_per_second:
                return WavHeader(None, length == 0 and size > start, (*parts, form.part(size)))
            parts.append(form.part(min(start + length, size)))
            promised += length / form.bytes_per_second
        elif form.head_end is None:
            if name == b"fmt ":
                form.bytes_per_second = _bytes_per_second(file.read(16).ljust(16, b"\0"))
        elif name == b"RIFF" and _is_wave(file, position):
            form, position = _Form(position), position + 12
            continue
        elif not _is_chunk_name(name) or start + length > size:
            return WavHeader(None, True, (*parts[:-1], form.part(size)))
        position = start + length
        if length % 2 and not _is_wave(file, position):  # some writers omit the padding byte
            position += 1
    return WavHeader(promised, False, tuple(parts)) if parts else None


def _bytes_per_second(form: bytes) -> int:
    """Return the bytes per second: of uncompressed samples by rate and size, as many writers declare a wrong one."""
    tag, _, rate, declared, block = struct.unpack_from("<HHIIH", form)
    return int(rate * block if tag in UNCOMPRESSED else declared)


def _is_wave(file: SeekableFile, position: int) -> bool:
    file.seek(position)
    head = file.read(12)
    return head[:4] == b"RIFF" and head[8:] == b"WAVE"


def _chunk(file: SeekableFile) -> tuple[bytes, int]:
    name, length = struct.unpack("<4sI", file.read(8).ljust(8, b"\0"))
    return name, length


def _is_chunk_name(name: bytes) -> bool:
    return all(0x20 <= byte < 0x7F for byte in name)
