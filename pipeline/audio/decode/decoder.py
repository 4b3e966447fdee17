"""Decoding of a recording in any codec and container of telephony to int16 at 16 kHz.

FFmpeg runs in a separate process (`sandbox`) with access to nothing but the file. Here its samples become one or two
channels of sound, and its figures become warnings and errors.
"""

import contextlib
import io
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from pipeline import errors
from pipeline.audio.decode import channel_selection, sound
from pipeline.audio.decode.container import HEADERLESS
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.decode.sandbox import runner, wire
from pipeline.audio.decode.sandbox.wire import Facts, Kind, Malformed, Order, RefusalReason
from pipeline.audio.decode.start_time import StartTime
from pipeline.domain import sniff
from pipeline.domain.speech import SAMPLE_RATE, Audio, Recording, Span
from pipeline.domain.vocabulary import CallWarning
from pipeline.record_texts import warning_text
from pipeline.sealed_files import open_stored

CROWDED = 5.0  # factor by which other work on the machine may slow it down
SPOOL_BYTES = 1 << 20
MAX_LISTED_GAPS = 5  # in a warning; all gaps are labels


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """One file's sound, of one or two channels.

    `source_rate` is in Hz, `source_channels` counts those of all tracks; `codec` and `container` are FFmpeg's names.
    """

    audio: Audio
    source_rate: int
    source_channels: int
    codec: str
    container: str
    warnings: tuple[str, ...] = ()
    choice: str | None = None  # which channels and why, if the file has more than two or several tracks
    started: StartTime | None = None  # if the file contains it

    @property
    def duration(self) -> float:
        return self.audio.duration

    @property
    def samples(self) -> npt.NDArray[np.int16]:
        """All samples in memory, shape (1 or 2, n): for tests and short files."""
        return sound.everything(self.audio)


def decode(recording: Recording, options: DecodeOptions, folder: str | None = None) -> Decoded:
    """Decode a fetched recording into scratch files in `folder` (an fsspec address), or into memory without one.

    Raises `NotAudio` (nothing can be decoded), `RecordingEmpty`, `RecordingTooLong`, `RecordingTooLarge` (more samples
    or more bytes of decoded sound than the limits), `DecoderFailed` (it crashes the decoder, or needs more memory or
    work than its size explains), `StorageError`, and `EngineLost` or `TimedOut` if another attempt may help; after an
    error no scratch file remains. The decodable part of a damaged or truncated file counts, with a warning.
    """
    with open_stored(recording.uri, recording.key) as file:
        return decode_file(file, options, recording.media_type, folder)


def decode_file(
    source: Path | str | IO[bytes], options: DecodeOptions, media_type: str | None = None, folder: str | None = None
) -> Decoded:
    """Decode a local path or an open, seekable file; `media_type` matters for headerless files only. See `decode`."""
    if isinstance(source, Path | str):
        with Path(source).open("rb") as file:
            return decode_file(file, options, media_type, folder)
    with _local(source) as file:
        file.seek(0)
        head = file.read(sniff.HEAD_BYTES)
        if not head:
            raise errors.RecordingEmpty("The recording has zero bytes.")
        file_type = sniff.detect_type(head)
        if file_type:
            raise errors.NotAudio(f"The recording is {file_type}, not audio.")
        return _decode(file, options, (media_type or "").partition(";")[0].strip().lower(), folder)


@contextlib.contextmanager
def _local(source: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield `source` as a file that another process can read: itself, or a copy of an object store's file."""
    try:
        source.fileno()
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as copy:
            _copy(source, copy)
            yield copy
    else:
        yield source


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    try:
        source.seek(0)
        while data := source.read(SPOOL_BYTES):
            target.write(data)
        target.flush()
    except errors.StorageError:
        raise
    except Exception as error:  # each object store has its own exceptions
        raise errors.StorageError(f"A stored recording cannot be read ({type(error).__name__}).") from error


@dataclass(slots=True)
class _Tracks:
    """The sound received for each track."""

    folder: str | None
    max_samples: int  # samples of a track
    allowance: sound.SoundAllowance
    sinks: dict[int, sound.Sink] = field(default_factory=dict)
    channels: dict[int, int] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)

    def begin(self, track: int, data: bytearray) -> None:
        if (
            len(data) != 1
            or track in self.sinks
            or not 1 <= data[0] + sum(self.channels.values()) <= channel_selection.MAX_CHANNELS
        ):
            raise Malformed("track")
        self.channels[track], self.lengths[track] = data[0], 0
        self.sinks[track] = sound.sink(self.folder, data[0], self.allowance)

    def add(self, track: int, data: bytearray) -> None:
        if track not in self.sinks or len(data) % (2 * self.channels[track]):
            raise Malformed("samples")
        samples = np.frombuffer(data, "<i2").reshape(-1, self.channels[track])
        self.lengths[track] += len(samples)
        if self.lengths[track] > self.max_samples:
            raise Malformed("too many samples")
        self.sinks[track].write(samples)

    def finish(self, gaps: Sequence[tuple[int, float, float]]) -> list[Audio]:
        """Finish all tracks; `gaps`: (track, from, to) of missing audio, in seconds."""
        lacking = {track: tuple(Span(start, end) for of, start, end in gaps if of == track) for track in self.sinks}
        tracks = [self.sinks[track].finish(lacking[track]) for track in sorted(self.sinks)]
        return [audio for audio in tracks if audio.length]

    def abort(self) -> None:
        for sink in self.sinks.values():
            sink.abort()


def _decode(file: IO[bytes], options: DecodeOptions, media_type: str, folder: str | None) -> Decoded:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    processor = options.processor_seconds(size)
    forced = media_type if media_type in HEADERLESS else None
    order = Order(options.max_seconds, options.max_samples, forced, options.MEMORY_BYTES, processor)
    max_samples = int((options.max_seconds + 60) * SAMPLE_RATE)
    tracks = _Tracks(folder, max_samples, sound.SoundAllowance(options.max_decoded_bytes))
    try:
        with contextlib.closing(runner.messages(file.fileno(), order, 60 + CROWDED * processor)) as messages:
            facts = _collect(messages, tracks, options)
        sources = tracks.finish(facts.gaps)
        if not sources:
            raise errors.NotAudio(SENTENCES[RefusalReason.NOTHING])
        audio, choice = channel_selection.choose(sources)
        if isinstance(audio, channel_selection.SelectedChannels):
            audio.drop_unused()
    except BaseException:
        tracks.abort()
        raise
    return Decoded(
        audio,
        source_rate=facts.source_rate,
        source_channels=sum(facts.channels),
        codec=facts.codec,
        container=facts.container,
        warnings=(*((choice,) if choice else ()), *_warnings(facts, audio.duration)),
        choice=choice,
        started=None if facts.started is None else StartTime(facts.started, facts.started_within, facts.started_by),
    )


def _collect(messages: Iterator[runner.Message], tracks: _Tracks, options: DecodeOptions) -> Facts:
    try:
        for kind, track, data in messages:
            if kind is Kind.TRACK:
                tracks.begin(track, data)
            elif kind is Kind.SAMPLES:
                tracks.add(track, data)
            elif kind is Kind.DONE:
                return wire.facts(bytes(data))
            else:
                raise _refused(*wire.refused(bytes(data)), options)
        raise Malformed("no end")
    except Malformed:
        raise errors.DecoderFailed("The recording makes the decoder fail.") from None


SENTENCES: dict[RefusalReason, str] = {
    RefusalReason.TABLES: "The recording declares more pieces of sound than it has bytes: it is forged or damaged.",
    RefusalReason.NO_TRACK: "The recording has no audio track.",
    RefusalReason.NO_FORMAT: "The recording is not in an audio format that can be decoded.",
    RefusalReason.NO_CODEC: "The codec of the recording cannot be decoded.",
    RefusalReason.NOTHING: "Nothing in the recording could be decoded.",
    RefusalReason.EMPTY: "The recording has a header and no samples.",
}


def _refused(why: RefusalReason, number: float, options: DecodeOptions) -> errors.RecordingError | errors.StorageError:
    if why is RefusalReason.TOO_LONG:
        message = f"The recording is longer than the limit of {options.max_seconds:g} s."
        return errors.RecordingTooLong(message).with_facts(limit=options.max_seconds)
    if why is RefusalReason.SAMPLES:
        message = f"The recording has more samples (channels x rate x seconds) than the limit of {options.max_samples}."
        return errors.RecordingTooLarge(message).with_facts(limit=options.max_samples)
    if why is RefusalReason.MEMORY:
        return errors.DecoderFailed("Decoding the recording takes far more memory than a recording of speech needs.")
    if why is RefusalReason.STORAGE:
        return errors.StorageError("A stored recording cannot be read.")
    if why is RefusalReason.RATE:
        return errors.NotAudio(
            f"The recording declares {number:.0f} samples per second, which no recording of speech has."
        )
    return (errors.RecordingEmpty if why is RefusalReason.EMPTY else errors.NotAudio)(SENTENCES[why])


def _warnings(facts: Facts, seconds: float) -> tuple[str, ...]:
    warnings = []
    if sum(facts.channels) > channel_selection.MAX_CHANNELS:
        used = channel_selection.MAX_CHANNELS
        warnings.append(warning_text(CallWarning.EXTRA_CHANNELS, channels=sum(facts.channels), used=used))
    if facts.channels_change:
        warnings.append(warning_text(CallWarning.CHANNELS_CHANGE))
    if facts.late_tracks:
        warnings.append(warning_text(CallWarning.LATE_TRACK))
    if facts.jumps:
        warnings.append(warning_text(CallWarning.IMPLAUSIBLE_TIMESTAMPS, count=facts.jumps))
    if facts.filled:
        warnings.append(warning_text(CallWarning.AUDIO_MISSING, seconds=facts.filled, places=_places(facts)))
    promised = facts.promised
    if promised is not None and seconds < promised - max(0.25, 0.01 * promised):
        warnings.append(warning_text(CallWarning.RECORDING_INCOMPLETE, declared=promised, seconds=seconds))
    elif facts.broke_off:
        warnings.append(warning_text(CallWarning.RECORDING_BREAKS_OFF, seconds=seconds))
    if facts.damaged:
        warnings.append(warning_text(CallWarning.DAMAGED_PIECES, count=facts.damaged))
    return tuple(warnings)


def _places(facts: Facts) -> str:
    longest = sorted(facts.gaps, key=lambda gap: gap[1] - gap[2])[:MAX_LISTED_GAPS]
    places = ", ".join(f"{start:.1f} to {end:.1f} s" for _, start, end in sorted(longest, key=lambda gap: gap[1:]))
    more = len(facts.gaps) - len(longest)
    return f"{places} and in {more} more places" if more else places
