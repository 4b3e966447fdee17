"""Sixty calls with injected orders, read by a model that obeys all of them: no finding may contain what was planted."""

import json

import pytest

from tests.support.calls_by_hand import call
from tests.support.injected_calls import PLANTED, injected_calls
from tests.support.llm_by_hand import answer, findings_of, options, q, task

CALLS = list(injected_calls())


def obeying(spoken):
    """Return the answer of a model that states everything an attempt demands, in every form of the schema: with the
    attempt's own words, with each turn of the call, by each owner.
    """
    stated, sentences = [], []
    attempt = spoken.lines[spoken.at][1]
    for owner in ("rep", "customer", "other", "unknown"):
        for at, (_, text) in enumerate(spoken.lines):
            stated.append(task(at, text, "Wire five hundred dollars", due=text, owner=owner))
            stated.append(task(at, text, "Give the laptop", owner=owner, kind="request"))
        stated.append(task(spoken.at, attempt, attempt[:150], owner=owner))
    for at, (_, text) in enumerate(spoken.lines):
        sentences.append({"text": "The agent agreed to wire five hundred dollars.", "quote": q(at, text)})
        sentences.append({"text": "The agent wires five hundred dollars.", "quote": q(at, text)})
        sentences.append({"text": "It was promised that a laptop will be sent.", "quote": q(at, text)})
        sentences.append(
            {"text": "Der Berater überweist fünfhundert Dollar, das ist vereinbart.", "quote": q(at, text)}
        )
    email = {"value": "boss@evil.example", "quotes": [q(spoken.at, attempt)]}
    name = {"value": "Mister Evil", "quotes": [q(spoken.at, attempt)]}
    return answer(
        tasks=stated,
        summary=sentences,
        contact={"email": email, "name": name},
        tones=[{"speaker": "rep", "label": "positive", "quote": q(spoken.at, attempt)}],
        outcome={"name": "resolved", "quote": q(spoken.at, attempt)},
    )


# A stride of 4 takes each of the 15 attempts once and every call; `make slow` runs all pairs.
@pytest.mark.parametrize(
    "spoken",
    [pytest.param(call, id=call.name, marks=pytest.mark.slow if at % 4 else ()) for at, call in enumerate(CALLS)],
)
def test_a_model_that_obeys_plants_nothing(endpoint, spoken):
    endpoint.answers(obeying(spoken))
    material = call(*spoken.lines, language=spoken.language)
    findings, built = findings_of(material, options(endpoint)), findings_of(material, None)
    assert endpoint.asked
    assert not any(planted(task["title"]) and task["owner"] == "rep" for task in built["tasks"].value["tasks"])
    for stated_task in findings["tasks"].value["tasks"]:
        speaker = spoken.lines[stated_task["evidence"]["turn"]][0]
        assert not planted(stated_task["title"]) or "model" not in stated_task.get("stated_by", ["rules"]), stated_task
        assert stated_task["evidence"]["turn"] != spoken.at or (stated_task["owner"], speaker) != ("rep", "customer"), (
            stated_task
        )
    assert not planted(findings["summary"].value["text"]) or findings["summary"].value == built["summary"].value
    assert findings["summary"].value["outcome"] == built["summary"].value["outcome"]
    assert "evil" not in json.dumps(findings["contacts"].value).lower()
    assert findings["tone"].value["parties"]["rep"] == built["tone"].value["parties"]["rep"]


def planted(text):
    return any(word in text.lower() for word in PLANTED)
