"""How far reviewers agree who answered the same questions of the same calls, each without the others. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from uuid import UUID

from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.overrides import NOT_APPLICABLE, overridden
from pipeline.domain.questions import NOT_SAID, SAID, Question, QuestionType, Scorecard
from pipeline.domain.scorecards import score

MOST_DISAGREEMENTS = 50  # that are told, the worst first

Answers = Mapping[str, str | None]
"""By the question's key, as corrections are: "yes", a choice, "said" of trackers, None: nobody says it, "n/a"."""


@dataclass(frozen=True, slots=True)
class ReviewedCall:
    """A call of a calibration. `machine`: its answers, without those that it did not give to these questions.

    `reviews`: by reviewer, an answer to each question.
    """

    call_id: UUID
    machine: Answers
    reviews: Mapping[str, Answers]


@dataclass(frozen=True, slots=True)
class QuestionAgreement:
    """How far reviewers agree on a question.

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
    """A question that a call was answered differently to. `answers`: by reviewer; `machine`: None: it has none."""

    call_id: UUID
    question: str
    agreement: float
    answers: dict[str, str]
    machine: str | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """What came of a calibration. Calls and questions stand in the order of their disagreement, the worst first."""

    pairs: int  # of all questions
    agreement: float | None  # as of a question
    reviewers: tuple[ReviewerAgreement, ...]
    questions: tuple[QuestionAgreement, ...]
    calls: tuple[CallAgreement, ...]
    disagreements: tuple[Disagreement, ...]


def agreement_of(
    card: Scorecard, asked: Sequence[Question], reviewed: Sequence[ReviewedCall], names: Mapping[str, str]
) -> Agreement:
    """How far the reviewers agree; `names`: what each is called."""
    rated = {(one.call_id, q.key): _given(one, q) for one in reviewed for q in asked}
    calls = [_call(card, asked, one, rated) for one in reviewed]
    found = [
        Disagreement(call_id, q.key, share, given, _of_machine(one, q))
        for one in reviewed
        for q in asked
        for call_id, given in [(one.call_id, rated[one.call_id, q.key])]
        if (share := percent_agreement([given.values()])[1]) is not None and share < 1
    ]
    pairs, agreement = percent_agreement(given.values() for given in rated.values())
    return Agreement(
        pairs=pairs,
        agreement=agreement,
        reviewers=tuple(_reviewer(one, name, calls) for one, name in names.items()),
        questions=tuple(sorted((_question(q, reviewed, rated) for q in asked), key=_worst)),
        calls=tuple(sorted(calls, key=lambda one: (-(one.spread or 0.0), _worst(one)))),
        disagreements=tuple(sorted(found, key=_worst)[:MOST_DISAGREEMENTS]),
    )


def label_of(question: Question, answer: str | None) -> str:
    """What an answer is compared by: of numbers the number, of a text only that there is one."""
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


def _given(one: ReviewedCall, question: Question) -> dict[str, str]:
    return {who: label_of(question, review[question.key]) for who, review in one.reviews.items()}


def _of_machine(one: ReviewedCall, question: Question) -> str | None:
    return label_of(question, one.machine[question.key]) if question.key in one.machine else None


def _question(question: Question, reviewed: Sequence[ReviewedCall], rated: Rated) -> QuestionAgreement:
    units = [list(rated[one.call_id, question.key].values()) for one in reviewed]
    beside = [
        label == machine
        for one in reviewed
        if (machine := _of_machine(one, question)) is not None
        for label in rated[one.call_id, question.key].values()
    ]
    return QuestionAgreement(
        question.key,
        question.question or ", ".join(question.phrases[:3]),
        question.type,
        sum(map(len, units)),
        *percent_agreement(units),
        _rounded(_mean(map(float, beside))),
    )


def _call(card: Scorecard, asked: Sequence[Question], one: ReviewedCall, rated: Rated) -> CallAgreement:
    scores = {who: score_of(card, asked, review) for who, review in one.reviews.items()}
    known = [value for value in scores.values() if value is not None]
    _, share = percent_agreement(rated[one.call_id, q.key].values() for q in asked)
    machine = score_of(card, asked, one.machine)
    return CallAgreement(one.call_id, share, scores, machine, _points(max(known) - min(known)) if known else None)


def score_of(card: Scorecard, asked: Sequence[Question], answers: Answers) -> float | None:
    """The score of a call that is answered so, 0..100; what is not answered does not count."""
    known = [one for one in asked if one.key in answers]
    return score(
        card,
        asked,
        [overridden(_blank(one), answers) for one in known if one.type != "tracker"],
        [overridden(_unheard(one), answers) for one in known if one.type == "tracker"],
    ).score


def _blank(one: Question) -> QuestionAnswer:
    return QuestionAnswer(one.key, one.version, one.type, one.question, "not_said")


def _unheard(one: Question) -> TrackerResult:
    return TrackerResult(one.key, one.version, one.question, one.required, "not_said", one.required)


def _reviewer(reviewer: str, name: str, calls: Sequence[CallAgreement]) -> ReviewerAgreement:
    own = [(value, one) for one in calls if (value := one.scores.get(reviewer)) is not None]
    from_group = [value - (_mean(x for x in one.scores.values() if x is not None) or 0.0) for value, one in own]
    from_machine = [value - one.machine_score for value, one in own if one.machine_score is not None]
    means = (_mean(value for value, _ in own), _mean(from_group), _mean(from_machine))
    return ReviewerAgreement(reviewer, name, *map(_points, means))


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _points(value: float | None) -> float | None:
    return None if value is None else round(value, 1) + 0.0  # no -0.0


def _worst(one: QuestionAgreement | CallAgreement | Disagreement) -> float:
    return 2.0 if one.agreement is None else one.agreement
