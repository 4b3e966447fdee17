"""Detection of impossible MP4 tables (ISO/IEC 14496-12) before a decoder allocates memory, and of several MP4 files.

A file of 453 bytes may declare twenty million samples of one byte each, for which the decoder builds 700 MB of index; a
file of 529 bytes, twenty chunks of two thousand million samples, for which it builds 960 MB. No valid table has more
entries than the file has bytes, nor do all together.
"""

import struct
from collections.abc import Iterator

from pipeline.audio.decode.wav import Range, SeekableFile

PARENTS = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"edts", b"mvex"})
COUNT_AT: dict[bytes, int] = {  # offset of the number of entries after the box header
    **dict.fromkeys((b"stts", b"ctts", b"stsc", b"stco", b"co64", b"stss", b"elst", b"trun"), 4),
    **dict.fromkeys((b"stsz", b"stz2"), 8),
}
MAX_ENTRIES = 20_000_000  # of the decoder's index, 35 bytes each; six hours in frames of 2.5 ms need half as many
MAX_RUNS = 1_000_000  # of chunks with the same number of samples
SAMPLES_A_BYTE = 8  # QuickTime's old codecs count several samples in a byte
MAX_PARTS = 1000  # files in one
MAX_BOXES = 400_000  # visited: six hours in fragments of a second have half as many


def has_absurd_tables(file: SeekableFile, size: int) -> bool:
    """Return whether the tables of any file of `size` bytes have more entries than that, each or together.

    A file that is no MP4 has no such boxes; the decoder's probe accepts many box types. Leaves the file at its start.
    """
    try:
        return _absurd(file, size)
    finally:
        file.seek(0)


def boxes(file: SeekableFile, size: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield every box of a file, each followed by the boxes inside it: (type, start of its content, end)."""
    ahead = [(0, size)]  # ranges of boxes to visit
    while ahead:
        at, end = ahead.pop()
        if end - at < 8:
            continue
        file.seek(at)
        length, name, inside = _box(file.read(16), at, end)
        ahead.append((at + length, end))
        if name in PARENTS:
            ahead.append((inside, at + length))
        yield name, inside, at + length


def _absurd(file: SeekableFile, size: int) -> bool:
    is_mp4 = False
    index = _Index(file, size)
    for number, (name, inside, _) in enumerate(boxes(file, size)):
        if number == MAX_BOXES:
            return is_mp4  # a file of nothing but boxes
        is_mp4 |= name in PARENTS
        if name == b"trak":
            index.end_track()
        elif name in COUNT_AT:
            count = index.note(name, inside)
            if count > size:
                return True
    return index.too_large


def parts(file: SeekableFile, size: int) -> tuple[Range, ...]:
    """Return the bytes of each MP4 file in a concatenated file; empty for a single one or none.

    A new one begins at a box `ftyp` followed by another `moov`; the decoder skips it. Leaves the file at its start.
    """
    begins: list[int] = []
    at, holds_tracks = 0, True
    try:
        for _ in range(MAX_BOXES):
            if at + 8 > size:
                break
            file.seek(at)
            length, name, _ = _box(file.read(16), at, size)
            if name == b"ftyp" and holds_tracks and len(begins) < MAX_PARTS:
                begins.append(at)
                holds_tracks = False
            elif not begins:
                return ()
            holds_tracks |= name == b"moov"
            at += length
    finally:
        file.seek(0)
    if not holds_tracks:  # the last part has no tracks, so it belongs to the one before
        begins.pop()
    return tuple(zip(begins, [*begins[1:], size], strict=True)) if len(begins) > 1 else ()


class _Index:
    """The index that the decoder would build for the tables of all tracks.

    It has one entry per sample, or, if each lasts one tick (uncompressed sound), one per 1024 of a chunk.
    """

    def __init__(self, file: SeekableFile, size: int) -> None:
        self._file, self._size = file, size
        self._entries = 0
        self._samples = 0  # in chunks
        self._too_many_runs = False
        self._begin()

    def _begin(self) -> None:
        self._sizes = self._chunks = 0
        self._plain = True
        self._runs: list[tuple[int, int]] = []  # of stsc boxes: start and number of entries

    def note(self, name: bytes, inside: int) -> int:
        """Record a box whose content begins at `inside`; return its declared number of entries."""
        self._file.seek(inside)
        head = self._file.read(16).ljust(16, b"\0")
        count: int = struct.unpack_from(">I", head, COUNT_AT[name])[0]
        if name == b"trun":
            self._entries += count
        elif name in (b"stsz", b"stz2"):
            self._sizes += count
        elif name in (b"stco", b"co64"):
            self._chunks += count
        elif name == b"stsc":
            self._runs.append((inside + 8, count))
        elif name == b"stts":
            self._plain &= count == 1 and head[12:16] == b"\0\0\0\1"
        return count

    def end_track(self) -> None:
        """Assign the boxes since the last call to one track, like the decoder, wherever they are."""
        if not self._plain:
            self._entries += self._sizes
        for at, count in self._runs:
            self._count_chunks(at, min(count, MAX_RUNS + 1))
        self._begin()

    def _count_chunks(self, at: int, count: int) -> None:
        self._file.seek(at)
        data = self._file.read(12 * count)
        runs = list(struct.iter_unpack(">III", data[: len(data) // 12 * 12]))
        following = [*(first for first, _, _ in runs[1:]), self._chunks + 1]
        for (first, samples, _), after in zip(runs, following, strict=False):
            out_of_order = first > after and after <= self._chunks  # the decoder corrects such a table
            self._samples += (self._chunks if out_of_order else max(0, after - first)) * samples
        self._too_many_runs |= count > MAX_RUNS

    @property
    def too_large(self) -> bool:
        self.end_track()
        max_entries = min(self._size, MAX_ENTRIES)
        return self._too_many_runs or self._entries > max_entries or self._samples > SAMPLES_A_BYTE * self._size


def _box(head: bytes, at: int, end: int) -> tuple[int, bytes, int]:
    """Return (length, type, start of content) of the box at `at`; a box that is too long ends with its parent."""
    length, name = struct.unpack(">I4s", head[:8].ljust(8, b"\0"))
    inside = at + 8
    if length == 1:
        length, inside = struct.unpack(">Q", head[8:16].ljust(8, b"\0"))[0], at + 16
    if length == 0 or length < inside - at or at + length > end:
        length = end - at
    return length, name, inside
