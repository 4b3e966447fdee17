"""How a claim ends: completed, retried, failed, fetched, or to be fetched again.

Each is one transaction that carries the fencing number and charges the lane for the slot that the job used. Jobs that
were lost or interrupted end in another's transaction; their slots are charged afterwards.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from db.core.database import OUTAGES, Database
from db.queue import charges, jobs
from db.queue.charges import UsedSlot
from db.queue.jobs import Lease
from db.records import redactions
from db.records.complete import complete as complete_call
from pipeline.errors import CallError, LeaseLost, StorageError
from pipeline.observability import tracing
from pipeline.process import Outcome
from pipeline.speakers.profile import Voices
from pipeline.steps.provenance import Producers
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.retry import decide
from serve_app.operations.estimates import CALL, RtfxMeter
from serve_app.operations.metric_names import JOB_FAILURES, JOB_RETRIES, JOBS_ENDED
from serve_app.operations.model_spending import WaitOut

log = logging.getLogger("ray.serve")


@dataclass(slots=True)
class ClaimEnd:
    """Ends the claims of one Conductor. `unsettled`: slots of jobs that were lost or interrupted, not charged yet."""

    database: Database
    options: ProcessingOptions
    voices: Voices
    rtfx: RtfxMeter
    wait_out: WaitOut
    conclude: WaitOut  # runs the transaction that ends the claim of the current task
    unsettled: list[UsedSlot] = field(default_factory=list)

    async def complete(self, lease: Lease, outcome: Outcome, producers: Producers) -> Any:
        """Write the record of the call; if a submission has changed it, return the call: the claim continues then.

        Raises LeaseLost.
        """
        with tracing.span("record", links=await self._merged_traces(lease)):
            return await self._end(
                lease,
                lambda used: complete_call(
                    self.database,
                    lease,
                    outcome.transcript,
                    outcome.findings,
                    outcome.recognized_call.voiceprint,
                    outcome.warnings,
                    self.voices,
                    used,
                    producers,
                    outcome.analysis_warnings,
                    outcome.recognized_call.recordings,
                ),
            )

    async def fetched(self, lease: Lease, warnings: tuple[str, ...]) -> None:
        """Queue a call whose recordings are stored. Raises LeaseLost."""
        await self.conclude(lambda: jobs.fetched(self.database, lease, warnings))

    async def fetch_again(self, lease: Lease) -> None:
        """Queue a call whose stored recording is gone, to be fetched again; a lost job is ignored."""
        if lease.job.kind != "process":
            error = StorageError("The stored recording is gone, so it cannot be processed again.")
            await self.retry_or_fail(lease, error)
            return
        with contextlib.suppress(LeaseLost):
            await self._end(lease, lambda used: jobs.fetch_again(self.database, lease, used))
            self.rtfx.leave(lease.job.job_id)

    async def retry_or_fail(self, lease: Lease, error: CallError) -> None:
        """Queue the job for another attempt, or fail it, as `decide` decides; a lost job is ignored."""
        decision = decide(error, lease.job, lease.clock.now(), self.options)
        what = "failed" if decision.retry_in is None else f"retried in {decision.retry_in:.0f} s"
        log_decision(logging.WARNING, lease, f"{what} (attempt {lease.job.attempts}): {error.code}: {error.message}")
        with contextlib.suppress(LeaseLost):
            if decision.retry_in is None:
                await self._end(lease, lambda used: redactions.fail(self.database, lease, error, used))
                JOB_FAILURES.inc(code=error.code)
                JOBS_ENDED.inc(kind=lease.job.kind, state="failed")
            else:
                pause, counts = decision.retry_in, decision.counts
                await self._end(lease, lambda used: jobs.retry(self.database, lease, error, pause, counts, used))
                JOB_RETRIES.inc(code=error.code)
            self.rtfx.leave(lease.job.job_id)

    async def _end(self, lease: Lease, step: Callable[[list[UsedSlot]], Awaitable[Any]]) -> Any:
        return await self.conclude(lambda: step(self._used_slot(lease)))

    async def release(self, leases: list[Lease]) -> None:
        """Requeue the jobs of a Conductor that stops."""
        self.unsettled = await jobs.release(self.database, leases, self.unsettled)

    def leave(self, lease: Lease) -> None:
        """Stop measuring a job that has ended, in whatever way; a slot that is not charged yet stays unsettled."""
        self.unsettled += self._used_slot(lease)
        self.rtfx.leave(lease.job.job_id)

    async def settle_lost(self) -> None:
        """Charge for slots of jobs that were lost or interrupted."""
        used, self.unsettled = self.unsettled, []
        try:
            used = await charges.settle_lost(self.database, used)
        finally:
            self.unsettled += used

    async def try_settle_lost(self) -> None:
        with contextlib.suppress(*OUTAGES):
            await self.settle_lost()

    def _used_slot(self, lease: Lease) -> list[UsedSlot]:
        """Return what the job has used until now, to be charged to its lane; nothing if that is done."""
        seconds = self.rtfx.so_far(CALL, lease.job.job_id)
        return [UsedSlot(lease.slot, seconds)] if lease.slot is not None and seconds > 0 else []

    async def _merged_traces(self, lease: Lease) -> list[str]:
        if not tracing.on():
            return []
        traces = await self.wait_out(lambda: jobs.traces(self.database, lease.workspace_id, lease.call_pk))
        return [trace for trace in traces if trace != lease.trace]


def log_decision(level: int, lease: Lease, decision: str) -> None:
    """Write one line for each decision about a call."""
    log.log(level, "call %s: %s (request %s)", lease.call.call_id, decision, lease.request_id or "unknown")
