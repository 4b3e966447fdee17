from dataclasses import dataclass
from typing import Literal

from pipeline.domain.insight import Evidence
from pipeline.domain.questions import QuestionType

AnswerState = Literal["said", "not_said", "not_asked", "out_of_scope"]


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """Answer of a call to a question. `version` is that of the question; `reason` says why it was not asked.

    `answer`: "yes" or "no", the choice, a number, a text, or a date in ISO 8601; None unless it was said.
    `confidence`, 0..1: recognition confidence of the quoted words times the confidence of the method.
    """

    key: str
    version: int
    type: QuestionType
    question: str
    state: AnswerState
    answer: str | float | None = None
    said_by: str | None = None  # the speaker's label
    evidence: Evidence | None = None
    found_by: Literal["phrases", "model", "person"] | None = None
    confidence: float | None = None
    weight: float = 1.0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TrackerMatch:
    """A place where a tracker's phrase was said."""

    said_by: str  # the speaker's label
    evidence: Evidence
    confidence: float


@dataclass(frozen=True, slots=True)
class TrackerResult:
    """Whether a tracker's phrases were said. `raised`: they were, or were not in case of a required tracker."""

    key: str
    version: int
    question: str
    required: bool
    state: AnswerState
    raised: bool
    matches: tuple[TrackerMatch, ...] = ()
    reason: str | None = None
