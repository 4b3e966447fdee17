"""Requests to a language model for the calls of one process: limited, with fair turns, none to a dead endpoint."""

import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from pipeline import analysis
from pipeline.analysis import AnalysisOptions
from pipeline.analysis.engine import Keep, Spending
from pipeline.domain.insight import ModelRequest, Unanswered
from pipeline.runtime.task_limiter import TaskLimiter

DOWN_AFTER = 3  # calls in a row without a response, after which one call at a time tries the endpoint
DOWN = "endpoint_down"
log = logging.getLogger(__name__)


class LlmClient(Protocol):
    """The interface through which `process` sends requests to a language model."""

    async def ask(
        self, requests: Sequence[ModelRequest], options: AnalysisOptions, keep: Keep
    ) -> dict[str, Unanswered]:
        """Send requests as `analysis.ask`, when it is the call's turn."""


@dataclass(slots=True)
class ModelEndpoint:
    """The health of an endpoint. `failed`: calls in a row without a response."""

    failed: int = 0
    tried: bool = False  # by a call, while it is down

    @property
    def is_down(self) -> bool:
        return self.failed >= DOWN_AFTER


class LlmScheduler:
    """Sends the requests of max. `places` calls at once; owners take turns as in `TaskLimiter`.

    A call waits for its turn without limit: a slow model slows calls down, as an engine does. An endpoint that is down
    does not: while one call tries it again, requests of others fail at once.
    """

    def __init__(self, places: int = 1, spending: Callable[[Any], Spending] | None = None) -> None:
        """`spending(owner)` returns the counter of the owner's requests."""
        self._spending = spending
        self._limiter = TaskLimiter(lambda: places)
        self._endpoints: defaultdict[tuple[str | None, str | None], ModelEndpoint] = defaultdict(ModelEndpoint)

    def of(self, owner: Hashable) -> "WorkspaceLlmQueue":
        """Return the client for calls of one owner (a workspace)."""
        return WorkspaceLlmQueue(self, owner)

    async def ask(
        self, owner: Hashable, requests: Sequence[ModelRequest], options: AnalysisOptions, keep: Keep
    ) -> dict[str, Unanswered]:
        """Send requests as `analysis.ask`; waits for a turn."""
        async with self._limiter.of(owner):
            endpoint = self._endpoints[options.base_url, options.model]
            if endpoint.is_down and endpoint.tried:
                host = urlsplit(options.base_url or "").hostname
                why = Unanswered(f"the endpoint {host} is down: no response to the last {endpoint.failed} calls", DOWN)
                return {request.key: why for request in requests}
            trying = endpoint.tried = endpoint.is_down
            try:
                unanswered = await analysis.ask(requests, options, keep, self._spending and self._spending(owner))
            finally:
                if trying:
                    endpoint.tried = False
            silent = len(unanswered) == len(requests) and any(answer.down for answer in unanswered.values())
            _note(endpoint, silent, options)
            return unanswered


def _note(endpoint: ModelEndpoint, down: bool, options: AnalysisOptions) -> None:
    was = endpoint.is_down
    endpoint.failed = endpoint.failed + 1 if down else 0
    if endpoint.is_down != was:
        change = (
            "does not respond: calls are analyzed by rules, and one at a time tries it" if down else "responds again"
        )
        log.warning("the language model %s %s", options.model, change)


@dataclass(frozen=True, slots=True)
class WorkspaceLlmQueue:
    """An `LlmClient` for the calls of one owner."""

    scheduler: LlmScheduler
    owner: Hashable

    async def ask(
        self, requests: Sequence[ModelRequest], options: AnalysisOptions, keep: Keep
    ) -> dict[str, Unanswered]:
        return await self.scheduler.ask(self.owner, requests, options, keep)
