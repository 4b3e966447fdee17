"""Edits of a call by people, applied to the machine's transcript, tasks and findings.

An edit is anchored to the machine's words and their seconds. If these no longer exist, the edit is not applied.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from pipeline.domain.insight import Finding, Task
from pipeline.domain.speech import CUSTOMER, REP, Role, Speaker, Transcript, Turn, Word, text_of

T = TypeVar("T", bound=Task)

TOLERANCE = 0.2  # seconds by which words may move in another recognition
EXACT = 0.005
BY_PERSON = "person"
"""The reason of a role set by a person."""
OTHER_PARTY = {"rep": "customer", "customer": "rep"}
NAMING = frozenset({"speaker", "role", "owner", "party", "by"})  # keys of findings whose values name a party


class EditKind(StrEnum):
    """What an edit corrects."""

    TEXT = "text"  # one or several words of a turn
    SPEAKER = "speaker"  # who said a turn
    ROLES = "roles"  # which party is the rep: True: swapped
    AGENT = "agent"  # the member who was on our side
    CONTACT = "contact"
    TASK = "task"  # whether a task is done
    ANSWER = "answer"  # to one of the workspace's questions
    TAG = "tag"
    COMMENT = "comment"


NOTES = frozenset({EditKind.TAG, EditKind.COMMENT})  # they correct nothing


class EditState(StrEnum):
    """Whether an edit is in effect."""

    APPLIED = "applied"
    SUPERSEDED = "superseded"  # a later edit of the same words or field counts
    NOT_APPLIED = "not-applied"  # what it corrects is no longer there
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Anchor:
    """The machine's words that an edit belongs to. `role`: role of their speaker, if it matters."""

    channel: int
    start: float
    end: float
    text: str
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit as created. `before`: the machine's text, label, swap or id."""

    edit_id: Any
    kind: EditKind
    before: str | bool | None
    after: str | bool | None
    anchor: Anchor | None = None
    undone: bool = False
    task_id: Any = None


@dataclass(frozen=True, slots=True)
class EditStatus:
    """Status of an edit. `turn`, `first`..`last`: its words in the corrected transcript, if any."""

    state: EditState
    turn: int | None = None
    first: int = 0
    last: int = -1


@dataclass(frozen=True)
class Corrected:
    """A transcript with edits applied. `origins`: for turns with changed words, the machine's words behind each."""

    machine: Transcript
    transcript: Transcript
    standings: Mapping[Any, EditStatus] = field(default_factory=dict)
    swapped: bool = False
    origins: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def words_at(self, turn: int, start: float, end: float) -> tuple[int, int] | None:
        """Return the first and last word of a shown turn that are exactly at these seconds."""
        if not 0 <= turn < len(self.transcript.turns):
            return None
        words = self.transcript.turns[turn].words
        firsts = [at for at, word in enumerate(words) if abs(word.start - start) <= EXACT]
        lasts = [at for at, word in enumerate(words) if abs(word.end - end) <= EXACT]
        return (firsts[0], lasts[-1]) if firsts and lasts and firsts[0] <= lasts[-1] else None

    def text_anchor(self, turn: int, first: int, last: int) -> Anchor:
        """Return the machine's words behind shown words, including all of any edit they overlap."""
        if turn in self.origins:
            behind = self.origins[turn][first : last + 1]
            first, last = min(span for span, _ in behind), max(span for _, span in behind)
        return _anchor(self.machine, self.machine.turns[turn], first, last)

    def turn_anchor(self, turn: int) -> Anchor:
        machine_turn = self.machine.turns[turn]
        return _anchor(self.machine, machine_turn, 0, len(machine_turn.words) - 1)

    def roles_anchor(self) -> Anchor | None:
        """Return the longest turn of a party with its role; None if no party spoke."""
        roles = {speaker.label: speaker.role for speaker in self.machine.speakers}
        of_party = [turn for turn in self.machine.turns if roles.get(turn.speaker, "") in OTHER_PARTY and turn.words]
        if not of_party:
            return None
        longest = max(of_party, key=lambda turn: len(turn.words))
        anchor = _anchor(self.machine, longest, 0, len(longest.words) - 1)
        return replace(anchor, role=str(roles[longest.speaker]))


def correct(transcript: Transcript, edits: Iterable[Edit]) -> Corrected:
    """Apply edits in order of creation; return the transcript and the status of each edit."""
    work = _Work(transcript)
    for edit in edits:
        work.apply(edit)
    return work.done()


class _Work:
    def __init__(self, transcript: Transcript) -> None:
        self._machine = transcript
        self._standings: dict[Any, EditStatus] = {}
        self._texts: defaultdict[int, list[tuple[int, int, Edit]]] = defaultdict(list)  # by turn
        self._speakers = {speaker.label: speaker for speaker in transcript.speakers}
        self._labels = [turn.speaker for turn in transcript.turns]
        self._swapped = False
        self._latest: dict[Any, Edit] = {}  # by field with a single value

    def apply(self, edit: Edit) -> None:
        if edit.undone:
            self._standings[edit.edit_id] = EditStatus(EditState.UNDONE)
            return
        if edit.kind in NOTES:
            self._standings[edit.edit_id] = EditStatus(EditState.APPLIED)
            return
        standing = {EditKind.TEXT: self._text, EditKind.SPEAKER: self._speaker, EditKind.ROLES: self._roles}.get(
            edit.kind, self._field
        )(edit)
        self._standings[edit.edit_id] = standing or EditStatus(EditState.NOT_APPLIED)

    def _text(self, edit: Edit) -> EditStatus | None:
        place = self._find(edit.anchor)
        if place is None:
            return None
        turn, first, last = place
        remaining = [entry for entry in self._texts[turn] if entry[1] < first or entry[0] > last]
        for entry in self._texts[turn]:
            if entry not in remaining:
                self._standings[entry[2].edit_id] = EditStatus(EditState.SUPERSEDED, turn)
        self._texts[turn] = [*remaining, (first, last, edit)]
        return EditStatus(EditState.APPLIED, turn)

    def _speaker(self, edit: Edit) -> EditStatus | None:
        place = self._find(edit.anchor)
        if place is None or place[2] - place[1] + 1 != len(self._machine.turns[place[0]].words):
            return None
        label = str(edit.after)
        if label not in self._speakers:
            if label not in OTHER_PARTY:
                return None
            self._speakers[label] = Speaker(label, Role(label), 1.0, BY_PERSON)
        self._labels[place[0]] = label
        self._supersede(("speaker", place[0]), edit)
        return EditStatus(EditState.APPLIED, place[0])

    def _roles(self, edit: Edit) -> EditStatus | None:
        place = self._find(edit.anchor)
        if place is None:
            return None
        roles = {speaker.label: str(speaker.role) for speaker in self._machine.speakers}
        if edit.anchor is None or roles.get(self._machine.turns[place[0]].speaker) != edit.anchor.role:
            return None  # the machine's roles have changed
        if self._swapped != bool(edit.after):
            self._swap()
        self._supersede("roles", edit)
        return EditStatus(EditState.APPLIED)

    def _swap(self) -> None:
        self._swapped = not self._swapped
        self._labels = [OTHER_PARTY.get(label, label) for label in self._labels]
        speakers = list(self._speakers.values())
        member = next((speaker.user_id for speaker in speakers if speaker.role is Role.REP), None)
        swapped = [swapped_speaker(speaker, member) for speaker in speakers]
        self._speakers = {speaker.label: speaker for speaker in swapped}

    def _field(self, edit: Edit) -> EditStatus:
        self._supersede((edit.kind, edit.task_id), edit)
        return EditStatus(EditState.APPLIED)

    def _supersede(self, what: Any, edit: Edit) -> None:
        if earlier := self._latest.get(what):
            self._standings[earlier.edit_id] = replace(self._standings[earlier.edit_id], state=EditState.SUPERSEDED)
        self._latest[what] = edit

    def _find(self, anchor: Anchor | None) -> tuple[int, int, int] | None:
        """Return turn, first and last word of an anchor; None if its words are missing or ambiguous."""
        if anchor is None:
            return None
        candidates = list(self._candidates(anchor))
        exact = [place for place, off in candidates if off <= EXACT]
        if len(exact) == 1:
            return exact[0]
        return candidates[0][0] if len(candidates) == 1 else None

    def _candidates(self, anchor: Anchor) -> Iterable[tuple[tuple[int, int, int], float]]:
        around = range(round((anchor.start - TOLERANCE) * 10) - 1, round((anchor.start + TOLERANCE) * 10) + 2)
        for at, first in (place for tenth in around for place in self._starts.get(tenth, ())):
            turn = self._machine.turns[at]
            late = abs(turn.words[first].start - anchor.start)
            if late > TOLERANCE or channel_of(self._machine, turn.speaker) != anchor.channel:
                continue
            for last in range(first, len(turn.words)):
                off = abs(turn.words[last].end - anchor.end)
                if off <= TOLERANCE and text_of(turn.words[first : last + 1]) == anchor.text:
                    yield (at, first, last), max(late, off)
                if turn.words[last].start > anchor.end + TOLERANCE:
                    break

    @cached_property
    def _starts(self) -> dict[int, list[tuple[int, int]]]:
        """Index (turn, word) by the tenth of a second in which the word begins."""
        starts: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for at, turn in enumerate(self._machine.turns):
            for number, word in enumerate(turn.words):
                starts[round(word.start * 10)].append((at, number))
        return starts

    def done(self) -> Corrected:
        turns, origins = list(self._machine.turns), {}
        for at, label in enumerate(self._labels):
            if turns[at].speaker != label:
                turns[at] = replace(turns[at], speaker=label)
        for at, edits in self._texts.items():
            if edits:
                turns[at], origins[at] = self._rewritten(turns[at], edits)
        labels = {turn.speaker for turn in turns}
        for speaker in self._machine.speakers:
            labels.add(OTHER_PARTY.get(speaker.label, speaker.label) if self._swapped else speaker.label)
        speakers = tuple(speaker for speaker in self._speakers.values() if speaker.label in labels)
        corrected = replace(self._machine, turns=tuple(turns), speakers=speakers)
        if self._swapped and corrected.layout.kind.separated:
            corrected = _with_channels_swapped(corrected)
        return Corrected(self._machine, corrected, self._standings, self._swapped, origins)

    def _rewritten(self, turn: Turn, edits: list[tuple[int, int, Edit]]) -> tuple[Turn, tuple[tuple[int, int], ...]]:
        words: list[Word] = []
        behind: list[tuple[int, int]] = []
        at = 0
        for first, last, edit in sorted(edits, key=lambda entry: entry[0]):
            words += turn.words[at:first]
            behind += [(word, word) for word in range(at, first)]
            new_words = retimed(turn.words[first : last + 1], str(edit.after or ""))
            place = EditStatus(EditState.APPLIED, turn.index, len(words), len(words) + len(new_words) - 1)
            self._standings[edit.edit_id] = place
            words += new_words
            behind += [(first, last)] * len(new_words)
            at = last + 1
        words += turn.words[at:]
        behind += [(word, word) for word in range(at, len(turn.words))]
        return replace(turn, words=tuple(words)), tuple(behind)


def channel_of(transcript: Transcript, label: str) -> int:
    if not transcript.layout.kind.separated:
        return 0
    role = next((speaker.role for speaker in transcript.speakers if speaker.label == label), Role.UNKNOWN)
    return CUSTOMER if role is Role.CUSTOMER else REP


def _with_channels_swapped(transcript: Transcript) -> Transcript:
    """Swap everything that belongs to a channel: channel 0 is always the agent's."""
    layout = transcript.layout
    return replace(
        transcript,
        layout=replace(
            layout,
            swapped=not layout.swapped,
            starts=layout.starts[::-1],
            bleed=tuple(replace(bleed, source=1 - bleed.source) for bleed in layout.bleed),
        ),
        labels=transcript.labels[::-1],
        doubts=tuple(replace(doubt, channel=1 - doubt.channel) for doubt in transcript.doubts),
        languages=tuple(replace(stretch, channel=1 - stretch.channel) for stretch in transcript.languages),
    )


def _anchor(transcript: Transcript, turn: Turn, first: int, last: int) -> Anchor:
    words = turn.words[first : last + 1]
    return Anchor(channel_of(transcript, turn.speaker), words[0].start, words[-1].end, text_of(words))


def retimed(words: Sequence[Word], text: str) -> tuple[Word, ...]:
    """Return a person's text as words: at the old times if the count is equal, else spread by length."""
    new_texts = text.split()
    if len(new_texts) == len(words):
        return tuple(
            Word(word.start, word.end, new_text, 1.0, joined=word.joined and number == 0)
            for number, (new_text, word) in enumerate(zip(new_texts, words, strict=True))
        )
    start, seconds, letters = words[0].start, words[-1].end - words[0].start, sum(map(len, new_texts))
    new_words, before = [], 0
    for number, new_text in enumerate(new_texts):
        begin, end = (start + seconds * count / letters for count in (before, before + len(new_text)))
        new_words.append(Word(round(begin, 3), round(end, 3), new_text, 1.0, joined=words[0].joined and number == 0))
        before += len(new_text)
    return tuple(new_words)


def swapped_speaker(speaker: Speaker, member: str | None) -> Speaker:
    """Return a speaker as the other party; `member` is the agent."""
    if speaker.role not in (Role.REP, Role.CUSTOMER):
        return speaker
    role = Role(OTHER_PARTY[speaker.role])
    label = OTHER_PARTY.get(speaker.label, speaker.label)
    return Speaker(label, role, 1.0, BY_PERSON, member if role is Role.REP else None)


def assigned(transcript: Transcript, user_id: str | None) -> Transcript:
    """Return the transcript with this member as its agent, if exactly one speaker is the agent."""
    reps = [speaker.label for speaker in transcript.speakers if speaker.role is Role.REP]
    if len(reps) != 1:
        return transcript
    speakers = tuple(
        replace(speaker, user_id=user_id) if speaker.label in reps else speaker for speaker in transcript.speakers
    )
    return replace(transcript, speakers=speakers)


@dataclass(frozen=True, slots=True)
class Fields:
    """Corrections of the call as a whole. `machine_agent`: the agent by the sender or the analysis."""

    swapped: bool = False
    agent_set: bool = False
    user_id: str | None = None
    machine_agent: str | None = None


def corrected_owner(owner: str, owner_user_id: str | None, fields: Fields) -> tuple[str, str | None]:
    """Return party and member of a task. The agent's tasks follow the agent unless another member was named."""
    if fields.swapped and owner in OTHER_PARTY:
        owner, owner_user_id = OTHER_PARTY[owner], None
    if fields.agent_set and owner == "rep" and owner_user_id in (None, fields.machine_agent):
        owner_user_id = fields.user_id
    return owner, owner_user_id


def corrected_task(task: T, fields: Fields) -> T:
    owner, owner_user_id = corrected_owner(task.owner, task.owner_user_id, fields)
    return replace(task, owner=owner, owner_user_id=owner_user_id)


def corrected_finding(finding: Finding, fields: Fields, agent_name: str | None = None) -> Finding:
    """Return the finding with corrected parties and agent; its sentences remain unchanged."""
    if fields.swapped:
        finding = replace(finding, value=_renamed(finding.value))
    if fields.agent_set and finding.step == "agent":
        agent = {"user_id": fields.user_id, "name": agent_name, "spoken_name": None, "source": BY_PERSON}
        finding = replace(finding, value=finding.value | agent, evidence=(), confidence=1.0, note=None)
    return finding


def _renamed(value: Any, naming: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {OTHER_PARTY.get(key, key): _renamed(item, key in NAMING) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(item, naming) for item in value]
    return OTHER_PARTY.get(value, value) if naming and isinstance(value, str) else value
