"""What people said against the machine: edits of a call, and what a transcript, tasks and findings are with them. Pure.

An edit is anchored to the machine's own words at their seconds. Where these are no longer there it is not applied.
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

TOLERANCE = 0.2  # seconds by which words may have moved in another recognition
EXACT = 0.005
BY_PERSON = "person"
"""The reason of a role that a person gave."""
OTHER_PARTY = {"rep": "customer", "customer": "rep"}
NAMING = frozenset({"speaker", "role", "owner", "party"})  # keys of findings whose values name a party


class EditKind(StrEnum):
    """What an edit corrects."""

    TEXT = "text"  # one or several words of a turn
    SPEAKER = "speaker"  # who said a turn
    ROLES = "roles"  # which party is the rep: True: swapped
    AGENT = "agent"  # the member who was on our side
    CONTACT = "contact"
    TASK = "task"  # whether a task is done
    ANSWER = "answer"  # to one of the workspace's questions


class EditState(StrEnum):
    """Whether an edit counts."""

    APPLIED = "applied"
    SUPERSEDED = "superseded"  # a later edit of the same words or field counts
    NOT_APPLIED = "not-applied"  # what it corrects is no longer there
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Anchor:
    """The machine's words that an edit belongs to. `role`: of their speaker, where that matters."""

    channel: int
    start: float
    end: float
    text: str
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit, as it was made. `before`: what the machine had said; text, a label, whether swapped, an id."""

    edit_id: Any
    kind: EditKind
    before: str | bool | None
    after: str | bool | None
    anchor: Anchor | None = None
    undone: bool = False
    task_id: Any = None


@dataclass(frozen=True, slots=True)
class EditStatus:
    """What became of an edit. `turn`, `first`..`last`: the words of the corrected transcript that it made, if any."""

    state: EditState
    turn: int | None = None
    first: int = 0
    last: int = -1


@dataclass(frozen=True)
class Corrected:
    """A transcript with edits applied. `origins`: of turns whose words changed, the machine's words behind each."""

    machine: Transcript
    transcript: Transcript
    standings: Mapping[Any, EditStatus] = field(default_factory=dict)
    swapped: bool = False
    origins: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def words_at(self, turn: int, start: float, end: float) -> tuple[int, int] | None:
        """The first and last word of a turn that lie exactly at these seconds, as it is shown."""
        if not 0 <= turn < len(self.transcript.turns):
            return None
        words = self.transcript.turns[turn].words
        firsts = [at for at, word in enumerate(words) if abs(word.start - start) <= EXACT]
        lasts = [at for at, word in enumerate(words) if abs(word.end - end) <= EXACT]
        return (firsts[0], lasts[-1]) if firsts and lasts and firsts[0] <= lasts[-1] else None

    def text_anchor(self, turn: int, first: int, last: int) -> Anchor:
        """The machine's words behind some that are shown: all of an earlier edit that they touch."""
        if turn in self.origins:
            behind = self.origins[turn][first : last + 1]
            first, last = min(one for one, _ in behind), max(one for _, one in behind)
        return _anchor(self.machine, self.machine.turns[turn], first, last)

    def turn_anchor(self, turn: int) -> Anchor:
        """All of a turn, as the machine had it."""
        said = self.machine.turns[turn]
        return _anchor(self.machine, said, 0, len(said.words) - 1)

    def roles_anchor(self) -> Anchor | None:
        """The longest turn of a party, with its role; None where no party spoke."""
        roles = {one.label: one.role for one in self.machine.speakers}
        of_party = [turn for turn in self.machine.turns if roles.get(turn.speaker, "") in OTHER_PARTY and turn.words]
        if not of_party:
            return None
        longest = max(of_party, key=lambda turn: len(turn.words))
        found = _anchor(self.machine, longest, 0, len(longest.words) - 1)
        return replace(found, role=str(roles[longest.speaker]))


def correct(transcript: Transcript, edits: Iterable[Edit]) -> Corrected:
    """Return the transcript with edits applied, in the order in which they were made, and what became of each."""
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
        self._latest: dict[Any, Edit] = {}  # of a field of which one value counts

    def apply(self, edit: Edit) -> None:
        if edit.undone:
            self._standings[edit.edit_id] = EditStatus(EditState.UNDONE)
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
        kept = [one for one in self._texts[turn] if one[1] < first or one[0] > last]
        for one in self._texts[turn]:
            if one not in kept:
                self._standings[one[2].edit_id] = EditStatus(EditState.SUPERSEDED, turn)
        self._texts[turn] = [*kept, (first, last, edit)]
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
        roles = {one.label: str(one.role) for one in self._machine.speakers}
        if edit.anchor is None or roles.get(self._machine.turns[place[0]].speaker) != edit.anchor.role:
            return None  # the machine has changed its mind since
        if self._swapped != bool(edit.after):
            self._swap()
        self._supersede("roles", edit)
        return EditStatus(EditState.APPLIED)

    def _swap(self) -> None:
        self._swapped = not self._swapped
        self._labels = [OTHER_PARTY.get(label, label) for label in self._labels]
        known = list(self._speakers.values())
        member = next((one.user_id for one in known if one.role is Role.REP), None)
        swapped = [swapped_speaker(one, member) for one in known]
        self._speakers = {one.label: one for one in swapped}

    def _field(self, edit: Edit) -> EditStatus:
        self._supersede((edit.kind, edit.task_id), edit)
        return EditStatus(EditState.APPLIED)

    def _supersede(self, what: Any, edit: Edit) -> None:
        if earlier := self._latest.get(what):
            self._standings[earlier.edit_id] = replace(self._standings[earlier.edit_id], state=EditState.SUPERSEDED)
        self._latest[what] = edit

    def _find(self, anchor: Anchor | None) -> tuple[int, int, int] | None:
        """Turn, first and last word of the machine's words of an anchor; None where they are not there, or twice."""
        if anchor is None:
            return None
        found = list(self._candidates(anchor))
        exact = [place for place, off in found if off <= EXACT]
        if len(exact) == 1:
            return exact[0]
        return found[0][0] if len(found) == 1 else None

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
        """Turn and word by the tenth of a second in which it begins."""
        found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for at, turn in enumerate(self._machine.turns):
            for number, word in enumerate(turn.words):
                found[round(word.start * 10)].append((at, number))
        return found

    def done(self) -> Corrected:
        turns, origins = list(self._machine.turns), {}
        for at, label in enumerate(self._labels):
            if turns[at].speaker != label:
                turns[at] = replace(turns[at], speaker=label)
        for at, edits in self._texts.items():
            if edits:
                turns[at], origins[at] = self._rewritten(turns[at], edits)
        kept = {turn.speaker for turn in turns}
        for one in self._machine.speakers:
            kept.add(OTHER_PARTY.get(one.label, one.label) if self._swapped else one.label)
        speakers = tuple(one for one in self._speakers.values() if one.label in kept)
        made = replace(self._machine, turns=tuple(turns), speakers=speakers)
        if self._swapped and made.layout.kind.separated:
            made = _with_channels_swapped(made)
        return Corrected(self._machine, made, self._standings, self._swapped, origins)

    def _rewritten(self, turn: Turn, edits: list[tuple[int, int, Edit]]) -> tuple[Turn, tuple[tuple[int, int], ...]]:
        words: list[Word] = []
        behind: list[tuple[int, int]] = []
        at = 0
        for first, last, edit in sorted(edits, key=lambda one: one[0]):
            words += turn.words[at:first]
            behind += [(one, one) for one in range(at, first)]
            made = retimed(turn.words[first : last + 1], str(edit.after or ""))
            place = EditStatus(EditState.APPLIED, turn.index, len(words), len(words) + len(made) - 1)
            self._standings[edit.edit_id] = place
            words += made
            behind += [(first, last)] * len(made)
            at = last + 1
        words += turn.words[at:]
        behind += [(one, one) for one in range(at, len(turn.words))]
        return replace(turn, words=tuple(words)), tuple(behind)


def channel_of(transcript: Transcript, label: str) -> int:
    """The channel of the layout on which a speaker is heard."""
    if not transcript.layout.kind.separated:
        return 0
    role = next((one.role for one in transcript.speakers if one.label == label), Role.UNKNOWN)
    return CUSTOMER if role is Role.CUSTOMER else REP


def _with_channels_swapped(transcript: Transcript) -> Transcript:
    """Channel 0 is the rep's: always. So what a channel holds goes with its party."""
    layout = transcript.layout
    return replace(
        transcript,
        layout=replace(
            layout,
            swapped=not layout.swapped,
            starts=layout.starts[::-1],
            bleed=tuple(replace(one, source=1 - one.source) for one in layout.bleed),
        ),
        labels=transcript.labels[::-1],
        doubts=tuple(replace(one, channel=1 - one.channel) for one in transcript.doubts),
        languages=tuple(replace(one, channel=1 - one.channel) for one in transcript.languages),
    )


def _anchor(transcript: Transcript, turn: Turn, first: int, last: int) -> Anchor:
    words = turn.words[first : last + 1]
    return Anchor(channel_of(transcript, turn.speaker), words[0].start, words[-1].end, text_of(words))


def retimed(words: Sequence[Word], text: str) -> tuple[Word, ...]:
    """A person's text in place of words: each word at its old time where there are as many, else by its length."""
    said = text.split()
    if len(said) == len(words):
        return tuple(
            Word(word.start, word.end, one, 1.0, joined=word.joined and number == 0)
            for number, (one, word) in enumerate(zip(said, words, strict=True))
        )
    start, seconds, letters = words[0].start, words[-1].end - words[0].start, sum(map(len, said))
    made, before = [], 0
    for number, one in enumerate(said):
        begin, end = (start + seconds * count / letters for count in (before, before + len(one)))
        made.append(Word(round(begin, 3), round(end, 3), one, 1.0, joined=words[0].joined and number == 0))
        before += len(one)
    return tuple(made)


def swapped_speaker(speaker: Speaker, member: str | None) -> Speaker:
    """A speaker as the other party; `member` is who the rep is."""
    if speaker.role not in (Role.REP, Role.CUSTOMER):
        return speaker
    role = Role(OTHER_PARTY[speaker.role])
    label = OTHER_PARTY.get(speaker.label, speaker.label)
    return Speaker(label, role, 1.0, BY_PERSON, member if role is Role.REP else None)


def assigned(transcript: Transcript, user_id: str | None) -> Transcript:
    """The transcript with this member as its rep, where one speaker is."""
    reps = [one.label for one in transcript.speakers if one.role is Role.REP]
    if len(reps) != 1:
        return transcript
    named = tuple(replace(one, user_id=user_id) if one.label in reps else one for one in transcript.speakers)
    return replace(transcript, speakers=named)


@dataclass(frozen=True, slots=True)
class Fields:
    """What people said of a call as a whole. `machine_agent`: whom the sender or the call named."""

    swapped: bool = False
    agent_set: bool = False
    user_id: str | None = None
    machine_agent: str | None = None


def corrected_owner(owner: str, owner_user_id: str | None, fields: Fields) -> tuple[str, str | None]:
    """Whose task it is: party and member. A rep's task goes with the agent, unless another colleague was named."""
    if fields.swapped and owner in OTHER_PARTY:
        owner, owner_user_id = OTHER_PARTY[owner], None
    if fields.agent_set and owner == "rep" and owner_user_id in (None, fields.machine_agent):
        owner_user_id = fields.user_id
    return owner, owner_user_id


def corrected_task(task: T, fields: Fields) -> T:
    """The task with its owner as people said."""
    owner, owner_user_id = corrected_owner(task.owner, task.owner_user_id, fields)
    return replace(task, owner=owner, owner_user_id=owner_user_id)


def corrected_finding(finding: Finding, fields: Fields, agent_name: str | None = None) -> Finding:
    """The finding with the parties and the agent as people said; its sentences stay as they were written."""
    if fields.swapped:
        finding = replace(finding, value=_renamed(finding.value))
    if fields.agent_set and finding.step == "agent":
        said = {"user_id": fields.user_id, "name": agent_name, "spoken_name": None, "source": BY_PERSON}
        finding = replace(finding, value=finding.value | said, evidence=(), confidence=1.0, note=None)
    return finding


def _renamed(value: Any, naming: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {OTHER_PARTY.get(key, key): _renamed(held, key in NAMING) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(one, naming) for one in value]
    return OTHER_PARTY.get(value, value) if naming and isinstance(value, str) else value
