import asyncio
import logging
from uuid import UUID

from db.core.database import Database, Reader
from db.records import waveforms
from db.records.views import CallRecord
from db.records.waveforms import Peaks
from pipeline import scratch
from pipeline.audio.decode.options import DecodeOptions
from pipeline.errors import CallError
from serve_app.http.decoders import Decoders
from serve_app.http.worker import WorkerLost
from serve_app.records.decoding import compute_waveform

log = logging.getLogger("switchboard.console")


class WaveformCache:
    """Computes waveforms and stores them.

    Concurrent requests for a waveform share the computation.
    """

    def __init__(self, scratch_root: str | None, options: DecodeOptions, decoders: Decoders) -> None:
        self._scratch_root, self._options, self._decoders = scratch_root, options, decoders
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
        swapped = record.layout is not None and record.layout.swapped
        files = 2 if record.recording_url2 else None
        try:
            folder = scratch.local_folder(self._scratch_root).as_uri()
            order = (record.recordings, files, swapped, folder, self._options)
            peaks, seconds = await self._decoders.run(reader.workspace_id, compute_waveform, *order)
        except (CallError, OSError, WorkerLost) as error:
            log.warning("no waveform for call %s: %s", record.call.call_id, type(error).__name__)
            return None
        await waveforms.keep(database, reader, record.call.call_id, job_id, peaks, seconds)
        return peaks

    def _on_done(self, job_id: UUID, task: "asyncio.Task[Peaks | None]") -> None:
        del self._running[job_id]
        if not task.cancelled():
            task.exception()  # retrieve it to suppress asyncio's "never retrieved" warning
