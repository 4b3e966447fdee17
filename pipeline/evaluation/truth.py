"""What people know of calls: who said what, and when."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from json import dumps
from typing import Any

from pipeline.domain.edits import channel_of
from pipeline.domain.insight import Finding
from pipeline.domain.speech import Transcript, Word


@dataclass(frozen=True, slots=True)
class TrueWord:
    """A word as said. `start`, `end`: seconds from the start of the recording, or None: nobody said when."""

    text: str
    start: float | None = None
    end: float | None = None

    @property
    def timed(self) -> bool:
        """Whether it is known when it was said."""
        return self.start is not None and self.end is not None


@dataclass(frozen=True, slots=True)
class TrueTurn:
    """What one speaker said at a stretch, in `start`..`end` seconds.

    `speaker`: rep, customer, or any other label that is one person's in the call; None: nobody said who.
    `channel`: 0 for our side, 1 for the other party, where channels were recorded apart; None: one channel.
    `words` is None where it is known who spoke, and not what.
    """

    speaker: str | None
    start: float
    end: float
    words: tuple[TrueWord, ...] | None
    channel: int | None = None

    @property
    def text(self) -> str:
        """The words, with spaces between them."""
        return " ".join(word.text for word in self.words or ())


@dataclass(frozen=True, slots=True)
class TrueTask:
    """Something that has to be done after the call.

    `owner`: rep, customer, other or unknown. `start`: where it was committed to, in seconds. `optional`: right to find
    and right to leave, such as a task of the machine that nobody has confirmed.
    """

    title: str
    owner: str
    due_date: str | None = None  # ISO 8601
    start: float | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TrueContact:
    """Who the other party is; a field that nobody knows is None, and all are where it is known to be no contact."""

    name: str | None = None
    company: str | None = None
    email: str | None = None
    phone: str | None = None


@dataclass(frozen=True, slots=True)
class TrueCall:
    """A call's turns, in the order in which they begin. `name`: its callId, or what a file calls it.

    `tasks` and `contact` are None where nobody said which there are. What a system heard has the same form, with the
    seconds that it took as `processing` and perhaps what these cost, in any currency.
    """

    name: str
    turns: tuple[TrueTurn, ...]
    language: str | None = None  # ISO 639-1
    duration: float | None = None  # seconds of the recording
    tasks: tuple[TrueTask, ...] | None = None
    contact: TrueContact | None = None
    processing: float | None = None
    cost: float | None = None

    @property
    def has_words(self) -> bool:
        """Whether it is known of each turn what was said."""
        return all(turn.words is not None for turn in self.turns)

    @property
    def words_timed(self) -> bool:
        """Whether it is known of each word when it was said."""
        return self.has_words and all(word.timed for turn in self.turns for word in turn.words or ())

    @property
    def speakers_known(self) -> bool:
        """Whether it is known of each turn who spoke."""
        return all(turn.speaker is not None for turn in self.turns)


def from_transcript(name: str, transcript: Transcript) -> TrueCall:
    """A transcript, such as one that people corrected, as truth. What announcements say is nobody's of the call."""
    apart = transcript.layout.kind.separated
    turns = [
        TrueTurn(
            turn.speaker,
            turn.start,
            turn.end,
            _words(turn.words),
            channel_of(transcript, turn.speaker) if apart else None,
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
    """What the pipeline made of a call: its transcript, and the tasks and the contact of its findings.

    `contacts`: of the workspace, by id: what is known of one that was recognized counts as found.
    """
    values = {one.step: one.value for one in findings}
    tasks, contact = values.get("tasks"), values.get("contacts")
    return replace(
        from_transcript(name, transcript),
        tasks=None if tasks is None else tuple(map(_task, tasks.get("tasks") or ())),
        contact=None if contact is None else _contact(contact, contacts or {}),
        processing=processing,
        cost=cost,
    )


def _task(found: Mapping[str, Any]) -> TrueTask:
    due = found.get("due_date")
    return TrueTask(found["title"], found["owner"], due and str(due), (found.get("evidence") or {}).get("start"))


def _contact(found: Mapping[str, Any], contacts: Mapping[str, TrueContact]) -> TrueContact:
    heard = {field: (fact or {}).get("value") for field, fact in (found.get("heard") or {}).items()}
    known = contacts.get(str(found.get("contact_id"))) or TrueContact()
    phone = found.get("heard_number") or heard.get("phone") or found.get("number")
    return TrueContact(
        known.name or heard.get("name"),
        known.company or heard.get("company"),
        known.email or heard.get("email"),
        known.phone or phone,
    )


def in_order(turns: Iterable[TrueTurn]) -> tuple[TrueTurn, ...]:
    """Turns by their start; of those that begin together, the one that ends first."""
    return tuple(sorted(turns, key=lambda turn: (turn.start, turn.end, turn.speaker or "", turn.text)))


def digest(calls: Sequence[TrueCall]) -> str:
    """SHA-256 of calls in canonical JSON, in the order of their names: the same for the same truth."""
    some = [plain(replace(call, turns=in_order(call.turns))) for call in sorted(calls, key=lambda call: call.name)]
    return hashlib.sha256(dumps(some, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def plain(call: TrueCall) -> dict[str, Any]:
    """A call as JSON holds it. Facts that came to the form later are left out where they are not known: so the digests
    of versions that were made before stay what they are."""
    return {name: value for name, value in asdict(call).items() if value is not None or name not in _LATER}


_LATER = frozenset({"duration", "tasks", "contact", "processing", "cost"})


def _words(words: Sequence[Word]) -> tuple[TrueWord, ...]:
    """A word that is written without a space before it (Chinese, Thai) belongs to the one before."""
    made: list[TrueWord] = []
    for word in words:
        if word.joined and made:
            made[-1] = TrueWord(made[-1].text + word.text, made[-1].start, word.end)
        else:
            made.append(TrueWord(word.text, word.start, word.end))
    return tuple(made)
