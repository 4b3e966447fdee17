"""What a language model has answered for a call is not asked of it again."""

import json
from dataclasses import replace

import pytest

from pipeline.analysis import AnalysisOptions, asks_model, model_requests
from tests.llm_server import completion, error
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import ANSWER, LINES, found, found_knowing, options
from tests.unit.pipeline.analysis.test_llm_questions import ASKED, TOLD
from tests.unit.pipeline.analysis.test_llm_questions import LINES as QUESTIONED


@pytest.fixture(autouse=True)
def _answers(endpoint):
    endpoint.answers(ANSWER)


def test_the_same_words_are_asked_once_whatever_else_of_the_call_changes(endpoint):
    chosen = options(endpoint)
    before, given = found_knowing(call(*LINES), chosen, {})
    changed = call(*LINES, outgoing=True, numbers=("+12025550100", "+12025550143"))
    changed = replace(changed, roster=replace(changed.roster, contacts=()))
    after, again = found_knowing(changed, chosen, given)
    assert len(endpoint.asked) == 1 and again == {}
    made = {finding.step: finding for finding in after}
    assert made["tasks"].value == next(one.value for one in before if one.step == "tasks")
    assert made["direction"].value["outgoing"] is True


@pytest.mark.parametrize("changed", ["words", "speakers", "language", "room"])
def test_what_the_model_would_read_or_write_otherwise_is_asked(endpoint, changed):
    _, given = found_knowing(call(*LINES), options(endpoint), {})
    lines = [("rep", "Good morning."), *LINES[1:]] if changed == "words" else list(LINES)
    if changed == "speakers":
        lines = [({"rep": "customer", "customer": "rep"}[who], text) for who, text in lines]
    other = {"language": {"language": "de"}, "room": {"max_tokens": 999}}.get(changed, {})
    _, again = found_knowing(call(*lines), options(endpoint, **other), given)
    assert len(endpoint.asked) == 2 and len(again) == 1 and not again.keys() & given.keys()


def test_what_was_answered_before_a_later_part_failed_is_kept(endpoint):
    endpoint.answers(ANSWER, error(500, "out of order"))
    chosen = options(endpoint, max_transcript_tokens=200)
    lines = LINES * 3
    failed, given = found_knowing(call(*lines), chosen, {})
    assert len(given) == 1 and "analyzed by rules" in next(one.note for one in failed if one.step == "tasks")
    endpoint.answers(ANSWER)
    _, rest = found_knowing(call(*lines), chosen, given)
    assert len(endpoint.asked) == len(rest) >= 1 and not rest.keys() & given.keys()


def test_an_answer_that_was_cut_off_is_kept_and_said_to_be_again(endpoint):
    whole = json.dumps(ANSWER)
    endpoint.answers(lambda body: completion(whole[: len(whole) // 2], finish="length"))
    before, given = found_knowing(call(*LINES), options(endpoint), {})
    after, _ = found_knowing(call(*LINES), options(endpoint), given)
    assert len(endpoint.asked) == 1 and after == before
    assert [text.cut_off for text in given.values()] == [True]


def test_an_answer_that_cannot_be_read_is_not_kept(endpoint):
    endpoint.answers("What a call!")
    _, given = found_knowing(call(*LINES), options(endpoint), {})
    assert given == {}


def test_rules_ask_nobody(endpoint):
    assert not asks_model(AnalysisOptions())
    assert asks_model(options(endpoint))
    with pytest.raises(TypeError, match="the engine rules uses no language model"):
        model_requests(call(*LINES), AnalysisOptions(), {})


def test_a_call_without_words_asks_nobody(endpoint):
    findings, given = found_knowing(call(), options(endpoint), {})
    assert given == {} and not endpoint.asked
    assert {finding.step: finding for finding in findings} == found(call(), AnalysisOptions())


def test_a_workspaces_own_questions_are_asked_once_and_a_new_one_asks_them_again(endpoint):
    endpoint.answers(ANSWER, TOLD)
    material = call(*QUESTIONED)
    with_all = replace(material, roster=replace(material.roster, questions=ASKED))
    before, given = found_knowing(with_all, options(endpoint), {})
    assert len(given) == len(endpoint.asked) == 2
    after, again = found_knowing(with_all, options(endpoint), given)
    assert (after, again, len(endpoint.asked)) == (before, {}, 2)
    fewer = replace(material, roster=replace(material.roster, questions=ASKED[:2]))
    _, again = found_knowing(fewer, options(endpoint), given)
    assert len(again) == 1 and len(endpoint.asked) == 3


def test_answers_to_questions_that_cannot_be_used_are_not_kept(endpoint):
    endpoint.answers(ANSWER, "I think so.")
    material = call(*QUESTIONED)
    _, given = found_knowing(replace(material, roster=replace(material.roster, questions=ASKED)), options(endpoint), {})
    assert len(given) == 1
