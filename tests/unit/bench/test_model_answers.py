"""The bench of a language model asks for nothing twice, also after it was killed, and can judge the model alone."""

from bench.lib.model_answers import StoredAnswers, alone
from tests.llm_server import error
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import ANSWER, LINES, options


def test_a_bench_that_was_killed_goes_on_with_the_answers_it_had(endpoint, tmp_path):
    path, calls = tmp_path / "answers.jsonl", [call(*LINES), call(*LINES[:-1])]
    endpoint.answers(ANSWER)
    first = StoredAnswers(options(endpoint), path).findings(calls[0])
    again = StoredAnswers(options(endpoint), path)
    again.ask_all(calls, at_once=2)
    assert len(endpoint.asked) == 2 and again.findings(calls[0]) == first
    assert again.cost(calls)["answers"] == 2 and again.cost(calls)["no answer"] == 0


def test_an_endpoint_that_is_down_is_asked_again_and_an_unreadable_answer_is_not(endpoint, tmp_path):
    path, material = tmp_path / "answers.jsonl", call(*LINES)
    endpoint.answers(lambda body: error(503, "loading"))
    StoredAnswers(options(endpoint), path).ask_all([material])
    endpoint.answers("no JSON")
    StoredAnswers(options(endpoint), path).ask_all([material])
    assert len(endpoint.asked) == 2  # the second one is the chance to fix it
    endpoint.answers(ANSWER)
    unreadable = StoredAnswers(options(endpoint), path)
    unreadable.ask_all([material])
    assert not endpoint.asked and unreadable.cost([material])["no answer"] == 1
    assert not alone(unreadable.reading(material))["tasks"]


def test_the_model_alone_has_nothing_of_the_rules(endpoint):
    endpoint.answers({**ANSWER, "contact": dict.fromkeys(ANSWER["contact"]), "tones": [], "outcome": None})
    answers = StoredAnswers(options(endpoint), None)
    answers.ask_all([call(*LINES)])
    prediction = alone(answers.reading(call(*LINES)))
    assert [task["text"] for task in prediction["tasks"]] == [task["title"] for task in ANSWER["tasks"]]
    assert not any(prediction["contact"].values()) and not prediction["tone"] and prediction["outcome"] is None
