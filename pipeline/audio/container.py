"""The decoder's side of a recording: a stored file opened as a container, and the frames of its tracks in order.

The decoder is given bytes and nothing else: an explicit list of containers, none of which refers to other files, and no
protocol to reach any with. A playlist or a script is text, and text is not audio.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from pipeline.audio import sniff, wav
from pipeline.audio.collect import Floats, as_floats
from pipeline.errors import NotAudio, StorageError

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

HAS_GAPS = "matroska,webm"  # recorders of live calls leave lost packets out
GAP = 0.1  # seconds between frames that count as missing audio


@dataclass
class Progress:
    """What went wrong on the way; it does not end the decoding."""

    damaged: int = 0
    broke_off: bool = False
    filled: float = 0.0
    channels: dict[int, int] = field(default_factory=dict)  # of each track's first frame
    channels_change: bool = False


class Reader:
    """The stored file as the decoder sees it. Failures of our storage are told from damage in the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.failure: StorageError | None = None
        self.size = file.seek(0, io.SEEK_END)
        file.seek(0)
        self.head = self.read(sniff.HEAD_BYTES)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size)
        except Exception as error:  # each object store has its own exceptions
            self.failure = StorageError(f"A stored recording cannot be read ({type(error).__name__}).")
            raise self.failure from error

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def open_container(reader: Reader, header: wav.WavHeader | None, media_type: str | None) -> Any:
    """The container, probed from its bytes, else taken for the headerless form that `media_type` names."""
    import av

    options = {"format_whitelist": CONTAINERS, "protocol_whitelist": "none"}
    if header is not None and header.lies:
        options["ignore_length"] = "1"
    attempts: list[tuple[str | None, dict[str, str]]] = [(None, options)]
    forced = HEADERLESS.get((media_type or "").partition(";")[0].strip().lower())
    if forced:
        attempts.append((forced[0], {**forced[1], "format_whitelist": forced[0], "protocol_whitelist": "none"}))
    for name, chosen in attempts:
        reader.seek(0)
        try:
            container = av.open(reader, mode="r", format=name, metadata_errors="ignore", options=chosen)
        except (av.FFmpegError, ValueError):
            if reader.failure:
                raise reader.failure from None
            continue
        if container.streams.audio:
            return container
        container.close()
        raise NotAudio("The recording holds no audio track.")
    raise NotAudio("The recording is in no audio format that can be decoded.")


def blocks(container: Any, progress: Progress, reader: Reader) -> Iterator[tuple[int, int, Floats]]:
    """(track, rate, samples (n, channels)) in order, with silence where the container says that audio is missing."""
    starts = [float(one.start_time * one.time_base) for one in container.streams.audio if one.start_time is not None]
    # Tracks begin together: one that begins later than the others has silence before it.
    expected = dict.fromkeys(range(len(container.streams.audio)), min(starts, default=0.0)) if len(starts) > 1 else {}
    for track, frame in _frames(container, progress):
        block = as_floats(frame.to_ndarray(), frame.format.name, frame.layout.nb_channels)
        if frame.time is not None and (container.format.name == HAS_GAPS or track not in progress.channels):
            missing = frame.time - expected.get(track, frame.time)
            progress.filled += missing if missing > GAP and track in progress.channels else 0.0
            while missing > GAP:
                piece = min(missing, 1.0)
                silence = np.zeros((round(piece * frame.sample_rate), block.shape[1]), np.float32)
                yield track, frame.sample_rate, silence
                missing -= piece
            expected[track] = frame.time + len(block) / frame.sample_rate
        yield track, frame.sample_rate, block
    if reader.failure:
        raise reader.failure


def _frames(container: Any, progress: Progress) -> Iterator[tuple[int, Any]]:
    """Every frame that can be decoded, with its track. Damage is counted and passed over."""
    import av

    streams = [stream for stream in container.streams.audio if stream.codec_context is not None]
    tracks = {stream.index: track for track, stream in enumerate(streams)}
    packets = container.demux(*streams)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.FFmpegError:
            progress.broke_off = True
            return
        try:
            frames = packet.decode()
        except av.FFmpegError:
            progress.damaged += 1
            continue
        for frame in frames:
            yield tracks[packet.stream.index], frame
