"""Score one output against the truth of its call.

Words are aligned by channel (mixed calls: all together) with the fewest errors; among equal alignments, the one whose
words are closest in time. A word that one side writes in two or three parts ("world wide", "worldwide"; "sun rise",
"sunrise") is right. Every count belongs to the event (utterance, prompt) in which it occurs, so that intervals come
from resampling events. Definitions:

wrong: substituted, deleted and inserted words.
invented: a recognized word whose middle is more than `MARGIN` from all speech on its channel.
lost without a mark: a deleted word further than `NEAR` from any doubt of its channel, whose recognized neighbors in the
    alignment are not doubtful. The time of a word is interpolated between the onset and the offset of its event by the
    number of letters.
doubt: a recognized word is marked if it is doubtful; it is wrong if one of its tokens is substituted or inserted.
word times: start of an event's first word against the event's onset, end of its last word against its offset; of words
    that are right.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.real.calls import SoundEvent, Truth
from bench.real.normalize import words as normalized
from bench.real.outputs import RecognizedWord, SystemOutput

MARGIN = 0.5  # seconds
NEAR = 0.5  # seconds
MAX_PARTS = 3  # of a word of the other side


@dataclass(frozen=True, slots=True)
class ReferenceToken:
    """A token of the truth."""

    token: str
    time: float  # seconds, interpolated
    event: int  # index in `Truth.events`
    first: bool  # of its event
    last: bool


@dataclass(frozen=True, slots=True)
class WrittenWord:
    """What a system wrote between two spaces, one or several `RecognizedWord`s."""

    start: float
    end: float
    text: str
    confidence: float
    doubtful: bool
    channel: int
    turn: int


@dataclass(frozen=True, slots=True)
class RecognizedToken:
    """A recognized token, and the index of its `WrittenWord`."""

    token: str
    time: float
    written: int


@dataclass(frozen=True, slots=True)
class WordPair:
    """A step of an alignment: both (right or substituted), only `spoken` (deleted) or only `recognized` (inserted).

    If only one side is set and right: a further part of the previous word, which the other side writes as one.
    """

    spoken: int | None
    recognized: int | None
    right: bool


@dataclass(slots=True)
class EventScore:
    """Counts of one event; of words inserted before the first event, the first event's."""

    source: str
    words: int = 0
    substituted: int = 0
    deleted: int = 0
    inserted: int = 0
    unmarked_deleted: int = 0
    start_error: float | None = None  # seconds, positive: late
    end_error: float | None = None
    marked_wrong: int = 0  # recognized words that are doubtful and wrong
    marked_right: int = 0
    unmarked_wrong: int = 0
    unsure_wrong: int = 0  # whose own confidence is below 0.5
    unsure_right: int = 0
    attributed: int = 0  # tokens aligned to recognized ones, in calls with speakers separated by voice
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
    quiet_seconds: float = 0.0  # without speech, over all channels
    duration: float = 0.0  # of the call
    seconds: dict[str, float] = field(default_factory=dict)
    language: str | None = None
    language_right: bool = False
    cp_errors: int | None = None  # words wrong with speakers' words one after the other, best permutation
    cp_words: int = 0


def score(truth: Truth, output: SystemOutput) -> SpeechScore:
    """Score an output of a call."""
    result = SpeechScore(truth.name, truth.group, output.system, output.model, seconds=output.seconds)
    result.events = [EventScore(event.source) for event in truth.events]
    result.duration = truth.duration
    result.language, result.language_right = output.language, output.language == truth.language
    for channel in (0,) if truth.mixed else range(truth.channels):
        events = [index for index, event in enumerate(truth.events) if truth.mixed or event.channel == channel]
        recognized = written([word for word in output.words if word.channel == channel])
        _score_channel(truth, output, channel, events, recognized, result)
    if _several(truth) and output.turns:
        result.cp_errors, result.cp_words = cp_errors(truth, output)
    return result


def _several(truth: Truth) -> bool:
    """Return whether a mixed call has several speakers."""
    return truth.mixed and len({event.speaker for event in truth.events if event.kind == "speech"}) > 1


def written(words: Sequence[RecognizedWord]) -> list[WrittenWord]:
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
    return sorted(joined, key=lambda word: (word.start, word.end))


def reference_tokens(truth: Truth, events: Sequence[int]) -> list[ReferenceToken]:
    """Return the tokens of events in order of time."""
    reference: list[ReferenceToken] = []
    for index in events:
        event = truth.events[index]
        tokens = normalized(event.text, event.language) if event.spoken else []
        letters = np.cumsum([0, *(len(token) for token in tokens)])
        for at, token in enumerate(tokens):
            share = (letters[at] + len(token) / 2) / letters[-1]
            time = event.onset + float(share) * (event.offset - event.onset)
            reference.append(ReferenceToken(token, time, index, at == 0, at == len(tokens) - 1))
    return sorted(reference, key=lambda token: token.time)


def tokens_of(words: Sequence[WrittenWord], language: str) -> list[RecognizedToken]:
    """Return the normalized tokens of written words; several tokens of a word share its time."""
    result = []
    for index, word in enumerate(words):
        tokens = normalized(word.text, language)
        step = (word.end - word.start) / max(1, len(tokens))
        result += [RecognizedToken(token, word.start + (at + 0.5) * step, index) for at, token in enumerate(tokens)]
    return result


def align(reference: Sequence[ReferenceToken], recognized: Sequence[RecognizedToken]) -> list[WordPair]:
    """Align with the fewest errors; ties by closeness in time. A word in parts is right: see `WordPair`."""
    rows, columns = len(reference), len(recognized)
    codes: dict[str, int] = {}
    ours = np.array([codes.setdefault(token.token, len(codes)) for token in reference], int)
    theirs = np.array([codes.setdefault(token.token, len(codes)) for token in recognized], int)
    apart = np.abs(np.subtract.outer([token.time for token in reference], [token.time for token in recognized]))
    tie = 0.4 / max(1, rows, columns) * np.minimum(apart / 10, 1.0)
    differs = (ours[:, None] != theirs[None, :]).astype(float) + tie if rows and columns else np.zeros((rows, columns))
    compounds = _compounds(reference, recognized)
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


def _compounds(
    reference: Sequence[ReferenceToken], recognized: Sequence[RecognizedToken]
) -> dict[int, dict[int, tuple[int, int]]]:
    """Return by the last word of each side the number of words with equal letters, one side in a single word."""
    compounds: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for size in range(2, MAX_PARTS + 1):
        ours, theirs = (_joined([token.token for token in side], size) for side in (reference, recognized))
        for column, token in enumerate(recognized):
            for last in (first + size - 1 for first in ours.get(token.token, ())):
                if reference[last].event == reference[last + 1 - size].event:
                    compounds[last][column] = size, 1
        for row, reference_token in enumerate(reference):
            for first in theirs.get(reference_token.token, ()):
                compounds[row][first + size - 1] = 1, size
    return compounds


def _joined(tokens: Sequence[str], size: int) -> dict[str, list[int]]:
    """Return the start positions by the spelling of `size` consecutive tokens."""
    starts: dict[str, list[int]] = defaultdict(list)
    for first in range(len(tokens) - size + 1):
        starts["".join(tokens[first : first + size])].append(first)
    return starts


def _before(cost: Any, tie: Any, row: int, column: int, parts: tuple[int, int]) -> float:
    """Return the cost of an alignment whose last step is the compound that ends with these words."""
    before_row, before_column = row + 1 - parts[0], column + 1 - parts[1]
    return float(cost[before_row, before_column] + tie[before_row, before_column])


def _same(cost: float, other: float) -> bool:
    return abs(cost - other) <= 1e-9


def _score_channel(
    truth: Truth,
    output: SystemOutput,
    channel: int,
    events: Sequence[int],
    words: list[WrittenWord],
    result: SpeechScore,
) -> None:
    reference = reference_tokens(truth, events)
    tokens = tokens_of(words, truth.language)
    pairs = align(reference, tokens)
    spoken = [truth.events[index] for index in events if truth.events[index].spoken]
    result.quiet_seconds += truth.duration - _covered(spoken, truth.duration)
    result.invented += sum(1 for word in words if _outside(word, spoken))
    _count(truth, output, channel, pairs, reference, tokens, words, result)
    if _several(truth) and output.turns:
        _attribute(truth, output, pairs, reference, tokens, words, result)


def _count(
    truth: Truth,
    output: SystemOutput,
    channel: int,
    pairs: Sequence[WordPair],
    reference: Sequence[ReferenceToken],
    tokens: Sequence[RecognizedToken],
    words: Sequence[WrittenWord],
    result: SpeechScore,
) -> None:
    doubts = [(doubt.start - NEAR, doubt.end + NEAR) for doubt in output.doubts if doubt.channel == channel]
    event_of: dict[int, int] = {}  # by written word
    wrong: set[int] = set()
    at = reference[0].event if reference else (0 if result.events else -1)
    for step, pair in enumerate(pairs):
        if pair.spoken is not None:
            token = reference[pair.spoken]
            at = token.event
            event_score = result.events[at]
            event_score.words += 1
            if pair.recognized is None and not pair.right:
                event_score.deleted += 1
                event_score.unmarked_deleted += not _marked(token.time, doubts, pairs, step, tokens, words)
            elif pair.right:
                if token.first and pair.recognized is not None:
                    event_score.start_error = words[tokens[pair.recognized].written].start - truth.events[at].onset
                if token.last:
                    event_score.end_error = words[tokens[_last_part(pairs, step)].written].end - truth.events[at].offset
            else:
                event_score.substituted += 1
        elif at >= 0 and not pair.right:
            result.events[at].inserted += 1
        if pair.recognized is not None:
            index = tokens[pair.recognized].written
            event_of.setdefault(index, at)
            if not pair.right:
                wrong.add(index)
    for index, at in event_of.items():
        if at >= 0:
            _count_mark(result.events[at], words[index], index in wrong)


def _last_part(pairs: Sequence[WordPair], step: int) -> int:
    """Return the recognized word that ends a right one."""
    index = next(pair.recognized for pair in reversed(pairs[: step + 1]) if pair.recognized is not None)
    for pair in pairs[step + 1 :]:
        if pair.spoken is not None or pair.recognized is None or not pair.right:
            break
        index = pair.recognized
    return index


def _count_mark(event_score: EventScore, word: WrittenWord, wrong: bool) -> None:
    if word.doubtful:
        event_score.marked_wrong += wrong
        event_score.marked_right += not wrong
    else:
        event_score.unmarked_wrong += wrong
    if word.confidence < 0.5:
        event_score.unsure_wrong += wrong
        event_score.unsure_right += not wrong


def _marked(
    time: float,
    doubts: Sequence[tuple[float, float]],
    pairs: Sequence[WordPair],
    step: int,
    tokens: Sequence[RecognizedToken],
    words: Sequence[WrittenWord],
) -> bool:
    if any(start <= time <= end for start, end in doubts):
        return True
    before = next((pair.recognized for pair in reversed(pairs[:step]) if pair.recognized is not None), None)
    after = next((pair.recognized for pair in pairs[step + 1 :] if pair.recognized is not None), None)
    return any(words[tokens[index].written].doubtful for index in (before, after) if index is not None)


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
    reference: Sequence[ReferenceToken],
    tokens: Sequence[RecognizedToken],
    words: Sequence[WrittenWord],
    result: SpeechScore,
) -> None:
    """Count words assigned to another speaker, with the best mapping of the system's labels. Words of machines are
    excluded.
    """
    both = [
        (reference[pair.spoken].event, output.turns[words[tokens[pair.recognized].written].turn].speaker)
        for pair in pairs
        if pair.spoken is not None
        and pair.recognized is not None
        and truth.events[reference[pair.spoken].event].kind == "speech"
        and words[tokens[pair.recognized].written].turn >= 0
    ]
    votes: dict[tuple[str, str], int] = defaultdict(int)
    for index, label in both:
        votes[truth.events[index].speaker, label] += 1
    stands_for = _best_match(votes)
    for index, label in both:
        result.events[index].attributed += 1
        result.events[index].misattributed += stands_for.get(label) != truth.events[index].speaker


def _best_match(votes: dict[tuple[str, str], int]) -> dict[str, str]:
    """Return the speaker by label, one to one, with the most right words."""
    from scipy.optimize import linear_sum_assignment

    speakers, labels = sorted({pair[0] for pair in votes}), sorted({pair[1] for pair in votes})
    table = np.array([[votes.get((speaker, label), 0) for label in labels] for speaker in speakers]).reshape(
        len(speakers), len(labels)
    )
    chosen = zip(*linear_sum_assignment(-table), strict=True)
    return {labels[column]: speakers[row] for row, column in chosen}


def cp_errors(truth: Truth, output: SystemOutput) -> tuple[int, int]:
    """Return errors and words of cpWER: each speaker's words in sequence, labels permuted for the fewest errors.

    Machines, and turns that the system assigns to a machine, are one more speaker.
    """
    from scipy.optimize import linear_sum_assignment

    ours: dict[str, list[ReferenceToken]] = defaultdict(list)
    for token in reference_tokens(truth, range(len(truth.events))):
        event = truth.events[token.event]
        ours[event.speaker if event.kind == "speech" else "machine"].append(token)
    theirs: dict[str, list[RecognizedWord]] = defaultdict(list)
    for word in output.words:
        turn = output.turns[word.turn]
        theirs["machine" if turn.machine else turn.speaker].append(word)
    references = list(ours.values())
    recognized = [tokens_of(written(speaker_words), truth.language) for speaker_words in theirs.values()]
    size = max(len(references), len(recognized))
    references += [[]] * (size - len(references))
    recognized += [[]] * (size - len(recognized))
    errors = np.array(
        [
            [sum(not pair.right for pair in align(reference, tokens)) for tokens in recognized]
            for reference in references
        ]
    )
    if not size:
        return 0, 0
    return int(errors[linear_sum_assignment(errors)].sum()), sum(map(len, references))


def language_of_prompts(truth: Truth, output: SystemOutput) -> list[bool]:
    """Return for each event with words whether most words recognized during it are in turns of its language; False
    without any. A system without turns has one language for all.
    """
    matches = []
    words = sorted(output.words, key=lambda word: word.start)
    starts = [word.start for word in words]
    for event in truth.events:
        if not event.spoken:
            continue
        event_words = words[bisect_left(starts, event.onset - MARGIN) : bisect_left(starts, event.offset)]
        languages = [output.turns[word.turn].language if word.turn >= 0 else output.language for word in event_words]
        matches.append(2 * languages.count(event.language) > len(languages))
    return matches
