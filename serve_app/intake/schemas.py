"""Request and response schemas for POST /submit.

Faults never contain sent values or unknown keys: bodies have phone numbers and signed URLs, and responses end up in
the logs of third parties.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel

from pipeline.domain.call import Sender, Submission
from serve_app.http import json_body
from serve_app.http.json_body import Fault, InvalidBody, closest
from serve_app.intake.values import (
    MAX_DURATION,
    MAX_NUMBER,
    MAX_URL,
    Moment,
    read_boolean,
    read_duration,
    read_number,
    read_start_time,
    read_url,
    read_uuid,
)

MAX_FAULTS = 64  # listed; further ones are only counted, to limit the size of the response

UUID_PATTERN = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"

Identifier = Annotated[
    UUID, PlainValidator(read_uuid), WithJsonSchema({"type": "string", "format": "uuid", "pattern": UUID_PATTERN})
]
Number = Annotated[
    str, PlainValidator(read_number), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NUMBER})
]
Address = Annotated[
    str,
    PlainValidator(read_url),
    WithJsonSchema({"type": "string", "format": "uri", "pattern": "^[hH][tT][tT][pP][sS]?://", "maxLength": MAX_URL}),
]
StartTime = Annotated[
    Moment, PlainValidator(read_start_time), WithJsonSchema({"type": "string", "format": "date-time"})
]
Flag = Annotated[bool, PlainValidator(read_boolean), WithJsonSchema({"type": "boolean"})]
Seconds = Annotated[
    int, PlainValidator(read_duration), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_DURATION})
]


class SubmitBody(BaseModel):
    """A submitted call. `null` in an optional field is the same as omitting it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_camel, title="Submission")

    call_id: Identifier = Field(
        description="Stable id of the call, the same in both phases and in every retry: the idempotency key. "
        "Hyphenated, in any case.",
        examples=["7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210"],
    )
    recording_url: Address | None = Field(
        None,
        description="URL of the recording (http or https). Its presence triggers transcription. With two files it is "
        "channel 0, the sender's line.",
        examples=["https://pbx.example.com/recordings/7f1c6a52.wav"],
    )
    recording_url2: Address | None = Field(
        None,
        description="Second recording if each leg has a file: channel 1, the other party. Requires recordingUrl. "
        "Kept if recordingUrl is sent again without it.",
        examples=["https://pbx.example.com/recordings/7f1c6a52-b.wav"],
    )
    from_number: Number = Field(
        alias="from", description="The calling number, stored as sent.", examples=["+493012345678"]
    )
    to_number: Number = Field(
        alias="to", description="The called number, stored as sent.", examples=["sip:desk@pbx.example.com"]
    )
    start_time: StartTime = Field(
        description="Start of the call: ISO 8601 date and time; UTC if it has no offset.",
        examples=["2026-11-20T09:30:00+01:00"],
    )
    outgoing: Flag | None = Field(
        None,
        description="true: outbound call; false: inbound call; omitted: inferred from the conversation.",
        examples=[True],
    )
    duration: Seconds | None = Field(None, description="Duration of the call in whole seconds.", examples=[184])
    team_id: Identifier | None = Field(
        None,
        description="Team of the call. Required with a workspace-wide key; ignored with a team-scoped key.",
        examples=["0d5a8a4e-52c1-4f57-8d0c-3b1f6b0a9c11"],
    )
    user_id: Identifier | None = Field(
        None,
        description="Member who handled the call. Omitted: inferred from the transcript.",
        examples=["c0a8f5de-1b7d-4f2b-8f39-6a2f4e1d7b90"],
    )

    def submission(self) -> Submission:
        return Submission(**{name: getattr(self, name) for name in SubmitBody.model_fields})


class SubmitReply(BaseModel):
    """An accepted submission. `jobId` is present if and only if `status` is `transcribing`."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    status: Literal["received", "transcribing"]
    call_id: UUID = Field(description="The submitted callId, in lower case.")
    job_id: str | None = Field(None, description="Present if status is transcribing.")


class BodyFault(BaseModel):
    """A fault of a request body."""

    pointer: str = Field(description="JSON Pointer (RFC 6901) to the field; empty for the whole body.")
    detail: str = Field(description="Human-readable sentence.")


class Problem(BaseModel):
    """RFC 9457 problem details of every error."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(description="Stable URI of the kind of problem. Programs should use this or the status.")
    title: str = Field(description="Short title, the same for every occurrence of the kind.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="Reason for this request.")
    errors: list[BodyFault] | None = Field(None, description="Every fault of the request.")


FIELDS: dict[str, str] = {str(field.alias): name for name, field in SubmitBody.model_fields.items()}


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A valid body: the submission, and the object as sent for the append-only record."""

    submission: Submission
    sent: dict[str, Any]


def parse_body(raw: bytes, sender: Sender) -> ParsedBody:
    """Validate and parse a request body.

    Raises `InvalidBody` with all faults. `teamId` of a team-scoped sender is not validated and is stored as sent.
    """
    sent, faults = json_body.read_object(raw, frozenset(FIELDS))
    fields = {key: value for key, value in sent.items() if key in FIELDS}
    if sender.team_id is not None:
        fields.pop("teamId", None)
    body: SubmitBody | None = None
    try:
        body = SubmitBody.model_validate(fields)
    except ValidationError as error:
        faults += _faults(error, fields)
    faults += _faults_between_fields(fields, sender)
    faults += _unknown_keys(sent)
    if faults or body is None:
        raise InvalidBody(_bounded(faults))
    return ParsedBody(body.submission(), sent)


def _faults(error: ValidationError, fields: dict[str, Any]) -> list[Fault]:
    faults: list[Fault] = []
    for item in error.errors(include_url=False, include_input=False):
        name = str(item["loc"][0])
        if name not in fields:
            sentence = "is required"
        elif fields[name] is None:
            sentence = "is required and must not be null"
        else:
            sentence = item["msg"]
        faults.append(Fault(f"/{name}", f"{name} {sentence}."))
    return faults


def _unknown_keys(sent: dict[str, Any]) -> list[Fault]:
    """Return a fault for each unknown key by its position, since faults must not contain its name."""
    faults: list[Fault] = []
    for place, key in enumerate(sent, start=1):
        if key not in FIELDS:
            suggestion = closest(key, FIELDS) if len(faults) < MAX_FAULTS else None
            sentence = f"Unknown field at position {place}."
            faults.append(Fault("", f"{sentence} Did you mean {suggestion}?" if suggestion else sentence))
    return faults


def _faults_between_fields(sent: dict[str, Any], sender: Sender) -> list[Fault]:
    faults = []
    if sent.get("recordingUrl2") is not None and sent.get("recordingUrl") is None:
        faults.append(Fault("/recordingUrl2", "recordingUrl2 requires recordingUrl in the same request."))
    if sender.team_id is None and sent.get("teamId") is None:
        faults.append(Fault("/teamId", "teamId is required with a workspace-wide key."))
    return faults


def _bounded(faults: list[Fault]) -> list[Fault]:
    if len(faults) <= MAX_FAULTS:
        return faults
    return [*faults[:MAX_FAULTS], Fault("", f"{len(faults) - MAX_FAULTS} more faults are not listed.")]
