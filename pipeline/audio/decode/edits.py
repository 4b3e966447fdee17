"""Positions of the sound of MP4 and QuickTime tracks according to their tables (ISO/IEC 14496-12, 8.6).

FFmpeg fills an empty edit between two others with sound from elsewhere in the track. It rounds edits to packets. If one
sample of uncompressed sound lasts longer than the others, it makes a packet of each sample, and decoding takes longer
than real time. Such tables are hidden from it and applied here, precise to the sample.
"""

import io
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from pipeline.audio.decode.collect import Floats
from pipeline.audio.decode.mp4 import MAX_BOXES, boxes
from pipeline.audio.decode.wav import SeekableFile

MAX_ENTRIES = 100_000  # of an applied table; longer ones are left to FFmpeg
MAX_TRACKS = 64
UNBOUNDED = 1e9  # seconds, of an edit without end
ROUNDED = 2e-3  # seconds of error in lengths of edits, which are in the movie's units, mostly 1/1000
UNCOMPRESSED = frozenset(
    (
        b"sowt",
        b"twos",
        b"raw ",
        b"NONE",
        b"ulaw",
        b"alaw",
        b"lpcm",
        b"ipcm",
        b"fpcm",
        b"in24",
        b"in32",
        b"fl32",
        b"fl64",
    )
)
NORMAL_RATE = 1 << 16  # of an edit; rate 0 shows one moment for its whole length


class PlacedSound(NamedTuple):
    """Sound decoded from second `decoded` on that belongs to second `at`."""

    decoded: float
    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The pieces of a track, in order of both times, and its length in seconds with them; None if unknown."""

    pieces: tuple[PlacedSound, ...]
    seconds: float | None

    def place(self, time: float, block: Floats, rate: int) -> Iterator[tuple[float, Floats]]:
        """Yield the parts of a block decoded at second `time` that have a position, with that position in seconds."""
        end = time + len(block) / rate
        for index in range(_before(self.pieces, time, "decoded"), len(self.pieces)):
            piece = self.pieces[index]
            if piece.decoded >= end:
                return
            first = max(0, round((piece.decoded - time) * rate))
            last = min(len(block), round((piece.decoded + piece.seconds - time) * rate))
            if first < last:
                yield piece.at + time + first / rate - piece.decoded, block[first:last]


def _before(pieces: Sequence[PlacedSound], time: float, clock: str) -> int:
    """Return the last piece that begins before a time, else the first."""
    return max(0, bisect_right(pieces, time, key=lambda piece: getattr(piece, clock)) - 1)


@dataclass(frozen=True, slots=True)
class EditTables:
    """The tables of a file: timelines to apply and `lacking` seconds, both by track id.

    `lacking`: how much shorter a track's samples are than its declared length, at unknown positions. `patches`: bytes
    by position that hide edits and gaps from FFmpeg.
    """

    timelines: Mapping[int, Timeline] = field(default_factory=dict)
    lacking: Mapping[int, float] = field(default_factory=dict)
    patches: Mapping[int, bytes] = field(default_factory=dict)


class Patched:
    """A file with some bytes replaced."""

    def __init__(self, file: SeekableFile, size: int, patches: Mapping[int, bytes]) -> None:
        self._file, self._size, self._at = file, size, 0
        self._patches = patches

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        self._file.seek(self._at)
        data = self._file.read(size if size >= 0 else max(0, self._size - self._at))
        for place, patch in self._patches.items():
            first, last = max(place, self._at), min(place + len(patch), self._at + len(data))
            if first < last:
                inside = patch[first - place : last - place]
                data = data[: first - self._at] + inside + data[last - self._at :]
        self._at += len(data)
        return data


def read(file: SeekableFile, size: int) -> EditTables:
    """Read the tables of the audio tracks of any file; leaves it at its start."""
    try:
        tracks = [track for track in _tracks(file, size) if track.audio]
    finally:
        file.seek(0)
    lacking = {track.id: track.lacking for track in tracks if track.lacking > 0}
    timelines = {track.id: track.timeline() for track in tracks}
    complete = {of: timeline for of, timeline in timelines.items() if timeline is not None}
    if not any(track.is_edited or track.has_gaps for track in tracks) or len(complete) < len(timelines):
        return EditTables(lacking=lacking)
    return EditTables(complete, lacking, {place: patch for track in tracks for place, patch in track.patches()})


@dataclass(slots=True)
class _Track:
    """The tables of one track. `runs`: (samples, units each lasts); `edits`: (seconds, its unit or -1)."""

    id: int = 0
    audio: bool = False
    scale: int = 0  # units a second
    declared: int = 0  # units
    codec: bytes = b""
    runs: Sequence[tuple[int, ...]] = ()
    edits: Sequence[tuple[float, int]] = ()
    runs_at: int = 0  # position of the table's number of entries
    edits_at: int = 0  # position of the name of their table
    too_long: bool = False  # a table

    @property
    def is_edited(self) -> bool:
        """Whether there is more than one edit from the start, which FFmpeg applies as well."""
        return len(self.edits) > 1 or any(unit < 0 for _, unit in self.edits)

    @property
    def has_gaps(self) -> bool:
        return self.codec in UNCOMPRESSED and len(self.runs) > 1 and min(units for _, units in self.runs) == 1

    @property
    def sound_seconds(self) -> float:
        return sum(samples * units for samples, units in self.runs) / self.scale if self.scale else 0.0

    @property
    def lacking(self) -> float:
        return self.declared / self.scale - self.sound_seconds if self.sound_seconds else 0.0

    def patches(self) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) that declare no edits, and one run of samples that last a unit."""
        if self.edits:
            yield self.edits_at, b"free"
        if self.has_gaps:
            yield self.runs_at, struct.pack(">III", 1, sum(samples for samples, _ in self.runs), 1)

    def timeline(self) -> Timeline | None:
        """Return the position of each piece; None if edits go back, or a table is too long or damaged."""
        media = [PlacedSound(0.0, 0.0, UNBOUNDED)]
        if self.has_gaps:
            media = list(islice(_media(self.runs, self.scale), MAX_ENTRIES + 1))
        if self.too_long or not self.scale or len(media) > MAX_ENTRIES:
            return None
        pieces, at, before = ([] if self.edits else media), 0.0, 0.0
        for seconds, unit in self.edits:
            begin = max(before, unit / self.scale)
            if 0 <= unit < (before - ROUNDED) * self.scale:
                return None
            if unit >= 0:
                pieces += _cut(media, begin, seconds or UNBOUNDED, at)
                before = begin + seconds
            at += seconds
        return Timeline(tuple(pieces), self._seconds(pieces[-1]) if pieces and self.sound_seconds else None)

    def _seconds(self, last: PlacedSound) -> float:
        """Return the end of the last piece, which the tables of a fragmented file do not declare."""
        rest = max(0.0, self.sound_seconds - last.decoded)
        return last.at + (last.seconds if self.has_gaps else min(last.seconds, rest))


def _media(runs: Sequence[tuple[int, ...]], scale: int) -> Iterator[PlacedSound]:
    """Yield stretches of samples that last a unit each, except for the last sample of each stretch."""
    decoded = at = length = 0
    for samples, units in runs:
        if units == 1:
            length += samples
            continue
        for _ in range(samples):
            length += 1
            yield PlacedSound(decoded / scale, at / scale, length / scale)
            decoded, at, length = decoded + length, at + length - 1 + units, 0
    if length:
        yield PlacedSound(decoded / scale, at / scale, length / scale)


def _cut(media: Sequence[PlacedSound], begin: float, seconds: float, at: float) -> Iterator[PlacedSound]:
    """Yield an edit's part of the media: `seconds` from second `begin` on, which belong to second `at`."""
    for index in range(_before(media, begin, "at"), len(media)):
        piece = media[index]
        if piece.at >= begin + seconds:
            return
        first, last = max(piece.at, begin), min(piece.at + piece.seconds, begin + seconds)
        if first < last:
            yield PlacedSound(piece.decoded + first - piece.at, at + first - begin, last - first)


def _tracks(file: SeekableFile, size: int) -> list[_Track]:
    tracks: list[_Track] = []
    scale = 0
    for index, (name, inside, end) in enumerate(boxes(file, size)):
        if index == MAX_BOXES or len(tracks) > MAX_TRACKS:
            return []
        if name == b"mvhd":
            scale, _ = _header(file, inside)
        elif name == b"trak":
            tracks.append(_Track())
        elif tracks:
            _note(tracks[-1], file, name, inside, end, scale)
    return tracks


def _note(track: _Track, file: SeekableFile, name: bytes, inside: int, end: int, scale: int) -> None:
    """Record a box in its track; `scale`: the movie's units per second, which edits use."""
    if name == b"tkhd":
        track.id, _ = _header(file, inside)
    elif name == b"mdhd":
        track.scale, track.declared = _header(file, inside)
    elif name == b"hdlr":
        track.audio |= _bytes(file, inside + 8, 4) == b"soun"
    elif name == b"stsd":
        track.codec = _bytes(file, inside + 12, 4)
    elif name == b"stts":
        track.runs_at, track.runs = inside + 4, list(_entries(track, file, inside, end, ">II"))
    elif name == b"elst" and scale:
        form = ">QqI" if _bytes(file, inside, 1) == b"\1" else ">IiI"
        entries = _entries(track, file, inside, end, form)
        track.edits_at = inside - (4 if _bytes(file, inside - 4, 4) == name else 12)  # with a length of 64 bits
        track.edits = [(length / scale, unit if rate == NORMAL_RATE else -1) for length, unit, rate in entries]


def _entries(track: _Track, file: SeekableFile, inside: int, end: int, form: str) -> Iterator[tuple[int, ...]]:
    count, width = int.from_bytes(_bytes(file, inside + 4, 4), "big"), struct.calcsize(form)
    track.too_long |= count > MAX_ENTRIES
    room = max(0, (end - inside - 8) // width)
    data = _bytes(file, inside + 8, min(count, MAX_ENTRIES, room) * width)
    return struct.iter_unpack(form, data[: len(data) // width * width])


def _header(file: SeekableFile, inside: int) -> tuple[int, int]:
    """Return two numbers of a header: units per second (for `tkhd` the track's id) and their count (0: unknown)."""
    skipped, form = (20, ">IQ") if _bytes(file, inside, 1) == b"\1" else (12, ">II")
    first, second = struct.unpack(form, _bytes(file, inside + skipped, struct.calcsize(form)))
    return first, 0 if second in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) else second


def _bytes(file: SeekableFile, at: int, length: int) -> bytes:
    """Return `length` bytes from `at` on, zeros after the end of the file."""
    file.seek(at)
    return file.read(length).ljust(min(length, 16), b"\0")
