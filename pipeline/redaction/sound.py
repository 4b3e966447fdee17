"""Replacement of the sound of entities, in every file and channel in which it is audible.

`redact_sound` is heavy and runs in `Workers.compute`. It writes files next to the decoded sound, which are removed with
it, so a killed process leaves nothing behind. `store_redacted` runs in a thread of the process that records the files:
only that process can remove what it stored for a call that was erased in the meantime.

A file has the decoded sound of the original, int16 at 16 kHz, as FLAC: outside of what is hidden every sample is the
one that the stages read. Tags, further tracks and channels that are not used are left out, since no stage looked there.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import IO
from uuid import uuid4

import fsspec
import numpy as np
import numpy.typing as npt

from pipeline.audio.analyze import Loaded
from pipeline.audio.channels import bleed
from pipeline.audio.channels.arrange import Arranged, ArrangedTrack
from pipeline.audio.channels.levels import in_band, padded
from pipeline.audio.decode.decoder import Decoded
from pipeline.audio.flac import write_flac
from pipeline.audio.labels import keys
from pipeline.domain.redaction import Entity, RedactionPolicy
from pipeline.domain.spans import union
from pipeline.domain.speech import SAMPLE_RATE, Audio, Layout, LayoutKind, Recording, Span
from pipeline.errors import StorageError, TimedOut
from pipeline.fetch.storage import Store
from pipeline.observability.context import is_cancelled
from pipeline.sealed_files import open_stored

Samples = npt.NDArray[np.int16]
Intervals = list[tuple[int, int]]  # of samples, the last exclusive
HiddenSamples = tuple[Intervals, Intervals]  # of a row: silent, and those of them that beep

BLOCK = 60 * SAMPLE_RATE  # samples read and encoded at once
PIECE_BYTES = 1 << 20  # copied at once
BEEP_HERTZ, BEEP_DB = 1000.0, -30.0  # of full scale: softer than a voice, and not a tone of the network
RAMP = 160  # samples, 10 ms, in which the beep rises and falls
OWN_SOUND_DB = -20.0  # over the entity's channel: below it the other channel holds nothing that must stay
WINDOW = 2 * SAMPLE_RATE  # samples compared at once
# Robust standard deviations: 95 % of windows with bleed at -20 dB reach it, and by chance 30 % of those of crosstalk.
BLED = 6.0
ENTRY_SECONDS = 3.0  # between two keys: softer keys between them may have been missed


class Cover(StrEnum):
    """Sound in place of an entity. Other channels than the entity's get silence: equal beeps would look like bleed."""

    BEEP = "beep"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class RedactedFile:
    """An encoded file in the folder of the decoded sound, for the recording with this channel."""

    channel: int
    uri: str


@dataclass(frozen=True, slots=True)
class RedactedSound:
    """Files in order of their channel, and the seconds of the call that are hidden in one or more channels."""

    files: tuple[RedactedFile, ...]
    hidden: tuple[Span, ...]


def redact_sound(
    loaded: Loaded,
    layout: Layout,
    entities: Sequence[Entity],
    policy: RedactionPolicy,
    cover: Cover = Cover.BEEP,
) -> RedactedSound:
    """Encode the files of a call without the sound of `entities`, `policy.guard_seconds` before and after included.

    `loaded`: a reference to it, in `Workers.compute`. `layout`: of the transcript whose seconds the entities have.
    Keys are hidden anywhere if the policy hides them. A file that could not be decoded is left out:
    nothing looked into it. Raises `StorageError`, and `TimedOut` if canceled.
    """
    folder = loaded.folder
    if folder is None:
        raise ValueError("the sound was decoded into memory: decode it into a folder to redact it")
    call = _Call(loaded, layout)
    hidden = _Hidden(call, policy.guard_seconds, cover)
    for piece in (piece for entity in entities for piece in entity.pieces):
        hidden.add(Span(piece.start, piece.end), piece.channel)
    if policy.hides_keys:
        for span in call.typed():
            hidden.add_everywhere(span)
    files = (RedactedFile(channel, _encode(file, hidden.of(channel), folder)) for channel, file in call.files.items())
    return RedactedSound(tuple(files), hidden.seconds())


def store_redacted(files: Sequence[RedactedFile], storage: str, key: bytes | None = None) -> tuple[Recording, ...]:
    """Move encoded files into the storage, sealed by `key`: each appears there complete or not at all.

    Blocks: call it from a thread. Raises `StorageError`.
    """
    return tuple(store_again(Recording(file.channel, file.uri, "", 0, "audio/flac"), storage, key) for file in files)


def store_again(recording: Recording, storage: str, key: bytes | None = None) -> Recording:
    """Store the content of a recording, which may be sealed by another key, sealed by `key`.

    Blocks: call it from a thread. Raises `StorageError`.
    """
    store = Store(storage)
    with open_stored(recording.uri, recording.key) as source, store.receive() as incoming:
        for piece in _pieces(source):
            incoming.write(piece)
        uri, sha256 = store.keep(incoming, key)
        return Recording(recording.channel, uri, sha256, incoming.size, recording.media_type, key)


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    while True:
        try:
            piece = source.read(PIECE_BYTES)
        except StorageError:
            raise
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"A stored recording cannot be read ({type(error).__name__}).") from error
        if not piece:
            return
        yield piece


class _Call:
    """The files of a call and their position on its time line."""

    def __init__(self, loaded: Loaded, layout: Layout) -> None:
        self.layout = layout
        self.files = {channel: loaded.files[channel] for channel in sorted(loaded.files)}
        self.parties = Arranged(tuple(file.audio for file in self.files.values()), tuple(self._tracks()))

    def _tracks(self) -> Iterator[ArrangedTrack]:
        """Yield the sound of each party before bleed is suppressed; of all together where channels do not separate."""
        rows = [(at, row) for at, file in enumerate(self.files.values()) for row in range(file.audio.channels)]
        if not self.layout.kind.separated:
            yield ArrangedTrack(tuple(rows))
            return
        for party in (0, 1):
            of_party = [row for row in rows if self.party(list(self.files)[row[0]], row[1]) == party]
            place = self.place(list(self.files)[of_party[0][0]]) if of_party else (0, 1.0)
            yield ArrangedTrack(tuple(of_party), *place)

    def party(self, channel: int, row: int) -> int:
        """Return the channel of the layout that a row of a file belongs to."""
        if not self.layout.kind.separated:
            return 0
        line = channel if self.layout.kind is LayoutKind.TWO_FILES else row
        return 1 - line if self.layout.swapped else line

    def place(self, channel: int) -> tuple[int, float]:
        """Return the sample of the call at which a file begins, and its samples per sample of the call."""
        if not self.layout.starts:
            return 0, 1.0
        line = 1 - channel if self.layout.swapped else channel
        drift = self.layout.evidence.get("drift_ppm", 0.0) * 1e-6 if channel == 1 else 0.0
        return round(self.layout.starts[line] * SAMPLE_RATE), 1 / (1 + drift)

    def in_file(self, channel: int, seconds: float) -> int:
        start, pace = self.place(channel)
        return round((seconds * SAMPLE_RATE - start) * pace)

    def typed(self) -> Iterator[Span]:
        """Yield the seconds of the call in which keys are pressed, short pauses between keys included."""
        pressed: list[Span] = []
        for channel, file in self.files.items():
            start, pace = self.place(channel)
            for row in range(file.audio.channels):
                for key in keys.find(file.audio, row):
                    first, last = (start / SAMPLE_RATE + second / pace for second in (key.start, key.end))
                    pressed.append(Span(first, last + ENTRY_SECONDS))
        return (Span(entry.start, entry.end - ENTRY_SECONDS) for entry in union(pressed))


class _Hidden:
    """Collects what is hidden: silence on each line, and the beeps in it. A line is a channel of a file."""

    def __init__(self, call: _Call, guard: float, cover: Cover) -> None:
        self._call, self._guard, self._cover = call, guard, cover
        self._silent: list[list[Span]] = [[], []]  # by channel of the layout
        self._beeps: list[list[Span]] = [[], []]

    def add(self, span: Span, channel: int) -> None:
        """Hide a span of one channel of the layout, and its bleed in the other one."""
        guarded = self._guarded(span)
        self._silent[channel].append(guarded)
        self._beeps[channel].append(guarded)
        for delay in self._bleed(guarded, channel) if self._call.layout.kind.separated else ():
            bled = Span(max(0.0, guarded.start + min(0.0, delay)), guarded.end + max(0.0, delay))
            self._silent[1 - channel].append(bled)

    def add_everywhere(self, span: Span) -> None:
        guarded = self._guarded(span)
        for channel in (0, 1):
            self._silent[channel].append(guarded)
        self._beeps[0].append(guarded)

    def _guarded(self, span: Span) -> Span:
        return Span(max(0.0, span.start - self._guard), span.end + self._guard)

    def _bleed(self, span: Span, channel: int) -> list[float]:
        """Return delays of the bleed of a span in the other channel, 0 if unknown; empty: it has only other sound.

        Hiding costs nothing where the other party is silent, so only its own speech without any bleed stays.
        """
        first, last = round(span.start * SAMPLE_RATE), round(span.end * SAMPLE_RATE)
        delays = [path.delay for path in self._call.layout.bleed if path.source == channel]
        delays += self._delays(channel, first, last)
        if delays:
            return delays
        other_level, level = (_level(self._call.parties, at, first, last) for at in (1 - channel, channel))
        return [0.0] if other_level < level + OWN_SOUND_DB else []

    def _delays(self, channel: int, first: int, last: int) -> Iterator[float]:
        """Yield the delay at which the other channel correlates with each window, 0 for tones, which always do."""
        edges = np.linspace(first, last, max(2, (last - first) // WINDOW + 1)).astype(int).tolist()
        for begin, end in pairwise(edges):
            curve = bleed.correlations(self._call.parties, channel, begin, end)
            if curve is None:
                yield 0.0
            elif np.abs(curve).max() >= BLED:
                yield (int(np.abs(curve).argmax()) - bleed.LEAD) / SAMPLE_RATE

    def of(self, channel: int) -> list[HiddenSamples]:
        """Return, for each row of a file, the samples that are silent and those of them that beep."""
        rows = []
        for row in range(self._call.files[channel].audio.channels):
            party = self._call.party(channel, row)
            beeps = self._beeps[party] if self._cover is Cover.BEEP else []
            rows.append((self._in_file(channel, self._silent[party]), self._in_file(channel, beeps)))
        return rows

    def _in_file(self, channel: int, spans: Sequence[Span]) -> Intervals:
        return [
            (max(0, self._call.in_file(channel, span.start)), self._call.in_file(channel, span.end))
            for span in union(spans)
        ]

    def seconds(self) -> tuple[Span, ...]:
        return union([*self._silent[0], *self._silent[1]])


def _level(audio: Audio, channel: int, first: int, last: int) -> float:
    """Return the level of the telephone band in dB of full scale."""
    samples = in_band(padded(audio, channel, first, last))
    return float(10 * np.log10(np.mean(samples**2) + 1e-12)) if len(samples) else -120.0


def _encode(file: Decoded, hidden: Sequence[HiddenSamples], folder: str) -> str:
    """Write a file into the folder, complete or not at all; return its address."""
    with tempfile.TemporaryFile() as encoded:
        write_flac(encoded, _blocks(file, hidden), file.audio.channels, _tags(file))
        encoded.seek(0)
        try:
            fs, root = fsspec.core.url_to_fs(folder)
            path = f"{root.rstrip('/')}/{uuid4().hex}.flac"
            with fs.open(path, "wb") as target:
                for piece in _pieces(encoded):
                    target.write(piece)
            return str(fs.unstrip_protocol(path))
        except Exception as error:  # each object store has its own exceptions
            raise StorageError(f"The redacted sound could not be written ({type(error).__name__}).") from error


def _blocks(file: Decoded, hidden: Sequence[HiddenSamples]) -> Iterator[Samples]:
    """Yield the covered sound of all rows. Raises `TimedOut` if canceled."""
    for first in range(0, file.audio.length, BLOCK):
        if is_cancelled():
            raise TimedOut("The redaction of the sound was canceled.")
        rows = range(file.audio.channels)
        yield np.stack([_covered(file.audio.read(row, first, first + BLOCK), first, *hidden[row]) for row in rows])


def _tags(file: Decoded) -> dict[str, str]:
    """Return the time of the start, by which two files that share no sound are aligned."""
    return {"creation_time": datetime.fromtimestamp(file.started.seconds, UTC).isoformat()} if file.started else {}


def _covered(samples: Samples, first: int, silent: Intervals, beeps: Intervals) -> Samples:
    """Return a block that begins at sample `first` of a row, with silence and beeps in place of what is hidden."""
    covered = samples.copy()
    for begin, end in _inside(silent, first, len(samples)):
        covered[begin - first : end - first] = 0
    for begin, end in beeps:
        for start, stop in _inside([(begin, end)], first, len(samples)):
            covered[start - first : stop - first] = _beep(np.arange(start - begin, stop - begin), end - begin)
    return covered


def _inside(spans: Intervals, first: int, length: int) -> Iterator[tuple[int, int]]:
    for begin, end in spans:
        if max(begin, first) < min(end, first + length):
            yield max(begin, first), min(end, first + length)


def _beep(at: npt.NDArray[np.int64], length: int) -> Samples:
    """Return the samples `at` of a beep of `length` samples."""
    rising = np.minimum(at + 1, length - at) / RAMP
    tone = np.sin(2 * np.pi * BEEP_HERTZ * at / SAMPLE_RATE) * np.minimum(rising, 1.0)
    return np.rint(tone * 32767 * 10 ** (BEEP_DB / 20)).astype(np.int16)
