from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Literal, TypedDict
from uuid import UUID, uuid4

from pydantic.alias_generators import to_camel

from switchboard.submission import WIRE_NAMES, Submission

CallStatus = Literal["received", "transcribing", "completed", "failed"]
Version = Literal["corrected", "machine"]  # with or without corrections
Channel = Literal["original", "mixed", "rep", "customer"]
ExportFormat = Literal["ndjson", "csv", "parquet"]
RunCallStatus = Literal["waiting", "running", "done", "failed", "canceled"]
Metric = Literal[
    "wer",
    "wer_written",
    "cpwer",
    "lost_per_minute",
    "invented_per_minute",
    "der",
    "jer",
    "word_time_error",
    "task_f1",
    "action_f1",
    "contact_f1",
    "rtfx",
    "cost_per_audio_hour",
]
ScoresBy = Literal["team", "member"]
Include = Literal["transcript", "edits"]


class CallFilters(TypedDict, total=False):
    """Filters of calls; all of them must match. Times need an offset."""

    status: CallStatus | Sequence[CallStatus]
    started_from: datetime
    started_before: datetime
    updated_after: datetime
    outgoing: bool
    team_id: UUID | str
    user_id: UUID | str
    contact_id: UUID | str
    number: str
    language: str
    tone: Literal["negative", "neutral", "positive"]
    open_tasks: bool
    corrected: bool
    tag: str
    text: str
    name: str
    question: str
    answer: str
    scorecard: str
    passed: bool
    auto_failed: bool
    score_from: float
    score_below: float


class TaskFilters(TypedDict, total=False):
    """Filters of tasks; all of them must match."""

    done: bool
    owner: Literal["rep", "customer", "other", "unknown"]
    owner_user_id: UUID | str
    kind: Literal["commitment", "request", "follow-up", "appointment"]
    due_from: date
    due_before: date
    team_id: UUID | str


def query(values: Mapping[str, Any], allowed: frozenset[str]) -> dict[str, str]:
    """Return query parameters without None values. Raises `TypeError` for a name that is not in `allowed`."""
    unknown = sorted(set(values) - allowed)
    if unknown:
        raise TypeError(f"unknown filter {unknown[0]!r}; filters: {', '.join(sorted(allowed)) or 'none'}")
    return {to_camel(name): plain(value) for name, value in values.items() if value is not None}


def submission_body(call: Submission) -> dict[str, Any]:
    """Return the body of /submit. Raises `TypeError` for an unknown or missing field, `ValueError` as `moment`."""
    for name in call:
        if name not in WIRE_NAMES:
            raise TypeError(f"unknown field {name!r}; fields: {', '.join(WIRE_NAMES)}")
    for name in sorted(Submission.__required_keys__ - call.keys()):
        raise TypeError(f"missing field {name!r}")
    body = {WIRE_NAMES[name]: _field(value) for name, value in call.items() if value is not None}
    return {"callId": str(uuid4())} | body


def _field(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(value)
    return str(value) if isinstance(value, UUID) else value


def plain(value: Any) -> str:
    """Return the value of a query parameter. Raises `ValueError` for a time without an offset."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def moment(at: datetime) -> str:
    """Return the time in ISO 8601. Raises `ValueError` if it has no offset."""
    if at.utcoffset() is None:
        raise ValueError(f"{at} has no offset: set its time zone, for example with `at.astimezone()`")
    return at.isoformat()
