from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import TypeVar

from pipeline.domain.answers import AnswerState, QuestionAnswer, TrackerResult
from pipeline.domain.questions import SAID, Question

NOT_APPLICABLE = "n/a"
"""A person's answer that the question does not apply to the call: it does not count in a score."""
BY_PERSON = "marked as not applicable"


@dataclass(frozen=True, slots=True)
class AnswerAnchor:
    """The question that an override belongs to; another wording or type is another question."""

    question: str  # its key
    type: str
    wording: str


A = TypeVar("A", QuestionAnswer, TrackerResult)


def anchor_of(answer: QuestionAnswer | TrackerResult) -> AnswerAnchor:
    """Return the question of an answer with its wording."""
    kind = answer.type if isinstance(answer, QuestionAnswer) else "tracker"
    return AnswerAnchor(answer.key, kind, answer.question)


def shown_answer(answer: QuestionAnswer | TrackerResult) -> str | None:
    """Return an answer as an edit stores it: its text, "said" for trackers, "n/a"; None: not said."""
    if answer.state in ("not_asked", "out_of_scope"):
        return NOT_APPLICABLE
    if answer.state == "not_said":
        return None
    if isinstance(answer, TrackerResult):
        return SAID
    return f"{answer.answer:g}" if isinstance(answer.answer, float) else str(answer.answer)


def refusal(kind: str, question: Question | None, new: str | None) -> str | None:
    """Return why this answer is invalid; None if it is valid. `question`: its definition, if known."""
    if new is None or new == NOT_APPLICABLE:
        return None
    choices = {"yes/no": ("yes", "no"), "tracker": (SAID,), "choice": tuple(question.choices) if question else (new,)}
    if kind in choices and new not in choices[kind]:
        return f"One of: {', '.join(choices[kind])}, n/a; or null if not said."
    try:
        if kind == "number":
            float(new)
        if kind == "date":
            date.fromisoformat(new)
    except ValueError:
        return f"Expected a {kind}" + (", such as 2026-11-24." if kind == "date" else ", in digits.")
    return None


def overridden(answer: A, overrides: Mapping[str, str | None]) -> A:
    """Return an answer or tracker result with a person's override; `overrides`: answers by question key."""
    if answer.key not in overrides:
        return answer
    new = overrides[answer.key]
    state: AnswerState = "not_said" if new is None else "not_asked" if new == NOT_APPLICABLE else "said"
    reason = BY_PERSON if state == "not_asked" else None
    if isinstance(answer, TrackerResult):
        raised = state != "not_asked" and (state == "said") != answer.required
        matches = answer.matches if state == "said" else ()
        return replace(answer, state=state, raised=raised, matches=matches, reason=reason)
    new_answer = new if state == "said" else None
    return replace(
        answer,
        state=state,
        answer=float(new_answer) if new_answer is not None and answer.type == "number" else new_answer,
        said_by=None,
        evidence=None,
        found_by="person",
        confidence=None,
        reason=reason,
    )
