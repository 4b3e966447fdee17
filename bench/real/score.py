"""One output against the truth of its call.

Words are aligned by channel (mixed calls: all together) with the fewest errors; of alignments with equally many, the
one whose words lie closest in time. A word that one side writes in two or three ("world wide", "worldwide"; "sun rise",
"sunrise") is right. Every count belongs to the event (utterance, prompt) in which it happens, so that
intervals come from resampling events. What counts how:

wrong: substituted, deleted and inserted words.
invented: a heard word whose middle is more than `MARGIN` from everything that is said on its channel.
lost without a mark: a deleted word at no more than `NEAR` from no doubt of its channel, whose neighbors in the
    alignment, as far as they were heard, are not doubtful. The time of a word is interpolated between the onset and the
    offset of its event by the number of letters.
doubt: a heard word is marked where it is doubtful; it is wrong where one of its tokens is substituted or inserted.
word times: start of an event's first word against the event's onset, end of its last word against its offset; of words
    that were heard right.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.real.calls import SoundEvent, Truth
from bench.real.normalize import words as normalized
from bench.real.outputs import HeardWord, SystemOutput

MARGIN = 0.5  # seconds
NEAR = 0.5  # seconds
MOST_PARTS = 3  # in which one side may write what is one word to the other


@dataclass(frozen=True, slots=True)
class SaidToken:
    """A token of the truth."""

    token: str
    time: float  # seconds, interpolated
    event: int  # index in `Truth.events`
    first: bool  # of its event
    last: bool


@dataclass(frozen=True, slots=True)
class WrittenWord:
    """What a system wrote between two spaces, one or several `HeardWord`s."""

    start: float
    end: float
    text: str
    confidence: float
    doubtful: bool
    channel: int
    turn: int


@dataclass(frozen=True, slots=True)
class HeardToken:
    """A token of what was heard, and the index of the `WrittenWord` it is of."""

    token: str
    time: float
    written: int


@dataclass(frozen=True, slots=True)
class WordPair:
    """A step of an alignment: both (right or substituted), only `said` (deleted) or only `heard` (inserted).

    One side only and right: a further part of the word before, which the other side writes as one.
    """

    said: int | None
    heard: int | None
    right: bool


@dataclass(slots=True)
class EventScore:
    """Counts of one event; of words inserted before the first event, the first event's."""

    source: str
    words: int = 0
    substituted: int = 0
    deleted: int = 0
    inserted: int = 0
    lost: int = 0  # deleted without a mark
    start_error: float | None = None  # seconds, positive: late
    end_error: float | None = None
    marked_wrong: int = 0  # heard words that are doubtful and wrong
    marked_right: int = 0
    unmarked_wrong: int = 0
    unsure_wrong: int = 0  # whose own confidence is below 0.5
    unsure_right: int = 0
    attributed: int = 0  # tokens aligned to heard ones, in calls where speakers are told by voice
    misattributed: int = 0  # of these, given to another speaker than the one who said it


@dataclass(slots=True)
class SpeechScore:
    """Scores of one output."""

    call: str
    group: str
    system: str
    model: str
    events: list[EventScore] = field(default_factory=list)
    invented: int = 0
    quiet_seconds: float = 0.0  # in which nobody speaks, over all channels
    duration: float = 0.0  # of the call
    seconds: dict[str, float] = field(default_factory=dict)
    language: str | None = None
    language_right: bool = False
    cp_errors: int | None = None  # words wrong with speakers' words one after the other, best permutation
    cp_words: int = 0


def score(truth: Truth, output: SystemOutput) -> SpeechScore:
    """Score an output of a call."""
    found = SpeechScore(truth.name, truth.group, output.system, output.model, seconds=output.seconds)
    found.events = [EventScore(event.source) for event in truth.events]
    found.duration = truth.duration
    found.language, found.language_right = output.language, output.language == truth.language
    for channel in (0,) if truth.mixed else range(truth.channels):
        events = [index for index, event in enumerate(truth.events) if truth.mixed or event.channel == channel]
        heard = written([word for word in output.words if word.channel == channel])
        _score_channel(truth, output, channel, events, heard, found)
    if _several(truth) and output.turns:
        found.cp_errors, found.cp_words = cp_errors(truth, output)
    return found


def _several(truth: Truth) -> bool:
    """Whether a mixed call holds several people."""
    return truth.mixed and len({event.speaker for event in truth.events if event.kind == "speech"}) > 1


def written(words: Sequence[HeardWord]) -> list[WrittenWord]:
    """Words in order of time, those that belong together joined."""
    joined: list[WrittenWord] = []
    for word in words:
        if joined and not word.text.startswith(" ") and joined[-1].turn == word.turn:
            last = joined.pop()
            start, text = last.start, last.text + word.text
            confidence, doubtful = min(last.confidence, word.confidence), last.doubtful or word.doubtful
        else:
            start, text, confidence, doubtful = word.start, word.text, word.confidence, word.doubtful
        joined.append(WrittenWord(start, word.end, text.strip(), confidence, doubtful, word.channel, word.turn))
    return sorted(joined, key=lambda one: (one.start, one.end))


def said_of(truth: Truth, events: Sequence[int]) -> list[SaidToken]:
    """The tokens of events in order of time."""
    found: list[SaidToken] = []
    for index in events:
        event = truth.events[index]
        tokens = normalized(event.text, event.language) if event.spoken else []
        letters = np.cumsum([0, *(len(token) for token in tokens)])
        for at, token in enumerate(tokens):
            share = (letters[at] + len(token) / 2) / letters[-1]
            time = event.onset + float(share) * (event.offset - event.onset)
            found.append(SaidToken(token, time, index, at == 0, at == len(tokens) - 1))
    return sorted(found, key=lambda one: one.time)


def tokens_of(heard: Sequence[WrittenWord], language: str) -> list[HeardToken]:
    """The normalized tokens of written words; a word of several tokens gives each its share of the time."""
    found = []
    for index, one in enumerate(heard):
        tokens = normalized(one.text, language)
        step = (one.end - one.start) / max(1, len(tokens))
        found += [HeardToken(token, one.start + (at + 0.5) * step, index) for at, token in enumerate(tokens)]
    return found


def align(said: Sequence[SaidToken], heard: Sequence[HeardToken]) -> list[WordPair]:
    """The alignment with the fewest errors; ties by closeness in time. A word in parts is right: see `WordPair`."""
    rows, columns = len(said), len(heard)
    codes: dict[str, int] = {}
    ours = np.array([codes.setdefault(one.token, len(codes)) for one in said], int)
    theirs = np.array([codes.setdefault(one.token, len(codes)) for one in heard], int)
    apart = np.abs(np.subtract.outer([one.time for one in said], [one.time for one in heard]))
    tie = 0.4 / max(1, rows, columns) * np.minimum(apart / 10, 1.0)
    differs = (ours[:, None] != theirs[None, :]).astype(float) + tie if rows and columns else np.zeros((rows, columns))
    compounds = _compounds(said, heard)
    steps = np.arange(columns + 1, dtype=float)
    cost = np.empty((rows + 1, columns + 1))
    cost[0] = steps
    for row in range(rows):
        best = cost[row] + 1
        best[1:] = np.minimum(best[1:], cost[row, :-1] + differs[row])
        for column, parts in compounds.get(row, {}).items():
            best[column + 1] = min(best[column + 1], _before(cost, tie, row, column, parts))
        cost[row + 1] = np.minimum.accumulate(best - steps) + steps
    pairs: list[WordPair] = []
    row, column = rows, columns
    while row or column:
        joined = compounds.get(row - 1, {}).get(column - 1)
        if row and column and _same(cost[row, column], cost[row - 1, column - 1] + differs[row - 1, column - 1]):
            row, column = row - 1, column - 1
            pairs.append(WordPair(row, column, bool(ours[row] == theirs[column])))
        elif joined and _same(cost[row, column], _before(cost, tie, row - 1, column - 1, joined)):
            row, column = row - joined[0], column - joined[1]
            pairs += [WordPair(row + at, None, True) for at in reversed(range(1, joined[0]))]
            pairs += [WordPair(None, column + at, True) for at in reversed(range(1, joined[1]))]
            pairs.append(WordPair(row, column, True))
        elif row and _same(cost[row, column], cost[row - 1, column] + 1):
            row -= 1
            pairs.append(WordPair(row, None, False))
        else:
            column -= 1
            pairs.append(WordPair(None, column, False))
    return pairs[::-1]


def _compounds(said: Sequence[SaidToken], heard: Sequence[HeardToken]) -> dict[int, dict[int, tuple[int, int]]]:
    """By the last word of each side, in how many words each writes the same letters: one of them in one."""
    found: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for size in range(2, MOST_PARTS + 1):
        ours, theirs = (_joined([one.token for one in side], size) for side in (said, heard))
        for column, token in enumerate(heard):
            for last in (first + size - 1 for first in ours.get(token.token, ())):
                if said[last].event == said[last + 1 - size].event:
                    found[last][column] = size, 1
        for row, one in enumerate(said):
            for first in theirs.get(one.token, ()):
                found[row][first + size - 1] = 1, size
    return found


def _joined(tokens: Sequence[str], size: int) -> dict[str, list[int]]:
    """By what so many tokens in a row spell, where they begin."""
    found: dict[str, list[int]] = defaultdict(list)
    for first in range(len(tokens) - size + 1):
        found["".join(tokens[first : first + size])].append(first)
    return found


def _before(cost: Any, tie: Any, row: int, column: int, parts: tuple[int, int]) -> float:
    """What an alignment costs whose last step is the compound that ends with these words."""
    first, beside = row + 1 - parts[0], column + 1 - parts[1]
    return float(cost[first, beside] + tie[first, beside])


def _same(cost: float, other: float) -> bool:
    return abs(cost - other) <= 1e-9


def _score_channel(
    truth: Truth,
    output: SystemOutput,
    channel: int,
    events: Sequence[int],
    heard: list[WrittenWord],
    found: SpeechScore,
) -> None:
    said = said_of(truth, events)
    tokens = tokens_of(heard, truth.language)
    pairs = align(said, tokens)
    spoken = [truth.events[index] for index in events if truth.events[index].spoken]
    found.quiet_seconds += truth.duration - _covered(spoken, truth.duration)
    found.invented += sum(1 for one in heard if _outside(one, spoken))
    _count(truth, output, channel, pairs, said, tokens, heard, found)
    if _several(truth) and output.turns:
        _attribute(truth, output, pairs, said, tokens, heard, found)


def _count(
    truth: Truth,
    output: SystemOutput,
    channel: int,
    pairs: Sequence[WordPair],
    said: Sequence[SaidToken],
    tokens: Sequence[HeardToken],
    heard: Sequence[WrittenWord],
    found: SpeechScore,
) -> None:
    doubts = [(doubt.start - NEAR, doubt.end + NEAR) for doubt in output.doubts if doubt.channel == channel]
    event_of: dict[int, int] = {}  # by written word
    wrong: set[int] = set()
    at = said[0].event if said else (0 if found.events else -1)
    for step, pair in enumerate(pairs):
        if pair.said is not None:
            one = said[pair.said]
            at = one.event
            own = found.events[at]
            own.words += 1
            if pair.heard is None and not pair.right:
                own.deleted += 1
                own.lost += not _marked(one.time, doubts, pairs, step, tokens, heard)
            elif pair.right:
                if one.first and pair.heard is not None:
                    own.start_error = heard[tokens[pair.heard].written].start - truth.events[at].onset
                if one.last:
                    own.end_error = heard[tokens[_last_part(pairs, step)].written].end - truth.events[at].offset
            else:
                own.substituted += 1
        elif at >= 0 and not pair.right:
            found.events[at].inserted += 1
        if pair.heard is not None:
            index = tokens[pair.heard].written
            event_of.setdefault(index, at)
            if not pair.right:
                wrong.add(index)
    for index, at in event_of.items():
        if at >= 0:
            _count_mark(found.events[at], heard[index], index in wrong)


def _last_part(pairs: Sequence[WordPair], step: int) -> int:
    """The heard word with which a right one ends."""
    found = next(pair.heard for pair in reversed(pairs[: step + 1]) if pair.heard is not None)
    for pair in pairs[step + 1 :]:
        if pair.said is not None or pair.heard is None or not pair.right:
            break
        found = pair.heard
    return found


def _count_mark(own: EventScore, word: WrittenWord, wrong: bool) -> None:
    if word.doubtful:
        own.marked_wrong += wrong
        own.marked_right += not wrong
    else:
        own.unmarked_wrong += wrong
    if word.confidence < 0.5:
        own.unsure_wrong += wrong
        own.unsure_right += not wrong


def _marked(
    time: float,
    doubts: Sequence[tuple[float, float]],
    pairs: Sequence[WordPair],
    step: int,
    tokens: Sequence[HeardToken],
    heard: Sequence[WrittenWord],
) -> bool:
    if any(start <= time <= end for start, end in doubts):
        return True
    before = next((pair.heard for pair in reversed(pairs[:step]) if pair.heard is not None), None)
    after = next((pair.heard for pair in pairs[step + 1 :] if pair.heard is not None), None)
    return any(heard[tokens[index].written].doubtful for index in (before, after) if index is not None)


def _outside(word: WrittenWord, spoken: Sequence[SoundEvent]) -> bool:
    middle = (word.start + word.end) / 2
    return all(middle < event.onset - MARGIN or middle > event.offset + MARGIN for event in spoken)


def _covered(spoken: Sequence[SoundEvent], duration: float) -> float:
    """Seconds within `MARGIN` of what is said."""
    covered, until = 0.0, 0.0
    for event in sorted(spoken, key=lambda event: event.onset):
        start, end = max(until, event.onset - MARGIN), min(duration, event.offset + MARGIN)
        covered += max(0.0, end - start)
        until = max(until, end)
    return covered


def _attribute(
    truth: Truth,
    output: SystemOutput,
    pairs: Sequence[WordPair],
    said: Sequence[SaidToken],
    tokens: Sequence[HeardToken],
    heard: Sequence[WrittenWord],
    found: SpeechScore,
) -> None:
    """Words given to another speaker; the system's labels stand for the speakers that fit best. Machines' words are
    left out: whose they are is asked elsewhere."""
    both = [
        (said[pair.said].event, output.turns[heard[tokens[pair.heard].written].turn].speaker)
        for pair in pairs
        if pair.said is not None
        and pair.heard is not None
        and truth.events[said[pair.said].event].kind == "speech"
        and heard[tokens[pair.heard].written].turn >= 0
    ]
    votes: dict[tuple[str, str], int] = defaultdict(int)
    for index, label in both:
        votes[truth.events[index].speaker, label] += 1
    stands_for = _best_match(votes)
    for index, label in both:
        found.events[index].attributed += 1
        found.events[index].misattributed += stands_for.get(label) != truth.events[index].speaker


def _best_match(votes: dict[tuple[str, str], int]) -> dict[str, str]:
    """By label, the speaker, one to one, with most words right."""
    from scipy.optimize import linear_sum_assignment

    speakers, labels = sorted({pair[0] for pair in votes}), sorted({pair[1] for pair in votes})
    table = np.array([[votes.get((speaker, label), 0) for label in labels] for speaker in speakers]).reshape(
        len(speakers), len(labels)
    )
    chosen = zip(*linear_sum_assignment(-table), strict=True)
    return {labels[column]: speakers[row] for row, column in chosen}


def cp_errors(truth: Truth, output: SystemOutput) -> tuple[int, int]:
    """Errors and words of cpWER: each speaker's words one after the other, labels permuted for the fewest errors.

    What machines say, and turns that the system gives to a machine, is one more speaker.
    """
    from scipy.optimize import linear_sum_assignment

    ours: dict[str, list[SaidToken]] = defaultdict(list)
    for one in said_of(truth, range(len(truth.events))):
        event = truth.events[one.event]
        ours[event.speaker if event.kind == "speech" else "machine"].append(one)
    theirs: dict[str, list[HeardWord]] = defaultdict(list)
    for word in output.words:
        turn = output.turns[word.turn]
        theirs["machine" if turn.machine else turn.speaker].append(word)
    said = list(ours.values())
    heard = [tokens_of(written(own), truth.language) for own in theirs.values()]
    size = max(len(said), len(heard))
    said += [[]] * (size - len(said))
    heard += [[]] * (size - len(heard))
    errors = np.array([[sum(not pair.right for pair in align(left, right)) for right in heard] for left in said])
    if not size:
        return 0, 0
    return int(errors[linear_sum_assignment(errors)].sum()), sum(map(len, said))


def language_of_prompts(truth: Truth, output: SystemOutput) -> list[bool]:
    """For each event with words: whether most of the words heard during it are in turns of its language; False where
    none is heard. A system without turns has one language for all."""
    found = []
    words = sorted(output.words, key=lambda word: word.start)
    starts = [word.start for word in words]
    for event in truth.events:
        if not event.spoken:
            continue
        own = words[bisect_left(starts, event.onset - MARGIN) : bisect_left(starts, event.offset)]
        languages = [output.turns[word.turn].language if word.turn >= 0 else output.language for word in own]
        found.append(2 * languages.count(event.language) > len(languages))
    return found
