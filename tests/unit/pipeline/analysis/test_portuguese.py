"""The Portuguese pack on small calls with labels in `fixtures/portuguese_calls.toml`."""

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
    """A call and its labels. `tasks`: owner, due date, a word of the title."""

    name: str
    lines: list[str]
    tasks: list[list[str]]
    heard: dict[str, str] = field(default_factory=dict)
    outcome: str | None = None
    tone: str | None = None
    agent: str | None = None
    summary: str | None = None


CALLS = [
    LabeledCall(**labeled)
    for labeled in tomllib.loads((FIXTURES / "portuguese_calls.toml").read_text(encoding="utf-8"))["calls"]
]


def findings_of(labeled: LabeledCall) -> dict[str, dict[str, Any]]:
    lines = [(speaker, text) for speaker, _, text in (line.partition(": ") for line in labeled.lines)]
    findings: list[Finding] = analyze(call(*lines, language="pt", roster=ROSTER, start=TUESDAY, numbers=NUMBERS))
    return {finding.step: finding.value for finding in findings}


def by_name(attribute: str) -> list[LabeledCall]:
    return [labeled for labeled in CALLS if getattr(labeled, attribute)]


@pytest.mark.parametrize("labeled", CALLS, ids=lambda labeled: labeled.name)
def test_tasks_have_their_owner_and_day(labeled: LabeledCall) -> None:
    tasks = findings_of(labeled)["tasks"]["tasks"]
    assert [[task["owner"], task["due_date"] or ""] for task in tasks] == [task[:2] for task in labeled.tasks]
    for task, (_, _, word) in zip(tasks, labeled.tasks, strict=True):
        assert word.lower() in task["title"].lower()


@pytest.mark.parametrize("labeled", by_name("heard"), ids=lambda labeled: labeled.name)
def test_what_is_heard_of_the_other_party(labeled: LabeledCall) -> None:
    contacts = findings_of(labeled)["contacts"]
    for name, value in labeled.heard.items():
        if name == "phone":
            assert contacts["heard_number"] == value
        else:
            assert contacts["heard"][name] is not None and value in contacts["heard"][name]["value"]


@pytest.mark.parametrize("labeled", by_name("outcome"), ids=lambda labeled: labeled.name)
def test_how_a_call_ended(labeled: LabeledCall) -> None:
    assert findings_of(labeled)["summary"]["outcome"] == labeled.outcome


@pytest.mark.parametrize("labeled", by_name("tone"), ids=lambda labeled: labeled.name)
def test_the_tone_of_the_customer(labeled: LabeledCall) -> None:
    parties = findings_of(labeled)["tone"]["parties"]
    assert parties["customer"]["label"] == labeled.tone


@pytest.mark.parametrize("labeled", by_name("agent"), ids=lambda labeled: labeled.name)
def test_the_agent_and_the_reason(labeled: LabeledCall) -> None:
    findings = findings_of(labeled)
    assert findings["agent"]["name"] == labeled.agent
    assert labeled.summary is not None and labeled.summary in findings["summary"]["text"]
    assert (
        findings["summary"]["text"].startswith("Paulo Teixeira disse: “")
        and "Pendente: Marina Duarte" in findings["summary"]["text"]
    )
