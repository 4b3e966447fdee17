import json
from dataclasses import replace

import pytest

from pipeline.analysis import AnalysisOptions, asks_model, model_requests
from tests.llm_server import completion, error
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import ANSWER, LINES, findings_of, findings_with_cached, options
from tests.unit.pipeline.analysis.test_llm_questions import ASKED, TOLD
from tests.unit.pipeline.analysis.test_llm_questions import LINES as QUESTIONED


@pytest.fixture(autouse=True)
def _answers(endpoint):
    endpoint.answers(ANSWER)


def test_the_same_words_are_asked_once_whatever_else_of_the_call_changes(endpoint):
    chosen = options(endpoint)
    before, new_answers = findings_with_cached(call(*LINES), chosen, {})
    changed = call(*LINES, outgoing=True, numbers=("+12025550100", "+12025550143"))
    changed = replace(changed, roster=replace(changed.roster, contacts=()))
    after, again = findings_with_cached(changed, chosen, new_answers)
    assert len(endpoint.asked) == 1 and again == {}
    by_step = {finding.step: finding for finding in after}
    assert by_step["tasks"].value == next(finding.value for finding in before if finding.step == "tasks")
    assert by_step["direction"].value["outgoing"] is True


@pytest.mark.parametrize("changed", ["words", "speakers", "language", "room"])
def test_what_the_model_would_read_or_write_otherwise_is_asked(endpoint, changed):
    _, new_answers = findings_with_cached(call(*LINES), options(endpoint), {})
    lines = [("rep", "Good morning."), *LINES[1:]] if changed == "words" else list(LINES)
    if changed == "speakers":
        lines = [({"rep": "customer", "customer": "rep"}[who], text) for who, text in lines]
    other = {"language": {"language": "de"}, "room": {"max_tokens": 999}}.get(changed, {})
    _, again = findings_with_cached(call(*lines), options(endpoint, **other), new_answers)
    assert len(endpoint.asked) == 2 and len(again) == 1 and not again.keys() & new_answers.keys()


def test_what_was_answered_before_a_later_part_failed_is_kept(endpoint):
    endpoint.answers(ANSWER, error(500, "out of order"))
    chosen = options(endpoint, max_transcript_tokens=200)
    lines = LINES * 3
    failed, new_answers = findings_with_cached(call(*lines), chosen, {})
    assert len(new_answers) == 1 and "analyzed by rules" in next(
        finding.note for finding in failed if finding.step == "tasks"
    )
    endpoint.answers(ANSWER)
    _, rest = findings_with_cached(call(*lines), chosen, new_answers)
    assert len(endpoint.asked) == len(rest) >= 1 and not rest.keys() & new_answers.keys()


def test_an_answer_that_was_cut_off_is_kept_and_said_to_be_again(endpoint):
    whole = json.dumps(ANSWER)
    endpoint.answers(lambda body: completion(whole[: len(whole) // 2], finish="length"))
    before, new_answers = findings_with_cached(call(*LINES), options(endpoint), {})
    after, _ = findings_with_cached(call(*LINES), options(endpoint), new_answers)
    assert len(endpoint.asked) == 1 and after == before
    assert [text.cut_off for text in new_answers.values()] == [True]


def test_an_answer_that_cannot_be_read_is_not_kept(endpoint):
    endpoint.answers("What a call!")
    _, new_answers = findings_with_cached(call(*LINES), options(endpoint), {})
    assert new_answers == {}


def test_rules_ask_nobody(endpoint):
    assert not asks_model(AnalysisOptions())
    assert asks_model(options(endpoint))
    with pytest.raises(TypeError, match="the engine rules uses no language model"):
        model_requests(call(*LINES), AnalysisOptions(), {})


def test_a_call_without_words_asks_nobody(endpoint):
    findings, new_answers = findings_with_cached(call(), options(endpoint), {})
    assert new_answers == {} and not endpoint.asked
    assert {finding.step: finding for finding in findings} == findings_of(call(), AnalysisOptions())


def test_a_workspaces_own_questions_are_asked_once_and_a_new_one_asks_them_again(endpoint):
    endpoint.answers(ANSWER, TOLD)
    material = call(*QUESTIONED)
    with_all = replace(material, roster=replace(material.roster, questions=ASKED))
    before, new_answers = findings_with_cached(with_all, options(endpoint), {})
    assert len(new_answers) == len(endpoint.asked) == 2
    after, again = findings_with_cached(with_all, options(endpoint), new_answers)
    assert (after, again, len(endpoint.asked)) == (before, {}, 2)
    fewer = replace(material, roster=replace(material.roster, questions=ASKED[:2]))
    _, again = findings_with_cached(fewer, options(endpoint), new_answers)
    assert len(again) == 1 and len(endpoint.asked) == 3


def test_answers_to_questions_that_cannot_be_used_are_not_kept(endpoint):
    endpoint.answers(ANSWER, "I think so.")
    material = call(*QUESTIONED)
    _, new_answers = findings_with_cached(
        replace(material, roster=replace(material.roster, questions=ASKED)), options(endpoint), {}
    )
    assert len(new_answers) == 1
