"""The two pure rules of a call: how submissions merge and how its state moves."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.domain.call import Call, CallState, Submission
from tests.submission_model import merge, next_state

PLAIN = Submission(uuid4(), "+49301234567", "+14155550123", datetime(2026, 11, 2, 9, 30, tzinfo=UTC))
FINISHING = replace(PLAIN, recording_url="https://x.example/a.wav")

optional = st.fixed_dictionaries(
    {
        "recording_url": st.none() | st.sampled_from(["https://x.example/a", "https://x.example/b"]),
        "outgoing": st.none() | st.booleans(),
        "duration": st.none() | st.integers(0, 3600),
        "user_id": st.none() | st.uuids(),
        "from_number": st.sampled_from(["a", "b"]),
    }
)


def test_the_first_submission_becomes_the_call() -> None:
    assert merge(None, FINISHING) == Call(**{name: getattr(FINISHING, name) for name in Call.__dataclass_fields__})


def test_the_latest_value_wins_when_both_submissions_carry_a_field() -> None:
    assert merge(merge(None, replace(PLAIN, duration=10)), replace(PLAIN, duration=0)).duration == 0


def test_a_field_that_is_not_carried_never_overwrites_a_stored_value() -> None:
    call = merge(None, replace(PLAIN, duration=10, outgoing=False, user_id=uuid4()))
    assert merge(call, PLAIN) == call


@given(st.lists(optional, min_size=1, max_size=8))
def test_any_order_and_repetition_of_submissions_gives_the_latest_value_per_field(
    sent: list[dict[str, object]],
) -> None:
    call = None
    for fields in sent:
        call = merge(call, replace(PLAIN, **fields))  # type: ignore[arg-type]
    for name in sent[0]:
        carried = [fields[name] for fields in sent if fields[name] is not None]
        assert getattr(call, name) == (carried[-1] if carried else None)


def test_a_new_call_without_a_recording_is_received() -> None:
    assert next_state(None, PLAIN) is CallState.RECEIVED


@pytest.mark.parametrize("state", [None, *CallState])
def test_another_recording_always_leads_to_transcribing(state: CallState | None) -> None:
    assert next_state(state, FINISHING, same_recording=False) is CallState.TRANSCRIBING


@pytest.mark.parametrize("state", list(CallState))
def test_a_late_start_phase_submission_leaves_the_state_alone(state: CallState) -> None:
    assert next_state(state, PLAIN) is state
    assert next_state(state, PLAIN, same_recording=True) is state


@pytest.mark.parametrize("state", [CallState.TRANSCRIBING, CallState.COMPLETED])
def test_the_same_recording_again_leaves_the_state_alone(state: CallState) -> None:
    assert next_state(state, FINISHING, same_recording=True) is state


def test_the_same_recording_of_a_failed_call_is_transcribed_again() -> None:
    assert next_state(CallState.FAILED, FINISHING, same_recording=True) is CallState.TRANSCRIBING
