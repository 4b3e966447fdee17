"""A call as its sender describes it. The SQL function `submit_calls` merges its submissions."""

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class CallState(StrEnum):
    """Status of a call. Stage, attempt and time of the next attempt are fields of the record, not states."""

    RECEIVED = "received"  # known, no recording yet
    TRANSCRIBING = "transcribing"  # has a recording and a job
    COMPLETED = "completed"  # has transcript and findings
    FAILED = "failed"  # will not be retried; has a code and a message


@dataclass(frozen=True, slots=True)
class CallFields:
    """Fields that a sender may set. None: not sent.

    `start_time` is aware and in UTC; `duration` is in whole seconds, >= 0. Columns of exports, the merge and its
    warnings are derived from this list.
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


FIELDS = tuple(field.name for field in fields(CallFields))


@dataclass(frozen=True, slots=True)
class Submission(CallFields):
    """One accepted request, as sent."""


@dataclass(frozen=True, slots=True)
class Call(CallFields):
    """The merged record of one call: the latest value of each field that any submission carried."""


@dataclass(frozen=True, slots=True)
class Job:
    """A promise to process a call. `run` grows each time the job is claimed: the fencing number."""

    job_id: UUID
    kind: str  # "process": recording -> record; "analyze": the findings again, after metadata changed
    run: int
    attempts: int  # times claimed, this time included
    failures: int  # retryable failures so far, without recordings that were not ready yet
    crashes: int  # workers lost since it last finished a stage
    created_at: datetime
    tried_since: datetime  # first claimed
    started_at: datetime  # claimed this time


@dataclass(frozen=True, slots=True)
class Sender:
    """The owner of an API key: a workspace, or one team of it."""

    key_id: UUID
    workspace_id: UUID
    team_id: UUID | None  # set: the key is team-scoped
    scopes: frozenset[str]
    default_country: str | None = None  # ISO 3166 alpha-2, to read national numbers
