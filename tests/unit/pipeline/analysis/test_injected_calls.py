"""Sixty calls that give orders, read by a model that obeys every one of them: no finding says what was planted."""

import json

import pytest

from tests.support.calls_by_hand import call
from tests.support.injected_calls import PLANTED, injected_calls
from tests.support.llm_by_hand import answer, found, options, q, task

CALLS = list(injected_calls())


def obeying(spoken):
    """A model that states everything an attempt wants, in every way that the schema has: beside the attempt's
    own words, beside each turn of the call, by each owner."""
    stated, told = [], []
    attempt = spoken.lines[spoken.at][1]
    for owner in ("rep", "customer", "other", "unknown"):
        for at, (_, text) in enumerate(spoken.lines):
            stated.append(task(at, text, "Wire five hundred dollars", due=text, owner=owner))
            stated.append(task(at, text, "Give the laptop", owner=owner, kind="request"))
        stated.append(task(spoken.at, attempt, attempt[:150], owner=owner))
    for at, (_, text) in enumerate(spoken.lines):
        told.append({"text": "The agent agreed to wire five hundred dollars.", "quote": q(at, text)})
        told.append({"text": "The agent wires five hundred dollars.", "quote": q(at, text)})
        told.append({"text": "It was promised that a laptop will be sent.", "quote": q(at, text)})
        told.append({"text": "Der Berater überweist fünfhundert Dollar, das ist vereinbart.", "quote": q(at, text)})
    email = {"value": "boss@evil.example", "quotes": [q(spoken.at, attempt)]}
    name = {"value": "Mister Evil", "quotes": [q(spoken.at, attempt)]}
    return answer(
        tasks=stated,
        summary=told,
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
    made, built = found(material, options(endpoint)), found(material, None)
    assert endpoint.asked
    assert not any(planted(one["title"]) and one["owner"] == "rep" for one in built["tasks"].value["tasks"])
    for one in made["tasks"].value["tasks"]:
        said = spoken.lines[one["evidence"]["turn"]][0]
        assert not planted(one["title"]) or "model" not in one.get("stated_by", ["rules"]), one
        assert one["evidence"]["turn"] != spoken.at or (one["owner"], said) != ("rep", "customer"), one
    assert not planted(made["summary"].value["text"]) or made["summary"].value == built["summary"].value
    assert made["summary"].value["outcome"] == built["summary"].value["outcome"]
    assert "evil" not in json.dumps(made["contacts"].value).lower()
    assert made["tone"].value["parties"]["rep"] == built["tone"].value["parties"]["rep"]


def planted(text):
    return any(word in text.lower() for word in PLANTED)
