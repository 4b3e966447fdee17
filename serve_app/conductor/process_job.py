import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from db.core.database import Database
from db.queue import jobs
from db.queue.jobs import Lease
from db.records import roster
from pipeline.domain.call import Job
from pipeline.domain.redaction import NamedPolicy, RedactionMode
from pipeline.errors import WorkerLost
from pipeline.fetch import handed_in
from pipeline.options import ProcessOptions
from pipeline.process import Outcome, conclude, process_fetched
from pipeline.runtime.workers import Workers
from pipeline.steps.call_run import RedactedFiles
from serve_app.conductor.claim_end import ClaimEnd
from serve_app.conductor.fetch_job import FetchJob
from serve_app.conductor.file_keys import FileKeys
from serve_app.conductor.journal import JobJournal
from serve_app.conductor.model_queue import ModelQueue
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.running_jobs import RunningJobs
from serve_app.operations.estimates import CALL, RtfxMeter
from serve_app.operations.metric_names import AUDIO_DONE, JOBS_ENDED, TURNAROUND
from serve_app.operations.model_spending import WaitOut


@dataclass(slots=True)
class ProcessJob:
    """Runs the pipeline for one job, alone if it is a suspect."""

    database: Database
    workers: Workers
    options: ProcessingOptions
    process_options: ProcessOptions
    journal_of: Callable[[Lease], JobJournal]
    end: ClaimEnd
    wait_out: WaitOut
    running: RunningJobs
    model: ModelQueue
    rtfx: RtfxMeter
    fetch: FetchJob
    keys: FileKeys

    async def run(self, lease: Lease) -> None:
        """Run the pipeline and write the record.

        Raises `CallError`, `LeaseLost`, and `NotFetched` if the store has lost a recording.
        """
        if lease.job.crashes >= self.options.MAX_CRASHES:
            raise WorkerLost(_crash_message(lease.job, self.options))
        if self.running.suspect == lease.job.job_id:
            await self.running.wait_until_alone()
            await self.wait_out(lambda: jobs.stage(self.database, lease, "alone"))
        self.rtfx.begin(CALL, lease.job.job_id)
        async with self.fetch.watch_files(lease):
            await self._process(lease)

    async def _process(self, lease: Lease) -> None:
        journal = self.journal_of(lease)
        roster_now = await self.wait_out(lambda: roster.load(self.database, lease))
        warnings = lease.warnings
        if self._needs_fetch(lease, roster_now.redaction):
            warnings = await self.fetch.fetch(lease)
        outcome = await process_fetched(
            lease.call,
            self.workers.of(lease.workspace_id),
            roster_now,
            journal,
            warnings,
            self.process_options,
            self.model.of(lease),
            await self._redacted_files(lease, roster_now.redaction),
        )
        if outcome.late is not None and lease.job.kind == "analyze":
            raise outcome.late  # the call keeps the findings that it has
        await self._complete(lease, outcome, journal)
        if roster_now.redaction is not None:
            await self._forget_source(lease)
        self._measure(lease, journal)

    async def _forget_source(self, lease: Lease) -> None:
        """Remove the copy of a file that was handed in: it was kept, as only a source is without redaction."""
        self.keys.forget(lease.job.job_id)
        folder = self.process_options.handed_in
        if folder is not None and folder.is_dir():
            await asyncio.to_thread(handed_in.remove, folder, lease.call.call_id)

    async def _redacted_files(self, lease: Lease, policy: NamedPolicy | None) -> RedactedFiles:
        if policy is None and self.keys.find(lease.job.job_id) is None:
            return RedactedFiles()  # nothing is stored again
        return RedactedFiles(await self.wait_out(partial(self.fetch.key, lease, policy)))

    def _needs_fetch(self, lease: Lease, policy: NamedPolicy | None) -> bool:
        """Return whether the recordings are sealed by a key of another Conductor, or of this one before its restart."""
        only_redacted = policy is not None and policy.mode is RedactionMode.REDACTED_ONLY
        return only_redacted and lease.job.kind == "process" and self.keys.find(lease.job.job_id) is None

    async def _complete(self, lease: Lease, outcome: Outcome, journal: JobJournal) -> None:
        """Write the record; if a submission has changed the call in the meantime, analyze it again first."""
        while (changed := await self.end.complete(lease, outcome, journal.producers)) is not None:
            lease = replace(lease, call=changed)
            outcome = await conclude(
                changed,
                self.workers.of(lease.workspace_id),
                await self.wait_out(partial(roster.load, self.database, lease)),
                outcome.recognized_call,
                journal,
                self.process_options,
                self.model.of(lease),
            )

    def _measure(self, lease: Lease, journal: JobJournal) -> None:
        if lease.job.kind == "process":
            channels, seconds = journal.audio
            self.rtfx.end(CALL, lease.job.job_id, channels, seconds)
            AUDIO_DONE.inc(seconds, channels=str(channels))
            TURNAROUND.observe((lease.clock.now() - lease.job.created_at).total_seconds())
        JOBS_ENDED.inc(kind=lease.job.kind, state="done")
        self.rtfx.leave(lease.job.job_id)


def _crash_message(job: Job, options: ProcessingOptions) -> str:
    alone = max(0, job.crashes - options.QUARANTINE_AFTER)
    quarantined = f", {alone} of them in quarantine (no other call running)" if alone else ""
    return (
        f"The process that ran this call died {job.crashes} times in a row at the same stage{quarantined}: the call "
        "may be what kills it."
    )
