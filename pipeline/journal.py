"""How results of stages are stored while a call is processed, so that a later attempt resumes instead of repeating."""

from collections.abc import Mapping
from typing import Any, Protocol

from pipeline.domain.stage import NOT_RECORDED, Stage


class Journal(Protocol):
    """The stored results of one call's stages."""

    async def recall(self, stage: Stage) -> Any:
        """Return the stored result; `NOT_RECORDED` if the stage has to run.

        `Stage.LEG`: a tuple of the recordings that are stored.
        """

    async def record(self, stage: Stage, result: Any) -> None:
        """Store the result of a stage. `Stage.LEG`: one recording."""


class MemoryJournal:
    """A `Journal` in memory: for notebooks, the command line and tests. `results`: those to resume from."""

    def __init__(self, results: Mapping[Stage, Any] | None = None) -> None:
        self.results: dict[Stage, Any] = dict(results or {})

    async def recall(self, stage: Stage) -> Any:
        return self.results.get(stage, NOT_RECORDED)

    async def record(self, stage: Stage, result: Any) -> None:
        if stage is Stage.LEG:
            result = (*self.results.get(stage, ()), result)
        self.results[stage] = result
