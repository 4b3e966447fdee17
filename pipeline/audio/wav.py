"""What a WAV header says about its samples, and whether it can be believed.

Recorders write the header first and the lengths last; when they are killed, or write to a pipe, the lengths stay at
zero, at a placeholder or at whatever was true then.
"""

import struct
from dataclasses import dataclass
from typing import Protocol

PLACEHOLDER_FROM = 0x7FFF0000  # the usual "unknown" lengths lie between here and 2**32 - 1
HEADER_LIMIT = 1 << 20  # bytes to look for the data chunk in


class Bytes(Protocol):
    """An open, seekable file."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class WavHeader:
    """`promised`: seconds that the header declares, None where it declares none. `lies`: samples go on past them."""

    promised: float | None
    lies: bool


def read_header(file: Bytes, size: int) -> WavHeader | None:
    """Read the chunks of a RIFF/WAVE file of `size` bytes; None if it is no such file. Leaves the file at its start."""
    try:
        file.seek(0)
        return _read(file, size)
    finally:
        file.seek(0)


def _read(file: Bytes, size: int) -> WavHeader | None:
    riff = file.read(12)
    if riff[:4] != b"RIFF" or riff[8:12] != b"WAVE":
        return None
    position, bytes_per_second = 12, 0
    while position < min(size, HEADER_LIMIT):
        file.seek(position)
        name, length = _chunk(file)
        if name == b"fmt ":
            bytes_per_second = struct.unpack_from("<I", file.read(16).ljust(16, b"\0"), 8)[0]
        if name == b"data":
            return _judge(file, size, position + 8, length, bytes_per_second)
        position += 8 + length + length % 2
    return None


def _judge(file: Bytes, size: int, start: int, length: int, bytes_per_second: int) -> WavHeader:
    if length == 0 or length >= PLACEHOLDER_FROM or not bytes_per_second:
        return WavHeader(None, lies=length == 0 and size > start)
    position = start + length
    while position + 8 <= size:
        file.seek(position + position % 2)
        name, extent = _chunk(file)
        if not _is_chunk_name(name) or position + extent > size:
            return WavHeader(None, lies=True)
        position += 8 + extent + extent % 2
    return WavHeader(length / bytes_per_second, lies=False)


def _chunk(file: Bytes) -> tuple[bytes, int]:
    name, length = struct.unpack("<4sI", file.read(8).ljust(8, b"\0"))
    return name, length


def _is_chunk_name(name: bytes) -> bool:
    return all(0x20 <= byte < 0x7F for byte in name)
