"""Speech that a machine speaks: announcements and the greetings of answering machines.

Words alone do not tell: a person, too, says "please leave a message". A machine is known by what it says and by how it
stands in the call: nobody has answered it yet, or a beep follows. In doubt it stays a person's speech, whose words
count.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pipeline.domain.speech import ChunkText, Label, LabelKind, Word
from pipeline.speakers.plain import plain
from pipeline.speakers.roles import PHRASES

KINDS = ("after_the_tone", "voicemail", "announcement", "recording_notice")
TOGETHER = 1.5  # seconds of pause inside what one machine says without a break
PARAGRAPH = 4.0  # seconds of pause inside what it says before the words that give it away
BEEP_WITHIN = 4.0  # seconds from the end of a greeting to its beep
ANSWERED_WITHIN = 3.0  # seconds in which a person is answered
BESIDE = 3.0  # seconds between music, or a busy tone, and the machine that ends it or is ended by it
AFTER_A_RING = 6.0  # seconds: who answers may do so in the cadence's pause, of 4 s in most countries and 5 s in some
PASSING = 0.6  # seconds; a shorter sound in the other channel is no answer
MACHINE_SOUNDS = (LabelKind.RINGBACK, LabelKind.BUSY, LabelKind.MUSIC)

Labels = tuple[tuple[Label, ...], ...]
Phrases = Mapping[str, Sequence[str]]  # kind -> phrases, plain


@dataclass(frozen=True, slots=True)
class _Passage:
    """Speech labels `first` to `last` (exclusive) of a channel that follow each other with no break."""

    first: int
    last: int
    start: float
    end: float


def refine(labels: Labels, texts: Sequence[ChunkText], phrases: Phrases | None = None) -> Labels:
    """The labels, with `ANNOUNCEMENT` and `VOICEMAIL` in place of `SPEECH` where a machine speaks.

    `labels` by channel: two channels are two parties; one holds both, and then only a ring, music or a beep right
    beside tells. `phrases`: by kind (`KINDS`); left out, those of every language in `phrases/`. The new labels'
    `detail` holds the words that gave the machine away. Times do not change.
    """
    known = all_phrases() if phrases is None else phrases
    return tuple(
        _refine_channel(
            own,
            None if len(labels) < 2 else labels[1 - channel],
            sorted((w for t in texts if t.chunk.channel == channel for w in t.words), key=lambda w: w.start),
            known,
        )
        for channel, own in enumerate(labels)
    )


@cache
def all_phrases() -> Phrases:
    """What machines say, of every language, in the form of `plain.plain`."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in sorted(Path(PHRASES).glob("*.json")):
        lists: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
        for kind in KINDS:
            found[kind] += [plain(phrase) for phrase in lists.get(kind, ())]
    return found


@cache
def _by_persons() -> re.Pattern[str]:
    """How persons say who they are, or offer help, in every language; on text in the form of `plain.plain`."""
    patterns: list[str] = []
    for path in sorted(Path(PHRASES).glob("*.json")):
        lists: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
        patterns += [_without_accents(pattern) for pattern in lists["presents_company"]]
        patterns += [rf"\b{re.escape(plain(phrase))}\b" for phrase in lists["in_person"]]
    return re.compile("|".join(patterns))


def _without_accents(pattern: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", pattern) if not unicodedata.combining(c))


def _in_person(words: Sequence[Word]) -> bool:
    return bool(_by_persons().search(plain(" ".join(word.text for word in words))))


def _between(words: Sequence[Word], start: float, end: float) -> list[Word]:
    return [word for word in words if start <= (word.start + word.end) / 2 <= end]


def _refine_channel(
    own: tuple[Label, ...], other: tuple[Label, ...] | None, words: Sequence[Word], phrases: Phrases
) -> tuple[Label, ...]:
    refined = list(own)
    taken = 0  # labels before it are decided
    for passage in _passages(own, other):
        first = max(taken, _beginning(passage, own, other))
        said = _between(words, passage.start, passage.end)
        in_person = _in_person(_between(words, own[first].start, passage.end))
        found = _judge(passage, own, other, said, in_person, phrases)
        if found is None:
            continue
        kind, confidence, detail = found
        for i in range(first, passage.last):
            if own[i].kind is LabelKind.SPEECH:
                refined[i] = replace(own[i], kind=kind, confidence=confidence, detail=detail)
        taken = passage.last
    return tuple(refined)


def _passages(own: Sequence[Label], other: Sequence[Label] | None) -> list[_Passage]:
    """Speech with pauses of at most `TOGETHER`, in which no other sound comes and the other party says nothing."""
    passages: list[_Passage] = []
    for i, label in enumerate(own):
        if label.kind is not LabelKind.SPEECH:
            continue
        before = passages[-1] if passages else None
        if before and label.start - before.end <= TOGETHER and _unbroken(own, other, before.last, i):
            passages[-1] = _Passage(before.first, i + 1, before.start, label.end)
        else:
            passages.append(_Passage(i, i + 1, label.start, label.end))
    return passages


def _unbroken(own: Sequence[Label], other: Sequence[Label] | None, first: int, last: int) -> bool:
    between = own[first:last]
    if any(label.kind not in (LabelKind.SILENCE, LabelKind.NOISE) for label in between):
        return False
    return not between or not _speaks(other, between[0].start, between[-1].end)


def _speaks(other: Sequence[Label] | None, start: float, end: float) -> bool:
    """Whether the other party says more than a passing sound between two times."""
    spoken = [label for label in other or () if label.kind is LabelKind.SPEECH]
    return any(min(end, label.end) - max(start, label.start) >= min(PASSING, end - start) > 0 for label in spoken)


def _judge(
    passage: _Passage,
    own: Sequence[Label],
    other: Sequence[Label] | None,
    said: Sequence[Word],
    in_person: bool,
    phrases: Phrases,
) -> tuple[LabelKind, float, str] | None:
    """Kind, confidence and the words that tell; None where a person may speak.

    That calls are recorded is said by persons too: by one who says their name or offers help `in_person`.
    """
    found = {kind: match for kind in KINDS if (match := _found(said, phrases.get(kind, ())))}
    if not found:
        return None
    beep = any(
        label.kind is LabelKind.BEEP and passage.end - 0.5 <= label.start <= passage.end + BEEP_WITHIN for label in own
    )
    detail = "; ".join(found.values())
    greeting = "after_the_tone" in found or "voicemail" in found
    if other is None:
        return _judge_mixed(found, greeting, beep, _beside(passage, own), detail)
    if greeting and beep:
        return LabelKind.VOICEMAIL, 0.95, detail
    in_dialogue = _speaks(other, 0.0, passage.end)
    answered = _speaks(other, passage.end, passage.end + ANSWERED_WITHIN)
    only_a_notice = not greeting and "announcement" not in found
    if in_dialogue or (answered and "after_the_tone" not in found) or (only_a_notice and in_person):
        return None
    if greeting:
        return LabelKind.VOICEMAIL, 0.8, detail
    return LabelKind.ANNOUNCEMENT, 0.6 if only_a_notice else 0.8, detail


def _judge_mixed(
    found: Mapping[str, str], greeting: bool, beep: bool, beside: bool, detail: str
) -> tuple[LabelKind, float, str] | None:
    """Of one channel that holds everybody: the words, and a sound that only machines are beside."""
    if greeting and (beep or (beside and "after_the_tone" in found)):
        return LabelKind.VOICEMAIL, 0.9 if beep else 0.6, detail
    if "announcement" in found and beside:
        return LabelKind.ANNOUNCEMENT, 0.7, detail
    return None


def _beside(passage: _Passage, own: Sequence[Label]) -> bool:
    """Whether it rings or music plays right before, or music or a busy tone right after."""
    return any(
        -0.5 <= passage.start - label.end <= (AFTER_A_RING if label.kind is LabelKind.RINGBACK else BESIDE)
        or -0.5 <= label.start - passage.end <= BESIDE
        for label in own
        if label.kind in MACHINE_SOUNDS
    )


def _found(said: Sequence[Word], phrases: Sequence[str]) -> str | None:
    """The longest of the phrases that was said, in the words as recognised; None if none was."""
    tokens = [(token, i) for i, word in enumerate(said) for token in plain(word.text).split()]
    best: tuple[int, int] | None = None
    for phrase in phrases:
        wanted = phrase.split()
        for at in range(len(tokens) - len(wanted) + 1):
            if [token for token, _ in tokens[at : at + len(wanted)]] == wanted:
                if best is None or len(wanted) > best[1] - best[0]:
                    best = (at, at + len(wanted))
                break
    if best is None:
        return None
    return " ".join(word.text.strip() for word in said[tokens[best[0]][1] : tokens[best[1] - 1][1] + 1])


def _beginning(passage: _Passage, own: Sequence[Label], other: Sequence[Label] | None) -> int:
    """The first label of what the machine says: it may have spoken before the words that give it away."""
    first = passage.first
    for i in range(passage.first - 1, -1, -1):
        label = own[i]
        if label.kind is LabelKind.SPEECH and not _speaks(other, label.start, own[first].start):
            first = i
        elif label.kind not in (LabelKind.SILENCE, LabelKind.NOISE) or label.end - label.start > PARAGRAPH:
            break
    return first
