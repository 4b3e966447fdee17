import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from uuid import UUID

from db.core.database import Database
from db.workspace import llm_usage
from db.workspace.llm_usage import ModelBudgetReached, ModelTokens
from pipeline.analysis.engine import BudgetReached
from serve_app.operations.metric_names import MODEL_NOT_ASKED, MODEL_TOKENS

WaitOut = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
UNITS = {"requests": "requests", "tokens": "tokens", "cost": "in cost"}
log = logging.getLogger("ray.serve")


@dataclass(slots=True)
class ModelSpending:
    """Spending of the workspaces in a process, counted in PostgreSQL for all processes together."""

    database: Database
    prices: tuple[float, float]  # of a million tokens of prompts and of answers
    wait_out: WaitOut  # repeats a step after an outage
    _logged: dict[UUID, date] = field(default_factory=dict)  # the day for which a reached limit was logged

    def of(self, workspace_id: UUID) -> "WorkspaceSpending":
        return WorkspaceSpending(self, workspace_id)

    def tokens(self, prompt: int, completion: int) -> ModelTokens:
        of_prompt, of_completion = self.prices
        return ModelTokens(prompt, completion, (prompt * of_prompt + completion * of_completion) / 1e6)

    async def reserve(self, workspace_id: UUID, expected: ModelTokens) -> "CountedRequest":
        """Count a request by its expected cost. Raises `BudgetReached`."""
        try:
            day = await self.wait_out(lambda: llm_usage.reserve(self.database, workspace_id, expected))
        except ModelBudgetReached as reached:
            MODEL_NOT_ASKED.inc(reason=reached.limit)
            self._log_limit(workspace_id, reached)
            raise BudgetReached(
                f"it was not asked: the workspace's {reached.amount:,g} {UNITS[reached.limit]} "
                f"for {reached.day} (UTC) are used up"
            ) from None
        return CountedRequest(self, workspace_id, day, expected)

    async def settle(self, reserved: "CountedRequest", used: ModelTokens, estimated: bool) -> None:
        """Replace the expected cost by the actual one."""
        MODEL_TOKENS.inc(used.prompt, kind="prompt")
        MODEL_TOKENS.inc(used.completion, kind="completion")
        counted = (self.database, reserved.workspace_id, reserved.day, reserved.expected, used, estimated)
        await self.wait_out(lambda: llm_usage.settle(*counted))

    def _log_limit(self, workspace_id: UUID, reached: ModelBudgetReached) -> None:
        """Log once a day per workspace: the record of each call has it."""
        if self._logged.get(workspace_id) != reached.day:
            self._logged[workspace_id] = reached.day
            log.warning("workspace %s: no further requests to the language model today: %s", workspace_id, reached)


@dataclass(frozen=True, slots=True)
class WorkspaceSpending:
    """A `pipeline.analysis.engine.Spending` of one workspace."""

    of: ModelSpending
    workspace_id: UUID

    async def reserve(self, prompt_tokens: int, completion_tokens: int) -> "CountedRequest":
        """Count a request by its expected cost. Raises `BudgetReached`."""
        return await self.of.reserve(self.workspace_id, self.of.tokens(prompt_tokens, completion_tokens))


@dataclass(frozen=True, slots=True)
class CountedRequest:
    """A request that is counted by its expected cost."""

    of: ModelSpending
    workspace_id: UUID
    day: date
    expected: ModelTokens

    async def settle(self, prompt_tokens: int, completion_tokens: int, estimated: bool = False) -> None:
        await self.of.settle(self, self.of.tokens(prompt_tokens, completion_tokens), estimated)
