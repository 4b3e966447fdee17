"""The auditor of events finds what is planted, and nothing where nothing is."""

from typing import Any

import pytest

from tests.chaos.events import faults

CALLS = [
    {"id": 1, "call_id": "a", "state": "completed", "workspace": "north"},
    {"id": 2, "call_id": "b", "state": "received", "workspace": "north"},
]


def event(number: int, call: int, kind: str) -> dict[str, Any]:
    return {"id": f"e{number}", "call_pk": call, "type": f"call.{kind}", "at": number}


EVENTS = [event(1, 1, "received"), event(2, 2, "received"), event(3, 1, "transcribing"), event(4, 1, "completed")]
IN_ORDER = ["e1", "e2", "e3", "e4"]


def test_what_was_told_in_order_and_twice_is_no_fault() -> None:
    assert list(faults(EVENTS, CALLS, IN_ORDER)) == []
    assert list(faults(EVENTS, CALLS, ["e2", "e1", "e1", "e3", "e1", "e4"])) == []


@pytest.mark.parametrize(
    ("events", "taken", "kind", "what"),
    [
        (EVENTS, ["e1", "e2", "e4"], "lost", "call.transcribing was never taken"),
        (EVENTS, ["e1", "e2", "e4", "e3"], "wrong", "out of order"),
        (EVENTS, [*IN_ORDER, "e9"], "orphan", "e9"),
        (EVENTS[:3], ["e1", "e2", "e3"], "wrong", "it is completed and its last event is call.transcribing"),
        ([event for event in EVENTS if event["call_pk"] == 1], ["e1", "e3", "e4"], "wrong", "its last event is none"),
    ],
)
def test_each_planted_fault_is_found(events: list[dict[str, Any]], taken: list[str], kind: str, what: str) -> None:
    (fault,) = faults(events, CALLS, taken)
    assert fault.kind == kind
    assert what in fault.what
