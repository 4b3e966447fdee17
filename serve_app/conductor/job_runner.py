import logging
import time
from dataclasses import dataclass

from db.queue.jobs import Lease
from pipeline.errors import CallError, EngineError, LeaseLost, NotFetched, RecordingGone
from pipeline.observability import tracing
from pipeline.observability.context import WorkContext, work_context
from serve_app.conductor.claim_end import ClaimEnd, log_decision
from serve_app.conductor.fetch_job import FetchJob
from serve_app.conductor.process_job import ProcessJob
from serve_app.conductor.running_jobs import RunningJobs

NOT_STORED = (
    "The recording is no longer stored, so the call cannot be analyzed again. Submit the call with a recording."
)
log = logging.getLogger("ray.serve")


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
