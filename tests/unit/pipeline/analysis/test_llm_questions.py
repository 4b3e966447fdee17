import json
import time
from dataclasses import replace

import pytest

from pipeline.domain.questions import Question
from tests.llm_server import MODEL, completion
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import ANSWER, findings_of, findings_with_cached, options, q

LINES = (
    ("rep", "Northwind Energy, this is Anna."),
    ("customer", "I want to cancel, the price went up to 1,200 euros."),
    ("rep", "Could I come by on Friday? We have the Gigabox."),
    ("customer", "Yes, do that. You did offer me a refund."),
)
ASKED = (
    Question("visit", question="Did the agent offer a visit?", party="rep"),
    Question("why", "text", "Why do they cancel?", party="customer"),
    Question("price", "number", "What is the price?"),
    Question("when", "date", "When is the visit?", party="rep"),
    Question("product", "choice", "Which product?", choices={"Gigabox": (), "Metro Cable": ()}),
    Question("refund", question="Did the agent offer a refund?", party="rep"),
)
TOLD = {
    "q1": {"answer": "yes", "quote": q(2, "Could I come by on Friday?")},
    "q2": {"answer": "the price went up", "quote": q(1, "the price went up to 1,200 euros.")},
    "q3": {"answer": 1200, "quote": q(1, "1,200 euros")},
    "q4": {"answer": "on Friday", "quote": q(2, "on Friday?")},
    "q5": {"answer": "gigabox", "quote": q(2, "the Gigabox.")},
    "q6": None,
}


def asked(endpoint, *told, questions=ASKED, **given):
    """Return the answers by key, and the finding; the first request is for the other findings."""
    endpoint.answers(ANSWER, *told)
    material = call(*LINES)
    material = replace(material, roster=replace(material.roster, questions=questions))
    finding = findings_of(material, options(endpoint, **given))["questions"]
    return {given_answer["key"]: given_answer for given_answer in finding.value["answers"]}, finding


def test_all_questions_are_asked_in_one_request_in_a_schema_made_of_them(endpoint):
    answers, finding = asked(endpoint, TOLD)
    assert {key: given_answer["answer"] for key, given_answer in answers.items()} == {
        "visit": "yes",
        "why": "the price went up",
        "price": 1200.0,
        "when": "2025-04-18",
        "product": "Gigabox",
        "refund": None,
    }
    assert {given_answer["found_by"] for key, given_answer in answers.items() if key != "refund"} == {"model"}
    assert (
        answers["visit"]["evidence"]["quote"] == "Could I come by on Friday?" and answers["visit"]["said_by"] == "rep"
    )
    assert 0 < answers["visit"]["confidence"] < 1 and finding.value["engine"] == f"llm {MODEL}"
    assert (answers["refund"]["state"], answers["refund"]["reason"]) == ("not_said", None)
    assert len(endpoint.asked) == 2
    body = endpoint.asked[1]
    properties = body["response_format"]["json_schema"]["schema"]["properties"]
    assert list(properties) == ["q1", "q2", "q3", "q4", "q5", "q6"]
    assert properties["q5"]["anyOf"][0]["properties"]["answer"]["enum"] == ["Gigabox", "Metro Cable"]
    assert "q6 (yes/no; in words of the rep): Did the agent offer a refund?" in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("name", "stated", "why"),
    [
        ("refund", {"q6": {"answer": "yes", "quote": q(3, "You did offer me a refund.")}}, "the other party says it"),
        ("refund", {"q6": {"answer": "yes", "quote": q(2, "I offer you a refund")}}, "nobody says it"),
        ("price", {"q3": {"answer": 99, "quote": q(1, "1,200 euros")}}, "another number"),
        ("when", {"q4": {"answer": "2025-04-19", "quote": q(2, "Could I come by")}}, "no date in the quote"),
        ("product", {"q5": {"answer": "Fiber", "quote": q(2, "the Gigabox.")}}, "none of the choices"),
        ("visit", {"q1": {"answer": "maybe", "quote": q(2, "on Friday?")}}, "neither yes nor no"),
    ],
)
def test_what_the_call_does_not_bear_out_is_no_answer(name, stated, why, endpoint):
    answers, _ = asked(endpoint, TOLD | stated)
    assert (answers[name]["state"], answers[name]["answer"]) == ("not_said", None), why
    assert answers[name]["reason"] == "the transcript does not support the model's answer"


@pytest.mark.parametrize("many", [4, 5])
def test_words_that_are_quoted_under_one_question_after_the_other_answer_none(many, endpoint):
    """A small model puts the words it has read last under every question."""
    questions = [Question(f"asked{place}", question=f"Is it so, {place}?") for place in range(many)]
    quoted = {"answer": "no", "quote": q(3, "Yes, do that.")}
    other = {"answer": "yes", "quote": q(2, "Could I come by on Friday?")}
    stated_answers = {f"q{place + 1}": quoted for place in range(many)} | {f"q{many + 1}": other}
    answers, _ = asked(endpoint, stated_answers, questions=(*questions, ASKED[0]))
    assert answers.pop("visit")["answer"] == "yes"
    found_by = {(given_answer["answer"], given_answer["reason"]) for given_answer in answers.values()}
    worn = "the transcript does not support the model's answer"
    assert found_by == ({("no", None)} if many == 4 else {(None, worn)})


def test_a_text_in_words_that_nobody_said_is_the_quote_itself(endpoint):
    answers, _ = asked(endpoint, TOLD | {"q2": {"answer": "Greed of shareholders", "quote": q(1, "the price went up")}})
    assert answers["why"]["answer"] == "the price went up"


def test_the_phrases_answer_where_the_model_does_not(endpoint):
    questions = (replace(ASKED[0], phrases=("come by",)), ASKED[1])
    answers, _ = asked(endpoint, {"q1": None, "q2": None}, questions=questions)
    assert (answers["visit"]["answer"], answers["visit"]["found_by"]) == ("yes", "phrases")
    assert answers["why"]["state"] == "not_said"


@pytest.mark.parametrize("stated", ["I think so.", "{", {}])
def test_an_answer_that_cannot_be_used_leaves_questions_unasked_and_says_why(stated, endpoint):
    answers, finding = asked(endpoint, stated, questions=(replace(ASKED[0], phrases=("come by",)), ASKED[1]))
    assert answers["visit"]["found_by"] == "phrases"
    assert answers["why"]["state"] == "not_asked" and "model" in answers["why"]["reason"]
    assert stated != "I think so." or "answered by phrases" in finding.note


def test_what_was_cut_off_is_not_asked_and_what_was_whole_counts(endpoint):
    whole = json.dumps(TOLD)
    answers, _ = asked(endpoint, lambda body: completion(whole[: whole.index('"q3"') + 20], "length"))
    assert (answers["visit"]["answer"], answers["why"]["answer"]) == ("yes", "the price went up")
    assert answers["refund"]["state"] == "not_asked"
    assert answers["refund"]["reason"] == "the model's answer ended before this question"


def test_a_model_that_never_answers_takes_no_more_time_than_one_call_may(endpoint):
    def forever(body):
        time.sleep(3)
        return TOLD

    began = time.monotonic()
    answers, finding = asked(endpoint, forever, timeout_seconds=1.0)
    assert time.monotonic() - began < 60 and "did not respond within 1 s" in finding.note
    assert {given_answer["state"] for given_answer in answers.values()} == {"not_asked"}


def test_without_questions_nothing_more_is_asked(endpoint):
    _, finding = asked(endpoint, TOLD, questions=(Question("t", "tracker", phrases=("gigabox",)),))
    assert len(endpoint.asked) == 1 and finding.value["trackers"][0]["raised"] and "engine" not in finding.value


def test_the_key_and_what_was_sent_stay_out_of_notes(endpoint):
    _, finding = asked(
        endpoint, lambda body: completion("sk-very-secret-0123456789"), api_key="sk-very-secret-0123456789"
    )
    assert "sk-very" not in json.dumps(finding.value) + str(finding.note)


def test_changed_questions_ask_again_and_changed_metadata_ask_nothing(endpoint):
    endpoint.answers(ANSWER, TOLD)
    material = call(*LINES)
    material = replace(material, roster=replace(material.roster, questions=ASKED))
    chosen = options(endpoint)
    first, new_answers = findings_with_cached(material, chosen, {})
    assert len(endpoint.asked) == 2
    moved = replace(material, call=replace(material.call, from_number="+12025550199"))
    again, more = findings_with_cached(moved, chosen, new_answers)
    assert len(endpoint.asked) == 2 and more == {}
    assert again[-1].value["answers"] == first[-1].value["answers"]
    other = replace(material, roster=replace(material.roster, questions=ASKED[:1]))
    findings_with_cached(other, chosen, new_answers)
    assert len(endpoint.asked) == 3, "of the questions alone"
