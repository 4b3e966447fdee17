"""JSON has names in camelCase wherever it is printed, and data that serves as a key stays as it is."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from pipeline.domain.insight import Evidence, Finding
from pipeline.domain.speech import Layout, LayoutKind
from serve_app.cli.ui.output import camel, to_camel_json


@dataclass(frozen=True)
class Shares:
    live_seconds: int
    teams: dict[str, float]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("call_id", "callId"),
        ("from_e164", "fromE164"),
        ("state", "status"),
        ("from_number", "from"),
        ("$defs", "$defs"),
        ("Big_team", "Big_team"),
    ],
)
def test_names_on_the_wire(name: str, shown: str) -> None:
    assert camel(name) == shown


def test_names_are_converted_and_keys_of_data_are_not() -> None:
    assert to_camel_json({"new_job_id": UUID(int=1), "found": [Shares(60, {"customer_care": 2.0})]}) == {
        "newJobId": "00000000-0000-0000-0000-000000000001",
        "found": [{"liveSeconds": 60, "teams": {"customer_care": 2.0}}],
    }
    layout = Layout(LayoutKind.ONE_SIDED, 1, 2, 1.0, {"heard_seconds_0": 1.0}, "by hand")
    shown: dict[str, Any] = to_camel_json(layout)
    assert (shown["sourceChannels"], shown["kind"]) == (2, "one_sided")
    assert shown["evidence"] == {"heardSeconds0": 1.0}


def test_names_in_the_value_of_a_finding_are_converted() -> None:
    quote = Evidence(0, 0.0, 1.0, "I will send_it.")
    finding = Finding("tasks", 1, {"tasks": [{"due_date": datetime(2026, 11, 2, tzinfo=UTC), "evidence": quote}]})
    (task,) = to_camel_json(finding)["value"]["tasks"]
    assert task["dueDate"] == "2026-11-02T00:00:00Z"
    assert task["evidence"]["quote"] == "I will send_it."
