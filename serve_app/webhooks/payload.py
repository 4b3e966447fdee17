"""What an event looks like to its receiver: models, one per entry of `db.events.types`, and the body of a delivery."""

import json
import operator
from collections.abc import Collection
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from pydantic import Field, TypeAdapter, create_model

from db.events import types as event_types
from db.events.outbox import Event
from db.events.types import EventType
from db.records.event_record import Part, Record, TrackerResult, Turn

SCHEMA_FILE = Path(__file__).with_name("events.schema.json")


class Failure(Part):
    """Why a call failed."""

    code: str = Field(description="Stable, for programs: recording_gone, not_audio, ...")
    message: str = Field(description="A sentence for people.")
    retryable: bool = Field(description="Whether sending the recording again later could help.")


class CallData(Part):
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


class DeletedData(Part):
    """The ids of an erased call."""

    call_id: UUID
    team_id: UUID
    workspace_id: UUID


class CompletedData(CallData):
    """The call, and what it gave where the endpoint asks for it."""

    record: Record | None = Field(None, description="With `record`; null where the event is older than the wish.")
    transcript: tuple[Turn, ...] | None = Field(None, description="With `transcript`.")
    omitted: tuple[Literal["transcript", "record"], ...] | None = Field(
        None, description="What was left out because the event would have been too large."
    )


class Delay(Part):
    """Why a try failed, and when the next one is due."""

    code: str = Field(description="Stable, for programs: recording_unreachable, storage_error, ...")
    message: str = Field(description="A sentence for people.")
    attempts: int = Field(description="Tries so far.")
    next_try: datetime


class DelayedData(CallData):
    """The call, and what it waits for."""

    delay: Delay


class PromotedRun(Part):
    """The run whose result the record is."""

    run_id: UUID
    name: str


class PromotedData(CompletedData):
    """The call, and whose result its record is now."""

    run: PromotedRun | None = Field(description="null: the service's own.")


class TrackerData(CompletedData):
    """The call, and the trackers that it raises."""

    trackers: tuple[TrackerResult, ...]


class TrialData(Part):
    """Data of a test event, sent by `switchboard webhooks test`."""

    endpoint_id: UUID
    message: str


class _Event(Part):
    timestamp: datetime = Field(description="When it happened, in UTC; later events of a call have later ones.")


class WebhookTest(_Event):
    """A person asked for a test. Belongs to no call and is not in the log."""

    type: Literal["webhook.test"]
    data: TrialData


DETAILED: dict[str, type[Part]] = {
    "call.deleted": DeletedData,
    "call.delayed": DelayedData,
    "call.promoted": PromotedData,
    "tracker.matched": TrackerData,
}
"""Data of events that have other keys than `CallData`."""


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
        whole = {"type": event.type, "timestamp": _moment(event.at), "data": data}
        content = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
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


def documented() -> str:
    """Return the table of event types in Markdown."""
    kinds = [(kind.name, kind.description) for kind in event_types.EVENT_TYPES]
    kinds.append(("webhook.test", str(WebhookTest.__doc__)))
    return "\n".join(("| Event | Sent when |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in kinds)))
