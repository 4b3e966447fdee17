"""Cache of decoded WAV files in a folder of this replica, one per party or mixed; least recently used files go first.

Decoding runs in the sandboxed process of the decoder.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import wave
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from db.core.database import OUTAGES, Database
from db.records import file_deletions
from pipeline import scratch
from pipeline.audio.decode.decoder import decode
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import CUSTOMER, REP, SAMPLE_RATE, Audio, Layout, LayoutKind, Recording
from pipeline.errors import StorageError
from serve_app.http.admission import Admission
from serve_app.http.options import Places
from serve_app.http.worker import low_priority_threads

MAX_WAITING, WAIT_SECONDS = 16, 600.0  # of a workspace for a decoder
RETRY_AFTER_SECONDS = 5
BLOCK = 60 * SAMPLE_RATE  # samples written at once
CHANNELS = {"rep": REP, "customer": CUSTOMER}
Samples = npt.NDArray[np.int16]
_FAILURES: tuple[type[Exception], ...] = (*OUTAGES, OSError, StorageError)
log = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class SoundRequest:
    """Audio of recordings in a layout: a channel ("mixed", "rep", "customer").

    `spans`: only these stretches, concatenated, each (start, end) in seconds of the call; empty: everything.
    """

    recordings: tuple[Recording, ...]
    layout: Layout
    channel: str
    spans: tuple[tuple[float, float], ...] = ()

    @property
    def name(self) -> str:
        """A file name that identifies the audio: the sha256 of each recording, then a hash of everything else."""
        recordings = "-".join(recording.sha256 for recording in self.recordings)
        parts = (self.layout.kind, self.layout.starts, self.layout.swapped, self.channel, self.spans)
        return f"{recordings}.{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"


class SoundFolder:
    """A cache of up to `max_bytes` of WAV files; `decoders`: max. concurrent decodings.

    `scratch_root`: fsspec address of the folder for decoded sound; unless it is a folder on this machine, and for None,
    the files are in the temporary folder.
    """

    def __init__(self, scratch_root: str | None, options: DecodeOptions, max_bytes: int, decoders: int) -> None:
        self._scratch_root = scratch_root
        self._options = options
        self._max_bytes = max_bytes
        self._name = f"sound-{uuid4().hex}"
        self._decoding: dict[str, asyncio.Task[Path]] = {}
        places = Places(decoders, decoders, decoders, MAX_WAITING, WAIT_SECONDS)
        self._decoders = Admission(places, RETRY_AFTER_SECONDS)
        self._threads = low_priority_threads(decoders)

    def _folder(self) -> Path:
        return scratch.local_folder(self._scratch_root) / self._name

    async def get(self, sound: SoundRequest, workspace: Hashable, seconds: float) -> Path | None:
        """Return the file, decoding it if necessary; None if that takes longer than `seconds` (it continues).

        Workspaces take turns. Raises `TooManyAtOnce`, `pipeline.errors.RecordingError` if it cannot be decoded, and
        `StorageError` if it cannot be read or written.
        """
        path = self._folder() / f"{sound.name}.wav"
        if path.exists():
            os.utime(path)
            return path
        task = self._decoding.get(sound.name)
        if task is None:
            task = asyncio.create_task(self._make(sound, workspace))
            self._decoding[sound.name] = task
            task.add_done_callback(lambda _: self._decoding.pop(sound.name, None))
        done, _ = await asyncio.wait({task}, timeout=seconds)
        return task.result() if done else None

    async def remove_unused(self, database: Database) -> None:
        """Delete the audio of recordings that no call has any more."""
        files = await asyncio.to_thread(self._files)
        digests = {digest for digests_of_file in files.values() for digest in digests_of_file}
        unused = await file_deletions.unused(database, list(digests)) if digests else set()
        for path, of_recordings in files.items():
            if unused & set(of_recordings):
                await asyncio.to_thread(path.unlink, True)

    def _files(self) -> dict[Path, list[str]]:
        """Return the SHA-256 of the recordings of each file, from its name."""
        return {path: path.name.partition(".")[0].split("-") for path in self._folder().glob("*.wav")}

    async def remove_unused_forever(self, database: Database) -> None:
        """Run `remove_unused` every `SWEEP_SECONDS`, until canceled."""
        while True:
            await asyncio.sleep(scratch.SWEEP_SECONDS)
            try:
                await self.remove_unused(database)
            except _FAILURES as error:
                log.warning("the decoded audio of erased calls could not be removed: %s", type(error).__name__)

    async def close(self) -> None:
        """Delete all files."""
        for task in list(self._decoding.values()):
            task.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await task
        self._threads.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(StorageError):
            await asyncio.to_thread(shutil.rmtree, self._folder(), True)

    async def _make(self, sound: SoundRequest, workspace: Hashable) -> Path:
        async with self._decoders.place(workspace, workspace):
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, self._decode, sound)
            except OSError as error:
                raise StorageError(f"The decoded sound could not be written: {error.strerror}.") from error

    def _decode(self, sound: SoundRequest) -> Path:
        folder = self._folder()
        folder.mkdir(exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder))
        try:
            sources = [decode(recording, self._options, work.as_uri()).audio for recording in sound.recordings]
            part = work / "sound.wav"
            _write(part, _tracks(sound.recordings, sources, sound.layout, sound.channel), sound.spans)
            self._make_room(folder, part.stat().st_size)
            return part.replace(folder / f"{sound.name}.wav")
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _make_room(self, folder: Path, size: int) -> None:
        files = sorted(folder.glob("*.wav"), key=lambda path: path.stat().st_mtime)
        total = size + sum(path.stat().st_size for path in files)
        for path in files:
            if total <= self._max_bytes:
                return
            total -= path.stat().st_size
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Track:
    """A channel of a source that begins at sample `start` of the call."""

    audio: Audio
    channel: int
    start: int = 0

    def read(self, first: int, last: int) -> npt.NDArray[np.int32]:
        """Return samples of the call; silence outside of the track."""
        samples = np.zeros(last - first, np.int32)
        begin, end = max(first, self.start), min(last, self.start + self.audio.length)
        if begin < end:
            samples[begin - first : end - first] = self.audio.read(self.channel, begin - self.start, end - self.start)
        return samples

    @property
    def end(self) -> int:
        return self.start + self.audio.length


def _tracks(recordings: Sequence[Recording], sources: Sequence[Audio], layout: Layout, channel: str) -> list[Track]:
    """Return the tracks of a channel: those of the party if the layout separates parties, else all."""
    lines: dict[int, list[Track]] = {REP: [], CUSTOMER: []}
    if layout.kind is LayoutKind.TWO_FILES:
        for recording, audio in zip(recordings, sources, strict=True):
            party = _party(recording.channel, layout)
            start = round(layout.starts[party] * SAMPLE_RATE) if layout.starts else 0
            lines[party] += [Track(audio, row, start) for row in range(audio.channels)]
    else:
        for audio in sources:
            for row in range(audio.channels):
                lines[_party(row, layout)].append(Track(audio, row))
    separate = channel in CHANNELS and layout.kind.separated
    return lines[CHANNELS[channel]] if separate else [*lines[REP], *lines[CUSTOMER]]


def _party(line: int, layout: Layout) -> int:
    return 1 - line if layout.swapped else line


def _write(path: Path, tracks: list[Track], spans: Sequence[tuple[float, float]]) -> None:
    """Write a mono WAV of the mean of the tracks, which cannot clip."""
    length = max((track.end for track in tracks), default=0)  # a line that was never fetched is empty
    within = [(round(start * SAMPLE_RATE), min(round(end * SAMPLE_RATE), length)) for start, end in spans]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        for begin, end in within or [(0, length)]:
            for first in range(begin, end, BLOCK):
                last = min(first + BLOCK, end)
                summed = np.sum([track.read(first, last) for track in tracks], axis=0) // max(1, len(tracks))
                file.writeframes(np.clip(summed, -32768, 32767).astype("<i2").tobytes())
