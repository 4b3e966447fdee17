"""JSON has names in camelCase wherever it is printed, and data that serves as a key stays as it is."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from pipeline.domain.insight import Evidence, Finding
from pipeline.domain.speech import Layout, LayoutKind
from serve_app.cli.ui.output import camel, written


@dataclass(frozen=True)
class Shares:
    live_seconds: int
    teams: dict[str, float]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("call_id", "callId"),
        ("from_e164", "fromE164"),
        ("state", "state"),
        ("$defs", "$defs"),
        ("Big_team", "Big_team"),
    ],
)
def test_a_name_of_ours_is_in_camel_case(name: str, shown: str) -> None:
    assert camel(name) == shown


def test_fields_and_names_of_a_mapping_of_ours_are_converted_and_names_of_data_are_not() -> None:
    assert written({"new_job_id": UUID(int=1), "found": [Shares(60, {"customer_care": 2.0})]}) == {
        "newJobId": "00000000-0000-0000-0000-000000000001",
        "found": [{"liveSeconds": 60, "teams": {"customer_care": 2.0}}],
    }
    layout = Layout(LayoutKind.ONE_SIDED, 1, 2, 1.0, {"heard_seconds_0": 1.0}, "by hand")
    shown: dict[str, Any] = written(layout)
    assert (shown["sourceChannels"], shown["kind"]) == (2, "one_sided")
    assert shown["evidence"] == {"heard_seconds_0": 1.0}


def test_what_a_step_found_has_names_too() -> None:
    quote = Evidence(0, 0.0, 1.0, "I will send_it.")
    finding = Finding("tasks", 1, {"tasks": [{"due_date": datetime(2026, 11, 2, tzinfo=UTC), "evidence": quote}]})
    (task,) = written(finding)["value"]["tasks"]
    assert task["dueDate"] == "2026-11-02T00:00:00Z"
    assert task["evidence"]["quote"] == "I will send_it."
