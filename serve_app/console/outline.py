"""How loud a recording is over time, as its waveform is drawn: made once, then kept in PostgreSQL."""

import asyncio
import logging
from dataclasses import replace
from uuid import UUID

import numpy as np

from db.core.database import Database, Reader
from db.records import waveforms
from db.records.views import CallRecord
from db.records.waveforms import Peaks
from pipeline.audio.analyze import load
from pipeline.audio.channels.arrange import Arranged
from pipeline.audio.decode import sound
from pipeline.audio.decode.decoder import DecodeOptions
from pipeline.domain.speech import SAMPLE_RATE, Audio
from pipeline.errors import CallError

log = logging.getLogger("switchboard.console")

SLICES_PER_SECOND, MOST_SLICES = 20, 24_000  # of a call of 20 minutes and more: all it may have
BLOCK_SECONDS = 10


class Outliner:
    """Makes one outline at a time; who asks for the same one meanwhile waits for the same work."""

    def __init__(self, scratch: str, options: DecodeOptions) -> None:
        self._scratch, self._options = scratch, options
        self._one = asyncio.Semaphore(1)
        self._under_way: dict[UUID, asyncio.Task[Peaks | None]] = {}

    async def get(self, database: Database, reader: Reader, record: CallRecord, seconds: float) -> Peaks | None:
        """The outline, uint8 of shape (channels, slices).

        None where it cannot be made: the recording is gone, or cannot be decoded. Raises TimeoutError where it takes
        longer than `seconds`; it goes on, and is kept.
        """
        job_id = record.job_id
        assert job_id is not None
        kept = await waveforms.find(database, reader, record.call.call_id)
        if kept is not None:
            return kept
        task = self._under_way.get(job_id)
        if task is None:
            task = self._under_way[job_id] = asyncio.create_task(self._make(database, reader, record, job_id))
            task.add_done_callback(lambda ended: self._ended(job_id, ended))
        return await asyncio.wait_for(asyncio.shield(task), seconds)

    async def _make(self, database: Database, reader: Reader, record: CallRecord, job_id: UUID) -> Peaks | None:
        async with self._one:
            try:
                peaks, seconds = await asyncio.to_thread(outline_of, record, self._scratch, self._options)
            except (CallError, OSError) as error:
                log.warning("call %s cannot be drawn: %s", record.call.call_id, type(error).__name__)
                return None
        await waveforms.keep(database, reader, record.call.call_id, job_id, peaks, seconds)
        return peaks

    def _ended(self, job_id: UUID, task: "asyncio.Task[Peaks | None]") -> None:
        del self._under_way[job_id]
        if not task.cancelled():
            task.exception()  # heard, so that asyncio is silent where nobody waits any more


def outline_of(record: CallRecord, scratch: str, options: DecodeOptions) -> tuple[Peaks, float]:
    """Decode a recording, aligned as its transcript is: the peak of each slice, and the seconds of all.

    Bleed stays in: people see what was recorded. Raises what `analyze.load` does, and OSError.
    """
    swapped = record.layout is not None and record.layout.swapped
    loaded = load(record.recordings, options, 2 if record.recording_url2 else None, scratch, swapped=swapped)
    try:
        audio = replace(loaded.audio, paths=()) if isinstance(loaded.audio, Arranged) else loaded.audio
        return peaks_of(audio), audio.duration
    finally:
        if loaded.folder:
            sound.discard(loaded.folder)


def peaks_of(audio: Audio) -> Peaks:
    """uint8 of shape (channels, slices): 255 is full scale."""
    wanted = min(MOST_SLICES, max(1, int(audio.duration * SLICES_PER_SECOND)))
    size = max(1, -(-audio.length // wanted))  # samples of a slice
    block = max(1, BLOCK_SECONDS * SAMPLE_RATE // size) * size
    found: list[Peaks] = [np.zeros((audio.channels, 0), np.uint8)]
    for first in range(0, audio.length, block):
        last = min(first + block, audio.length)
        samples = np.stack([audio.read(channel, first, last) for channel in range(audio.channels)])
        padded = np.pad(np.abs(samples.astype(np.int32)), ((0, 0), (0, -samples.shape[1] % size)))
        highest = padded.reshape(audio.channels, -1, size).max(axis=2)
        found.append((highest >> 7).clip(0, 255).astype(np.uint8))
    return np.concatenate(found, axis=1)
