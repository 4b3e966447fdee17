from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any, Literal

from pipeline.domain.call import Call
from pipeline.domain.questions import Question, Scorecard
from pipeline.domain.redaction import NamedPolicy
from pipeline.domain.speech import Prosody, Span, Transcript, Voiceprint
from pipeline.domain.summaries import SummaryTemplate
from pipeline.domain.vocabulary import ActionKind


@dataclass(frozen=True, slots=True)
class Evidence:
    """A verbatim quote of one turn and its seconds."""

    turn: int
    start: float
    end: float
    quote: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one step. `value` is JSON-compatible data, so that any new step can be stored and shown."""

    step: str
    version: int
    value: dict[str, Any]
    evidence: tuple[Evidence, ...] = ()
    confidence: float | None = None  # 0..1; None where the value is computed, not judged
    note: str | None = None  # why a value is missing or weak


@dataclass(frozen=True, slots=True)
class ModelText:
    """Response of a language model to one request. `cut_off`: the text ends at the model's limit."""

    text: str
    cut_off: bool = False


ModelTexts = dict[str, ModelText]
"""Answers by what was asked: a digest of the model, the instructions and the part of the transcript."""


Topic = Literal["call", "questions", "ask"]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a language model. After a failure, later requests of the same `topic` are skipped."""

    key: str  # as in `ModelTexts`
    topic: Topic
    messages: tuple[dict[str, str], ...]
    schema: dict[str, Any] | None = None  # of the answer; None: that of the topic
    words: int = 0  # of the transcript that is sent; an endpoint that counts fewer tokens has read only a part


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Why a language model gave no answer, in words for people.

    `not_asked`: code of the reason why no request was sent. `down`: the endpoint is unavailable for any request.
    """

    reason: str
    not_asked: str | None = None
    down: bool = False


@dataclass(frozen=True, slots=True)
class ModelAnswers:
    """Responses of a language model by request key."""

    texts: Mapping[str, ModelText]
    unanswered: Mapping[str, Unanswered] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tone:
    """`label` is negative, neutral or positive; `score` is -1..1; `basis` says what it is based on."""

    label: str
    score: float
    basis: tuple[str, ...] = ("words",)  # "words", "voice"


@dataclass(frozen=True, slots=True)
class Task:
    """A commitment to do something after the call."""

    title: str
    owner: str  # "rep", "customer", "other" or "unknown"
    kind: str  # "commitment", "request", "follow-up" or "appointment"
    evidence: Evidence
    confidence: float
    owner_user_id: str | None = None
    beneficiary: str | None = None
    due_expression: str | None = None  # as said
    due_date: date | None = None  # resolved against the start of the call
    due_time: time | None = None  # on the clock of the workspace, where a time of day was said


@dataclass(frozen=True, slots=True)
class Action:
    """What a party did or booked during the call. The record, events, exports and gold sets have these fields."""

    title: str
    kind: ActionKind
    by: str  # "rep", "customer" or "unknown"
    evidence: Evidence
    amount: float | None = None  # in the currency that was said
    date: str | None = None  # ISO 8601, of the appointment or deed
    time: str | None = None  # HH:MM, on the clock of the workspace
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Contact:
    """A person known to the workspace. Numbers are E.164.

    `inferred`: known only from calls of unknown direction, so that `phone` may be the workspace's number.
    """

    contact_id: str
    name: str | None = None
    company: str | None = None
    email: str | None = None
    phone: str | None = None
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the workspace; `user_id` is the sender's userId."""

    user_id: str
    name: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberVoiceprint:
    """One centroid of a member's voice; a member may have several, of several models."""

    user_id: str
    voiceprint: Voiceprint


@dataclass(frozen=True, slots=True)
class Roster:
    """What is known before a call is processed: members of the team with their voices, contacts, terms."""

    members: tuple[Member, ...] = ()
    voiceprints: tuple[MemberVoiceprint, ...] = ()
    contacts: tuple[Contact, ...] = ()
    default_country: str | None = None  # ISO 3166 alpha-2
    time_zone: str = "UTC"  # IANA name, to resolve "tomorrow"
    terms: tuple[str, ...] = ()  # the workspace's own words, to listen for: products, places, jargon
    rep: str | None = None  # the member whose voice a person said it is in this call
    keep_digits: bool = False  # of keys pressed; the workspace asks for them
    channels_swapped: bool = False  # the sender's PBX puts the customer on the first channel
    questions: tuple[Question, ...] = ()  # that the workspace asks of its calls, trackers too
    scorecards: tuple[Scorecard, ...] = ()
    summary: SummaryTemplate | None = None  # of the call's team or workspace; None: that of the language
    redaction: NamedPolicy | None = None  # of the call's team or workspace; None: off


ToneByVoice = Literal["customers", "nobody", "everybody"]  # language: ok


@dataclass(frozen=True, slots=True)
class Material:
    """Input of an analysis step. `findings` holds the results of earlier steps, by name.

    `speech` holds spans with voice activity per speaker label; without it the times of the turns count. `prosody` holds
    how
    each channel's voice sounded; None if unknown. `tone_by_voice`: whose voice may contribute to sentiment.
    """

    call: Call
    transcript: Transcript
    roster: Roster
    speech: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    prosody: Prosody | None = None
    tone_by_voice: ToneByVoice = "customers"

    def value_of(self, step: str) -> dict[str, Any]:
        """Return the value of an earlier step's finding; {} without one."""
        return self.findings[step].value if step in self.findings else {}

    @property
    def outgoing(self) -> bool | None:
        """Whether the call is outgoing: as sent, else as inferred; None if unknown."""
        inferred: bool | None = self.value_of("direction").get("outgoing")
        return inferred if self.call.outgoing is None else self.call.outgoing
