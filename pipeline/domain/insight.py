"""What a call means: findings that point at their seconds of audio, and what is known beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any, Literal

from pipeline.domain.call import Call
from pipeline.domain.questions import Question, Scorecard
from pipeline.domain.speech import Prosody, Span, Transcript, Voiceprint
from pipeline.domain.summaries import SummaryTemplate


@dataclass(frozen=True, slots=True)
class Evidence:
    """A verbatim quote of one turn and its seconds."""

    turn: int
    start: float
    end: float
    quote: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What one step found. `value` holds JSON-able plain data, so that any new step can be stored and shown."""

    step: str
    version: int
    value: dict[str, Any]
    evidence: tuple[Evidence, ...] = ()
    confidence: float | None = None  # 0..1; None where the value is computed, not judged
    note: str | None = None  # why a value is missing or weak


@dataclass(frozen=True, slots=True)
class ModelText:
    """What a language model answered to one request. `cut_off`: the text ends where there was no more room."""

    text: str
    cut_off: bool = False


ModelTexts = dict[str, ModelText]
"""Answers by what was asked: a digest of the model, the instructions and the part of the transcript."""


Topic = Literal["call", "questions"]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a language model. Of one `topic` a later request is pointless where an earlier one failed."""

    key: str  # as in `ModelTexts`
    topic: Topic
    messages: tuple[dict[str, str], ...]
    schema: dict[str, Any] | None = None  # of the answer; None: that of the topic
    words: int = 0  # of the transcript that is sent; an endpoint that counts fewer tokens has read only a part


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Why a language model gave no answer, in words for people.

    `not_asked`: the code of why it was not even asked. `down`: its endpoint is, whatever is asked.
    """

    reason: str
    not_asked: str | None = None
    down: bool = False


@dataclass(frozen=True, slots=True)
class ModelAnswers:
    """What came of requests to a language model, by their keys."""

    texts: Mapping[str, ModelText]
    unanswered: Mapping[str, Unanswered] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tone:
    """`label` is negative, neutral or positive; `score` runs from -1 to 1; `basis` says what it was read from."""

    label: str
    score: float
    basis: tuple[str, ...] = ("words",)  # "words", "voice"


@dataclass(frozen=True, slots=True)
class Task:
    """Something still to be done after the call by somebody who undertook it."""

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
class Contact:
    """A person the workspace knows. Numbers are E.164.

    `inferred`: known from calls alone of which no sender said who placed them, so that `phone` may be our own number.
    """

    contact_id: str
    name: str | None = None
    company: str | None = None
    email: str | None = None
    phone: str | None = None
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A person of the workspace; `user_id` is the sender's userId."""

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
    """What is known before a call is heard: its team's members, their voices, the workspace's contacts and terms."""

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


ToneByVoice = Literal["customers", "nobody", "everybody"]


@dataclass(frozen=True, slots=True)
class Material:
    """What an analysis step may look at. `findings` holds the results of the steps before it, by name.

    `speech` holds, per speaker label, the spans with voice activity; without it the turns' own times count.
    `prosody` holds how each channel's voice sounded; None where that is not known. `tone_by_voice` says whose voice
    may say in what tone they speak.
    """

    call: Call
    transcript: Transcript
    roster: Roster
    speech: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    prosody: Prosody | None = None
    tone_by_voice: ToneByVoice = "customers"
