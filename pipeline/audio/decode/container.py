"""The decoder's side of a recording: a file opened as a container, and the frames of its tracks in order.

Runs in the decoding process alone (`sandbox.child`).

The decoder gets bytes and nothing else: an explicit list of containers, none of which refers to other files, and no
protocol to reach them. A playlist or a script is text, and text is not audio.
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from pipeline.audio.decode import wav
from pipeline.audio.decode.collect import Floats, as_floats
from pipeline.audio.decode.edits import Patched, Timeline
from pipeline.audio.decode.sandbox.wire import Why
from pipeline.domain import sniff

CONTAINERS = (
    "wav,w64,aiff,au,caf,voc,mp3,aac,flac,ogg,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,amr,amrnb,amrwb,gsm,asf,mpegts"
)

# Without a header only the declared type can say what the bytes are: (demuxer, its options).
HEADERLESS: dict[str, tuple[str, dict[str, str]]] = {
    "audio/basic": ("mulaw", {"sample_rate": "8000"}),
    "audio/pcmu": ("mulaw", {"sample_rate": "8000"}),
    "audio/x-mulaw": ("mulaw", {"sample_rate": "8000"}),
    "audio/pcma": ("alaw", {"sample_rate": "8000"}),
    "audio/x-alaw": ("alaw", {"sample_rate": "8000"}),
    "audio/g722": ("g722", {}),
    "audio/g729": ("g729", {}),
    "audio/gsm": ("gsm", {}),
}

# FFmpeg's own decoders refuse the frames in which a telephone that hears nobody describes its noise: 153 s became 33.
READS_PAUSES = {"amrnb": "libopencore_amrnb", "amrwb": "libopencore_amrwb"}

GAP = 0.1  # seconds by which sound may lie before its timestamp; more of it is missing
REWIND = 1.0  # seconds by which it may lie behind; from more on the container counts from a new beginning
MOST_GAPS = 1000  # that are named one by one
LONGEST_GAP = 1800.0  # seconds; a later timestamp is damage: packets are not lost for half an hour
MOST_DAMAGED = 10_000  # pieces that cannot be decoded; where more of them are than whole ones, no more are tried
MOST_FILLED = 300.0  # seconds of silence in all, of all tracks, or so many times what the file really holds:
FILLED_TIMES = 10.0  # a kilobyte must not become hours of work for the later stages


@dataclass
class Progress:
    """What went wrong on the way; it does not end the decoding."""

    damaged: int = 0
    broke_off: bool = False
    filled: float = 0.0
    gaps: list[tuple[int, float, float]] = field(default_factory=list)  # (track, from, to), seconds of what is yielded
    jumps: int = 0  # timestamps too far away to be true
    channels: dict[int, int] = field(default_factory=dict)  # of each track's first frame
    channels_change: bool = False
    late_tracks: bool = False  # a track begins in the middle of the file; it is left out
    seconds: dict[int, float] = field(default_factory=dict)  # yielded of each track

    def add_gap(self, track: int, at: float, seconds: float) -> None:
        self.filled += seconds
        if len(self.gaps) < MOST_GAPS:
            self.gaps.append((track, at, at + seconds))


class NotDecoded(Exception):
    """The file is not decoded."""

    def __init__(self, why: Why, number: float = 0) -> None:
        super().__init__(why)
        self.why, self.number = why, number


class FileReader:
    """The file as the decoder sees it. Failures of our storage are kept separate from damage in the file."""

    def __init__(self, file: IO[bytes] | wav.FileRanges | Patched) -> None:
        self._file = file
        self.failure: NotDecoded | None = None
        self.size = file.seek(0, io.SEEK_END)
        file.seek(0)
        self.head = self.read(sniff.HEAD_BYTES)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            self.failure = NotDecoded(Why.STORAGE)
            raise self.failure from error

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def open_container(reader: FileReader, header: wav.WavHeader | None, media_type: str | None) -> Any:
    """The container, probed from its bytes, else taken for the headerless form that `media_type` names.

    Raises `Refused`, and `MemoryError` where it would take more than the process may have.
    """
    import av

    options = {"format_whitelist": CONTAINERS, "protocol_whitelist": "none"}
    if header is not None and header.lies:
        options["ignore_length"] = "1"
    attempts: list[tuple[str | None, dict[str, str]]] = [(None, options)]
    forced = HEADERLESS.get(media_type or "")
    if forced:
        attempts.append((forced[0], {**forced[1], "format_whitelist": forced[0], "protocol_whitelist": "none"}))
    for name, chosen in attempts:
        reader.seek(0)
        try:
            container = av.open(reader, mode="r", format=name, metadata_errors="ignore", options=chosen)
        except MemoryError:
            raise
        except (av.FFmpegError, ValueError):
            if reader.failure:
                raise reader.failure from None
            continue
        if container.streams.audio:
            return container
        container.close()
        raise NotDecoded(Why.NO_TRACK)
    raise NotDecoded(Why.NO_FORMAT)


@dataclass
class _Clock:
    """Of one track: how far its sound has come, and where its timestamps say that it is.

    The difference is kept until it is worth filling: of a track that loses single packets, none of its seconds is lost.
    """

    zero: float | None  # the timestamp of its beginning; None: that of its first frame
    seconds: float = 0.0  # yielded

    def missing(self, time: float) -> float:
        """Seconds between what was yielded and a frame of this timestamp."""
        if self.zero is None or time < self.zero + self.seconds - REWIND:
            self.accept(time)
        assert self.zero is not None
        return time - self.zero - self.seconds

    def accept(self, time: float) -> None:
        """A frame of this timestamp follows what was yielded, whatever was said before."""
        self.zero = time - self.seconds


def blocks(
    container: Any, progress: Progress, reader: FileReader, timelines: Mapping[int, Timeline]
) -> Iterator[tuple[int, int, Floats]]:
    """(track, rate, samples (n, channels)) in order, with silence where timestamps say that audio is missing.

    `timelines`: by the id of a track, where its sound belongs, if its timestamps do not say it.
    """
    starts = [float(one.start_time * one.time_base) for one in container.streams.audio if one.start_time is not None]
    # Tracks begin together: one that begins later than the others has silence before it.
    zero = 0.0 if timelines else min(starts) if len(starts) > 1 else None
    applied = [timelines.get(stream.id) for stream in container.streams.audio]
    clocks = [_Clock(zero) for _ in applied]
    begun = dict(progress.seconds)  # what earlier parts of the file held
    held = filled = 0.0  # seconds
    for track, rate, time, block in _placed(container, progress, applied):
        clock = clocks[track]
        missing = clock.missing(time) if time is not None else 0.0
        if missing > LONGEST_GAP or (missing > GAP and filled + missing > max(MOST_FILLED, FILLED_TIMES * held)):
            progress.jumps += 1
            clock.accept(time or 0.0)
        elif missing > GAP:
            filled += missing
            if track in progress.channels:
                progress.add_gap(track, begun.get(track, 0.0) + clock.seconds, missing)
            for length in _pieces(missing, rate):
                clock.seconds += length / rate
                yield track, rate, np.zeros((length, block.shape[1]), np.float32)
        held += len(block) / rate
        clock.seconds += len(block) / rate
        progress.seconds[track] = begun.get(track, 0.0) + clock.seconds
        yield track, rate, block
    if reader.failure:
        raise reader.failure


def _placed(
    container: Any, progress: Progress, applied: list[Timeline | None]
) -> Iterator[tuple[int, int, float | None, Floats]]:
    """(track, rate, the second to which it belongs, samples) of what is decoded, without what belongs nowhere."""
    for track, frame in _frames(container, progress):
        block = as_floats(frame.to_ndarray(), frame.format.name, frame.layout.nb_channels)
        timeline = applied[track]
        if timeline is None or frame.time is None:
            yield track, frame.sample_rate, frame.time, block
            continue
        for time, piece in timeline.place(frame.time, block, frame.sample_rate):
            yield track, frame.sample_rate, time, piece


def _pieces(seconds: float, rate: int) -> Iterator[int]:
    """Lengths in samples, of a second at most, that are so many seconds together."""
    left = round(seconds * rate)
    while left > 0:
        yield min(left, rate)
        left -= rate


def _frames(container: Any, progress: Progress) -> Iterator[tuple[int, Any]]:
    """Every frame that can be decoded, with its track. Damage is counted and passed over."""
    import av

    streams = [stream for stream in container.streams.audio if stream.codec_context is not None]
    decoders = {stream.index: _decoder(stream) for stream in streams}
    tracks = {stream.index: track for track, stream in enumerate(streams)}
    packets = container.demux(*streams)
    whole = 0
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except IndexError:  # PyAV on a packet of a track that began after the file was opened: it is passed over
            packets = container.demux(*streams)
            progress.late_tracks = True
            continue
        except MemoryError:
            raise
        except av.FFmpegError:
            progress.broke_off = True
            return
        try:
            frames = decoders[packet.stream.index].decode(packet)
        except MemoryError:
            raise
        except av.FFmpegError:
            progress.damaged += 1
            if progress.damaged > max(MOST_DAMAGED, whole):
                progress.broke_off = True
                return
            continue
        whole += 1
        for frame in frames:
            yield tracks[packet.stream.index], frame


def _decoder(stream: Any) -> Any:
    import av

    found = stream.codec_context
    name = READS_PAUSES.get(found.name)
    if name in av.codecs_available:
        own, found = found, av.codec.Codec(name, "r").create("audio")
        found.sample_rate, found.layout = own.sample_rate, own.layout
    found.thread_count = 1  # a thread cannot be started here
    return found
