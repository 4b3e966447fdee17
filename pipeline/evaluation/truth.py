import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from json import dumps
from typing import Any

from pipeline.domain.edits import channel_of
from pipeline.domain.insight import Finding
from pipeline.domain.speech import Transcript, Word


@dataclass(frozen=True, slots=True)
class TrueWord:
    """A spoken word. `start`, `end`: seconds from the start of the recording, or None if unknown."""

    text: str
    start: float | None = None
    end: float | None = None

    @property
    def timed(self) -> bool:
        return self.start is not None and self.end is not None


@dataclass(frozen=True, slots=True)
class TrueTurn:
    """What one speaker said without interruption, in `start`..`end` seconds.

    `speaker`: rep, customer, or any other label of one person in the call; None: unknown. `channel`: 0 for the agent, 1
    for the other party, if channels were recorded separately; None: one channel. `words` is None if only the speaker is
    known.
    """

    speaker: str | None
    start: float
    end: float
    words: tuple[TrueWord, ...] | None
    channel: int | None = None

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words or ())


@dataclass(frozen=True, slots=True)
class TrueTask:
    """Something to do after the call.

    `owner`: rep, customer, other or unknown. `start`: time of the commitment in seconds. `optional`: neither required
    nor wrong, such as a machine's task that no reviewer has confirmed.
    """

    title: str
    owner: str
    due_date: str | None = None  # ISO 8601
    start: float | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TrueAction:
    """What was done or booked during the call, with the fields of `insight.Action`; unknown details are None.

    `start`: time of the report in seconds.
    """

    title: str
    kind: str  # of `ActionKind`
    by: str
    amount: float | None = None
    date: str | None = None  # ISO 8601
    time: str | None = None  # HH:MM
    address: str | None = None
    start: float | None = None


@dataclass(frozen=True, slots=True)
class TrueContact:
    """The other party; unknown fields are None, and all are None if there is no contact."""

    name: str | None = None
    company: str | None = None
    email: str | None = None
    phone: str | None = None


@dataclass(frozen=True, slots=True)
class TrueCall:
    """A call's turns by start. `name`: its callId, or its name in a file.

    `tasks`, `contact` and `actions` are None if unknown. The output of a system has the same form, with its processing
    seconds as `processing` and optionally their cost, in any currency.
    """

    name: str
    turns: tuple[TrueTurn, ...]
    language: str | None = None  # ISO 639-1
    duration: float | None = None  # seconds of the recording
    tasks: tuple[TrueTask, ...] | None = None
    contact: TrueContact | None = None
    processing: float | None = None
    cost: float | None = None
    actions: tuple[TrueAction, ...] | None = None

    @property
    def has_words(self) -> bool:
        return all(turn.words is not None for turn in self.turns)

    @property
    def words_timed(self) -> bool:
        return self.has_words and all(word.timed for turn in self.turns for word in turn.words or ())

    @property
    def speakers_known(self) -> bool:
        return all(turn.speaker is not None for turn in self.turns)


def from_transcript(name: str, transcript: Transcript) -> TrueCall:
    """Return a transcript, such as a corrected one, as truth, without announcements."""
    is_separated = transcript.layout.kind.separated
    turns = [
        TrueTurn(
            turn.speaker,
            turn.start,
            turn.end,
            _words(turn.words),
            channel_of(transcript, turn.speaker) if is_separated else None,
        )
        for turn in transcript.turns
        if turn.words and not turn.machine
    ]
    return TrueCall(name, in_order(turns), transcript.language, transcript.duration)


def from_hypothesis(
    name: str,
    transcript: Transcript,
    findings: Sequence[Finding] = (),
    contacts: Mapping[str, TrueContact] | None = None,
    processing: float | None = None,
    cost: float | None = None,
) -> TrueCall:
    """Return the pipeline's output for a call: its transcript, and the tasks, actions and contact of its findings.

    `contacts`: of the workspace, by id; the fields of a recognized contact count as predicted.
    """
    values = {finding.step: finding.value for finding in findings}
    tasks, contact, actions = values.get("tasks"), values.get("contacts"), values.get("actions")
    return replace(
        from_transcript(name, transcript),
        tasks=None if tasks is None else tuple(map(_task, tasks.get("tasks") or ())),
        contact=None if contact is None else _contact(contact, contacts or {}),
        processing=processing,
        cost=cost,
        actions=None if actions is None else tuple(map(_action, actions.get("actions") or ())),
    )


def _action(action: Mapping[str, Any]) -> TrueAction:
    details: dict[str, Any] = {field.name: action.get(field.name) for field in fields(TrueAction)}
    return TrueAction(**details | {"start": (action.get("evidence") or {}).get("start")})


def _task(task: Mapping[str, Any]) -> TrueTask:
    due = task.get("due_date")
    return TrueTask(task["title"], task["owner"], due and str(due), (task.get("evidence") or {}).get("start"))


def _contact(value: Mapping[str, Any], contacts: Mapping[str, TrueContact]) -> TrueContact:
    mentioned = {field: (fact or {}).get("value") for field, fact in (value.get("heard") or {}).items()}
    contact = contacts.get(str(value.get("contact_id"))) or TrueContact()
    phone = value.get("heard_number") or mentioned.get("phone") or value.get("number")
    return TrueContact(
        contact.name or mentioned.get("name"),
        contact.company or mentioned.get("company"),
        contact.email or mentioned.get("email"),
        contact.phone or phone,
    )


def in_order(turns: Iterable[TrueTurn]) -> tuple[TrueTurn, ...]:
    """Sort turns by start; of those that begin together, the one that ends first comes first."""
    return tuple(sorted(turns, key=lambda turn: (turn.start, turn.end, turn.speaker or "", turn.text)))


def digest(calls: Sequence[TrueCall]) -> str:
    """Return the SHA-256 of calls in canonical JSON, by name: equal for equal truth."""
    plain_calls = [
        plain(replace(call, turns=in_order(call.turns))) for call in sorted(calls, key=lambda call: call.name)
    ]
    return hashlib.sha256(
        dumps(plain_calls, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()


def plain(call: TrueCall) -> dict[str, Any]:
    """Return a call as JSON data.

    Later additions to the form are left out if unknown, so that digests of older versions stay the same.
    """
    return {name: value for name, value in asdict(call).items() if value is not None or name not in _LATER}


_LATER = frozenset({"duration", "tasks", "contact", "processing", "cost", "actions"})


def _words(words: Sequence[Word]) -> tuple[TrueWord, ...]:
    """Join words without a space before them (Chinese, Thai) to the previous word."""
    merged: list[TrueWord] = []
    for word in words:
        if word.joined and merged:
            merged[-1] = TrueWord(merged[-1].text + word.text, merged[-1].start, word.end)
        else:
            merged.append(TrueWord(word.text, word.start, word.end))
    return tuple(merged)
