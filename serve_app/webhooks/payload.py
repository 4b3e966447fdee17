"""What an event looks like to its receiver: models, one per entry of `db.events.types`, and the body of a delivery."""

import json
import operator
from collections.abc import Collection
from datetime import UTC, date, datetime, time
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.alias_generators import to_camel

from db.events import types as event_types
from db.events.outbox import Event
from db.events.types import EventType
from pipeline.domain.vocabulary import CallOutcome

SCHEMA_FILE = Path(__file__).with_name("events.schema.json")


class _Part(BaseModel):
    """Receivers must pass over fields they do not know: later versions may add some."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class Failure(_Part):
    """Why a call failed."""

    code: str = Field(description="Stable, for programs: recording_gone, not_audio, ...")
    message: str = Field(description="A sentence for people.")
    retryable: bool = Field(description="Whether sending the recording again later could help.")


class Task(_Part):
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


class Contact(_Part):
    """The person the call was with, as far as known."""

    contact_id: UUID
    name: str | None
    company: str | None
    email: str | None
    phone: str | None = Field(description="E.164.")


class SpokenContact(_Part):
    """What the other party said about themselves."""

    name: str | None
    company: str | None
    email: str | None
    phone: str | None
    address: str | None


class Direction(_Part):
    """How `outgoing` was determined."""

    source: str | None = Field(description="sender, numbers or talk.")
    confidence: float | None = Field(description="None where the sender said it.")


class Agent(_Part):
    """The member who handled the call, as far as known."""

    user_id: str | None
    name: str | None = Field(description="As in the directory.")
    spoken_name: str | None = Field(description="As said in the call.")
    source: str | None = Field(description="sender, person, voice, greeting, ...")
    confidence: float | None


class Tone(_Part):
    """Sentiment of a party: by words, and for customers also by voice."""

    label: str | None = Field(description="negative, neutral or positive.")
    score: float | None = Field(description="-1 to 1.")


class PartySentiment(Tone):
    """The tone of one party."""

    confidence: float | None


class Trend(_Part):
    """How the customer's tone moves."""

    label: str | None
    change: float | None


class CallTone(_Part):
    """The tone of the call (its sentiment)."""

    overall: Tone
    parties: dict[str, PartySentiment] = Field(description="By the speaker's label: rep, customer, ...")
    trend: Trend | None


class PartyStatistics(_Part):
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


class Statistics(_Part):
    """Figures of the conversation; shares run from 0 to 1."""

    talk_seconds: float | None
    silence_share: float | None
    hold_share: float | None
    overlap_share: float | None
    interactivity_per_minute: float | None = Field(description="Changes of turn.")
    parties: dict[str, PartyStatistics] = Field(description="By the speaker's label.")


class Answer(_Part):
    """What the call says to one of the workspace's own questions."""

    key: str
    version: int | None = Field(description="Of the question.")
    type: str = Field(description="yes/no, choice, number, text or date.")
    question: str | None
    status: str = Field(description="said, not_said, not_asked or out_of_scope.")
    answer: str | float | None = Field(description="Unless said, null.")
    said_by: str | None = Field(description="The speaker's label.")
    quote: str | None = Field(None, description="Verbatim.")
    start: float | None = Field(None, description="Second of the recording at which the quote begins.")
    end: float | None = None
    found_by: str | None = Field(description="phrases or model.")
    confidence: float | None
    weight: float | None
    reason: str | None = Field(description="Why it was not asked.")


class TrackerMatch(_Part):
    """Where a tracker's phrase was said."""

    said_by: str | None
    quote: str | None = Field(None, description="Verbatim; in the record only.")
    start: float | None
    end: float | None
    confidence: float | None


class TrackerResult(_Part):
    """Whether a tracker's phrases were said."""

    key: str
    version: int | None
    question: str | None
    required: bool
    status: str = Field(description="said, not_said, not_asked or out_of_scope.")
    raised: bool = Field(description="They were said, or of a required one they were not.")
    reason: str | None
    matches: tuple[TrackerMatch, ...]


class ScorecardResult(_Part):
    """What the answers come to by one of the workspace's scorecards, as the service found them."""

    key: str
    version: int | None
    title: str | None
    score: float | None = Field(description="0 to 100; null: no question on it could be answered.")
    pass_mark: float | None
    passed: bool | None = Field(description="null: there is no pass mark, or no score.")
    auto_failed: bool | None = Field(description="A question that must be met was not: the score is 0.")


class Record(_Part):
    """The essentials of a completed call, for endpoints that ask for `record`. What a step did not find is null."""

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
    contact: Contact | None
    mentioned_contact: SpokenContact | None = None
    answers: tuple[Answer, ...] = Field((), description="To the workspace's own questions.")
    trackers: tuple[TrackerResult, ...] = ()
    scorecards: tuple[ScorecardResult, ...] = ()
    warnings: tuple[str, ...] = ()


class Turn(_Part):
    """What one speaker said without a break, for endpoints that ask for `transcript`."""

    start: float = Field(description="Seconds of the recording.")
    end: float
    speaker: str = Field(description="rep, customer, ...")
    language: str
    text: str


class CallData(_Part):
    """The call at the moment of the event."""

    call_id: UUID = Field(description="As the call was submitted.")
    team_id: UUID
    user_id: UUID | None
    job_id: UUID | None = Field(description="As /submit answered it; another recording is another job.")
    status: Literal["received", "transcribing", "completed", "failed"]
    failure: Failure | None
    start_time: datetime
    received_at: datetime
    completed_at: datetime | None
    analyzed_at: datetime | None = Field(description="Later than completedAt if the analysis ran again.")
    failed_at: datetime | None


class CompletedData(CallData):
    """The call, and what it gave where the endpoint asks for it."""

    record: Record | None = Field(None, description="With `record`; null where the event is older than the wish.")
    transcript: tuple[Turn, ...] | None = Field(None, description="With `transcript`.")
    omitted: tuple[Literal["transcript", "record"], ...] | None = Field(
        None, description="What was left out because the event would have been too large."
    )


class Delay(_Part):
    """Why a try failed, and when the next one is due."""

    code: str = Field(description="Stable, for programs: recording_unreachable, storage_error, ...")
    message: str = Field(description="A sentence for people.")
    attempts: int = Field(description="Tries so far.")
    next_try: datetime


class DelayedData(CallData):
    """The call, and what it waits for."""

    delay: Delay


class PromotedRun(_Part):
    """The run whose result the record is."""

    run_id: UUID
    name: str


class PromotedData(CompletedData):
    """The call, and whose result its record is now."""

    run: PromotedRun | None = Field(description="null: the service's own.")


class TrackerData(CompletedData):
    """The call, and the trackers that it raises."""

    trackers: tuple[TrackerResult, ...]


class TrialData(_Part):
    """Data of a test event, sent by `switchboard webhooks test`."""

    endpoint_id: UUID
    message: str


class _Event(_Part):
    timestamp: datetime = Field(description="When it happened, in UTC; later events of a call have later ones.")


class WebhookTest(_Event):
    """A person asked for a test. Belongs to no call and is not in the log."""

    type: Literal["webhook.test"]
    data: TrialData


DETAILED: dict[str, type[CallData]] = {
    "call.delayed": DelayedData,
    "call.promoted": PromotedData,
    "tracker.matched": TrackerData,
}
"""What `EventType.details` adds."""


def adapter() -> TypeAdapter[Any]:
    """Return what reads and checks events of every type."""
    models = [*map(_model, event_types.EVENT_TYPES), WebhookTest]
    any_event: Any = Annotated[reduce(operator.or_, models), Field(discriminator="type")]
    return TypeAdapter(any_event)


def _model(kind: EventType) -> type[_Event]:
    data = DETAILED.get(kind.name, CompletedData if kind.parts else CallData)
    name = "".join(word.title() for word in kind.name.split("."))
    fields: dict[str, Any] = {"type": (Literal[kind.name], ...), "data": (data, ...)}
    return create_model(name, __base__=_Event, __doc__=kind.description, **fields)


def message_id(event_id: UUID) -> str:
    """Return the header `webhook-id`, which is the same for every attempt, replay and endpoint."""
    return f"evt_{event_id.hex}"


def event_id(text: str) -> UUID:
    """Parse a `webhook-id`, or an event's UUID. Raises ValueError for other text."""
    return UUID(text.removeprefix("evt_"))


def body(event: Event, include: Collection[str], max_bytes: int) -> bytes:
    """Return the event as JSON with the parts that the endpoint includes.

    The parts are stored with the event, so that each attempt sends the same; parts that an endpoint no longer includes
    are omitted at once. Above `max_bytes` the transcript is omitted, then the record.
    """
    parts = {"record": event.record, "transcript": event.transcript}
    included = {name: parts[name] for name in event_types.parts(event.type) if name in include}
    omitted: list[str] = []
    while True:
        data = event.data | included | ({"omitted": omitted} if omitted else {})
        content = _dumped({"type": event.type, "timestamp": _moment(event.at), "data": data})
        too_large = next((name for name in ("transcript", "record") if included.get(name) is not None), None)
        if len(content) <= max_bytes or too_large is None:
            return content
        del included[too_large]
        omitted.append(too_large)


def trial_event(endpoint_id: UUID, at: datetime) -> Event:
    """Return an event without a call."""
    data = {"endpointId": str(endpoint_id), "message": "This is a test event; no call has changed."}
    return Event(uuid4(), "webhook.test", at, data)


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of every event."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Events of Switchboard"} | (
        adapter().json_schema(by_alias=True, mode="serialization")
    )


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def documented() -> str:
    """Return the table of event types in Markdown."""
    kinds = [(kind.name, kind.description) for kind in event_types.EVENT_TYPES]
    kinds.append(("webhook.test", str(WebhookTest.__doc__)))
    return "\n".join(("| Event | Sent when |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in kinds)))
