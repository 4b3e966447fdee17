"""The calls of a Conductor that wait for a language model, and need no processor in the meantime."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from db.queue.jobs import Lease
from pipeline.analysis import AnalysisOptions
from pipeline.analysis.engine import Keep
from pipeline.domain.insight import ModelRequest, Unanswered
from pipeline.steps.llm_requests import LlmScheduler


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
