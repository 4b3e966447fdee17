"""What people say against the machine's answers to a workspace's questions. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import TypeVar

from pipeline.domain.answers import AnswerState, QuestionAnswer, TrackerResult
from pipeline.domain.questions import SAID, Question

NOT_APPLICABLE = "n/a"
"""As an answer of a person: the question does not apply to the call, so that it does not count in a score."""
BY_PERSON = "a person says that it does not apply"


@dataclass(frozen=True, slots=True)
class AnswerAnchor:
    """The question that an override belongs to, as it was asked: of another wording or type, it is another one."""

    question: str  # its key
    type: str
    wording: str


A = TypeVar("A", QuestionAnswer, TrackerResult)


def anchor_of(answer: QuestionAnswer | TrackerResult) -> AnswerAnchor:
    """The question of an answer, as it was asked."""
    kind = answer.type if isinstance(answer, QuestionAnswer) else "tracker"
    return AnswerAnchor(answer.key, kind, answer.question)


def shown_answer(answer: QuestionAnswer | TrackerResult) -> str | None:
    """An answer as an edit holds it: its text, "said" of trackers, "n/a"; None: nobody says it."""
    if answer.state in ("not_asked", "out_of_scope"):
        return NOT_APPLICABLE
    if answer.state == "not_said":
        return None
    if isinstance(answer, TrackerResult):
        return SAID
    return f"{answer.answer:g}" if isinstance(answer.answer, float) else str(answer.answer)


def refusal(kind: str, question: Question | None, new: str | None) -> str | None:
    """Why a person cannot answer so; None: it can be. `question`: its definition, if it is known."""
    if new is None or new == NOT_APPLICABLE:
        return None
    choices = {"yes/no": ("yes", "no"), "tracker": (SAID,), "choice": tuple(question.choices) if question else (new,)}
    if kind in choices and new not in choices[kind]:
        return f"One of: {', '.join(choices[kind])}, n/a; or null, if nobody says it."
    try:
        if kind == "number":
            float(new)
        if kind == "date":
            date.fromisoformat(new)
    except ValueError:
        return f"It takes a {kind}" + (", such as 2026-11-24." if kind == "date" else ", in digits.")
    return None


def overridden(answer: A, overrides: Mapping[str, str | None]) -> A:
    """An answer, or a tracker's result, as a person said; `overrides`: what was said, by the question's key."""
    if answer.key not in overrides:
        return answer
    new = overrides[answer.key]
    state: AnswerState = "not_said" if new is None else "not_asked" if new == NOT_APPLICABLE else "said"
    reason = BY_PERSON if state == "not_asked" else None
    if isinstance(answer, TrackerResult):
        raised = state != "not_asked" and (state == "said") != answer.required
        matches = answer.matches if state == "said" else ()
        return replace(answer, state=state, raised=raised, matches=matches, reason=reason)
    told = new if state == "said" else None
    return replace(
        answer,
        state=state,
        answer=float(told) if told is not None and answer.type == "number" else told,
        said_by=None,
        evidence=None,
        found_by="person",
        confidence=None,
        reason=reason,
    )
