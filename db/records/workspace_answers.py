from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.tables import findings
from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.overrides import overridden
from pipeline.domain.scorecards import ScorecardResult, rescored

_ANSWERS = TypeAdapter(tuple[QuestionAnswer, ...])
_TRACKERS = TypeAdapter(tuple[TrackerResult, ...])
_SCORECARDS = TypeAdapter(tuple[ScorecardResult, ...])


@dataclass(frozen=True, slots=True)
class WorkspaceAnswers:
    """A call's answers to its workspace's questions, and the scores."""

    answers: tuple[QuestionAnswer, ...] = ()
    trackers: tuple[TrackerResult, ...] = ()
    scorecards: tuple[ScorecardResult, ...] = ()

    def by_key(self) -> "dict[str, QuestionAnswer | TrackerResult]":
        answers: dict[str, QuestionAnswer | TrackerResult] = {answer.key: answer for answer in self.answers}
        return answers | {tracker.key: tracker for tracker in self.trackers}

    def with_overrides(self, overrides: "Mapping[str, str | None]") -> "WorkspaceAnswers":
        """Return the answers with users' overrides, and the scores that follow."""
        if not overrides:
            return self
        answers = tuple(overridden(answer, overrides) for answer in self.answers)
        trackers = tuple(overridden(tracker, overrides) for tracker in self.trackers)
        return WorkspaceAnswers(answers, trackers, tuple(rescored(card, answers, trackers) for card in self.scorecards))


def parse_answers(value: "Mapping[str, Any]") -> WorkspaceAnswers:
    """Parse the step's value; empty for a value in a form of another version, which the finding still has."""

    def read(adapter: TypeAdapter[Any], name: str) -> Any:
        try:
            return adapter.validate_python(value.get(name, ()))
        except ValidationError:
            return ()

    return WorkspaceAnswers(read(_ANSWERS, "answers"), read(_TRACKERS, "trackers"), read(_SCORECARDS, "scorecards"))


async def machine_answers(connection: AsyncConnection, call_pk: int) -> WorkspaceAnswers:
    """Return the machine's answers to the questions of the workspace."""
    query = sa.select(findings.c.value).where(findings.c.call_pk == call_pk, findings.c.step == "questions")
    return parse_answers(await connection.scalar(query.order_by(findings.c.version.desc()).limit(1)) or {})
