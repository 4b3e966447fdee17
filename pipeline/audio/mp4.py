"""Tables of an MP4 file (ISO/IEC 14496-12) that cannot be true, found before a decoder makes room for them.

A file of 453 bytes may declare twenty million samples of one byte each: the decoder then sets up 700 MB of index. No
true table has more entries than the file has bytes.
"""

import struct
from typing import Protocol

PARENTS = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"edts", b"mvex"})
COUNT_AT: dict[bytes, int] = {  # where in the box, after its header, the number of entries stands
    **dict.fromkeys((b"stts", b"ctts", b"stsc", b"stco", b"co64", b"stss", b"elst", b"trun"), 4),
    **dict.fromkeys((b"stsz", b"stz2"), 8),
}
MOST_BOXES = 400_000  # looked at: six hours in fragments of a second have half as many


class Bytes(Protocol):
    """An open, seekable file."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, /) -> int: ...


def has_absurd_tables(file: Bytes, size: int) -> bool:
    """Whether any table of a file of `size` bytes has more entries than that. Leaves the file at its start.

    Takes any file: what is no MP4 has no boxes, or none of these. The decoder's own probe decides by any of many types.
    """
    try:
        return _absurd(file, size)
    finally:
        file.seek(0)


def _absurd(file: Bytes, size: int) -> bool:
    ahead = [(0, size)]  # stretches of boxes that are still to be looked at
    known = False
    for _ in range(MOST_BOXES):
        while ahead and ahead[-1][1] - ahead[-1][0] < 8:
            ahead.pop()
        if not ahead:
            return False
        at, end = ahead.pop()
        file.seek(at)
        length, name, inside = _box(file.read(16), at, end)
        if at + length < end:
            ahead.append((at + length, end))
        known |= name in PARENTS
        if name in PARENTS:
            ahead.append((inside, at + length))
        elif name in COUNT_AT:
            file.seek(inside + COUNT_AT[name])
            if struct.unpack(">I", file.read(4).ljust(4, b"\0"))[0] > size:
                return True
    return known  # a file of nothing but boxes


def _box(head: bytes, at: int, end: int) -> tuple[int, bytes, int]:
    """(length, type, where its content begins) of the box at `at`; one that goes too far ends with what holds it."""
    length, name = struct.unpack(">I4s", head[:8].ljust(8, b"\0"))
    inside = at + 8
    if length == 1:
        length, inside = struct.unpack(">Q", head[8:16].ljust(8, b"\0"))[0], at + 16
    if length == 0 or length < inside - at or at + length > end:
        length = end - at
    return length, name, inside
