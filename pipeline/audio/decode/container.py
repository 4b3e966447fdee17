"""A file opened as a container, and the frames of its tracks in order; for the decoding process (`sandbox.child`) only.

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
from pipeline.audio.decode.sandbox.wire import RefusalReason
from pipeline.domain import sniff

CONTAINERS = (
    "wav,w64,aiff,au,caf,voc,mp3,aac,flac,ogg,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,amr,amrnb,amrwb,gsm,asf,mpegts"
)

# Without a header only the declared type identifies the format: (demuxer, its options).
HEADERLESS: dict[str, tuple[str, dict[str, str]]] = {
    "audio/basic": ("mulaw", {"sample_rate": "8000"}),
    "audio/pcmu": ("mulaw", {"sample_rate": "8000"}),
    "audio/x-mulaw": ("mulaw", {"sample_rate": "8000"}),
    "audio/pcma": ("alaw", {"sample_rate": "8000"}),
    "audio/x-alaw": ("alaw", {"sample_rate": "8000"}),
    "audio/g722": ("g722", {}),
    "audio/g729": ("g729", {}),
    "audio/gsm": ("gsm", {}),
    "audio/x-sln": ("s16le", {"sample_rate": "8000"}),
    "audio/x-sln16": ("s16le", {"sample_rate": "16000"}),
}

BLOCK_BYTES = {"gsm_ms": 65}  # of codecs in WAV with blocks of a fixed size
# FFmpeg's built-in decoders reject the comfort noise frames that telephones send in silence: 153 s became 33.
DECODES_COMFORT_NOISE = {"amrnb": "libopencore_amrnb", "amrwb": "libopencore_amrwb"}

GAP = 0.1  # seconds by which sound may precede its timestamp; beyond that audio is missing
REWIND = 1.0  # seconds by which it may lag; beyond that the container's timestamps restarted
MAX_GAPS = 1000  # recorded one by one
MAX_GAP = 1800.0  # seconds; a larger jump is damage: packets are not lost for half an hour
MAX_DAMAGED = 10_000  # undecodable packets before decoding fails, if they outnumber the decoded ones
MAX_FILLED = 300.0  # seconds of filled silence of all tracks, or this multiple of the decoded sound:
FILLED_TIMES = 10.0  # a kilobyte must not become hours of work for the later stages


@dataclass
class Progress:
    """Problems that do not end the decoding."""

    damaged: int = 0
    broke_off: bool = False
    filled: float = 0.0
    gaps: list[tuple[int, float, float]] = field(default_factory=list)  # (track, from, to), seconds of what is yielded
    jumps: int = 0  # implausible timestamps
    channels: dict[int, int] = field(default_factory=dict)  # of each track's first frame
    channels_change: bool = False
    late_tracks: bool = False  # a track begins in the middle of the file; it is ignored
    seconds: dict[int, float] = field(default_factory=dict)  # yielded of each track

    def add_gap(self, track: int, at: float, seconds: float) -> None:
        self.filled += seconds
        if len(self.gaps) < MAX_GAPS:
            self.gaps.append((track, at, at + seconds))


class NotDecoded(Exception):
    """The file is not decoded."""

    def __init__(self, why: RefusalReason, number: float = 0) -> None:
        super().__init__(why)
        self.why, self.number = why, number


class FileReader:
    """The file for the decoder. Failures of our storage are recorded separately from damage in the file."""

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
            self.failure = NotDecoded(RefusalReason.STORAGE)
            raise self.failure from error

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def open_container(reader: FileReader, header: wav.WavHeader | None, media_type: str | None) -> Any:
    """Open the container by probing its bytes, else as the headerless format of `media_type`.

    Raises `NotDecoded`, and `MemoryError` if it needs more than the process may have.
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
        raise NotDecoded(RefusalReason.NO_TRACK)
    raise NotDecoded(RefusalReason.NO_FORMAT)


@dataclass
class _Clock:
    """The decoded length of one track, and its position by its timestamps.

    The difference accumulates until it is worth filling, so a track that loses single packets loses no time.
    """

    zero: float | None  # the timestamp of its beginning; None: that of its first frame
    seconds: float = 0.0  # yielded

    def missing(self, time: float) -> float:
        """Return the seconds between the sound yielded so far and a frame with this timestamp."""
        if self.zero is None or time < self.zero + self.seconds - REWIND:
            self.accept(time)
        assert self.zero is not None
        return time - self.zero - self.seconds

    def accept(self, time: float) -> None:
        """Make a frame with this timestamp follow the sound yielded so far."""
        self.zero = time - self.seconds


def blocks(
    container: Any, progress: Progress, reader: FileReader, timelines: Mapping[int, Timeline]
) -> Iterator[tuple[int, int, Floats]]:
    """Yield (track, rate, samples (n, channels)) in order, with silence where timestamps show missing audio.

    `timelines`: by track id, the positions of its sound if its timestamps do not have them.
    """
    streams = [stream for stream in container.streams.audio if stream.start_time is not None]
    starts = [float(stream.start_time * stream.time_base) for stream in streams]
    # Tracks begin together: a later one gets silence before it.
    zero = 0.0 if timelines else min(starts) if len(starts) > 1 else None
    applied = [timelines.get(stream.id) for stream in container.streams.audio]
    clocks = [_Clock(zero) for _ in applied]
    begun = dict(progress.seconds)  # length of earlier parts of the file
    decoded = filled = 0.0  # seconds
    for track, rate, time, block in _placed(container, progress, applied):
        clock = clocks[track]
        missing = clock.missing(time) if time is not None else 0.0
        if missing > MAX_GAP or (missing > GAP and filled + missing > max(MAX_FILLED, FILLED_TIMES * decoded)):
            progress.jumps += 1
            clock.accept(time or 0.0)
        elif missing > GAP:
            filled += missing
            if track in progress.channels:
                progress.add_gap(track, begun.get(track, 0.0) + clock.seconds, missing)
            for length in _pieces(missing, rate):
                clock.seconds += length / rate
                yield track, rate, np.zeros((length, block.shape[1]), np.float32)
        decoded += len(block) / rate
        clock.seconds += len(block) / rate
        progress.seconds[track] = begun.get(track, 0.0) + clock.seconds
        yield track, rate, block
    if reader.failure:
        raise reader.failure


def _placed(
    container: Any, progress: Progress, applied: list[Timeline | None]
) -> Iterator[tuple[int, int, float | None, Floats]]:
    """Yield (track, rate, second in the track, samples) of decoded sound that has a position."""
    for track, frame in _frames(container, progress):
        block = as_floats(frame.to_ndarray(), frame.format.name, frame.layout.nb_channels)
        timeline = applied[track]
        if timeline is None or frame.time is None:
            yield track, frame.sample_rate, frame.time, block
            continue
        for time, piece in timeline.place(frame.time, block, frame.sample_rate):
            yield track, frame.sample_rate, time, piece


def _pieces(seconds: float, rate: int) -> Iterator[int]:
    """Yield lengths in samples, max. a second each, that add up to `seconds`."""
    remaining = round(seconds * rate)
    while remaining > 0:
        yield min(remaining, rate)
        remaining -= rate


def _frames(container: Any, progress: Progress) -> Iterator[tuple[int, Any]]:
    """Yield every decodable frame with its track; count and skip damage."""
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
        except IndexError:  # PyAV, for a packet of a track that began after the file was opened: skip it
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
            if packet.size < BLOCK_BYTES.get(decoders[packet.stream.index].name, 0):
                continue  # the padding after an odd number of blocks
            progress.damaged += 1
            if progress.damaged > max(MAX_DAMAGED, whole):
                progress.broke_off = True
                return
            continue
        whole += 1
        for frame in frames:
            yield tracks[packet.stream.index], frame


def _decoder(stream: Any) -> Any:
    import av

    decoder = stream.codec_context
    name = DECODES_COMFORT_NOISE.get(decoder.name)
    if name in av.codecs_available:
        built_in, decoder = decoder, av.codec.Codec(name, "r").create("audio")
        decoder.sample_rate, decoder.layout = built_in.sample_rate, built_in.layout
    decoder.thread_count = 1  # a thread cannot be started here
    return decoder
