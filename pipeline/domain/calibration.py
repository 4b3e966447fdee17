import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from uuid import UUID

from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.overrides import NOT_APPLICABLE, overridden
from pipeline.domain.questions import NOT_SAID, SAID, Question, QuestionType, Scorecard
from pipeline.domain.scorecards import score

MAX_DISAGREEMENTS = 50  # in the result, the largest first

Answers = Mapping[str, str | None]
"""By question key, in the form of corrections: "yes", a choice, "said" for trackers, None if not said, "n/a"."""


@dataclass(frozen=True, slots=True)
class ReviewedCall:
    """A call of a calibration. `machine`: its answers to these questions, where it gave any.

    `reviews`: by reviewer, an answer to each question.
    """

    call_id: UUID
    machine: Answers
    reviews: Mapping[str, Answers]


@dataclass(frozen=True, slots=True)
class QuestionAgreement:
    """Agreement of the reviewers on a question.

    `agreement`, 0..1: the share of equal pairs among the `pairs` of answers of two reviewers to the same call; None: no
    pair. `with_machine`, 0..1: the share of answers that equal the machine's; None: it has none.
    """

    question: str  # its key
    title: str
    type: QuestionType
    answers: int
    pairs: int
    agreement: float | None
    with_machine: float | None


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """How strict a reviewer is. `score`: the mean over the calls, 0..100.

    `from_group`: the mean difference, in points, from the mean of all reviewers of the same call; `from_machine`: from
    the score of the machine's answers. Above 0: more lenient. None: no call has both scores.
    """

    reviewer: str
    name: str
    score: float | None
    from_group: float | None
    from_machine: float | None


@dataclass(frozen=True, slots=True)
class CallAgreement:
    """A call with each reviewer's score, 0..100. `spread`: the highest less the lowest, in points."""

    call_id: UUID
    agreement: float | None
    scores: dict[str, float | None]  # by reviewer
    machine_score: float | None
    spread: float | None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A question with different answers for a call. `answers`: by reviewer; `machine`: None if it has none."""

    call_id: UUID
    question: str
    agreement: float
    answers: dict[str, str]
    machine: str | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Result of a calibration. Calls and questions are ordered by disagreement, the largest first."""

    pairs: int  # of all questions
    agreement: float | None  # as of a question
    reviewers: tuple[ReviewerAgreement, ...]
    questions: tuple[QuestionAgreement, ...]
    calls: tuple[CallAgreement, ...]
    disagreements: tuple[Disagreement, ...]


def agreement_of(
    card: Scorecard, asked: Sequence[Question], reviewed: Sequence[ReviewedCall], names: Mapping[str, str]
) -> Agreement:
    """Return how far the reviewers agree. `names`: the name of each reviewer."""
    rated = {(call.call_id, q.key): _given(call, q) for call in reviewed for q in asked}
    calls = [_call(card, asked, call, rated) for call in reviewed]
    disagreements = [
        Disagreement(call_id, q.key, share, labels, _of_machine(call, q))
        for call in reviewed
        for q in asked
        for call_id, labels in [(call.call_id, rated[call.call_id, q.key])]
        if (share := percent_agreement([labels.values()])[1]) is not None and share < 1
    ]
    pairs, agreement = percent_agreement(labels.values() for labels in rated.values())
    return Agreement(
        pairs=pairs,
        agreement=agreement,
        reviewers=tuple(_reviewer(reviewer, name, calls) for reviewer, name in names.items()),
        questions=tuple(sorted((_question(q, reviewed, rated) for q in asked), key=_worst)),
        calls=tuple(sorted(calls, key=lambda result: (-(result.spread or 0.0), _worst(result)))),
        disagreements=tuple(sorted(disagreements, key=_worst)[:MAX_DISAGREEMENTS]),
    )


def label_of(question: Question, answer: str | None) -> str:
    """Return the label by which answers are compared: a number as such, a text only as present."""
    if answer == NOT_APPLICABLE:
        return NOT_APPLICABLE
    if answer is None:
        return "no" if question.type == "yes/no" else NOT_SAID
    if question.type == "text":
        return SAID
    return f"{float(answer):g}" if question.type == "number" else answer


def percent_agreement(units: Iterable[Iterable[str]]) -> tuple[int, float | None]:
    """Return the number of pairs of labels of the same unit, and the share of equal ones, 0..1; None without a pair."""
    equal = [first == second for unit in units for first, second in combinations(unit, 2)]
    return len(equal), _rounded(_mean(map(float, equal)))


Rated = Mapping[tuple[UUID, str], Mapping[str, str]]


def _given(call: ReviewedCall, question: Question) -> dict[str, str]:
    return {who: label_of(question, review[question.key]) for who, review in call.reviews.items()}


def _of_machine(call: ReviewedCall, question: Question) -> str | None:
    return label_of(question, call.machine[question.key]) if question.key in call.machine else None


def _question(question: Question, reviewed: Sequence[ReviewedCall], rated: Rated) -> QuestionAgreement:
    units = [list(rated[call.call_id, question.key].values()) for call in reviewed]
    equal_to_machine = [
        label == machine
        for call in reviewed
        if (machine := _of_machine(call, question)) is not None
        for label in rated[call.call_id, question.key].values()
    ]
    return QuestionAgreement(
        question.key,
        question.question or ", ".join(question.phrases[:3]),
        question.type,
        sum(map(len, units)),
        *percent_agreement(units),
        _rounded(_mean(map(float, equal_to_machine))),
    )


def _call(card: Scorecard, asked: Sequence[Question], call: ReviewedCall, rated: Rated) -> CallAgreement:
    scores = {who: score_of(card, asked, review) for who, review in call.reviews.items()}
    values = [value for value in scores.values() if value is not None]
    _, share = percent_agreement(rated[call.call_id, q.key].values() for q in asked)
    machine = score_of(card, asked, call.machine)
    return CallAgreement(call.call_id, share, scores, machine, _points(max(values) - min(values)) if values else None)


def score_of(card: Scorecard, asked: Sequence[Question], answers: Answers) -> float | None:
    """Return the score of a call with these answers, 0..100; unanswered questions do not count."""
    answered = [question for question in asked if question.key in answers]
    return score(
        card,
        asked,
        [overridden(_blank(question), answers) for question in answered if question.type != "tracker"],
        [overridden(_not_said(question), answers) for question in answered if question.type == "tracker"],
    ).score


def _blank(question: Question) -> QuestionAnswer:
    return QuestionAnswer(question.key, question.version, question.type, question.question, "not_said")


def _not_said(question: Question) -> TrackerResult:
    return TrackerResult(
        question.key, question.version, question.question, question.required, "not_said", question.required
    )


def _reviewer(reviewer: str, name: str, calls: Sequence[CallAgreement]) -> ReviewerAgreement:
    scored = [(value, call) for call in calls if (value := call.scores.get(reviewer)) is not None]
    from_group = [value - (_mean(x for x in call.scores.values() if x is not None) or 0.0) for value, call in scored]
    from_machine = [value - call.machine_score for value, call in scored if call.machine_score is not None]
    means = (_mean(value for value, _ in scored), _mean(from_group), _mean(from_machine))
    return ReviewerAgreement(reviewer, name, *map(_points, means))


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _points(value: float | None) -> float | None:
    return None if value is None else round(value, 1) + 0.0  # no -0.0


def _worst(result: QuestionAgreement | CallAgreement | Disagreement) -> float:
    return 2.0 if result.agreement is None else result.agreement
