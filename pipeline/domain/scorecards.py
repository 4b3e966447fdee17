import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.questions import NOT_SAID, SAID, Question, Scorecard, ScorecardItem, points_of

NOT_ASKED = "it was not asked of this call"


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """Points of a call's answer to one question.

    `outcome` and `earned` (0..1) are None if the item does not count: the question could not be answered or does not
    apply to the call; `reason` says why.
    """

    question: str  # its key
    title: str
    section: str
    weight: float
    points: dict[str, float]
    auto_fail: bool
    outcome: str | None = None
    earned: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SectionScore:
    """Score of the items of one section, 0..100; None if no item counts."""

    section: str
    score: float | None


@dataclass(frozen=True, slots=True)
class ScorecardResult:
    """Score of a call on a scorecard, 0..100; None if no item counts. `passed`: None without a pass mark or score."""

    key: str
    version: int
    title: str
    pass_mark: float | None
    score: float | None
    auto_failed: bool
    passed: bool | None
    items: tuple[ScoredItem, ...]
    sections: tuple[SectionScore, ...] = ()


def outcome_of(answer: QuestionAnswer | TrackerResult) -> str | None:
    """Return the outcome of an answer; None: not asked, or it does not apply. "no" if yes/no is not said."""
    if answer.state in ("not_asked", "out_of_scope"):
        return None
    kind = answer.type if isinstance(answer, QuestionAnswer) else "tracker"
    if answer.state == "not_said":
        return "no" if kind == "yes/no" else NOT_SAID
    return str(answer.answer) if isinstance(answer, QuestionAnswer) and kind in ("yes/no", "choice") else SAID


def score(
    card: Scorecard,
    asked: Iterable[Question],
    answers: Iterable[QuestionAnswer],
    trackers: Iterable[TrackerResult],
) -> ScorecardResult:
    """Return a call's score: 100 x sum(weight x earned) / sum(weight) over the items that count, to one decimal.

    An item with `auto_fail` that counts and earns nothing makes the score 0.
    """
    by_key = {question.key: question for question in asked}
    blank = ScorecardResult(card.key, card.version, card.title, card.pass_mark, None, False, None, ())
    items = tuple(_item(item, by_key.get(item.question)) for item in card.items)
    return rescored(replace(blank, items=items), answers, trackers)


def rescored(
    result: ScorecardResult, answers: Iterable[QuestionAnswer], trackers: Iterable[TrackerResult]
) -> ScorecardResult:
    """Return the result for other answers, such as corrected ones. See `score` for the formula."""
    answers_by_key: dict[str, QuestionAnswer | TrackerResult] = {answer.key: answer for answer in answers}
    answers_by_key |= {tracker.key: tracker for tracker in trackers}
    items = tuple(_scored(item, answers_by_key.get(item.question)) for item in result.items)
    failed = any(item.auto_fail and item.earned == 0 for item in items)
    total = 0.0 if failed else _total(items)
    passed = None if total is None or result.pass_mark is None else total >= result.pass_mark
    sections = list(dict.fromkeys(item.section for item in items))
    return replace(
        result,
        score=total,
        auto_failed=failed,
        passed=False if failed else passed,
        items=items,
        sections=tuple(
            SectionScore(name, _total([item for item in items if item.section == name])) for name in sections
        )
        if any(sections)
        else (),
    )


def _item(item: ScorecardItem, question: Question | None) -> ScoredItem:
    weight = item.weight if item.weight is not None else question.weight if question else 1.0
    points = item.points or (points_of(question) if question else {})
    title = (question.question or ", ".join(question.phrases[:3])) if question else ""
    return ScoredItem(item.question, title, item.section, weight, points, item.auto_fail)


def _scored(item: ScoredItem, answer: QuestionAnswer | TrackerResult | None) -> ScoredItem:
    if answer is None:
        return replace(item, outcome=None, earned=None, reason=NOT_ASKED)
    outcome = outcome_of(answer)
    earned = None if outcome is None else item.points.get(outcome, 0.0)
    return replace(item, outcome=outcome, earned=earned, reason=answer.reason)


def _total(items: Sequence[ScoredItem]) -> float | None:
    counted = [(item.weight, item.earned) for item in items if item.earned is not None]
    whole = math.fsum(weight for weight, _ in counted)
    return round(100 * math.fsum(weight * earned for weight, earned in counted) / whole, 1) if whole else None
