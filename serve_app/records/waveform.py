import asyncio
import logging
from dataclasses import replace
from uuid import UUID

import numpy as np

from db.core.database import Database, Reader
from db.records import waveforms
from db.records.views import CallRecord
from db.records.waveforms import Peaks
from pipeline import scratch
from pipeline.audio.analyze import load
from pipeline.audio.channels.arrange import Arranged
from pipeline.audio.decode import sound
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import SAMPLE_RATE, Audio
from pipeline.errors import CallError
from serve_app.http.admission import Admission
from serve_app.http.options import Places
from serve_app.http.worker import low_priority_threads

log = logging.getLogger("switchboard.console")

SLICES_PER_SECOND, MAX_SLICES = 20, 24_000  # the maximum is reached at 20 minutes
BLOCK_SECONDS = 10
PLACES = Places(total=1, per_workspace=1, per_key=1, waiting=16, seconds=600.0)
RETRY_AFTER_SECONDS = 5


class WaveformCache:
    """Computes waveforms one at a time, workspaces in turn, and stores them.

    Concurrent requests for a waveform share the computation.
    """

    def __init__(self, scratch_root: str | None, options: DecodeOptions) -> None:
        self._scratch_root, self._options = scratch_root, options
        self._turns = Admission(PLACES, RETRY_AFTER_SECONDS)
        self._threads = low_priority_threads(PLACES.total)
        self._running: dict[UUID, asyncio.Task[Peaks | None]] = {}

    async def get(self, database: Database, reader: Reader, record: CallRecord, seconds: float) -> Peaks | None:
        """Return the waveform, uint8 of shape (channels, slices).

        None if the recording is missing or cannot be decoded. Raises `TooManyAtOnce`, TimeoutError after `seconds`.
        """
        job_id = record.job_id
        assert job_id is not None
        stored = await waveforms.find(database, reader, record.call.call_id)
        if stored is not None:
            return stored
        task = self._running.get(job_id)
        if task is None:
            task = self._running[job_id] = asyncio.create_task(self._compute(database, reader, record, job_id))
            task.add_done_callback(lambda ended: self._on_done(job_id, ended))
        return await asyncio.wait_for(asyncio.shield(task), seconds)

    async def _compute(self, database: Database, reader: Reader, record: CallRecord, job_id: UUID) -> Peaks | None:
        async with self._turns.place(reader.workspace_id, reader.workspace_id):
            try:
                peaks, seconds = await asyncio.get_running_loop().run_in_executor(
                    self._threads, compute_waveform, record, self._scratch_root, self._options
                )
            except (CallError, OSError) as error:
                log.warning("no waveform for call %s: %s", record.call.call_id, type(error).__name__)
                return None
        await waveforms.keep(database, reader, record.call.call_id, job_id, peaks, seconds)
        return peaks

    def _on_done(self, job_id: UUID, task: "asyncio.Task[Peaks | None]") -> None:
        del self._running[job_id]
        if not task.cancelled():
            task.exception()  # retrieve it to suppress asyncio's "never retrieved" warning


def compute_waveform(record: CallRecord, scratch_root: str | None, options: DecodeOptions) -> tuple[Peaks, float]:
    """Decode a recording, aligned as its transcript is; return the peak of each slice and the duration in seconds.

    Crosstalk between channels is kept: users see what was recorded. Raises as `analyze.load`, and OSError.
    """
    swapped = record.layout is not None and record.layout.swapped
    folder = scratch.local_folder(scratch_root).as_uri()
    loaded = load(record.recordings, options, 2 if record.recording_url2 else None, folder, swapped=swapped)
    try:
        audio = replace(loaded.audio, paths=()) if isinstance(loaded.audio, Arranged) else loaded.audio
        return peaks_of(audio), audio.duration
    finally:
        if loaded.folder:
            sound.discard(loaded.folder)


def peaks_of(audio: Audio) -> Peaks:
    """Return peaks, uint8 of shape (channels, slices); 255 is full scale."""
    count = min(MAX_SLICES, max(1, int(audio.duration * SLICES_PER_SECOND)))
    size = max(1, -(-audio.length // count))  # samples per slice
    block = max(1, BLOCK_SECONDS * SAMPLE_RATE // size) * size
    blocks: list[Peaks] = [np.zeros((audio.channels, 0), np.uint8)]
    for first in range(0, audio.length, block):
        last = min(first + block, audio.length)
        samples = np.stack([audio.read(channel, first, last) for channel in range(audio.channels)])
        padded = np.pad(np.abs(samples.astype(np.int32)), ((0, 0), (0, -samples.shape[1] % size)))
        highest = padded.reshape(audio.channels, -1, size).max(axis=2)
        blocks.append((highest >> 7).clip(0, 255).astype(np.uint8))
    return np.concatenate(blocks, axis=1)
