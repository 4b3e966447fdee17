"""Decoded sound as WAV files in a folder of this replica: each party by itself, or all of them mixed.

A file is made once, in the decoder's own sandboxed process, and kept while there is room: the one that was listened to
longest ago makes room for the next.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import tempfile
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.audio.decode.decoder import DecodeOptions, decode
from pipeline.domain.speech import CUSTOMER, REP, SAMPLE_RATE, Audio, Layout, LayoutKind, Recording

BLOCK = 60 * SAMPLE_RATE  # samples written at once
CHANNELS = {"rep": REP, "customer": CUSTOMER}
Samples = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class WantedSound:
    """One sound: of which recordings, in what layout, which channel ("mixed", "rep", "customer").

    `spans`: these stretches alone, one after the other, each (start, end) in seconds of the call; empty: all of it.
    """

    recordings: tuple[Recording, ...]
    layout: Layout
    channel: str
    spans: tuple[tuple[float, float], ...] = ()

    @property
    def name(self) -> str:
        """The same for the same sound, and another for any other."""
        parts = (*(r.sha256 for r in self.recordings), self.layout.kind, self.layout.starts, self.layout.swapped)
        return hashlib.sha256(repr((parts, self.channel, self.spans)).encode()).hexdigest()


class SoundFolder:
    """`most_bytes` of WAV files; `decoders`: recordings decoded at once."""

    def __init__(self, options: DecodeOptions, most_bytes: int, decoders: int) -> None:
        self._options = options
        self._most = most_bytes
        self._folder = Path(tempfile.mkdtemp(prefix="switchboard-sound-"))
        self._making: dict[str, asyncio.Task[Path]] = {}
        self._turns = asyncio.Semaphore(decoders)

    async def get(self, wanted: WantedSound, seconds: float) -> Path | None:
        """The file, decoded now if need be; None where that takes longer than `seconds`, and goes on.

        Raises `pipeline.errors.RecordingError` where it cannot be decoded, `StorageError` where it cannot be read.
        """
        path = self._folder / f"{wanted.name}.wav"
        if path.exists():
            os.utime(path)
            return path
        task = self._making.get(wanted.name)
        if task is None:
            task = asyncio.create_task(self._make(wanted, path))
            self._making[wanted.name] = task
            task.add_done_callback(lambda _: self._making.pop(wanted.name, None))
        done, _ = await asyncio.wait({task}, timeout=seconds)
        return task.result() if done else None

    async def close(self) -> None:
        """Remove everything."""
        for task in list(self._making.values()):
            task.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await task
        await asyncio.to_thread(shutil.rmtree, self._folder, True)

    async def _make(self, wanted: WantedSound, path: Path) -> Path:
        async with self._turns:
            await asyncio.to_thread(self._decode, wanted, path)
        return path

    def _decode(self, wanted: WantedSound, path: Path) -> None:
        scratch = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            sources = [decode(one, self._options, scratch.as_uri()).audio for one in wanted.recordings]
            part = scratch / "sound.wav"
            _write(part, _tracks(wanted.recordings, sources, wanted.layout, wanted.channel), wanted.spans)
            self._make_room(part.stat().st_size)
            part.replace(path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _make_room(self, size: int) -> None:
        kept = sorted(self._folder.glob("*.wav"), key=lambda path: path.stat().st_mtime)
        total = size + sum(path.stat().st_size for path in kept)
        for path in kept:
            if total <= self._most:
                return
            total -= path.stat().st_size
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Track:
    """One channel of a source, which begins at the sample `start` of the call."""

    audio: Audio
    channel: int
    start: int = 0

    def read(self, first: int, last: int) -> npt.NDArray[np.int32]:
        """Samples of the call, silence where the track has none."""
        found = np.zeros(last - first, np.int32)
        begin, end = max(first, self.start), min(last, self.start + self.audio.length)
        if begin < end:
            found[begin - first : end - first] = self.audio.read(self.channel, begin - self.start, end - self.start)
        return found

    @property
    def end(self) -> int:
        """The sample after its last."""
        return self.start + self.audio.length


def _tracks(recordings: Sequence[Recording], sources: Sequence[Audio], layout: Layout, channel: str) -> list[Track]:
    """What is heard on a channel: a party's own line where the layout separates them, else everything."""
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
    own = channel in CHANNELS and layout.kind.separated
    return lines[CHANNELS[channel]] if own else [*lines[REP], *lines[CUSTOMER]]


def _party(line: int, layout: Layout) -> int:
    return 1 - line if layout.swapped else line


def _write(path: Path, tracks: list[Track], spans: Sequence[tuple[float, float]]) -> None:
    """A mono WAV of the sum of the tracks; halved where two are mixed into one, which then cannot clip."""
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
