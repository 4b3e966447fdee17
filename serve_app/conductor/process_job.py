"""Processes or analyzes one call whose recordings are stored, and writes its record."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from db.core.database import Database
from db.queue import jobs
from db.queue.jobs import Lease
from db.records import roster
from pipeline.domain.call import Job
from pipeline.errors import WorkerLost
from pipeline.options import ProcessOptions
from pipeline.process import Outcome, conclude, process_fetched
from pipeline.runtime.workers import Workers
from serve_app.conductor.claim_end import ClaimEnd, RunStep
from serve_app.conductor.journal import JobJournal
from serve_app.conductor.model_queue import ModelQueue
from serve_app.conductor.retry import ProcessingOptions
from serve_app.conductor.running_jobs import RunningJobs
from serve_app.operations.estimates import CALL, RtfxMeter
from serve_app.operations.metric_names import AUDIO_DONE, JOBS_ENDED, TURNAROUND


class ProcessJob:
    """Runs the pipeline for one job, alone if it is a suspect."""

    def __init__(
        self,
        database: Database,
        workers: Workers,
        options: ProcessingOptions,
        process_options: ProcessOptions,
        journal_of: Callable[[Lease], JobJournal],
        end: ClaimEnd,
        wait_out: RunStep,
        running: RunningJobs,
        model: ModelQueue,
        rtfx: RtfxMeter,
    ) -> None:
        self._database = database
        self._workers = workers
        self._options = options
        self._process_options = process_options
        self._journal_of = journal_of
        self._running = running
        self._model = model
        self._rtfx = rtfx
        self._end = end
        self._wait_out = wait_out

    async def run(self, lease: Lease) -> None:
        """Raises `CallError`, `NotFetched` if the store has lost a recording, `LeaseLost`."""
        if lease.job.crashes >= self._options.MAX_CRASHES:
            raise WorkerLost(_crash_message(lease.job, self._options))
        if self._running.suspect == lease.job.job_id:
            await self._running.wait_until_alone()
            await self._wait_out(lambda: jobs.stage(self._database, lease, "alone"))
        self._rtfx.begin(CALL, lease.job.job_id)
        journal = self._journal_of(lease)
        outcome = await process_fetched(
            lease.call,
            self._workers.of(lease.workspace_id),
            await self._wait_out(lambda: roster.load(self._database, lease)),
            journal,
            lease.warnings,
            self._process_options,
            self._model.of(lease),
        )
        if outcome.late is not None and lease.job.kind == "analyze":
            raise outcome.late  # the call keeps the findings that it has
        await self._complete(lease, outcome, journal)
        self._measure(lease, journal)

    async def _complete(self, lease: Lease, outcome: Outcome, journal: JobJournal) -> None:
        """Write the record; if a submission has changed the call in the meantime, analyze it again first."""
        while (changed := await self._end.complete(lease, outcome, journal.producers)) is not None:
            lease = replace(lease, call=changed)
            outcome = await conclude(
                changed,
                self._workers.of(lease.workspace_id),
                await self._wait_out(partial(roster.load, self._database, lease)),
                outcome.recognized_call,
                journal,
                self._process_options,
                self._model.of(lease),
            )

    def _measure(self, lease: Lease, journal: JobJournal) -> None:
        if lease.job.kind == "process":
            channels, seconds = journal.audio
            self._rtfx.end(CALL, lease.job.job_id, channels, seconds)
            AUDIO_DONE.inc(seconds, channels=str(channels))
            TURNAROUND.observe((lease.clock.now() - lease.job.created_at).total_seconds())
        JOBS_ENDED.inc(kind=lease.job.kind, state="done")
        self._rtfx.leave(lease.job.job_id)


def _crash_message(job: Job, options: ProcessingOptions) -> str:
    alone = max(0, job.crashes - options.QUARANTINE_AFTER)
    quarantined = f", {alone} of them in quarantine (no other call running)" if alone else ""
    return (
        f"The process that ran this call died {job.crashes} times in a row at the same stage{quarantined}: the call "
        "may be what kills it."
    )
