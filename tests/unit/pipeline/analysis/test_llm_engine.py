"""The engine with a language model, against a real server on loopback."""

import json
from dataclasses import replace
from datetime import date

import pytest

from pipeline.analysis.evidence import fault
from pipeline.analysis.llm.answer import Quote
from pipeline.analysis.llm.grounding import Grounding
from tests.llm_server import MODEL
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import ANSWER, LINES, MINE, SEND, answer, findings_of, options, q, task, without


@pytest.fixture(autouse=True)
def _answers(endpoint):
    endpoint.answers(ANSWER)


def test_what_the_transcript_bears_out_is_taken(endpoint):
    material = call(*LINES)
    findings = findings_of(material, options(endpoint))
    (stated_task,) = findings["tasks"].value["tasks"]
    assert (stated_task["title"], stated_task["owner"], stated_task["owner_user_id"]) == (
        "Send the corrected invoice",
        "rep",
        "u1",
    )
    assert (stated_task["due_expression"], stated_task["due_date"]) == ("before Saturday", "2025-04-18")
    turn = material.transcript.turns[2]
    assert stated_task["evidence"] == {"turn": 2, "start": turn.words[4].start, "end": turn.end, "quote": SEND}
    facts = findings["contacts"].value["heard"]
    assert {field: fact and fact["value"] for field, fact in facts.items() if fact} == {
        "name": "Peter Miller",
        "email": "peter@miller.example",
        "phone": "2025550143",
    }
    assert findings["contacts"].value["contact_id"] == "c1"
    assert findings["contacts"].value["heard_number"] == "+12025550143"
    assert findings["summary"].value["text"] == "Peter Miller was charged twice. Anna sends a corrected invoice."
    assert findings["summary"].value["topics"][0]["turns"] == [1]
    assert findings["summary"].value["outcome"] == "follow_up"
    tones = {label: tone["label"] for label, tone in findings["tone"].value["parties"].items()}
    assert tones == {"customer": "negative", "rep": "positive"}


def test_each_finding_says_who_made_it_and_every_quote_holds(endpoint):
    material = call(*LINES)
    findings, built = findings_of(material, options(endpoint)), findings_of(material, None)
    for step, finding in findings.items():
        assert finding.value.get("engine") == (f"llm {MODEL}" if step in MINE else None)
        assert json.loads(json.dumps(finding.value)) == finding.value
        assert all(fault(evidence, material.transcript) is None for evidence in finding.evidence)
        assert finding.note is None or (step == "tone" and finding.note.startswith("based on the words only"))
        if step not in MINE:
            assert finding == built[step]
    assert list(findings) == list(built)


def test_a_hallucinated_quote_and_one_of_another_turn_are_dropped_and_counted(endpoint):
    tasks = [
        task(2, SEND, due="before Saturday"),
        task(2, "I will also give you a refund of 500 dollars", "Refund 500 dollars"),
        task(0, SEND, "The same, from a wrong turn"),
        task(99, SEND, "The same, from no turn"),
        task(2, "will send you the corrected inv", "Half a word"),
        task(2, "", "Nothing"),
    ]
    endpoint.answers(without(tasks=tasks))
    finding = findings_of(call(*LINES), options(endpoint))["tasks"]
    assert [item["title"] for item in finding.value["tasks"]] == ["Send the corrected invoice"]
    assert finding.note == "5 of 6 statements of the model are not supported by the transcript"


def test_where_nothing_stated_holds_the_rules_have_it_and_the_note_says_so(endpoint):
    endpoint.answers(without(tasks=[task(2, "Never said by anybody")]))
    finding = findings_of(call(*LINES), options(endpoint))["tasks"]
    assert "engine" not in finding.value
    assert finding.value == findings_of(call(*LINES), None)["tasks"].value
    assert finding.note == "1 of 1 statements of the model are not supported by the transcript; analyzed by rules"


def test_what_only_the_rules_are_sure_of_stays_at_half_their_confidence(endpoint):
    endpoint.answers(without(tasks=[]))
    finding, built = findings_of(call(*LINES), options(endpoint))["tasks"], findings_of(call(*LINES), None)["tasks"]
    (stated_task,), (rule,) = finding.value["tasks"], built.value["tasks"]
    assert (stated_task["stated_by"], stated_task["confidence"]) == (["rules"], round(rule["confidence"] / 2, 2))
    assert finding.note == "1 of 1 tasks come from the rules only"


def test_what_model_and_rules_both_state_is_surer_than_what_one_of_them_does(endpoint):
    alone = "A new meter it will have to be."
    material = call(*LINES, ("rep", alone))
    endpoint.answers(without(tasks=[task(2, SEND), task(5, alone, "Order a new meter")]))
    both, only = findings_of(material, options(endpoint))["tasks"].value["tasks"]
    (rule,) = (
        rule_task
        for rule_task in findings_of(material, None)["tasks"].value["tasks"]
        if rule_task["evidence"]["turn"] == 2
    )
    assert (both["stated_by"], only["stated_by"]) == (["model", "rules"], ["model"])
    assert both["confidence"] > max(rule["confidence"], only["confidence"])
    assert both["due_date"] == "2025-04-18"  # from the rules: the model gave none


@pytest.mark.parametrize(
    ("due", "expression", "day"),
    [
        (q(2, "before Saturday"), "before Saturday", date(2025, 4, 18)),
        (q(2, "Saturday"), "before Saturday", date(2025, 4, 18)),
        (q(2, "before Saturday."), "before Saturday", date(2025, 4, 18)),
        (q(2, "2031-01-01"), None, None),
        (q(2, "by Monday"), None, None),
        (q(4, "before Saturday"), None, None),
        (q(2, ""), None, None),
        (q(2, "the corrected invoice"), "the corrected invoice", None),
    ],
)
def test_days_are_counted_by_our_own_rules_from_what_was_said(due, expression, day):
    due_date = Grounding(call(*LINES)).due(Quote(**due))
    assert (due_date and due_date.expression, due_date and due_date.day) == (expression, day)


UNKEPT = ["2031-01-01", "by Monday", q(4, "before Saturday"), None]


@pytest.mark.parametrize("due", UNKEPT)
def test_a_day_that_nobody_said_gives_way_to_the_one_that_the_rules_read(endpoint, due):
    endpoint.answers(without(tasks=[task(2, SEND, due=due)]))
    (stated_task,) = findings_of(call(*LINES), options(endpoint))["tasks"].value["tasks"]
    assert (stated_task["due_expression"], stated_task["due_date"]) == ("before Saturday", "2025-04-18")


@pytest.mark.parametrize(
    ("field", "value", "quote"),
    [
        ("email", "peter.miller@miller.example", "My email is peter at miller dot example,"),
        ("email", "someone@evil.example", "my number is two oh two, five five five, oh one four three."),
        ("phone", "+1 202 555 9999", "my number is two oh two, five five five, oh one four three."),
        ("phone", "none", "my number is two oh two, five five five, oh one four three."),
        ("name", "Paul Millerson", "My email is peter at miller dot example,"),
        ("company", "Evil Corporation", "My email is peter at miller dot example,"),
    ],
)
def test_a_fact_whose_letters_or_digits_are_not_in_its_quote_is_dropped(endpoint, field, value, quote):
    endpoint.answers(without(contact=answer(contact={field: {"value": value, "quotes": [q(3, quote)]}})["contact"]))
    finding = findings_of(call(*LINES), options(endpoint))["contacts"]
    assert value not in json.dumps(finding.value)
    assert finding.value == findings_of(call(*LINES), None)["contacts"].value
    assert finding.note.startswith("1 of 1 statements of the model are not supported")


def test_a_day_may_be_said_in_another_turn_than_its_task(endpoint):
    lines = (("rep", "I will send you the invoice."), ("customer", "When?"), ("rep", "By Friday at noon, I promise."))
    endpoint.answers(answer(tasks=[task(0, "I will send you the invoice.", due=q(2, "Friday"))]))
    (stated_task,) = findings_of(call(*lines), options(endpoint))["tasks"].value["tasks"]
    assert (stated_task["due_date"], stated_task["due_time"], stated_task["evidence"]["turn"]) == (
        "2025-04-18",
        "12:00",
        0,
    )
    assert stated_task["due_expression"].startswith("By Friday")


def test_a_number_may_be_dictated_in_several_turns(endpoint):
    lines = (
        ("customer", "My number is two oh two five five five"),
        ("rep", "Yes?"),
        ("customer", "oh one four three."),
    )
    quotes = [q(0, "two oh two five five five"), q(2, "oh one four three.")]
    endpoint.answers(answer(contact={"phone": {"value": "202 555 0143", "quotes": quotes}}))
    fact = findings_of(call(*lines), options(endpoint))["contacts"].value["heard"]["phone"]
    assert (fact["value"], fact["engine"]) == ("2025550143", "llm")
    endpoint.answers(answer(contact={"phone": {"value": "202 555 9999", "quotes": [*quotes, q(1, "nine nine")]}}))
    assert "9999" not in json.dumps(findings_of(call(*lines), options(endpoint))["contacts"].value)


def test_a_name_that_is_only_spelled_is_said(endpoint):
    lines = (("rep", "Your name?"), ("customer", "It is K O W A L S K I, like the skier."))
    name = {"value": "Kowalski", "quotes": [q(1, "It is K O W A L S K I,")]}
    endpoint.answers(answer(contact={"name": name}))
    fact = findings_of(call(*lines), options(endpoint))["contacts"].value["heard"]["name"]
    assert (fact["value"], fact["engine"]) == ("Kowalski", "llm")


def test_a_name_that_is_no_contact_does_not_lose_the_one_that_is_known(endpoint):
    lines = (
        ("rep", "Who is calling?"),
        ("customer", "My name is Peter Miller, and Lucy Brown told me to call. My email is pete at work dot example."),
    )
    assert findings_of(call(*lines), None)["contacts"].value["contact_id"] == "c1"
    name = {"value": "Lucy Brown", "quotes": [q(1, "Lucy Brown told me to call.")]}
    email = {"value": "pete@work.example", "quotes": [q(1, "My email is pete at work dot example.")]}
    endpoint.answers(answer(contact={"name": name, "email": email}))
    finding = findings_of(call(*lines), options(endpoint))["contacts"]
    assert finding.value["contact_id"] == "c1"
    facts = finding.value["heard"]
    assert (facts["name"]["value"], facts["name"]["engine"]) == ("Peter Miller", "rules")
    assert (facts["email"]["value"], facts["email"]["engine"]) == ("pete@work.example", "llm")
    assert finding.note.startswith("the model's name matches no contact")
    material = call(*lines)
    material = replace(material, roster=replace(material.roster, contacts=()))
    assert findings_of(material, options(endpoint))["contacts"].value["heard"]["name"]["value"] == "Lucy Brown"


def test_parties_nobody_knows_own_nothing(endpoint):
    endpoint.answers(without(tasks=[task(2, SEND)], tones=[]))
    lines = tuple(({"rep": "A", "customer": "B"}[speaker], text) for speaker, text in LINES)
    (stated_task,) = findings_of(call(*lines), options(endpoint))["tasks"].value["tasks"]
    assert (stated_task["owner"], stated_task["beneficiary"], stated_task["owner_user_id"]) == (
        "unknown",
        "unknown",
        None,
    )


def test_a_machine_commits_to_nothing(endpoint):
    material = call(*LINES)
    turns = tuple(replace(turn, machine=turn.index == 2) for turn in material.transcript.turns)
    endpoint.answers(without(tasks=[task(2, SEND)]))
    findings = findings_of(replace(material, transcript=replace(material.transcript, turns=turns)), options(endpoint))
    assert SEND not in json.dumps(findings["tasks"].value)


def test_a_tone_is_read_from_the_speakers_own_words(endpoint):
    tones = [{"speaker": "customer", "label": "positive", "quote": q(4, "Thank you")}]
    tones += [{"speaker": "ghost", "label": "negative", "quote": q(4, "Thank you")}]
    endpoint.answers(without(tones=tones))
    finding = findings_of(call(*LINES), options(endpoint))["tone"]
    assert finding.value == findings_of(call(*LINES), None)["tone"].value
    assert finding.note.endswith(
        "2 of 2 statements of the model are not supported by the transcript; analyzed by rules"
    )


def test_one_task_said_twice_is_one(endpoint):
    again = task(4, "I will do that.", "Send corrected invoice", due=None)
    endpoint.answers(without(tasks=[task(2, SEND), again, task(2, SEND, due="before Saturday")]))
    tasks = findings_of(call(*LINES), options(endpoint))["tasks"].value["tasks"]
    assert [(item["title"], item["due_date"]) for item in tasks] == [("Send the corrected invoice", "2025-04-18")]
