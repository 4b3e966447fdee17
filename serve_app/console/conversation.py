"""A transcript as a conversation: turns and other sounds in order of time, in parts that a page loads one by one."""

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
from pipeline.domain.speech import CUSTOMER, REP, Doubt, LabelKind, Role, Speaker, Transcript, Turn, Word
from serve_app.records.transcripts import UNSURE, beside_stretches

WORDS_OF_FIRST_PART = 250  # enough to fill a screen
WORDS_OF_PART = 1500
SHADED = (LabelKind.ANNOUNCEMENT, LabelKind.VOICEMAIL, LabelKind.GAP)  # beside the sounds
OVERLAP_SECONDS = 0.3  # by which turns of two speakers have to overlap to be shown as such


@dataclass(frozen=True, slots=True)
class SaidWord:
    """`why`: names of the reasons why it is doubtful; empty: it is not."""

    text: str
    start: float
    end: float
    joined: bool
    unsure: bool  # the recognizer itself gave it little
    why: tuple[str, ...] = ()
    was: str | None = None  # what the machine had said, where a person corrected it


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """A turn as it is shown. `side`: rep, customer, other, other2 or machine."""

    index: int
    start: float
    end: float
    speaker: str
    side: str
    words: tuple[SaidWord, ...]
    tone: str | None
    language: str | None  # where it is not the call's
    over: bool  # begins while another one is still speaking
    goes_on: bool  # the same speaker as before, with nothing between
    was_of: str | None = None  # the speaker whom the machine had named, where a person named another


@dataclass(frozen=True, slots=True)
class Sound:
    """Something that is no speech. `channel`: where it is heard."""

    kind: LabelKind
    start: float
    end: float
    channel: int
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Some turns of a conversation that a page loads at once: `first` to `last` (exclusive)."""

    number: int
    first: int
    last: int
    start: float
    end: float
    words: int


@dataclass(frozen=True)
class Conversation:
    """A call's transcript with names and tones."""

    transcript: Transcript
    names: dict[str, str]  # by speaker label
    tones: dict[int, str] = field(default_factory=dict)
    edits: dict[int, list[CallEdit]] = field(default_factory=dict)  # that count, by turn

    @classmethod
    def of(cls, record: CallRecord) -> "Conversation | None":
        """None where there is no transcript."""
        if record.transcript is None:
            return None
        return cls(record.transcript, names_of(record), tones_of(record.findings), _by_turn(record.edits))

    @cached_property
    def sides(self) -> dict[str, str]:
        """By speaker label: rep, customer, and other or other2 in turn."""
        others = [one.label for one in self.transcript.speakers if side_of(one) == "other"]
        named = {label: "other" if at % 2 == 0 else "other2" for at, label in enumerate(others)}
        return {one.label: named.get(one.label, side_of(one)) for one in self.transcript.speakers}

    @cached_property
    def sounds(self) -> tuple[Sound, ...]:
        """What is no speech and worth a line, in order of time; what both channels hold at once is told once."""
        found = sorted(
            (
                Sound(own[0].kind, own[0].start, own[-1].end, channel, sum(label.keys or 0 for label in own))
                for channel, labels in enumerate(self.transcript.labels)
                for own in beside_stretches(labels)
            ),
            key=lambda sound: sound.start,
        )
        kept: list[Sound] = []
        for sound in found:
            if not any(
                one.kind is sound.kind and one.end > sound.start and one.start <= sound.start for one in kept[-4:]
            ):
                kept.append(sound)
        return tuple(kept)

    @cached_property
    def shaded(self) -> tuple[Sound, ...]:
        """What a waveform shades: the sounds, and where machines speak or the recording lacks something."""
        found = [
            Sound(label.kind, label.start, label.end, channel)
            for channel, labels in enumerate(self.transcript.labels)
            for label in labels
            if label.kind in SHADED
        ]
        return tuple(sorted((*self.sounds, *found), key=lambda sound: sound.start))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The whole conversation, in order; the first part is small."""
        turns = self.transcript.turns
        found: list[Part] = []
        first = words = 0
        for at, turn in enumerate(turns):
            words += len(turn.words)
            if words >= (WORDS_OF_PART if found else WORDS_OF_FIRST_PART) or at == len(turns) - 1:
                start = turns[first].start if found else 0.0
                found.append(Part(len(found), first, at + 1, start, max(t.end for t in turns[first : at + 1]), words))
                first, words = at + 1, 0
        return tuple(found)

    def items(self, part: Part) -> Iterator[SaidTurn | Sound]:
        """Turns and sounds of a part, in order of time."""
        turns = self.transcript.turns
        until = turns[part.last].start if part.last < len(turns) else float("inf")
        begin = turns[part.first].start if part.number else -1.0
        sounds = [sound for sound in self.sounds if begin <= sound.start < until]
        alone = True  # nothing stands between this turn and the one before it
        for turn in turns[part.first : part.last]:
            while sounds and sounds[0].start <= turn.start:
                yield sounds.pop(0)
                alone = True
            yield self._said(turn, alone)
            alone = False
        yield from sounds

    def turn(self, index: int) -> SaidTurn:
        """One turn as it is shown among the others."""
        part = next(one for one in self.parts if one.first <= index < one.last)
        return next(item for item in self.items(part) if isinstance(item, SaidTurn) and item.index == index)

    def _said(self, turn: Turn, alone: bool) -> SaidTurn:
        before = self.transcript.turns[turn.index - 1] if turn.index else None
        side = "machine" if turn.machine else self.sides.get(turn.speaker, "other")
        return SaidTurn(
            turn.index,
            turn.start,
            turn.end,
            self.names.get(turn.speaker, turn.speaker),
            side,
            tuple(self._words(turn)),
            self.tones.get(turn.index),
            turn.language if turn.language != self.transcript.language else None,
            before is not None and before.speaker != turn.speaker and before.end - turn.start > OVERLAP_SECONDS,
            not alone and before is not None and before.speaker == turn.speaker and before.machine == turn.machine,
            next((str(one.machine) for one in self.edits.get(turn.index, ()) if one.kind is EditKind.SPEAKER), None),
        )

    def _words(self, turn: Turn) -> Iterator[SaidWord]:
        doubts = self._doubts_of(turn)
        for word in turn.words:
            why = _reasons(word, doubts) if word.doubtful else ()
            was = _machines(word, self.edits.get(turn.index, ()))
            yield SaidWord(word.text, word.start, word.end, word.joined, word.confidence < UNSURE, why, was)

    def _doubts_of(self, turn: Turn) -> Sequence[Doubt]:
        channel = self._channel(turn.speaker)
        own = self._doubts.get(channel, ())
        first = bisect_left([doubt.end for doubt in own], turn.start - 0.05)
        return own[first : first + 50]

    @cached_property
    def _doubts(self) -> dict[int, list[Doubt]]:
        kept = sorted((d for d in self.transcript.doubts if d.kept), key=lambda doubt: (doubt.channel, doubt.end))
        return {channel: list(own) for channel, own in groupby(kept, key=lambda doubt: doubt.channel)}

    def _channel(self, label: str) -> int:
        if not self.transcript.layout.kind.separated:
            return 0
        return CUSTOMER if self.sides.get(label) == "customer" else REP


def _by_turn(edits: Sequence[CallEdit]) -> dict[int, list[CallEdit]]:
    found: dict[int, list[CallEdit]] = {}
    for one in edits:
        if one.state is EditState.APPLIED and one.turn is not None:
            found.setdefault(one.turn, []).append(one)
    return found


def _machines(word: Word, edits: Sequence[CallEdit]) -> str | None:
    """What the machine had said in place of a word, where a person corrected it."""
    for one in edits:
        begin, end = one.start or 0.0, one.end or 0.0
        if one.kind is EditKind.TEXT and begin - 0.01 <= word.start and word.end <= end + 0.01:
            return str(one.machine)
    return None


def side_of(speaker: Speaker) -> str:
    return speaker.role.value if speaker.role in (Role.REP, Role.CUSTOMER) else "other"


def tones_of(findings: Sequence[Finding]) -> dict[int, str]:
    """Positive, neutral or negative by the index of the turn."""
    tone = finding(findings, "tone")
    return {int(turn["turn"]): str(turn["label"]) for turn in (tone.value.get("turns") if tone else None) or ()}


def finding(findings: Sequence[Finding], step: str) -> Finding | None:
    return next((one for one in findings if one.step == step), None)


def names_of(record: CallRecord) -> dict[str, str]:
    """How people are called, by speaker label: by their names where they are known."""
    agent, heard = finding(record.findings, "agent"), finding(record.findings, "contacts")
    by_side = {
        "rep": (agent.value.get("name") or agent.value.get("spoken_name")) if agent else None,
        "customer": next((c.name for c in record.contacts if c.name), None) or _heard(heard, "name"),
    }
    speakers = record.transcript.speakers if record.transcript else ()
    alone = {side: sum(side_of(one) == side for one in speakers) == 1 for side in by_side}
    return {
        one.label: str(by_side[side_of(one)])
        for one in speakers
        if alone.get(side_of(one)) and by_side.get(side_of(one))
    }


def _heard(found: Finding | None, field_: str) -> str | None:
    fact = (found.value.get("heard") or {}).get(field_) if found else None
    return str(fact["value"]) if fact and fact.get("value") else None


def _reasons(word: Word, doubts: Sequence[Doubt]) -> tuple[str, ...]:
    """Of the doubts that the word lies in; of a doubt whose times do not tell, that it is not sure."""
    middle = (word.start + word.end) / 2
    found = [name for doubt in doubts if doubt.start - 0.05 <= middle <= doubt.end + 0.05 for name in doubt.reasons]
    return tuple(dict.fromkeys(name for name in found if name in REASONS)) or ("unsure",)
