from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from pipeline.analysis.dates import find
from pipeline.analysis.language import available, pack
from pipeline.analysis.tasks import Tasks
from tests.unit.calls_by_hand import call

NOW = datetime(2025, 4, 16, 11, 0, tzinfo=ZoneInfo("America/New_York"))  # a Wednesday


def tasks(*lines, **given):
    return Tasks().run(call(*lines, **given)).value["tasks"]


def test_a_request_counts_when_it_is_agreed_to():
    (task,) = tasks(("customer", "Could you please send me the new offer?"), ("rep", "Sure, no problem."))
    assert (task["owner"], task["kind"], task["beneficiary"]) == ("rep", "request", "customer")


def test_a_request_that_is_refused_is_no_task():
    assert tasks(("customer", "Could you send me the offer by Monday?"), ("rep", "No, I am afraid we cannot.")) == []


def test_a_request_nobody_answers_is_no_task():
    assert tasks(("rep", "Could you send me the form by Monday?"), ("rep", "Goodbye.")) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "If it breaks again, I will send a technician.",
        "I'll be honest.",
        "Let me check.",
        "I will put you through right away.",
        "I have already sent the invoice.",
        "We might call you tomorrow.",
        "I would send it tomorrow, if I could.",
        "I won't pay this tomorrow.",
    ],
)
def test_what_only_looks_like_a_task_is_none(sentence):
    assert tasks(("rep", sentence), ("customer", "Okay.")) == []


def test_one_task_said_twice_is_one():
    (task,) = tasks(
        ("customer", "Could you please send me the new offer by Monday?"),
        ("rep", "Yes, I will send you the new offer by Monday."),
        ("rep", "So I will send you the new offer."),
    )
    assert task["due_date"] == "2025-04-21"
    assert task["evidence"]["turn"] == 0


def test_a_speaker_without_a_role_owns_as_unknown():
    (task,) = tasks(("A", "I will send you the invoice tomorrow."), ("B", "Okay."))
    assert (task["owner"], task["beneficiary"], task["owner_user_id"]) == ("unknown", None, None)


def test_due_dates_are_counted_on_the_clock_of_the_workspace():
    late = datetime.fromisoformat("2025-04-17T02:00:00+00:00")  # still Wednesday evening in New York
    (task,) = tasks(("rep", "I will call you back tomorrow."), ("customer", "Fine."), start=late)
    assert task["due_date"] == "2025-04-17"
    assert task["kind"] == "follow-up"


def test_an_accepted_appointment_is_a_task():
    (task,) = tasks(("rep", "I have a slot on Thursday at one."), ("customer", "Perfect, thanks."))
    assert (task["kind"], task["due_date"]) == ("appointment", "2025-04-17")


@pytest.mark.parametrize(
    ("language", "said", "due"),
    [
        ("en", "today", "2025-04-16"),
        ("en", "tomorrow morning", "2025-04-17"),
        ("en", "by Friday", "2025-04-18"),
        ("en", "on Wednesday", "2025-04-23"),
        ("en", "next Monday", "2025-04-21"),
        ("en", "before Saturday", "2025-04-18"),
        ("en", "Friday week", "2025-04-25"),
        ("en", "this week", "2025-04-18"),
        ("en", "by the end of the month", "2025-04-30"),
        ("en", "the end of March", "2026-03-31"),
        ("en", "within five working days", "2025-04-23"),
        ("en", "in two weeks", "2025-04-30"),
        ("en", "July third", "2025-07-03"),
        ("en", "the thirty-first of December", "2025-12-31"),
        ("en", "by the 3rd", "2025-05-03"),
        ("en", "the week of the 19th", "2025-04-19"),
        ("en", "in one month", "2025-05-16"),
        ("en", "by 04/30/2025", "2025-04-30"),
        ("es", "mañana por la tarde", "2025-04-17"),
        ("es", "pasado mañana", "2025-04-18"),
        ("es", "antes del sábado", "2025-04-18"),
        ("es", "el próximo lunes", "2025-04-21"),
        ("es", "el tres de julio", "2025-07-03"),
        ("es", "dentro de dos semanas", "2025-04-30"),
        ("es", "a final de mes", "2025-04-30"),
        ("de", "morgen früh", "2025-04-17"),
        ("de", "übermorgen", "2025-04-18"),
        ("de", "bis Freitag", "2025-04-18"),
        ("de", "am dritten Juli", "2025-07-03"),
        ("de", "in drei Tagen", "2025-04-19"),
        ("de", "bis Ende der Woche", "2025-04-18"),
        ("de", "bis zum 30.04.2025", "2025-04-30"),
        ("fr", "demain matin", "2025-04-17"),
        ("fr", "après-demain", "2025-04-18"),
        ("fr", "jeudi prochain", "2025-04-24"),
        ("fr", "d'ici vendredi", "2025-04-18"),
        ("fr", "le trois juillet", "2025-07-03"),
        ("fr", "dans quinze jours", "2025-04-30"),
        ("fr", "à la fin du mois", "2025-04-30"),
    ],
)
def test_due_expressions_become_dates(language, said, due):
    found = find(f"xx {said}.", pack(language), NOW)
    assert found is not None
    assert found.day == date.fromisoformat(due)
    assert found.expression in said


@pytest.mark.parametrize("language", available())
def test_a_sentence_without_a_date_has_none(language):
    assert find("xx", pack(language), NOW) is None


def test_a_day_that_does_not_exist_is_no_date():
    found = find("on the thirty-first of February", pack("en"), NOW)
    assert found is not None
    assert found.day is None
