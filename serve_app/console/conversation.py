from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from db.records.corrections import CallEdit
from db.records.views import CallRecord
from pipeline.asr.verdicts import REASONS
from pipeline.domain.edits import EditKind, EditState
from pipeline.domain.insight import Finding
from pipeline.domain.redaction import EntityKind
from pipeline.domain.speech import CUSTOMER, REP, Doubt, LabelKind, Role, Speaker, Transcript, Turn, Word
from serve_app.console.labels import SIDES
from serve_app.records.transcripts import UNSURE, non_speech_stretches

WORDS_OF_FIRST_PART = 250  # enough to fill a screen
WORDS_OF_PART = 1500
SHADED = (LabelKind.ANNOUNCEMENT, LabelKind.VOICEMAIL, LabelKind.GAP)  # in addition to the sounds
MARKS = tuple(kind.mark.removesuffix("]") for kind in EntityKind)
MIN_OVERLAP_SECONDS = 0.3  # shorter overlaps of turns are not shown


@dataclass(frozen=True, slots=True)
class ShownWord:
    """A word; `why`: the reasons for doubt, empty if there are none."""

    text: str
    start: float
    end: float
    joined: bool
    unsure: bool  # low confidence of the recognizer
    why: tuple[str, ...] = ()
    was: str | None = None  # the text before a manual correction

    @property
    def hides(self) -> bool:
        """Whether it is the mark of something that redaction has hidden."""
        return self.text.startswith(MARKS)


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn as shown. `side`: rep, customer, other, other2 or machine."""

    index: int
    start: float
    end: float
    speaker: str
    side: str
    words: tuple[ShownWord, ...]
    tone: str | None
    language: str | None  # if it differs from the call's
    over: bool  # starts while another speaker is talking
    continues: bool  # same speaker as the turn directly before
    was_of: str | None = None  # the speaker before a manual correction


@dataclass(frozen=True, slots=True)
class Sound:
    """A stretch of sound that is not speech."""

    kind: LabelKind
    start: float
    end: float
    channel: int
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Turns that a page loads together: `first` to `last` (exclusive)."""

    number: int
    first: int
    last: int
    start: float
    end: float
    words: int


@dataclass(frozen=True)
class Conversation:
    """A transcript with names of speakers and sentiment of turns."""

    transcript: Transcript
    names: dict[str, str]  # known names, by speaker label
    tones: dict[int, str] = field(default_factory=dict)
    edits: dict[int, list[CallEdit]] = field(default_factory=dict)  # applied ones, by turn

    @classmethod
    def of(cls, record: CallRecord) -> "Conversation | None":
        """Build the conversation; None without a transcript."""
        if record.transcript is None:
            return None
        return cls(record.transcript, names_of(record), tones_of(record.findings), _by_turn(record.edits))

    @cached_property
    def sides(self) -> dict[str, str]:
        """Side by speaker label: rep, customer, or other and other2 alternating."""
        others = [speaker.label for speaker in self.transcript.speakers if side_of(speaker) == "other"]
        other_sides = {label: "other" if at % 2 == 0 else "other2" for at, label in enumerate(others)}
        return {speaker.label: other_sides.get(speaker.label, side_of(speaker)) for speaker in self.transcript.speakers}

    def display_name(self, label: str) -> str:
        """Return the name of a speaker if known, else the role in English, else the label."""
        return self.names.get(label) or SIDES.get(label, label)

    @cached_property
    def sounds(self) -> tuple[Sound, ...]:
        """Sounds worth a line, in order of time; a sound on both channels at once is listed once."""
        sounds = sorted(
            (
                Sound(
                    stretch[0].kind,
                    stretch[0].start,
                    stretch[-1].end,
                    channel,
                    sum(label.keys or 0 for label in stretch),
                )
                for channel, labels in enumerate(self.transcript.labels)
                for stretch in non_speech_stretches(labels)
            ),
            key=lambda sound: sound.start,
        )
        unique: list[Sound] = []
        for sound in sounds:
            if not any(
                other.kind is sound.kind and other.end > sound.start and other.start <= sound.start
                for other in unique[-4:]
            ):
                unique.append(sound)
        return tuple(unique)

    @cached_property
    def shaded(self) -> tuple[Sound, ...]:
        """Stretches that the waveform shades: sounds, recorded voices and gaps."""
        stretches = [
            Sound(label.kind, label.start, label.end, channel)
            for channel, labels in enumerate(self.transcript.labels)
            for label in labels
            if label.kind in SHADED
        ]
        return tuple(sorted((*self.sounds, *stretches), key=lambda sound: sound.start))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Parts in order; the first is small so that the page appears quickly."""
        turns = self.transcript.turns
        parts: list[Part] = []
        first = words = 0
        for at, turn in enumerate(turns):
            words += len(turn.words)
            if words >= (WORDS_OF_PART if parts else WORDS_OF_FIRST_PART) or at == len(turns) - 1:
                start = turns[first].start if parts else 0.0
                parts.append(Part(len(parts), first, at + 1, start, max(t.end for t in turns[first : at + 1]), words))
                first, words = at + 1, 0
        return tuple(parts)

    def items(self, part: Part) -> Iterator[ShownTurn | Sound]:
        """Yield turns and sounds of a part, in order of time."""
        turns = self.transcript.turns
        until = turns[part.last].start if part.last < len(turns) else float("inf")
        begin = turns[part.first].start if part.number else -1.0
        sounds = [sound for sound in self.sounds if begin <= sound.start < until]
        after_sound = True
        for turn in turns[part.first : part.last]:
            while sounds and sounds[0].start <= turn.start:
                yield sounds.pop(0)
                after_sound = True
            yield self._shown(turn, after_sound)
            after_sound = False
        yield from sounds

    def turn(self, index: int) -> ShownTurn:
        part = next(part for part in self.parts if part.first <= index < part.last)
        return next(item for item in self.items(part) if isinstance(item, ShownTurn) and item.index == index)

    def _shown(self, turn: Turn, after_sound: bool) -> ShownTurn:
        before = self.transcript.turns[turn.index - 1] if turn.index else None
        side = "machine" if turn.machine else self.sides.get(turn.speaker, "other")
        return ShownTurn(
            turn.index,
            turn.start,
            turn.end,
            self.display_name(turn.speaker),
            side,
            tuple(self._words(turn)),
            self.tones.get(turn.index),
            turn.language if turn.language != self.transcript.language else None,
            before is not None and before.speaker != turn.speaker and before.end - turn.start > MIN_OVERLAP_SECONDS,
            not after_sound
            and before is not None
            and before.speaker == turn.speaker
            and before.machine == turn.machine,
            next((str(edit.machine) for edit in self.edits.get(turn.index, ()) if edit.kind is EditKind.SPEAKER), None),
        )

    def _words(self, turn: Turn) -> Iterator[ShownWord]:
        doubts = self._doubts_of(turn)
        for word in turn.words:
            why = _reasons(word, doubts) if word.doubtful else ()
            was = _replaced_text(word, self.edits.get(turn.index, ()))
            yield ShownWord(word.text, word.start, word.end, word.joined, word.confidence < UNSURE, why, was)

    def _doubts_of(self, turn: Turn) -> Sequence[Doubt]:
        channel = self._channel(turn.speaker)
        doubts = self._doubts.get(channel, ())
        first = bisect_left([doubt.end for doubt in doubts], turn.start - 0.05)
        return doubts[first : first + 50]

    @cached_property
    def _doubts(self) -> dict[int, list[Doubt]]:
        doubts = sorted((d for d in self.transcript.doubts if d.kept), key=lambda doubt: (doubt.channel, doubt.end))
        return {channel: list(group) for channel, group in groupby(doubts, key=lambda doubt: doubt.channel)}

    def _channel(self, label: str) -> int:
        if not self.transcript.layout.kind.separated:
            return 0
        return CUSTOMER if self.sides.get(label) == "customer" else REP


def _by_turn(edits: Sequence[CallEdit]) -> dict[int, list[CallEdit]]:
    by_turn: dict[int, list[CallEdit]] = {}
    for edit in edits:
        if edit.state is EditState.APPLIED and edit.turn is not None:
            by_turn.setdefault(edit.turn, []).append(edit)
    return by_turn


def _replaced_text(word: Word, edits: Sequence[CallEdit]) -> str | None:
    for edit in edits:
        begin, end = edit.start or 0.0, edit.end or 0.0
        if edit.kind is EditKind.TEXT and begin - 0.01 <= word.start and word.end <= end + 0.01:
            return str(edit.machine)
    return None


def side_of(speaker: Speaker) -> str:
    return speaker.role.value if speaker.role in (Role.REP, Role.CUSTOMER) else "other"


def tones_of(findings: Sequence[Finding]) -> dict[int, str]:
    """Return positive, neutral or negative by index of the turn."""
    tone = finding(findings, "tone")
    return {int(turn["turn"]): str(turn["label"]) for turn in (tone.value.get("turns") if tone else None) or ()}


def finding(findings: Sequence[Finding], step: str) -> Finding | None:
    return next((item for item in findings if item.step == step), None)


def names_of(record: CallRecord) -> dict[str, str]:
    """Return known names of speakers by label, if a side has only one speaker."""
    agent, contacts = finding(record.findings, "agent"), finding(record.findings, "contacts")
    by_side = {
        "rep": (agent.value.get("name") or agent.value.get("spoken_name")) if agent else None,
        "customer": next((c.name for c in record.contacts if c.name), None) or _mentioned(contacts, "name"),
    }
    speakers = record.transcript.speakers if record.transcript else ()
    is_single = {side: sum(side_of(speaker) == side for speaker in speakers) == 1 for side in by_side}
    return {
        speaker.label: str(by_side[side_of(speaker)])
        for speaker in speakers
        if is_single.get(side_of(speaker)) and by_side.get(side_of(speaker))
    }


def _mentioned(contacts: Finding | None, field_: str) -> str | None:
    fact = (contacts.value.get("heard") or {}).get(field_) if contacts else None
    return str(fact["value"]) if fact and fact.get("value") else None


def _reasons(word: Word, doubts: Sequence[Doubt]) -> tuple[str, ...]:
    """Return the reasons of the doubts around a word; "unsure" if none covers it."""
    middle = (word.start + word.end) / 2
    reasons = [name for doubt in doubts if doubt.start - 0.05 <= middle <= doubt.end + 0.05 for name in doubt.reasons]
    return tuple(dict.fromkeys(name for name in reasons if name in REASONS)) or ("unsure",)
