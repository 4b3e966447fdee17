"""What answers a request for a value, or follows its announcement, whether or not a recognizer wrote it.

A stretch lasts from the cue until the asking party moves on. In it, sound without words is hidden, and so are words that
do not read as another kind of answer.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.domain.redaction import Entity, EntityKind
from pipeline.redaction.answers import MAX_TO_END, MAX_WORDS, after_verb, is_figure, is_own, is_stopword, opens
from pipeline.redaction.channel import Channel
from pipeline.redaction.cues import MAX_LOOK, Cue
from pipeline.redaction.lines import MAX_UNCLAIMED, Line
from pipeline.redaction.numbers import POSSIBLE, WHOLE
from pipeline.redaction.runs import interruptions

MAX_ASKED = 45.0  # seconds from the request to the end of its answer
MAX_STATED = 15.0  # ... from an announcement to the end of the value
MAX_TO_SOUND = 1.0  # ... from an announcement to sound without words that is its value
MIN_STATED = 0.8  # seconds of that sound
PAUSE = 0.7  # seconds between two utterances of a party
MAX_UTTERANCE = 40  # tokens of a request after its cue
MAX_SIGNAL = 3  # words of an utterance that lets the other party continue: "okay, go ahead"
MIN_SURE = 6  # digits with which "6 euro 6 5" is no amount
MIN_FLUENT, SURE = 5, 0.85  # words without a digit that are recognized with this mean confidence are another answer
MIN_FIGURES = 2  # digits and letters of a segment that is a value in any case
EARLY = 0.2  # seconds by which a word after a cue may begin too early
ALWAYS = frozenset({EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.IBAN, EntityKind.NATIONAL_ID})
"""Kinds of which an answer is hidden also without a digit."""
_CARD = {EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY}
KINDS = ALWAYS | {EntityKind.CARD_EXPIRY, EntityKind.PHONE, EntityKind.BIRTH_DATE, EntityKind.EMAIL, EntityKind.ADDRESS, EntityKind.ACCOUNT, EntityKind.PASSWORD}


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a channel says from token `first` and second `start` to `end`, which may be the value of a cue."""

    kind: EntityKind
    first: int
    start: float
    end: float
    is_asked: bool


def hide(channels: Sequence[Channel]) -> None:
    """Hide the values in the stretches of a call, besides what its channels hide."""
    for asking in channels:
        for cue in asking.cues.cues:
            if cue.channel == asking.line.channel and cue.kind in KINDS:
                others = [each for each in channels if each is not asking] or [asking]
                last = _end_of_utterance(asking.line, cue.last)
                if _asks(asking.line, cue, last):
                    for answering in others:
                        _hide(answering, _answer(asking.line, answering.line, cue, last))
                else:
                    end = min(_end_of_value(each.line, cue) for each in others)
                    first = after_verb(asking.line, cue) or len(asking.line.tokens)
                    _hide(asking, Stretch(EntityKind(cue.kind), first, cue.end, end, is_asked=False))


def _asks(line: Line, cue: Cue, last: int) -> bool:
    """Return whether a cue is the end of a request, whose speaker does not state the value."""
    first = cue.first
    while first and cue.first - first < MAX_LOOK and _continues(line, first - 1) and line.lower[first - 1] not in ".?!":
        first -= 1
    end = next((at for at in range(cue.last + 1, last + 1) if line.lower[at] in ".?!"), last + 1)
    before, rest = range(first, cue.first), range(cue.last + 1, end)
    if is_own(line, cue) or any(is_figure(line, at) for at in rest) or _is_ordinary(line, cue):
        return False
    words = [line.lower[at] for at in (*before, *rest) if line.lower[at].isalnum()]
    if end <= last and line.lower[end] == "?":
        return True
    if sum(line.lower[at].isalnum() for at in rest) > MAX_TO_END:
        return False
    language = line.packs[cue.first]
    if any(word in language.words("redaction", "requests") for word in words):
        return True
    is_short = len(words) <= MAX_SIGNAL and all(word in language.words("text", "stopwords") for word in words)
    return bool(words) and is_short and cue.kind in ALWAYS


def _is_ordinary(line: Line, cue: Cue) -> bool:
    said = " ".join(line.lower[cue.first : cue.last + 1])
    return said in line.packs[cue.first].words("redaction", "not_asked")


def _answer(asking: Line, answering: Line, cue: Cue, last: int) -> Stretch:
    kind = EntityKind(cue.kind)
    if asking is answering:  # the next utterance is the answer
        first = next((at + 1 for at in range(cue.last, last) if asking.lower[at] == "?"), last + 1)
        start = asking.words[first - 1].end
        while first < len(asking.tokens) and _is_signal(asking, first, _end_of_utterance(asking, first)):
            first = _end_of_utterance(asking, first) + 1
        after = first
        while after < len(asking.tokens) and asking.words[after].text == asking.words[first].text:
            after += 1
        return Stretch(kind, first, start, min(start + MAX_ASKED, _next_move(asking, after)), is_asked=True)
    first = _first_from(answering, cue.end - EARLY)
    sounds = [piece.end for piece in answering.unwritten if piece.end > cue.end][:1]
    starts = [place.start for place in answering.words[first : first + 1]] + [max(cue.end, end - 1.0) for end in sounds]
    after = max(last + 1, _first_from(asking, min(starts, default=cue.end)))
    return Stretch(kind, first, cue.end, min(cue.end + MAX_ASKED, _next_move(asking, after)), is_asked=True)


def _end_of_value(other: Line, cue: Cue) -> float:
    """Return when the other party moves on after an announcement; on a mixed channel, when its turn ends."""
    if not other.mixed:
        return min(cue.end + MAX_STATED, _next_move(other, _first_from(other, cue.end)))
    after = range(cue.last + 1, min(cue.last + MAX_UTTERANCE, len(other.tokens)))
    return next((other.words[at].start for at in after if other.words[at].text != other.words[cue.last].text), cue.end + MAX_STATED)


def _next_move(line: Line, first: int) -> float:
    """Return when the first utterance from a token on begins that does more than let the other party continue."""
    at = first
    while at < len(line.tokens):
        last = _end_of_utterance(line, at)
        if not _is_signal(line, at, last):
            return line.words[at].start
        at = last + 1
    return float("inf")


def _is_signal(line: Line, first: int, last: int) -> bool:
    words = [at for at in range(first, last + 1) if line.lower[at].isalnum()]
    return len(words) <= MAX_SIGNAL and all(
        line.lower[at] in interruptions(line.packs[at].language) and not is_figure(line, at) for at in words
    )


def _end_of_utterance(line: Line, at: int) -> int:
    limit = min(at + MAX_UTTERANCE, len(line.tokens) - 1)
    while at < limit and _continues(line, at):
        at += 1
    return at


def _continues(line: Line, at: int) -> bool:
    place, following = line.words[at], line.words[at + 1]
    return following.text == place.text and following.start - place.end <= PAUSE


def _first_from(line: Line, second: float) -> int:
    return bisect_left(line.words, second, key=lambda place: place.start)


def _hide(channel: Channel, stretch: Stretch) -> None:
    line, end, figures, has_value = channel.line, stretch.end, 0, False
    whole = WHOLE.get(stretch.kind, 4)
    for tokens in _segments(line, stretch.first, end):
        latest = next(channel.cues.before(line.channel, tokens[-1], line.words[tokens[-1]].start), None)
        if latest and latest.kind != stretch.kind and {latest.kind, stretch.kind} - _CARD:
            continue
        count = sum(_figures(line, at) for at in tokens)
        taken = [at for at in tokens if channel.taken.get(at) in KINDS]
        if sum(_figures(line, at) for at in taken) < whole and _is_value(line, stretch, tokens, count):
            while tokens and count < MIN_FIGURES and (opens(line, tokens[0]) or is_stopword(line, tokens[0])):
                tokens = tokens[1:]
            channel.add(stretch.kind, [at for at in tokens if at not in channel.taken], POSSIBLE)
            taken = tokens
        if taken:
            figures, has_value = figures + count, True
            if figures >= whole or not stretch.is_asked:
                end = min(stretch.end, line.words[tokens[-1]].end + MAX_UNCLAIMED)
            if figures >= whole:
                break
    sounds = [piece for piece in line.unwritten if piece.start < end and piece.end > stretch.start]
    if not (stretch.is_asked or has_value):
        sounds = [each for each in sounds[:1] if each.start < stretch.start + MAX_TO_SOUND and each.end - stretch.start >= MIN_STATED]
    for piece in sounds:
        clipped = replace(piece, start=max(piece.start, stretch.start), end=min(piece.end, end))
        channel.entities.append(Entity(stretch.kind, (clipped,), POSSIBLE))


def _segments(line: Line, first: int, end: float) -> Iterator[list[int]]:
    """Yield the tokens of sentences and what is said between pauses."""
    tokens: list[int] = []
    for at in range(first, len(line.tokens)):
        if line.words[at].start >= end:
            break
        if line.lower[at].isalnum():
            tokens.append(at)
        if line.lower[at] in ".?!;" or at + 1 == len(line.tokens) or not _continues(line, at):
            if tokens:
                yield tokens
            tokens = []
    if tokens:
        yield tokens


def _figures(line: Line, at: int) -> int:
    """Return how many digits, or single letters, a token has; "one" is a digit next to others; a month has two."""
    word, language = line.lower[at], line.packs[at]
    if word in language.months:
        return 2
    if not word.isalpha() or not is_stopword(line, at) | opens(line, at):
        return sum(sign.isdecimal() for sign in word) or int(is_figure(line, at) or len(word) == 1)
    near = (each for each in (at - 1, at + 1) if 0 <= each < len(line.tokens) and not is_stopword(line, each) | opens(line, each))
    return int(is_figure(line, at) and word not in language.get("numbers", "not_digits") and any(is_figure(line, each) for each in near))


def _is_value(line: Line, stretch: Stretch, tokens: list[int], count: int) -> bool:
    """Return whether a segment may be a value, and is no other kind of answer."""
    language, kind = line.packs[tokens[0]], stretch.kind
    words = {line.lower[at] for at in tokens}
    if kind is EntityKind.EMAIL and not words.isdisjoint(language.words("contact", "dot")):
        return True
    if count < MIN_SURE and not words.isdisjoint(language.words("redaction", "units")):
        return False
    numbers = sum(_figures(line, at) > 0 for at in tokens)
    others = sum(not is_stopword(line, at) and not opens(line, at) and not _figures(line, at) for at in tokens)
    if count >= MIN_FIGURES and (kind in ALWAYS or others <= max(MAX_WORDS, numbers)):
        return True
    if not stretch.is_asked or kind not in ALWAYS:
        return False
    if line.lower[min(tokens[-1] + 1, len(line.lower) - 1)] == "?":
        return False
    if len(tokens) >= MIN_FLUENT and not count and line.sure(tokens) >= SURE:
        return False
    denies = language.words("redaction", "no_value")
    return words.isdisjoint(denies) and not all(opens(line, at) or is_stopword(line, at) for at in tokens)
