"""Decode a recording in any codec and container of telephony to int16 at 16 kHz.

`container.py` opens the file and hands out its frames; here they become one or two channels of sound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline.audio import mp4, several, sniff, sound, wav
from pipeline.audio.collect import Collector, Floats
from pipeline.audio.container import Progress, Reader, blocks, open_container
from pipeline.audio.storage import open_stored
from pipeline.domain.speech import Audio, Recording
from pipeline.errors import NotAudio, RecordingEmpty, RecordingTooLong

KNOWS_ITS_LENGTH = ("flac", "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")  # the others estimate it
OTHER_FORMS = (b"RIFF", b"OggS", b"fLaC", b"ID3", b"#!AMR", b"\x1aE\xdf\xa3")  # no MP4, whatever follows
LOWEST_RATE, HIGHEST_RATE = 4000, 384_000  # Hz


class DecodeOptions(BaseModel):
    """How recordings are decoded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_seconds: float = Field(6 * 3600.0, gt=0, description="Longest recording, in seconds of decoded audio.")


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """One file's sound, of one or two channels.

    `source_rate` is in Hz, `source_channels` counts the channels of all the file's tracks; `codec` and `container` are
    FFmpeg's names.
    """

    audio: Audio
    source_rate: int
    source_channels: int
    codec: str
    container: str
    warnings: tuple[str, ...] = ()
    choice: str | None = None  # which channels these are and why, where the file has more than two or several tracks

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.audio.duration

    @property
    def samples(self) -> npt.NDArray[np.int16]:
        """All of it in memory, shape (1 or 2, n): for tests and short files."""
        return sound.everything(self.audio)


def decode(recording: Recording, options: DecodeOptions, folder: str | None = None) -> Decoded:
    """Decode a fetched recording into scratch files in `folder` (an fsspec address), or into memory if none is given.

    Raises `NotAudio` (nothing in it can be decoded), `RecordingEmpty`, `RecordingTooLong`, `StorageError`, and then
    leaves no scratch file. What can be decoded of a damaged or truncated file counts, with a warning.
    """
    with open_stored(recording.uri) as file:
        return decode_file(file, options, recording.media_type, folder)


def decode_file(
    source: Path | str | IO[bytes], options: DecodeOptions, media_type: str | None = None, folder: str | None = None
) -> Decoded:
    """Decode a local path or an open, seekable file. `media_type` matters for headerless files only. See `decode`."""
    if isinstance(source, Path | str):
        with Path(source).open("rb") as file:
            return decode_file(file, options, media_type, folder)
    reader = Reader(source)
    if not reader.head:
        raise RecordingEmpty("The recording has zero bytes.")
    found = sniff.what_it_is(reader.head)
    if found:
        raise NotAudio(f"The recording is not audio but {found}.")
    if not reader.head.startswith(OTHER_FORMS) and mp4.has_absurd_tables(reader, reader.size):
        raise NotAudio("The recording declares more pieces of sound than it has bytes: it is made up, or damaged.")
    header = wav.read_header(reader, reader.size) if reader.head[:4] == b"RIFF" else None
    with open_container(reader, header, media_type) as container:
        return _decode(container, header, options, reader, folder)


def _decode(
    container: Any, header: wav.WavHeader | None, options: DecodeOptions, reader: Reader, folder: str | None
) -> Decoded:
    stream = container.streams.audio[0]
    if stream.codec_context is None:
        raise NotAudio("The recording's audio is in a codec that cannot be decoded.")
    progress = Progress()
    tracks = _tracks(blocks(container, progress, reader), options, folder, progress)
    audio, choice = several.choose(tracks)
    codec = stream.codec_context
    promised = _promised(container, stream, header, reader.head)
    return Decoded(
        audio,
        source_rate=codec.sample_rate,
        source_channels=sum(progress.channels.values()),
        codec=codec.name,
        container=container.format.name,
        warnings=(*((choice,) if choice else ()), *_warnings(progress, audio.duration, promised)),
        choice=choice,
    )


def _tracks(
    pieces: Iterator[tuple[int, int, Floats]], options: DecodeOptions, folder: str | None, progress: Progress
) -> list[Audio]:
    """Each track at 16 kHz, in scratch files or in memory. Raises as `decode` does; no file is left behind then."""
    sinks: list[sound.Sink] = []
    collectors: dict[int, Collector] = {}
    try:
        for track, rate, block in pieces:
            if not LOWEST_RATE <= rate <= HIGHEST_RATE:
                raise NotAudio(f"The recording declares {rate} samples per second, which no recording of speech has.")
            if track not in progress.channels:
                room = several.MOST - sum(progress.channels.values())
                progress.channels[track] = block.shape[1]
                if room > 0:
                    sinks.append(sound.sink(folder, min(block.shape[1], room)))
                    collectors[track] = Collector(min(block.shape[1], room), rate, sinks[-1])
            progress.channels_change |= block.shape[1] != progress.channels[track]
            if track in collectors:
                _add(collectors[track], rate, block, options)
        tracks = [collectors[track].finish() for track in sorted(collectors)]
        tracks = [audio for audio in tracks if audio.length]
        if not tracks:
            raise NotAudio("Nothing in the recording could be decoded.")
    except BaseException:
        for sink in sinks:
            sink.abort()
        raise
    return tracks


def _add(collector: Collector, rate: int, block: Floats, options: DecodeOptions) -> None:
    collector.add(block, rate)
    if collector.seconds > options.max_seconds:
        raise RecordingTooLong(f"The recording is longer than the limit of {options.max_seconds:g} s.").with_facts(
            limit=options.max_seconds
        )


def _promised(container: Any, stream: Any, header: wav.WavHeader | None, head: bytes) -> float | None:
    """The length in seconds that the file declares, if it declares one."""
    if header is not None:
        return header.promised
    counted_mp3 = container.format.name == "mp3" and (b"Xing" in head or b"Info" in head)
    if container.format.name not in KNOWS_ITS_LENGTH and not counted_mp3:
        return None
    if stream.duration:
        return float(stream.duration * stream.time_base)
    return container.duration / 1e6 if container.duration else None


def _warnings(progress: Progress, seconds: float, promised: float | None) -> tuple[str, ...]:
    found = []
    if sum(progress.channels.values()) > several.MOST:
        found.append(f"The recording has {sum(progress.channels.values())} channels; the first {several.MOST} count.")
    if progress.channels_change:
        found.append("The number of channels changes within the recording.")
    if progress.filled:
        found.append(f"{progress.filled:.1f} s of audio are missing within the recording; silence stands in for them.")
    if promised is not None and seconds < promised - max(0.25, 0.01 * promised):
        found.append(f"The recording is incomplete: it declares {promised:.1f} s and {seconds:.1f} s are there.")
    elif progress.broke_off:
        found.append(f"The recording is damaged: it breaks off after {seconds:.1f} s.")
    if progress.damaged:
        found.append(f"{progress.damaged} damaged pieces of the recording were passed over.")
    return tuple(found)
