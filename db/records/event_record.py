"""The record and transcript of an event: the essentials of the API's record, as the machine produced it.

They are written in the transaction that writes the record, so that an event describes its own moment, even if it is
sent days later. The models are the only list of their fields.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import date, time
from operator import attrgetter
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.rows import columns
from db.core.tables import events
from db.events.types import EVENT_TYPES
from db.records.views import CallRecord, CallSummary, read_call
from pipeline.domain import answers as domain
from pipeline.domain.call import CallFields
from pipeline.domain.redaction import CallRedaction, RedactionState
from pipeline.domain.vocabulary import ActionKind, CallOutcome


class Part(BaseModel):
    """Receivers must pass over fields they do not know: later versions may add some."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class Task(Part):
    """Something still to be done after the call."""

    title: str
    owner: str = Field(description="rep, customer, other or unknown.")
    kind: str = Field(description="commitment, request, follow-up or appointment.")
    owner_user_id: str | None
    beneficiary: str | None
    due_expression: str | None = Field(description="As said.")
    due_date: date | None
    due_time: time | None = Field(description="On the clock of the workspace.")
    confidence: float = Field(ge=0, le=1)
    quote: str = Field(description="Verbatim.")
    start: float = Field(description="Second of the recording at which the quote begins.")
    end: float


class Action(Part):
    """What a party did or booked during the call."""

    title: str
    kind: ActionKind
    by: str = Field(description="rep, customer or unknown.")
    amount: float | None = Field(description="In the currency that was said.")
    date: str | None = Field(description="Of the appointment or deed, ISO 8601.")
    time: str | None = Field(description="HH:MM, on the clock of the workspace.")
    address: str | None
    quote: str = Field(description="Verbatim.")
    start: float = Field(description="Second of the recording at which the quote begins.")
    end: float


class Contact(Part):
    """The person the call was with, as far as known."""

    contact_id: UUID
    name: str | None
    company: str | None
    email: str | None
    phone: str | None = Field(description="E.164.")


class SpokenContact(Part):
    """What the other party said about themselves."""

    name: str | None
    company: str | None
    email: str | None
    phone: str | None
    address: str | None


class Direction(Part):
    """How `outgoing` was determined."""

    source: str | None = Field(description="sender, numbers or talk.")
    confidence: float | None = Field(description="None where the sender said it.")


class Agent(Part):
    """The member who handled the call, as far as known."""

    user_id: str | None
    name: str | None = Field(description="As in the directory.")
    spoken_name: str | None = Field(description="As said in the call.")
    source: str | None = Field(description="sender, person, voice, greeting, ...")
    confidence: float | None


class Tone(Part):
    """Sentiment of a party: by words, and for customers also by voice."""

    label: str | None = Field(description="negative, neutral or positive.")
    score: float | None = Field(description="-1 to 1.")


class PartySentiment(Tone):
    """The tone of one party."""

    confidence: float | None


class Trend(Part):
    """How the customer's tone moves."""

    label: str | None
    change: float | None


class CallTone(Part):
    """The tone of the call (its sentiment)."""

    overall: Tone
    parties: dict[str, PartySentiment] = Field(description="By the speaker's label: rep, customer, ...")
    trend: Trend | None


class PartyStatistics(Part):
    """How one party talks."""

    role: str | None
    talk_seconds: float | None
    talk_ratio: float | None = Field(description="Share of all that is said, 0 to 1.")
    longest_monologue_seconds: float | None
    patience_seconds: float | None = Field(description="Before an answer.")  # language: ok
    words: int | None
    words_per_minute: float | None
    questions: int | None
    interruptions: int | None
    backchannels: int | None


class Statistics(Part):
    """Figures of the conversation; shares run from 0 to 1."""

    talk_seconds: float | None
    silence_share: float | None
    hold_share: float | None
    overlap_share: float | None
    interactivity_per_minute: float | None = Field(description="Changes of turn.")
    parties: dict[str, PartyStatistics] = Field(description="By the speaker's label.")


class Answer(Part):
    """What the call says to one of the workspace's own questions."""

    key: str
    version: int | None = Field(description="Of the question.")
    type: str = Field(description="yes/no, choice, number, text or date.")
    question: str | None
    state: str = Field(alias="status", description="said, not_said, not_asked or out_of_scope.")
    answer: str | float | None = Field(description="Unless said, null.")
    said_by: str | None = Field(description="The speaker's label.")
    quote: str | None = Field(None, description="Verbatim.")
    start: float | None = Field(None, description="Second of the recording at which the quote begins.")
    end: float | None = None
    found_by: str | None = Field(description="phrases or model.")
    confidence: float | None
    weight: float | None
    reason: str | None = Field(description="Why it was not asked.")


class TrackerMatch(Part):
    """Where a tracker's phrase was said."""

    said_by: str | None
    quote: str | None = Field(None, description="Verbatim; in the record only.")
    start: float | None
    end: float | None
    confidence: float | None


class TrackerResult(Part):
    """Whether a tracker's phrases were said."""

    key: str
    version: int | None
    question: str | None
    required: bool
    state: str = Field(alias="status", description="said, not_said, not_asked or out_of_scope.")
    raised: bool = Field(description="They were said, or of a required one they were not.")
    reason: str | None
    matches: tuple[TrackerMatch, ...]


class ScorecardResult(Part):
    """What the answers come to by one of the workspace's scorecards, as the service found them."""

    key: str
    version: int | None
    title: str | None
    score: float | None = Field(description="0 to 100; null: no question on it could be answered.")
    pass_mark: float | None
    passed: bool | None = Field(description="null: there is no pass mark, or no score.")
    auto_failed: bool | None = Field(description="A question that must be met was not: the score is 0.")


class Redaction(Part):
    """What a policy of redaction has hidden."""

    state: str = Field(alias="status", description=f"{', '.join(RedactionState)}.")
    policy: str = Field(description="Its name.")
    version: int
    counts: dict[str, int] = Field(description="What is hidden, by kind.")


class _Essentials(Part):
    from_number: str | None = Field(None, alias="from", description="As submitted.")
    to_number: str | None = Field(None, alias="to", description="As submitted.")
    language: str | None
    outgoing: bool | None = Field(None, description="true: outbound; false: inbound; null: unknown.")
    duration: float = Field(description="Length of the recording in seconds.")
    declared_duration: int | None = Field(None, description="As submitted, in seconds.")
    summary: str | None
    outcome: str | None = Field(None, description=f"{', '.join(CallOutcome)}.")
    direction: Direction | None = None
    agent: Agent | None = None
    tone: CallTone | None = None
    statistics: Statistics | None = None
    tasks: tuple[Task, ...]
    actions: tuple[Action, ...] = Field((), description="What was done during the call.")
    contact: Contact | None
    mentioned_contact: SpokenContact | None = None
    answers: tuple[Answer, ...] = Field((), description="To the workspace's own questions.")
    trackers: tuple[TrackerResult, ...] = ()
    scorecards: tuple[ScorecardResult, ...] = ()
    redaction: Redaction | None = Field(None, description="null: no policy applied.")
    warnings: tuple[str, ...] = ()


_IN_DATA = ("call_id", "team_id", "user_id", "start_time")  # of every event
_SHOWN = {field.name for field in fields(CallSummary)}
_SUBMITTED: dict[str, Any] = {
    field.name: (field.type, Field(None, description="As submitted."))
    for field in fields(CallFields)
    if field.name in _SHOWN and field.name not in {*_IN_DATA, *_Essentials.model_fields}
}
_WithSubmitted: Any = create_model("_WithSubmitted", __base__=_Essentials, **_SUBMITTED)


class Record(_WithSubmitted):  # also has each further field of a submission that the API shows
    """The essentials of a completed call, for endpoints that ask for `record`. What a step did not find is null."""


class Turn(Part):
    """What one speaker said without a break, for endpoints that ask for `transcript`."""

    start: float = Field(description="Seconds of the recording.")
    end: float
    speaker: str = Field(description="rep, customer, ...")
    language: str
    text: str


async def write_records(connection: AsyncConnection, call_pk: int, call_id: UUID) -> None:
    """Write the record into the events of this transaction, for endpoints that include it.

    Call it after the update of `calls` that completes, analyzes or promotes the call.
    """
    new_events = (await connection.execute(_NEW_EVENTS, {"call": call_pk, "types": _TYPES})).all()
    if not any(event.include or event.type in _TRACKER_TYPES for event in new_events):
        return
    record = await read_call(connection, call_id, machine=True)
    if record is None or record.transcript is None:
        return
    for event in new_events:
        values: dict[str, Any] = {}
        if "record" in event.include:
            values["record"] = record_of(record)
        if "transcript" in event.include:
            values["transcript"] = [_part(Turn, turn, {"text": turn.text}) for turn in record.transcript.turns]
        if event.type in _TRACKER_TYPES:
            values["data"] = event.data | {"trackers": _raised(record.trackers)}
        if values:
            await connection.execute(sa.update(events).where(events.c.id == event.id).values(values))


_TYPES = [kind.name for kind in EVENT_TYPES if kind.parts]
_TRACKER_TYPES = frozenset(kind.name for kind in EVENT_TYPES if kind.has_trackers)

# `created_at` is when a transaction began: it distinguishes the events of this one.
_NEW_EVENTS = sa.text("""
    SELECT e.id, e.type, e.data,
        ARRAY(SELECT unnest(w.include) FROM webhook_deliveries d JOIN webhook_endpoints w ON w.id = d.endpoint_id
            WHERE d.event_id = e.id) AS include
    FROM events e
    WHERE e.call_pk = :call AND e.type = ANY (CAST(:types AS text[]))
        AND EXISTS (SELECT FROM webhook_deliveries d WHERE d.event_id = e.id AND d.created_at = now())
""")


def record_of(record: CallRecord) -> dict[str, Any]:
    """Return what events have of a record, as JSON. A step may leave out any value, which must not prevent a record."""
    by_step = {
        finding.step: _object(finding.value) | {"confidence": finding.confidence}
        for finding in sorted(record.findings, key=attrgetter("version"))
    }
    summary, direction, agent, tone, statistics = (
        by_step.get(step, {}) for step in ("summary", "direction", "agent", "tone", "statistics")
    )
    outgoing = record.call.outgoing
    return _part(
        Record,
        record.call,
        {
            "outgoing": direction.get("outgoing") if outgoing is None else outgoing,
            "summary": summary.get("text"),
            "outcome": summary.get("outcome"),
            "direction": _part(Direction, direction) if direction else None,
            "agent": _part(Agent, agent) if agent else None,
            "tone": _tone(tone),
            "statistics": _statistics(statistics) if statistics else None,
            "tasks": [_part(Task, task, task.evidence) for task in record.tasks],
            "actions": [_part(Action, action, action.evidence) for action in record.actions],
            "contact": next((_part(Contact, contact) for contact in record.contacts), None),
            "mentioned_contact": _spoken_contact(by_step.get("contacts", {}).get("heard")),
            "answers": [_part(Answer, answer, answer.evidence) for answer in record.answers],
            "trackers": [_tracker(tracker) for tracker in record.trackers],
            "scorecards": [_part(ScorecardResult, scorecard) for scorecard in record.scorecards],
            "redaction": _redaction(record.redaction),
            "warnings": record.warnings,
        },
    )


def _redaction(redaction: CallRedaction | None) -> dict[str, Any] | None:
    if redaction is None:
        return None
    policy = {"policy": redaction.policy.name, "version": redaction.policy.version}
    return _part(Redaction, {"state": redaction.state, "counts": redaction.counts} | policy)


def _tone(value: dict[str, Any]) -> dict[str, Any] | None:
    overall, trend = value.get("overall"), value.get("trend")
    if not isinstance(overall, dict):
        return None
    return {
        "overall": _part(Tone, overall),
        "parties": _parties(PartySentiment, value),
        "trend": _part(Trend, trend) if isinstance(trend, dict) else None,
    }


def _statistics(value: dict[str, Any]) -> dict[str, Any]:
    return _part(Statistics, value, {"parties": _parties(PartyStatistics, value)})


def _spoken_contact(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    return _part(SpokenContact, {name: _object(fact).get("value") for name, fact in value.items()})


def _parties(model: type[Part], value: dict[str, Any]) -> dict[str, Any]:
    parties = _object(value.get("parties"))
    return {label: _part(model, party) for label, party in parties.items() if isinstance(party, dict)}


def _raised(trackers: Iterable[domain.TrackerResult]) -> list[dict[str, Any]]:
    """Return the raised trackers without their words, which are for endpoints that include the record."""
    raised = [_tracker(tracker) for tracker in trackers if tracker.raised]
    for tracker in raised:
        for match in tracker["matches"]:
            del match["quote"]
    return raised


def _tracker(tracker: domain.TrackerResult) -> dict[str, Any]:
    matches = [_part(TrackerMatch, match, match.evidence) for match in tracker.matches]
    return _part(TrackerResult, tracker, {"matches": matches})


def _part(model: type[Part], *sources: Any) -> dict[str, Any]:
    """Return the fields of a model as JSON has them, unchecked; null for a missing one, the last source that has it.

    A source is a mapping, a dataclass or None.
    """
    values: dict[str, Any] = {}
    for source in sources:
        values |= columns(source) if is_dataclass(source) and not isinstance(source, type) else _object(source)
    return {field.alias or name: values.get(name) for name, field in model.model_fields.items()}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
