"""Agreement of reviewers, labels of answers, differences of scores."""

from uuid import UUID

import pytest

from pipeline.domain.calibration import (
    Answers,
    ReviewedCall,
    agreement_of,
    label_of,
    percent_agreement,
    score_of,
)
from pipeline.domain.questions import Question, Scorecard, ScorecardItem

OFFERED = Question("offered", question="Was an appointment offered?")
PRODUCT = Question("product", "choice", "Which?", choices={"A": ("a",), "B": ("b",)})
NOTICE = Question("notice", "tracker", required=True, phrases=("is recorded",))
ASKED = (OFFERED, PRODUCT, NOTICE)
CARD = Scorecard(
    "service",
    title="Service",
    items=(ScorecardItem("offered", weight=2.0), ScorecardItem("product"), ScorecardItem("notice")),
)


def test_agreement_is_the_share_of_equal_pairs() -> None:
    assert percent_agreement([["yes", "yes", "no"], ["no", "no"]]) == (4, 0.5)
    assert percent_agreement([["yes"], []]) == (0, None)


@pytest.mark.parametrize(
    ("question", "answer", "label"),
    [
        (OFFERED, None, "no"),
        (OFFERED, "no", "no"),
        (OFFERED, "n/a", "n/a"),
        (PRODUCT, None, "not said"),
        (PRODUCT, "A", "A"),
        (NOTICE, "said", "said"),
        (NOTICE, None, "not said"),
        (Question("price", "number", "How much?"), "40.0", "40"),
        (Question("why", "text", "Why?"), "because it rained", "said"),
    ],
)
def test_answers_are_compared_by_what_they_come_to(question: Question, answer: str | None, label: str) -> None:
    assert label_of(question, answer) == label


def test_a_score_follows_the_card_and_what_does_not_apply_does_not_count() -> None:
    assert score_of(CARD, ASKED, {"offered": "yes", "product": None, "notice": "said"}) == 75.0
    assert score_of(CARD, ASKED, {"offered": "n/a", "product": "A", "notice": None}) == 50.0
    assert score_of(CARD, ASKED, dict.fromkeys(("offered", "product", "notice"), "n/a")) is None
    assert score_of(CARD, ASKED, {"product": "A"}) == 100.0


FIRST, SECOND = UUID(int=1), UUID(int=2)
STRICT: Answers = {"offered": None, "product": "A", "notice": "said"}  # 50
LENIENT: Answers = {"offered": "yes", "product": "A", "notice": "said"}  # 100


def test_reviewers_questions_calls_and_disagreements_are_told() -> None:
    reviewed = [
        ReviewedCall(FIRST, {"offered": "yes", "product": "A"}, {"ana": STRICT, "bob": LENIENT}),
        ReviewedCall(SECOND, {"offered": "yes", "product": "B", "notice": None}, {"ana": LENIENT, "bob": LENIENT}),
    ]
    found = agreement_of(CARD, ASKED, reviewed, {"ana": "Ana", "bob": "Bob"})
    assert (found.pairs, found.agreement) == (6, 0.833)
    by_key = {one.question: one for one in found.questions}
    assert found.questions[0].question == "offered", "the worst first"
    assert (by_key["offered"].agreement, by_key["offered"].pairs, by_key["offered"].answers) == (0.5, 2, 4)
    assert (by_key["product"].agreement, by_key["product"].pairs) == (1.0, 2)
    assert (by_key["offered"].with_machine, by_key["product"].with_machine) == (0.75, 0.5)
    assert by_key["notice"].with_machine == 0.0, "of the one call in which the machine answered it"
    ana, bob = found.reviewers
    assert (ana.name, ana.score, ana.from_group, ana.from_machine) == ("Ana", 75.0, -12.5, -12.5)
    assert (bob.score, bob.from_group, bob.from_machine) == (100.0, 12.5, 12.5)
    assert [(one.call_id, one.spread, one.machine_score) for one in found.calls] == [
        (FIRST, 50.0, 100.0),
        (SECOND, 0.0, 75.0),
    ]
    (worst,) = found.disagreements
    assert (worst.call_id, worst.question, worst.agreement, worst.machine) == (FIRST, "offered", 0.0, "yes")
    assert worst.answers == {"ana": "no", "bob": "yes"}


def test_one_reviewer_agrees_with_nobody_yet() -> None:
    found = agreement_of(CARD, ASKED, [ReviewedCall(FIRST, {}, {"ana": STRICT})], {"ana": "Ana"})
    assert (found.pairs, found.agreement, found.disagreements) == (0, None, ())
    assert (found.reviewers[0].from_group, found.reviewers[0].from_machine) == (0.0, None)
