"""What came of a workspace's questions in one call: answers and trackers, with the words that bear them out."""

from dataclasses import dataclass
from typing import Literal

from pipeline.domain.insight import Evidence
from pipeline.domain.questions import QuestionType

AnswerState = Literal["said", "not_said", "not_asked", "out_of_scope"]


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """What a call says to a question. `version` is that of the question; `reason` says why it was not asked.

    `answer`: "yes" or "no", the choice, a number, a text, or a date in ISO 8601; None unless `state` is "said".
    `confidence`, 0..1: how surely the quoted words were recognized, times the trust in what found it.
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
    """Where a tracker's phrase was said."""

    said_by: str  # the speaker's label
    evidence: Evidence
    confidence: float


@dataclass(frozen=True, slots=True)
class TrackerResult:
    """Whether a tracker's phrases were said. `raised`: they were, or of a required one they were not."""

    key: str
    version: int
    question: str
    required: bool
    state: AnswerState
    raised: bool
    matches: tuple[TrackerMatch, ...] = ()
    reason: str | None = None
