"""Results of stages, recorded and recalled for one job: what lets another Conductor resume a call."""

from collections.abc import Awaitable, Callable
from typing import Any

from db import jobs, results
from db.database import Database
from db.jobs import Lease
from pipeline.domain.stage import NOT_RECORDED, Stage
from serve_app.scaling.estimates import RtfxMeter


class Journal:
    """The recorded results of one job's stages, in PostgreSQL; also measures how long stages work."""

    def __init__(
        self, database: Database, lease: Lease, wait_out: Callable[..., Awaitable[Any]], rtfx: RtfxMeter
    ) -> None:
        self._database = database
        self._lease = lease
        self._wait_out = wait_out
        self._rtfx = rtfx
        self._known: dict[Stage, Any] | None = None
        self.audio = (0, 0.0)  # channels and seconds of the call

    async def recall(self, stage: Stage) -> Any:
        if stage is not Stage.LEG:
            await self._wait_out(lambda: jobs.stage(self._database, self._lease, stage))
        if self._known is None:
            self._known = await self._wait_out(lambda: results.load(self._database, self._lease))
        known = self._known.get(stage, NOT_RECORDED)
        if known is NOT_RECORDED:
            self._rtfx.begin(stage, self._lease.job.job_id)
        self._note_audio(stage, known)
        return known

    async def record(self, stage: Stage, result: Any) -> None:
        self._note_audio(stage, result)
        worked = self._rtfx.end(stage, self._lease.job.job_id, *self.audio)
        of_replicas = self._rtfx.replica_seconds(stage, worked) if worked else None
        await self._wait_out(lambda: results.record(self._database, self._lease, stage, result, of_replicas))
        if stage is Stage.FETCH:
            self._known = None  # with the content known, results of an earlier job may be found

    def _note_audio(self, stage: Stage, result: Any) -> None:
        if stage is Stage.AUDIO and result is not NOT_RECORDED:
            self.audio = (2 if result.layout.kind.separated else 1, result.duration)
