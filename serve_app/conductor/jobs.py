import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.queue import jobs, stage_results
from db.queue.jobs import Lease
from db.records import file_deletions, roster
from db.secrets import call_keys, credentials
from db.secrets.encryption import Sealer
from db.secrets.recording_urls import UrlSealer
from db.workspace import redaction_policies, settings
from pipeline.analysis import AnalysisOptions
from pipeline.analysis.engine import Keep
from pipeline.domain.call import Call, Job
from pipeline.domain.credentials import Access, Credential
from pipeline.domain.insight import ModelRequest, Unanswered
from pipeline.domain.redaction import NamedPolicy, RedactionMode
from pipeline.domain.speech import Pending
from pipeline.errors import CallError, EngineError, LeaseLost, NotFetched, RecordingGone, WorkerLost
from pipeline.fetch import handed_in
from pipeline.fetch.storage import StoredFiles, stored_files
from pipeline.observability import tracing
from pipeline.observability.context import WorkContext, work_context
from pipeline.options import ProcessOptions
from pipeline.process import Outcome, conclude, fetch_recordings, process_fetched
from pipeline.runtime.workers import Workers
from pipeline.steps.call_run import RedactedFiles
from pipeline.steps.llm_requests import LlmScheduler
from serve_app.conductor.claim_end import ClaimEnd, log_decision
from serve_app.conductor.journal import FileKeys, JobJournal
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.retry import is_last_try
from serve_app.conductor.running_jobs import RunningJobs
from serve_app.operations.estimates import CALL, RtfxMeter
from serve_app.operations.metric_names import AUDIO_DONE, JOBS_ENDED, TURNAROUND
from serve_app.operations.model_spending import WaitOut


class ModelQueue:
    """Counts calls while they wait for their turn and for the response; `len()` is their number."""

    def __init__(self, llm: LlmScheduler, on_change: Callable[[], None]) -> None:
        """`on_change` is called when a call begins to wait: there is room for another one."""
        self._llm = llm
        self._on_change = on_change
        self._jobs: set[UUID] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def of(self, lease: Lease) -> "JobLlmClient":
        return JobLlmClient(self, lease)

    async def ask(
        self, lease: Lease, requests: Sequence[ModelRequest], options: AnalysisOptions, keep: Keep
    ) -> dict[str, Unanswered]:
        """Send requests as `LlmScheduler.ask`. Raises LeaseLost if a response cannot be recorded any longer."""
        self._jobs.add(lease.job.job_id)
        self._on_change()
        try:
            return await self._llm.ask(lease.workspace_id, requests, options, keep)
        finally:
            self._jobs.discard(lease.job.job_id)


@dataclass(frozen=True, slots=True)
class JobLlmClient:
    """An `LlmClient` for one job."""

    queue: ModelQueue
    lease: Lease

    async def ask(
        self, requests: Sequence[ModelRequest], options: AnalysisOptions, keep: Keep
    ) -> dict[str, Unanswered]:
        return await self.queue.ask(self.lease, requests, options, keep)


LATE_SECONDS = 600.0  # in which a thread of a canceled fetch has stored its file
GIVE_UP_SECONDS = 5.0
NOT_STORED = (
    "The recording is no longer stored, so the call cannot be analyzed again. Submit the call with a recording."
)
log = logging.getLogger("ray.serve")


@dataclass(slots=True)
class FetchJob:
    """Fetches with the credentials of recording servers, which leave this process in requests only."""

    database: Database
    workers: Workers
    options: ProcessingOptions
    process_options: ProcessOptions
    journal_of: Callable[[Lease], JobJournal]
    end: ClaimEnd
    wait_out: WaitOut
    sealer: Sealer  # of the credentials of recording servers
    urls: UrlSealer  # of the addresses of recordings
    keys: FileKeys

    async def run(self, lease: Lease) -> None:
        """Fetch the recordings and queue the call. Raises `CallError`, `LeaseLost`."""
        async with self.watch_files(lease):
            warnings = await self.fetch(lease)
            await self.end.fetched(lease, warnings)

    @asynccontextmanager
    async def watch_files(self, lease: Lease) -> AsyncIterator[None]:
        """Queue the deletion of files that are stored in the block if it loses the job."""
        files: StoredFiles = []
        stored_files.set(files)
        try:
            yield
        except (LeaseLost, asyncio.CancelledError):
            if files:
                await self._give_up(lease, files)
            raise

    async def fetch(self, lease: Lease) -> tuple[str, ...]:
        """Fetch the recordings of a call and return warnings. Raises `CallError`, `LeaseLost`.

        Under a policy of redaction the files are sealed, and nothing plays them: by the call's key if the policy keeps
        originals, else by a key that only this process has.
        """
        hosts = await self.wait_out(lambda: settings.allowed_hosts(self.database, lease.workspace_id))
        fetch = self.process_options.fetch
        allowed = fetch.model_copy(update={"allowed_hosts": (*fetch.allowed_hosts, *hosts)})
        policy, key = await self.wait_out(lambda: self._policy_and_key(lease))
        journal = self.journal_of(lease)
        if policy is not None:
            journal.pending = Pending.SEALED if policy.mode is RedactionMode.MASK else Pending.IN_MEMORY
        if journal.pending is Pending.IN_MEMORY:
            key = self.keys.find(lease.job.job_id) or await self._new_key(lease)
        return await fetch_recordings(
            self._with_open_urls(lease.call),
            self.workers.of(lease.workspace_id),
            journal,
            self.process_options.model_copy(update={"fetch": allowed}),
            is_last_try(lease.job, lease.clock.now(), self.options),
            self._access(lease),
            key,
            policy is not None,
        )

    async def _new_key(self, lease: Lease) -> bytes:
        """Return a key that only this process has, for files in place of those of an earlier one."""
        await self.wait_out(partial(stage_results.drop_unreadable, self.database, lease))
        return self.keys.create(lease.job.job_id)

    async def _policy_and_key(self, lease: Lease) -> tuple[NamedPolicy | None, bytes | None]:
        async with self.database.transaction(lease.workspace_id) as connection:
            policy = await redaction_policies.effective(connection, lease.workspace_id, lease.call.team_id)
            return policy, await _key(connection, lease, policy)

    async def key(self, lease: Lease, policy: NamedPolicy | None) -> bytes | None:
        """Return the key that seals the files of a call; None if they are not sealed."""
        async with self.database.transaction(lease.workspace_id) as connection:
            return await _key(connection, lease, policy)

    async def _give_up(self, lease: Lease, files: StoredFiles) -> None:
        """Queue the deletion of files that no row will refer to: the call was erased, or has another recording."""
        queue = partial(file_deletions.queue, self.database, lease.job.job_id, files, LATE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_SECONDS):  # a process that stops does not wait for the database
                await self.wait_out(queue)

    def _with_open_urls(self, call: Call) -> Call:
        """Return the call with the URLs as its sender sent them. Raises `SecretSealed`."""
        first, second = (url and self.urls.open(url) for url in (call.recording_url, call.recording_url2))
        return replace(call, recording_url=first, recording_url2=second)

    def _access(self, lease: Lease) -> Access:
        """Return a function that looks up the credentials for the one server that is requested."""

        async def find(host: str, port: int) -> Credential | None:
            workspace_id = lease.workspace_id
            look_up = partial(credentials.find, self.database, workspace_id, self.sealer, host, port)
            return await self.wait_out(look_up)  # type: ignore[no-any-return]

        return find


async def _key(connection: AsyncConnection, lease: Lease, policy: NamedPolicy | None) -> bytes | None:
    seals = policy is not None and policy.mode is RedactionMode.MASK
    return await call_keys.key_for_writing(connection, lease.call_pk, lease.workspace_id, seals)


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


class InternalError(EngineError):
    """An unexpected error in the pipeline."""

    code = "internal_error"


@dataclass(slots=True)
class JobRunner:
    """Runs jobs and decides, for each way in which one may end, how its claim ends."""

    fetch: FetchJob
    process: ProcessJob
    end: ClaimEnd
    running: RunningJobs

    async def run(self, lease: Lease) -> None:
        with work_context(work_context_of(lease)):
            await self._run_to_end(lease)

    async def _run_to_end(self, lease: Lease) -> None:
        started = time.monotonic()
        try:
            await self._attempt(lease)
            done = "fetched" if lease.fetching else "completed"
            log_decision(logging.INFO, lease, f"{done} in {time.monotonic() - started:.1f} s")
        except LeaseLost:
            reason = f"job {lease.job.job_id} was superseded, or claimed by another Conductor"
            log_decision(logging.INFO, lease, reason)
        except NotFetched:
            if lease.job.kind == "analyze":  # only a process job fetches
                await self.end.retry_or_fail(lease, RecordingGone(NOT_STORED))
            else:
                await self.end.fetch_again(lease)
        except CallError as error:
            await self.end.retry_or_fail(lease, error)
        except Exception as error:
            log.exception("call %s: unexpected failure", lease.call.call_id)
            failure = InternalError(f"Unexpected {type(error).__name__} while processing the call.")
            await self.end.retry_or_fail(lease, failure)
        finally:
            self.end.leave(lease)
            if self.end.unsettled and not self.running.closed:
                await self.end.try_settle_lost()  # before another is claimed: a lane that is alone pays nothing

    async def _attempt(self, lease: Lease) -> None:
        if lease.queued_at and lease.job.started_at:
            tracing.past("queue wait", lease.queued_at, lease.job.started_at)
        with tracing.span("fetch" if lease.fetching else lease.job.kind, "consumer", attempt=lease.job.attempts):
            await (self.fetch.run(lease) if lease.fetching else self.process.run(lease))


def work_context_of(lease: Lease) -> WorkContext:
    ids = {"call_id": lease.call.call_id, "call_job_id": lease.job.job_id, "request_id": lease.request_id}
    return WorkContext({name: str(value) for name, value in ids.items() if value}, lease.trace)
