"""The pack of Portuguese on small calls, whose labels stand beside them in `fixtures/portuguese_calls.toml`."""

import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.analysis import analyze
from pipeline.domain.insight import Finding, Member, Roster
from tests.paths import FIXTURES
from tests.support.calls_by_hand import call

TUESDAY = datetime(2026, 9, 8, 13, 0, tzinfo=UTC)  # 10:00 in São Paulo
NUMBERS = ("+551133334444", "+551130001000")
ROSTER = Roster(members=(Member("u1", "Marina Duarte"),), default_country="BR", time_zone="America/Sao_Paulo")


@dataclass(frozen=True)
class LabeledCall:
    """A call and what a reader takes from it. `tasks`: owner, due date, a word of the title."""

    name: str
    lines: list[str]
    tasks: list[list[str]]
    heard: dict[str, str] = field(default_factory=dict)
    outcome: str | None = None
    tone: str | None = None
    agent: str | None = None
    summary: str | None = None


CALLS = [
    LabeledCall(**one)
    for one in tomllib.loads((FIXTURES / "portuguese_calls.toml").read_text(encoding="utf-8"))["calls"]
]


def found(one: LabeledCall) -> dict[str, dict[str, Any]]:
    lines = [(speaker, said) for speaker, _, said in (line.partition(": ") for line in one.lines)]
    findings: list[Finding] = analyze(call(*lines, language="pt", roster=ROSTER, start=TUESDAY, numbers=NUMBERS))
    return {finding.step: finding.value for finding in findings}


def by_name(wanted: str) -> list[LabeledCall]:
    return [one for one in CALLS if getattr(one, wanted)]


@pytest.mark.parametrize("one", CALLS, ids=lambda one: one.name)
def test_tasks_have_their_owner_and_day(one: LabeledCall) -> None:
    tasks = found(one)["tasks"]["tasks"]
    assert [[task["owner"], task["due_date"] or ""] for task in tasks] == [task[:2] for task in one.tasks]
    for task, (_, _, word) in zip(tasks, one.tasks, strict=True):
        assert word.lower() in task["title"].lower()


@pytest.mark.parametrize("one", by_name("heard"), ids=lambda one: one.name)
def test_what_is_heard_of_the_other_party(one: LabeledCall) -> None:
    contacts = found(one)["contacts"]
    for name, value in one.heard.items():
        if name == "phone":
            assert contacts["heard_number"] == value
        else:
            assert contacts["heard"][name] is not None and value in contacts["heard"][name]["value"]


@pytest.mark.parametrize("one", by_name("outcome"), ids=lambda one: one.name)
def test_how_a_call_ended(one: LabeledCall) -> None:
    assert found(one)["summary"]["outcome"] == one.outcome


@pytest.mark.parametrize("one", by_name("tone"), ids=lambda one: one.name)
def test_the_tone_of_the_customer(one: LabeledCall) -> None:
    parties = found(one)["tone"]["parties"]
    assert parties["customer"]["label"] == one.tone


@pytest.mark.parametrize("one", by_name("agent"), ids=lambda one: one.name)
def test_the_agent_and_the_reason(one: LabeledCall) -> None:
    told = found(one)
    assert told["agent"]["name"] == one.agent
    assert one.summary is not None and one.summary in told["summary"]["text"]
    assert (
        told["summary"]["text"].startswith("Paulo Teixeira: ") and "Pendente: Marina Duarte" in told["summary"]["text"]
    )
