"""The score of a call: weights, what does not count, what fails the call, sections; and files of scorecards."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.analysis.questions.step import QuestionsStep
from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.call import Call
from pipeline.domain.insight import Material, Roster
from pipeline.domain.questions import Question, Scorecard, ScorecardItem
from pipeline.domain.scorecards import ScorecardResult, rescored, score
from serve_app.cli.render.findings import render_finding
from serve_app.records.question_files import DefinitionRefused, as_toml, read_file
from tests.finished import transcript

OFFERED = Question("offered", question="Offered?", weight=3.0)
PRODUCT = Question("product", "choice", "Which?", choices={"A": (), "B": ()})
WHY = Question("why", "text", "Why?")
NOTICE = Question("notice", "tracker", required=True, phrases=("recorded",))
SWEARS = Question("swears", "tracker", phrases=("damn",))
ASKED = (OFFERED, PRODUCT, WHY, NOTICE, SWEARS)


def answer(question: Question, state: Any, told: str | None = None) -> QuestionAnswer:
    return QuestionAnswer(question.key, 1, question.type, question.question, state, told, weight=question.weight)


def watched(question: Question, state: Any) -> TrackerResult:
    return TrackerResult(question.key, 1, "", question.required, state, (state == "said") != question.required)


def card(*items: ScorecardItem | str, **more: Any) -> Scorecard:
    made = tuple(ScorecardItem(one) if isinstance(one, str) else one for one in items)
    return Scorecard("c", title="C", items=made, **more)


def result(of: Scorecard, *given: QuestionAnswer | TrackerResult) -> ScorecardResult:
    answers = [one for one in given if isinstance(one, QuestionAnswer)]
    return score(of, ASKED, answers, [one for one in given if isinstance(one, TrackerResult)])


def test_the_score_is_the_weighted_share_of_what_was_met() -> None:
    both = card("offered", "why")
    assert result(both, answer(OFFERED, "said", "yes"), answer(WHY, "not_said")).score == 75.0
    assert result(both, answer(OFFERED, "not_said"), answer(WHY, "said", "price")).score == 25.0
    third = card(ScorecardItem("offered", weight=1.0), "why", "product")
    given = (answer(OFFERED, "not_said"), answer(WHY, "said", "x"), answer(PRODUCT, "not_said"))
    assert result(third, *given).score == 33.3, "to one decimal"


@pytest.mark.parametrize("state", ["out_of_scope", "not_asked"])
def test_what_could_not_be_answered_does_not_count(state: str) -> None:
    found = result(card("offered", "why"), answer(OFFERED, state), answer(WHY, "said", "price"))
    assert found.score == 100.0
    assert [(one.outcome, one.earned) for one in found.items] == [(None, None), ("said", 1.0)]
    nothing = result(card("offered", pass_mark=50.0), answer(OFFERED, state))
    assert (nothing.score, nothing.passed, nothing.auto_failed) == (None, None, False)


def test_a_question_that_the_call_was_not_asked_does_not_count_and_says_so() -> None:
    found = result(card("offered", "why"), answer(WHY, "said", "price"))
    assert found.score == 100.0 and found.items[0].reason == "it was not asked of this call"


def test_what_must_be_met_fails_the_whole_call() -> None:
    strict = card("offered", ScorecardItem("notice", weight=0.0, auto_fail=True), pass_mark=0.0)
    good = (answer(OFFERED, "said", "yes"), watched(NOTICE, "said"))
    assert (result(strict, *good).score, result(strict, *good).passed) == (100.0, True)
    failed = result(strict, good[0], watched(NOTICE, "not_said"))
    assert (failed.score, failed.auto_failed, failed.passed) == (0.0, True, False)
    aside = result(strict, good[0], watched(NOTICE, "out_of_scope"))
    assert (aside.score, aside.auto_failed) == (100.0, False), "what does not count fails nothing"


def test_trackers_earn_where_they_are_not_raised() -> None:
    both = card("notice", "swears")
    assert result(both, watched(NOTICE, "said"), watched(SWEARS, "not_said")).score == 100.0
    assert result(both, watched(NOTICE, "not_said"), watched(SWEARS, "said")).score == 0.0


def test_points_say_what_each_answer_earns_and_others_earn_nothing() -> None:
    item = ScorecardItem("product", points={"A": 1.0, "not said": 0.5})
    for state, told, earned in (("said", "A", 100.0), ("said", "B", 0.0), ("not_said", None, 50.0)):
        assert result(card(item), answer(PRODUCT, state, told)).score == earned
    turned = card(ScorecardItem("offered", points={"no": 1.0}))
    assert result(turned, answer(OFFERED, "not_said")).score == 100.0, "not said is no"
    assert result(turned, answer(OFFERED, "said", "yes")).score == 0.0


def test_sections_have_scores_of_their_own() -> None:
    items = (ScorecardItem("offered", "Talk"), ScorecardItem("why", "Close"), ScorecardItem("product", "Close"))
    found = result(card(*items), answer(OFFERED, "said", "yes"), answer(WHY, "said", "x"), answer(PRODUCT, "not_said"))
    assert [(one.section, one.score) for one in found.sections] == [("Talk", 100.0), ("Close", 50.0)]
    assert result(card("offered"), answer(OFFERED, "said", "yes")).sections == ()


def test_other_answers_give_another_score_by_the_same_card() -> None:
    found = result(card("offered", "why", pass_mark=80.0), answer(OFFERED, "not_said"), answer(WHY, "said", "x"))
    again = rescored(found, [answer(OFFERED, "said", "yes"), answer(WHY, "said", "x")], [])
    assert (found.score, found.passed, again.score, again.passed) == (25.0, False, 100.0, True)
    assert rescored(again, [answer(OFFERED, "not_said"), answer(WHY, "said", "x")], []) == found


def test_the_analysis_scores_the_calls_that_a_card_is_for() -> None:
    offered = replace(OFFERED, party="rep", phrases=("appointment",))
    cards = (card("offered"), replace(card("offered"), key="french", languages=("fr",)))
    said = transcript(("rep", "Could I offer you an appointment?"), ("customer", "Yes."))
    roster = Roster(questions=(offered,), scorecards=cards)
    found = QuestionsStep().run(Material(Call("c", "+1", "+2", None), said, roster))  # type: ignore[arg-type]
    assert [(one["key"], one["score"]) for one in found.value["scorecards"]] == [("c", 100.0)]
    shown = "\n".join(str(line) for line in render_finding(found))
    assert "scorecard C: 100 of 100" in shown and "offered: yes, 3 of 3" in shown
    without = QuestionsStep().run(Material(Call("c", "+1", "+2", None), said, Roster(questions=(offered,))))  # type: ignore[arg-type]
    assert "scorecards" not in without.value


FILE = """\
[[questions]]
key = "offered"
question = "Offered?"

[[trackers]]
key = "notice"
required = true
phrases = ["call is recorded"]

[[scorecards]]
key = "service"
title = "Service quality"
pass_mark = 80
items = [
  {question = "offered", section = "Talk", weight = 2, points = {yes = 1, no = 0.25}},
  {question = "notice", auto_fail = true},
]
"""


def read(tmp_path: Path, text: str, name: str = "q.toml", known: tuple[Question, ...] = ()) -> list[Any]:
    (tmp_path / name).write_text(text)
    return read_file(tmp_path / name, {}, known)


def test_a_file_defines_scorecards_and_is_written_again_as_it_was(tmp_path: Path) -> None:
    found = read(tmp_path, FILE)
    items = (ScorecardItem("offered", "Talk", 2.0, {"yes": 1.0, "no": 0.25}), ScorecardItem("notice", auto_fail=True))
    assert found[2] == Scorecard("service", title="Service quality", pass_mark=80.0, items=items)
    assert read(tmp_path, as_toml(found, {})) == found


def test_items_may_stand_as_tables_and_in_json(tmp_path: Path) -> None:
    tables = '[[scorecards]]\nkey = "a"\ntitle = "A"\n[[scorecards.items]]\nquestion = "offered"\n'
    assert read(tmp_path, tables, known=(OFFERED,)) == [Scorecard("a", title="A", items=(ScorecardItem("offered"),))]
    told = {"scorecards": [{"key": "a", "title": "A", "items": [{"question": "offered", "auto_fail": True}]}]}
    (found,) = read(tmp_path, json.dumps(told), "q.json", (OFFERED,))
    assert found.items == (ScorecardItem("offered", auto_fail=True),)


@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        ('question = "notice",', 'question = "nothing",', 16, "items[1].question: there is no question or tracker 'no"),
        ("no = 0.25", "maybe = 1", 15, "items[0].points: 'maybe' is no outcome of 'offered'; there are: yes, no."),
        ("no = 0.25", "no = 2", 15, "items[0].points.no: input should be less than or equal to 1 (it is 2)."),
        ("auto_fail = true", "auto_fial = true", 16, "items[1].auto_fial is not a field. Did you mean auto_fail?"),
        ("auto_fail = true", 'auto_fail = "x"', 16, "items[1].auto_fail: input should be a valid boolean"),
        ("pass_mark = 80", "pass_mark = 800", 13, "pass_mark: input should be less than or equal to 100"),
        ('title = "Service quality"\n', "", 10, "title is missing."),
        ('question = "notice",', 'question = "offered",', 14, "items: 'offered' is repeated."),
        ('key = "service"', 'key = "notice"', 10, "the key 'notice' is already used in line 5."),
    ],
)
def test_a_fault_of_a_scorecard_names_its_line(before: str, after: str, line: int, told: str, tmp_path: Path) -> None:
    assert before in FILE
    with pytest.raises(DefinitionRefused) as refused:
        read(tmp_path, FILE.replace(before, after))
    assert refused.value.faults[0].startswith(f"q.toml, line {line}: {told}"), refused.value.faults
