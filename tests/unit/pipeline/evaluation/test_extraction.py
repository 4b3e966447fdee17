"""Tasks, actions and contacts against those that people know."""

from dataclasses import fields, replace

from db.records import event_record
from pipeline.domain import insight
from pipeline.domain.insight import Finding
from pipeline.evaluation.extraction import MatchCounts, match_actions, match_contact, match_tasks
from pipeline.evaluation.report import METRICS
from pipeline.evaluation.score import score
from pipeline.evaluation.truth import (
    TrueAction,
    TrueCall,
    TrueContact,
    TrueTask,
    TrueTurn,
    TrueWord,
    digest,
    from_hypothesis,
    plain,
)
from tests.finished import findings, task, transcript


def turn(start: float, text: str) -> TrueTurn:
    return TrueTurn("rep", start, start + 3, tuple(TrueWord(word) for word in text.split()))


TALK = tuple(turn(4.0 * at, text) for at, text in enumerate(("hello there", "I will send the invoice", "good bye")))
CALL = TrueCall("x", TALK, "en")


def told(*tasks: TrueTask) -> TrueCall:
    return replace(CALL, tasks=tasks)


def test_a_task_is_right_with_its_words_and_its_owner() -> None:
    truth = told(TrueTask("Send the invoice", "rep", start=4.0), TrueTask("Call the customer back", "rep", start=8.0))
    hypothesis = told(
        TrueTask("send them the corrected invoice", "rep", start=4.5),
        TrueTask("phone the customer back", "customer", start=8.0),
        TrueTask("water the plants", "rep", start=0.0),
    )
    assert match_tasks(truth, hypothesis) == MatchCounts(correct=1, predicted=3, expected=2), (
        "one owner is wrong, one task does not match"
    )
    assert METRICS["task_f1"](score(truth, hypothesis)) == (2, 5)


def test_each_known_task_is_found_once() -> None:
    truth = told(TrueTask("Send the invoice", "rep"))
    assert match_tasks(truth, told(*[TrueTask("send the invoice", "rep")] * 2)) == MatchCounts(1, 2, 1)


def test_an_optional_task_costs_nothing_found_or_not() -> None:
    truth = told(TrueTask("Send the invoice", "rep"), TrueTask("Check the boiler", "rep", optional=True))
    assert match_tasks(truth, told(TrueTask("send the invoice", "rep"))) == MatchCounts(1, 1, 1)
    both = told(TrueTask("send the invoice", "rep"), TrueTask("inspect the boiler", "customer"))
    assert match_tasks(truth, both) == MatchCounts(1, 1, 1)


def test_few_words_are_enough_where_both_were_said_together() -> None:
    truth = told(TrueTask("Send the invoice by mail", "rep", start=4.0))
    far = replace(TALK[0], start=900.0, end=903.0)
    later = replace(truth, turns=(*TALK, *[replace(far, start=900.0 + at) for at in range(9)]))
    vague = TrueTask("get the invoice to our bookkeeping people", "rep", start=4.0)
    near = match_tasks(later, told(vague))
    away = match_tasks(later, told(replace(vague, start=908.0)))
    assert near is not None and away is not None
    assert (near.correct, away.correct) == (1, 0)


def test_fields_of_a_contact_count_each() -> None:
    truth = replace(CALL, contact=TrueContact("Dr. Eva Kern", "Kern GmbH", None, "+49 30 1234567"))
    hypothesis = replace(CALL, contact=TrueContact("Eva Kern", "Nordlicht", "eva@kern.example", "030 1234567"))
    assert match_contact(truth, hypothesis) == MatchCounts(correct=2, predicted=4, expected=3)
    nobody = replace(CALL, contact=TrueContact())
    assert match_contact(nobody, hypothesis) == MatchCounts(0, 4, 0), "it is known that there is no contact"
    assert match_contact(nobody, nobody) == MatchCounts(0, 0, 0)


PAID = TrueAction("Paid the electricity bill", "payment", "rep", amount=97.0)
VISIT = TrueAction("Booked an appointment", "appointment", "rep", date="2025-04-22", time="08:15")
CARD = TrueAction("Sent a new card", "order", "rep", address="14 Mill Lane, Springfield")


def test_an_action_is_right_with_its_party_and_every_known_detail() -> None:
    truth = replace(CALL, actions=(PAID, VISIT, CARD))
    cases = (
        ((PAID, VISIT, CARD), 3),
        ((replace(PAID, amount=79.0), VISIT), 1),
        ((replace(VISIT, time="09:15"), replace(CARD, by="customer")), 0),
        ((replace(CARD, address="14 Mill Lane"), replace(PAID, date="2025-04-16")), 2),
        ((PAID, PAID), 1),
        ((replace(PAID, kind="refund"),), 0),
    )
    for stated, correct in cases:
        counts = match_actions(truth, replace(CALL, actions=stated))
        assert counts == MatchCounts(correct, len(stated), 3), stated
    assert METRICS["action_f1"](score(truth, truth)) == (6, 6)
    assert match_actions(truth, CALL) is None and match_actions(CALL, truth) is None


def test_actions_have_one_list_of_fields_everywhere() -> None:
    names = {field.name for field in fields(insight.Action)} - {"evidence"}
    assert {field.name for field in fields(TrueAction)} == names | {"start"}
    assert set(event_record.Action.model_fields) == names | {"quote", "start", "end"}


def test_the_output_of_the_step_is_in_the_form_that_is_compared() -> None:
    evidence = {"turn": 1, "start": 4.0, "end": 7.0, "quote": "I will send the invoice"}
    action = {"title": "Paid", "kind": "payment", "by": "rep", "amount": 97.0, "evidence": evidence}
    hypothesis = from_hypothesis("x", transcript(), (Finding("actions", 1, {"actions": [action]}),))
    assert hypothesis.actions == (TrueAction("Paid", "payment", "rep", 97.0, start=4.0),)
    assert "actions" not in plain(CALL) and plain(hypothesis)["actions"][0]["amount"] == 97.0


def test_what_nobody_said_is_not_measured() -> None:
    assert match_tasks(CALL, told()) is None and match_tasks(told(), CALL) is None
    assert match_contact(CALL, replace(CALL, contact=TrueContact())) is None
    result = score(CALL, CALL)
    metrics = ("task_f1", "contact_f1", "rtfx", "cost_per_audio_hour")
    assert [METRICS[metric](result) for metric in metrics] == [None] * 4


def test_speed_and_cost_are_of_the_audio() -> None:
    truth = replace(CALL, duration=1800.0)
    result = score(truth, replace(CALL, processing=180.0), price_per_hour=2.0)
    assert METRICS["rtfx"](result) == (1800.0, 180.0)
    assert METRICS["cost_per_audio_hour"](result) == (0.1, 0.5)
    assert METRICS["cost_per_audio_hour"](score(truth, replace(CALL, processing=180.0))) is None


def test_findings_tell_tasks_and_the_contact() -> None:
    call_transcript = transcript(("rep", "Hello."), ("customer", "Hi, Eva Kern here."))
    call_findings = findings(tasks=(task("Send it"),), heard={"name": "Eva Kern", "number": "+49301234567"})
    hypothesis = from_hypothesis("x", call_transcript, call_findings, processing=3.0)
    assert hypothesis.tasks == (TrueTask("Send it", "rep", None, 0.0),)
    assert hypothesis.contact == TrueContact("Eva Kern", None, None, "+49301234567")
    assert (hypothesis.duration, hypothesis.processing) == (7.0, 3.0)
    matched = Finding("contacts", 1, {"contact_id": "7", "heard": {"name": None, "email": {"value": "e@k.example"}}})
    contacts = {"7": TrueContact("Eva Kern", "Kern GmbH", None, "+49309")}
    person = TrueContact("Eva Kern", "Kern GmbH", "e@k.example", "+49309")
    assert from_hypothesis("x", call_transcript, [matched], contacts).contact == person
    assert from_hypothesis("x", call_transcript).tasks is None


def test_digests_are_those_of_before_where_nothing_more_is_known() -> None:
    assert digest([CALL]) == "255564d4edd5c88e191834692e503eddab540e3f2d29f9805915e7f71bff8199"
    assert set(plain(CALL)) == {"name", "turns", "language"}
    assert digest([replace(CALL, duration=9.0)]) != digest([CALL])
