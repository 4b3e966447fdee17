"""The wire format of POST /submit: what a sender may write, and what it is told.

`parse_body` turns the bytes of a request into a `Submission`, or raises `InvalidBody` with every fault it found.
A fault never repeats what was sent, neither a value nor an unknown key: bodies carry phone numbers and signed
addresses, and answers end up in other people's logs.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel
from rapidfuzz import fuzz, process

from pipeline.domain.call import Sender, Submission
from serve_app.http import json_body
from serve_app.http.json_body import Fault, InvalidBody
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

MAX_FAULTS = 64  # listed one by one; further ones are counted, so that an answer stays small

UUID_PATTERN = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"

Identifier = Annotated[
    UUID,
    PlainValidator(read_uuid),
    WithJsonSchema({"type": "string", "format": "uuid", "pattern": UUID_PATTERN}),
]
Number = Annotated[
    str,
    PlainValidator(read_number),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NUMBER}),
]
Address = Annotated[
    str,
    PlainValidator(read_url),
    WithJsonSchema({"type": "string", "format": "uri", "pattern": "^[hH][tT][tT][pP][sS]?://", "maxLength": MAX_URL}),
]
StartTime = Annotated[
    Moment,
    PlainValidator(read_start_time),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Flag = Annotated[bool, PlainValidator(read_boolean), WithJsonSchema({"type": "boolean"})]
Seconds = Annotated[
    int,
    PlainValidator(read_duration),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_DURATION}),
]


class SubmitBody(BaseModel):
    """A call as its sender describes it. `null` for an optional field means that the field is not carried."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        title="Submission",
    )

    call_id: Identifier = Field(
        description="The sender's stable identifier for the call, the same in both phases and in every retry: the "
        "idempotency key. Hyphenated, in any case.",
        examples=["7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210"],
    )
    recording_url: Address | None = Field(
        None,
        description="Where the recording can be fetched (http or https). Its presence triggers transcription. Of two "
        "files it is channel 0, the sender's own line.",
        examples=["https://pbx.example.com/recordings/7f1c6a52.wav"],
    )
    recording_url2: Address | None = Field(
        None,
        description="Second recording, one file per leg: channel 1, the other party. Only together with recordingUrl. "
        "Sent once, it stays part of the call when recordingUrl is sent again without it.",
        examples=["https://pbx.example.com/recordings/7f1c6a52-b.wav"],
    )
    from_number: Number = Field(
        alias="from",
        description="The calling number, kept as sent.",
        examples=["+493012345678"],
    )
    to_number: Number = Field(
        alias="to",
        description="The number that was called, kept as sent.",
        examples=["sip:desk@pbx.example.com"],
    )
    start_time: StartTime = Field(
        description="When the call started: ISO 8601 with date and time; without an offset it is read as UTC.",
        examples=["2026-11-20T09:30:00+01:00"],
    )
    outgoing: Flag | None = Field(
        None,
        description="true: the sender's side placed the call. false: inbound. Left out: inferred from the talk.",
        examples=[True],
    )
    duration: Seconds | None = Field(
        None,
        description="Length of the call in whole seconds.",
        examples=[184],
    )
    team_id: Identifier | None = Field(
        None,
        description="The team that the call belongs to. Required with a workspace-wide key; with a team-scoped key "
        "it is ignored, whatever it holds.",
        examples=["0d5a8a4e-52c1-4f57-8d0c-3b1f6b0a9c11"],
    )
    user_id: Identifier | None = Field(
        None,
        description="The team member who handled the call. Left out: the service tries to tell from the transcript.",
        examples=["c0a8f5de-1b7d-4f2b-8f39-6a2f4e1d7b90"],
    )

    def submission(self) -> Submission:
        """The same in the words of the domain."""
        return Submission(**{name: getattr(self, name) for name in SubmitBody.model_fields})


class SubmitReply(BaseModel):
    """What was promised. `jobId` is there exactly when `status` is `transcribing`."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    status: Literal["received", "transcribing"]
    call_id: UUID = Field(description="The submitted callId, in lower case.")
    job_id: str | None = Field(None, description="Present when the status is transcribing.")


class BodyFault(BaseModel):
    """One fault of a refused body."""

    pointer: str = Field(description="JSON Pointer (RFC 6901) to the field; empty for the body as a whole.")
    detail: str = Field(description="A sentence for people.")


class Problem(BaseModel):
    """RFC 9457 problem details: the shape of every refusal."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(description="A stable URI that names the kind of problem: act on this one or on the status.")
    title: str = Field(description="The kind of problem in a few words; the same for every occurrence.")
    status: int = Field(description="The HTTP status, repeated.")
    detail: str = Field(description="What is wrong with this request.")
    errors: list[BodyFault] | None = Field(None, description="Of a refused body: every fault that was found.")


FIELDS: dict[str, str] = {str(field.alias): name for name, field in SubmitBody.model_fields.items()}
_SQUEEZED = {name.lower(): name for name in FIELDS}


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A body that passed: the submission, and the object as it was sent, for the append-only record."""

    submission: Submission
    sent: dict[str, Any]


def parse_body(raw: bytes, sender: Sender) -> ParsedBody:
    """Check the bytes of a request body against every rule.

    Raises `InvalidBody` with all faults. A team-scoped sender's `teamId` is not looked at, and is kept as sent.
    """
    sent, faults = json_body.read_object(raw, frozenset(FIELDS))
    known = {key: value for key, value in sent.items() if key in FIELDS}
    if sender.team_id is not None:
        known.pop("teamId", None)
    body: SubmitBody | None = None
    try:
        body = SubmitBody.model_validate(known)
    except ValidationError as error:
        faults += _faults(error, known)
    faults += _faults_between_fields(known, sender)
    faults += _unknown_keys(sent)
    if faults or body is None:
        raise InvalidBody(_bounded(faults))
    return ParsedBody(body.submission(), sent)


def _faults(error: ValidationError, known: dict[str, Any]) -> list[Fault]:
    """What pydantic found, in our sentences."""
    faults: list[Fault] = []
    for found in error.errors(include_url=False, include_input=False):
        name = str(found["loc"][0])
        if name not in known:
            sentence = "is required"
        elif known[name] is None:
            sentence = "is required and must not be null"
        else:
            sentence = found["msg"]
        faults.append(Fault(f"/{name}", f"{name} {sentence}."))
    return faults


def _unknown_keys(sent: dict[str, Any]) -> list[Fault]:
    """An unknown key is told by its place in the body, since its name may not be repeated."""
    faults: list[Fault] = []
    for place, key in enumerate(sent, start=1):
        if key not in FIELDS:
            meant = _closest_field(key) if len(faults) < MAX_FAULTS else None
            sentence = f"Key number {place} of the body is not a field of a submission."
            faults.append(Fault("", f"{sentence} Did you mean {meant}?" if meant else sentence))
    return faults


def _closest_field(key: str) -> str | None:
    if len(key) > 40:
        return None
    squeezed = "".join(letter for letter in key.lower() if letter.isalnum())
    closest = process.extractOne(squeezed, _SQUEEZED.keys(), scorer=fuzz.ratio, score_cutoff=75)
    return _SQUEEZED[closest[0]] if closest else None


def _faults_between_fields(sent: dict[str, Any], sender: Sender) -> list[Fault]:
    faults = []
    if sent.get("recordingUrl2") is not None and sent.get("recordingUrl") is None:
        faults.append(Fault("/recordingUrl2", "recordingUrl2 needs a recordingUrl in the same request."))
    if sender.team_id is None and sent.get("teamId") is None:
        faults.append(Fault("/teamId", "teamId is required with a workspace-wide key."))
    return faults


def _bounded(faults: list[Fault]) -> list[Fault]:
    if len(faults) <= MAX_FAULTS:
        return faults
    return [*faults[:MAX_FAULTS], Fault("", f"There are {len(faults) - MAX_FAULTS} further faults.")]
