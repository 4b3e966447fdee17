"""A call as its sender describes it, and the two rules that govern it: how submissions merge, how its state moves.

The SQL function `submit_call` must agree with `merge` and `next_state`; a property test says so.
"""

from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class CallState(StrEnum):
    """Where a call stands. Stage, attempt and time of the next try are fields of the record, not states."""

    RECEIVED = "received"  # known, no recording yet
    TRANSCRIBING = "transcribing"  # a recording is promised and a job exists
    COMPLETED = "completed"  # transcript and findings are there
    FAILED = "failed"  # given up, with a code and a sentence


@dataclass(frozen=True, slots=True)
class CallFields:
    """What a sender may say about a call. None means: not carried.

    `start_time` is aware and in UTC; `duration` is in whole seconds, >= 0.
    """

    call_id: UUID
    from_number: str
    to_number: str
    start_time: datetime
    recording_url: str | None = None
    recording_url2: str | None = None
    outgoing: bool | None = None
    duration: int | None = None
    team_id: UUID | None = None
    user_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Submission(CallFields):
    """One accepted request, as sent."""


@dataclass(frozen=True, slots=True)
class Call(CallFields):
    """The merged record of one call: the latest value of each field that any submission carried."""


@dataclass(frozen=True, slots=True)
class Job:
    """A promise to process a call. `run` grows each time the job is taken up: the fencing number."""

    job_id: UUID
    kind: str  # "process": recording -> record; "analyze": the findings again, after metadata changed
    run: int
    attempts: int  # times taken up, this time included
    failures: int  # passing failures so far, a recording that is not ready yet not counted
    crashes: int  # times its worker vanished since it last got a stage further
    created_at: datetime
    tried_since: datetime  # first taken up
    started_at: datetime  # taken up this time


@dataclass(frozen=True, slots=True)
class Sender:
    """Whom an API key speaks for: a workspace, perhaps one team of it."""

    key_id: UUID
    workspace_id: UUID
    team_id: UUID | None  # set: the key is team-scoped
    scopes: frozenset[str]
    default_country: str | None = None  # ISO 3166 alpha-2, to read national numbers


def merge(call: Call | None, submission: Submission) -> Call:
    """Latest value wins, field by field; a field that the submission does not carry keeps its value."""
    carried = {f.name: getattr(submission, f.name) for f in fields(submission)}
    if call is None:
        return Call(**carried)
    return replace(call, **{name: value for name, value in carried.items() if value is not None})


def next_state(state: CallState | None, submission: Submission, same_recording: bool = False) -> CallState:
    """The state after `submission`.

    `same_recording`: the merged record names the recording that its latest job already works on (or has done).
    A submission without a recording never takes a call back to `received`.
    """
    if submission.recording_url is None:
        return state or CallState.RECEIVED
    if same_recording and state in (CallState.TRANSCRIBING, CallState.COMPLETED):
        return state
    return CallState.TRANSCRIBING
