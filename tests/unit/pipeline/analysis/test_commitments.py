"""What is committed to in ordinary words that no list of verbs foresees: small dialogues in four languages.

A line of the table is the language, the turns and what is wanted. `-`: no task; several tasks are joined by " + ",
readings that are right too by " OR ". The day of the call is Wednesday 16 April 2025.
"""

import pytest

from pipeline.analysis.rules.commitments.tasks import TasksStep
from tests.paths import FIXTURES
from tests.support.calls_by_hand import call

SAID = (FIXTURES / "commitments.txt").read_text(encoding="utf-8")
ROLES = {"r": "rep", "c": "customer"}


@pytest.mark.parametrize("row", SAID.strip().splitlines())
def test_a_commitment_has_its_owner_and_day_and_what_is_only_told_is_no_task(row):
    language, turns, expected = row.split("|")
    lines = [(ROLES[turn[0]], turn[2:]) for turn in turns.split("/")]
    tasks = TasksStep().run(call(*lines, language=language)).value["tasks"]
    owners_and_days = [f"{task['owner']} {task['due_date']}" for task in tasks]
    assert owners_and_days in [[] if reading == "-" else reading.split(" + ") for reading in expected.split(" OR ")]


def test_the_time_of_day_of_a_task_is_kept_beside_its_day():
    lines = [("rep", "I have a slot on Thursday at half past two."), ("customer", "Perfect, thanks.")]
    (task,) = TasksStep().run(call(*lines)).value["tasks"]
    assert (task["due_date"], task["due_time"]) == ("2025-04-17", "14:30")


def test_when_it_arrives_is_when_its_promise_is_due():
    lines = [("rep", "I'll change the menu, and you'll have it tomorrow."), ("customer", "Fine.")]
    (task,) = TasksStep().run(call(*lines)).value["tasks"]
    assert (task["title"], task["due_date"]) == ("Change the menu", "2025-04-17")


def test_a_customer_who_asks_what_is_allowed_offers_nothing():
    assert TasksStep().run(call(("customer", "Can I pay by card?"), ("rep", "Yes, of course."))).value["tasks"] == []


def test_what_is_told_with_a_day_stands_unless_the_reply_questions_it():
    request = "You need to send us the form by Friday."
    assert len(TasksStep().run(call(("rep", request), ("customer", "It is on my desk here."))).value["tasks"]) == 1
    assert TasksStep().run(call(("rep", request), ("customer", "Which form do you mean?"))).value["tasks"] == []
