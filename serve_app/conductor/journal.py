"""Results of stages, recorded and recalled for one job: what lets another Conductor resume a call."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from db.core.database import Database
from db.queue import jobs, stage_results
from db.queue.jobs import Lease
from pipeline.domain.stage import NOT_RECORDED, Stage
from pipeline.observability.work_clock import tally
from pipeline.steps.provenance import CODE, Producers
from serve_app.operations.estimates import RUNS_ON, RtfxMeter

FETCHING = (Stage.FETCH, Stage.LEG)
PRODUCED = frozenset(CODE)  # stages whose results are known by what produced them


class Journal:
    """The recorded results of one job's stages, in PostgreSQL; also measures how long stages work.

    A job that processes recalls what would be produced now; one that analyzes, what the call's record was made of.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        wait_out: Callable[..., Awaitable[Any]],
        rtfx: RtfxMeter,
        identify: Callable[[], Awaitable[Producers]],
    ) -> None:
        """`identify` says what would produce each stage's result now."""
        self._identify = identify
        self.producers: Producers = {}  # of what was recorded and recalled
        self._database = database
        self._lease = lease
        self._wait_out = wait_out
        self._rtfx = rtfx
        self._known: dict[Stage, Any] | None = None
        self._spent: dict[Stage, list[float | None]] = {}  # seconds of replicas, by stages that need them
        self._asked = False  # what produces the stages; a job that only fetches needs no engine
        self.audio = (0, 0.0)  # channels and seconds of the call

    async def recall(self, stage: Stage) -> Any:
        if stage is not Stage.LEG:
            await self._wait_out(lambda: jobs.stage(self._database, self._lease, stage))
        if stage not in FETCHING and not self._asked:
            self.producers, self._asked, self._known = await self._produced_by(), True, None
        if self._known is None:
            self._known = await self._wait_out(lambda: stage_results.load(self._database, self._lease, self.producers))
        known = self._known.get(stage, NOT_RECORDED)
        if known is NOT_RECORDED:
            self._begin(stage)
        self._note_audio(stage, known)
        return known

    def _begin(self, stage: Stage) -> None:
        """Measure a stage: this task and those that it starts are within it until the next one."""
        if stage in RUNS_ON:
            tally.set(self._spent.setdefault(stage, []))
        else:
            self._rtfx.begin(stage, self._lease.job.job_id)

    def _end(self, stage: Stage) -> float | None:
        """Return the seconds for which replicas or CPUs worked in a stage; None: they were not measured."""
        channels, audio_seconds = self.audio
        if stage not in RUNS_ON:
            return self._rtfx.end(stage, self._lease.job.job_id, channels, audio_seconds) or None
        spent = self._spent.pop(stage, [])  # empty: there was nothing to ask for
        measured = [seconds for seconds in spent if seconds is not None]
        if len(measured) < len(spent):
            return None
        self._rtfx.add(stage, channels, audio_seconds, sum(measured))
        return sum(measured)

    async def record(self, stage: Stage, result: Any) -> None:
        self._note_audio(stage, result)
        worked = self._end(stage)
        if stage in PRODUCED and stage not in self.producers:  # its engine has come since
            self.producers = {**await self._identified(), **self.producers}
        producer = self.producers.get(stage, "")
        recorded = partial(stage_results.record, self._database, self._lease, stage, result, worked, producer)
        await self._wait_out(recorded)
        if stage is Stage.ANSWERS and self._known is not None:
            self._known[stage] = result  # a call that changed meanwhile is analyzed again by this job
        if stage is Stage.FETCH:
            self._known = None  # with the content known, results of an earlier job may be found

    async def _produced_by(self) -> Producers:
        if self._lease.job.kind == "process":
            return await self._identified()
        made_of = await self._wait_out(lambda: stage_results.of_record(self._database, self._lease))
        return {**await self._identified(), **made_of} if made_of else {}

    async def _identified(self) -> Producers:
        """Ask the engines, which may have to start first."""
        with self._rtfx.waiting(self._lease.job.job_id):
            return await self._identify()

    def _note_audio(self, stage: Stage, result: Any) -> None:
        if stage is Stage.AUDIO and result is not NOT_RECORDED:
            self.audio = (2 if result.layout.kind.separated else 1, result.duration)
