"""The journals in PostgreSQL, through which another Conductor resumes a call: of a job, and of a call of a run."""

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

from db.core.database import Database
from db.experiments import run_calls
from db.experiments.run_calls import RunLease
from db.queue import jobs, stage_results
from db.queue.jobs import Lease
from pipeline.domain.speech import Pending, Recording
from pipeline.domain.stage import NOT_RECORDED, Stage
from pipeline.journal import Journal
from pipeline.observability.work_clock import tally
from pipeline.runtime.preemption import OTHER, stage_at_work
from pipeline.steps.provenance import CODE, Producers
from serve_app.operations.estimates import RUNS_ON, RtfxMeter

MAX_KEYS = 100_000  # the oldest is forgotten: its recording is fetched again
FETCHING = (Stage.FETCH, Stage.LEG)
_SILENT = (Stage.LEG, Stage.REDACTION)  # recalled before another stage that is shown as the work
PRODUCED = frozenset(CODE)  # stages whose results are known by what produced them


class FileKeys:
    """Keys of recordings that nothing may store, by job: each is only in the memory of the Conductor that fetched it.

    A restart forgets them: the recordings are fetched again.
    """

    def __init__(self) -> None:
        self._keys: OrderedDict[UUID, bytes] = OrderedDict()

    def create(self, job_id: UUID) -> bytes:
        """Return a new key for the files of a job, in place of an earlier one."""
        self._keys[job_id] = os.urandom(32)
        if len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        return self._keys[job_id]

    def find(self, job_id: UUID) -> bytes | None:
        return self._keys.get(job_id)

    def forget(self, job_id: UUID) -> None:
        self._keys.pop(job_id, None)


@dataclass
class JobJournal(Journal):
    """The recorded results of one job's stages; also measures how long stages work.

    A job that processes recalls results that the same engines, options and code would produce now; one that analyzes,
    those that the call's record was made from.
    """

    database: Database
    lease: Lease
    wait_out: Callable[..., Awaitable[Any]]
    rtfx: RtfxMeter
    identify: Callable[[], Awaitable[Producers]]  # returns what would produce each stage's result now
    keys: FileKeys
    pending: Pending | None = None  # of files that this job fetches
    producers: Producers = field(default_factory=dict)  # of what was recorded and recalled
    audio: tuple[int, float] = (0, 0.0)  # channels and seconds of the call
    _recorded: dict[Stage, Any] | None = None
    _spent: dict[Stage, list[float | None]] = field(
        default_factory=dict
    )  # seconds of replicas, by stages that need them
    _identified: bool = False  # a job that only fetches needs no engine

    async def recall(self, stage: Stage) -> Any:
        if stage not in _SILENT:
            await self.wait_out(lambda: jobs.stage(self.database, self.lease, stage))
        if stage not in FETCHING and not self._identified:
            self.producers, self._identified, self._recorded = await self._producers_to_recall(), True, None
        if self._recorded is None:
            load = partial(stage_results.load, self.database, self.lease, self.producers)
            self._recorded = await self.wait_out(load)
        result = self._recorded.get(stage, NOT_RECORDED)
        if stage in FETCHING and result is not NOT_RECORDED:
            result = self._openable(result)
        if result is NOT_RECORDED and stage is not Stage.REDACTION:
            self._begin(stage)
        self._note_audio(stage, result)
        return result

    def _openable(self, recordings: tuple[Recording, ...]) -> Any:
        """Return the recordings without those that were sealed by a key that no process has any more."""
        key = self.keys.find(self.lease.job.job_id)
        opened = tuple(
            replace(recording, key=key) if recording.redaction == Pending.IN_MEMORY else recording
            for recording in recordings
            if key is not None or recording.redaction != Pending.IN_MEMORY
        )
        return opened or NOT_RECORDED

    def _begin(self, stage: Stage) -> None:
        """Measure a stage: this task and those that it starts belong to it until the next one."""
        if stage in RUNS_ON:
            tally.set(self._spent.setdefault(stage, []))
        else:
            self.rtfx.begin(stage, self.lease.job.job_id)

    def _end(self, stage: Stage) -> float | None:
        """Return the seconds for which replicas or CPUs worked in a stage; None: they were not measured."""
        channels, audio_seconds = self.audio
        if stage is Stage.RECOGNITION and stage not in self._spent:  # recalled, then redacted
            return None
        if stage not in RUNS_ON:
            return self.rtfx.end(stage, self.lease.job.job_id, channels, audio_seconds) or None
        spent = self._spent.pop(stage, [])  # empty: no request was needed
        measured = [seconds for seconds in spent if seconds is not None]
        if len(measured) < len(spent):
            return None
        self.rtfx.add(stage, channels, audio_seconds, sum(measured))
        return sum(measured)

    async def record(self, stage: Stage, result: Any) -> None:
        self._note_audio(stage, result)
        if stage in FETCHING and self.pending is not None:
            result = _marked(result, self.pending)
        seconds = self._end(Stage.RECOGNITION if stage is Stage.REDACTION else stage)
        if stage in PRODUCED and stage not in self.producers:  # its engine was not available before
            self.producers = {**await self._current_producers(), **self.producers}
        producer = self.producers.get(stage, "")
        write = partial(stage_results.record, self.database, self.lease, stage, result, seconds, producer)
        await self.wait_out(write)
        if stage is Stage.ANSWERS and self._recorded is not None:
            self._recorded[stage] = result  # this job analyzes again a call that has changed in the meantime
        if stage is Stage.FETCH:
            self._recorded = None  # results of an earlier job with the same content may be recalled now

    async def _producers_to_recall(self) -> Producers:
        if self.lease.job.kind == "process":
            return await self._current_producers()
        of_record = await self.wait_out(lambda: stage_results.of_record(self.database, self.lease))
        return {**await self._current_producers(), **of_record} if of_record else {}

    async def _current_producers(self) -> Producers:
        """Identify the engines, which may have to start first."""
        with self.rtfx.waiting(self.lease.job.job_id):
            return await self.identify()

    def _note_audio(self, stage: Stage, result: Any) -> None:
        if stage is Stage.AUDIO and result is not NOT_RECORDED:
            self.audio = (2 if result.layout.kind.separated else 1, result.duration)


@dataclass
class RunJournal(Journal):
    """Results of stages in the configuration of a run, from whichever job or run; written under the call's lease."""

    database: Database
    lease: RunLease
    producers: Producers
    wait_out: Callable[..., Awaitable[Any]]
    _recorded: dict[Stage, Any] | None = None

    async def recall(self, stage: Stage) -> Any:
        if self._recorded is None:
            load = partial(stage_results.load, self.database, self.lease.lease, self.producers)
            self._recorded = await self.wait_out(load)
        result = self._recorded.get(stage, NOT_RECORDED)
        stage_at_work.set(str(stage) if result is NOT_RECORDED else OTHER)
        return result

    async def record(self, stage: Stage, result: Any) -> None:
        stage_at_work.set(OTHER)
        if stage not in self.producers and stage is not Stage.ANSWERS:  # speakers: stored with the call's result
            return
        producer = self.producers.get(stage, "")  # answers are identified by their request
        await self.wait_out(partial(run_calls.record, self.database, self.lease, stage, result, producer))


def _marked(result: Any, pending: Pending) -> Any:
    """Return fetched recordings, one or a tuple of them, as nothing may play before their sound is redacted."""
    if isinstance(result, tuple):
        return tuple(_marked(recording, pending) for recording in result)
    return replace(result, redaction=result.redaction or pending)
