"""What answers a request for a value, or follows its announcement, whether or not a recognizer wrote it.

A stretch lasts from the cue until the asking party moves on, or the value is complete. In it, sound without words is
hidden, and so are words that do not read as another kind of answer. Where that is unclear, more is hidden, not less.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.domain.redaction import Entity, EntityKind, EntityWords
from pipeline.redaction.answers import MAX_TO_END, MAX_WORDS, after_verb, is_figure, is_own, is_stopword, opens
from pipeline.redaction.channel import Channel
from pipeline.redaction.cues import MAX_LOOK, Cue
from pipeline.redaction.lines import DOUBTFUL, MAX_UNCLAIMED, Line
from pipeline.redaction.numbers import POSSIBLE, WHOLE
from pipeline.redaction.runs import interruptions

MAX_ASKED, MAX_STATED = 45.0, 15.0  # seconds from a request, and from an announcement, to the end of the value
MAX_TO_SOUND, MIN_STATED = 1.0, 0.8  # seconds from an announcement to sound that is its value, and of that sound
PAUSE = 0.7  # seconds between two utterances of a party
EARLY = 0.2  # seconds by which the time of a word may be too early
MAX_UTTERANCE = 40  # tokens of a request after its cue
MAX_SIGNAL = 3  # words of an utterance that lets the other party continue: "okay, go ahead"
MIN_FIGURES, MIN_STATED_FIGURES, MIN_SURE = 2, 3, 6  # digits of an answer, of an announced value, of no amount
MIN_FLUENT, SURE = 5, 0.85  # words without a digit that are recognized with this mean confidence are another answer
MIN_WHOLE = 3  # digits of a value of another kind than those of `WHOLE`
_CARD = frozenset({EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY})
ALWAYS = frozenset({EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.IBAN, EntityKind.NATIONAL_ID})
"""Kinds of which an answer is hidden also without a digit."""
KINDS = ALWAYS | _CARD | {
    EntityKind.ACCOUNT, EntityKind.PHONE, EntityKind.BIRTH_DATE, EntityKind.PASSWORD, EntityKind.EMAIL,
    EntityKind.ADDRESS,
}  # fmt: skip
OF_WORDS = frozenset({EntityKind.EMAIL, EntityKind.SPELLED_NAME})  # hidden where half of the words are in doubt


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a channel says from token `first`, with sound from `start`, to `end`: perhaps the value of a cue."""

    kind: EntityKind
    first: int
    start: float
    end: float
    is_asked: bool


def hide(channels: Sequence[Channel]) -> None:
    """Hide the values in the stretches of a call, besides what its channels hide."""
    for asking in channels:
        for cue in asking.cues.cues:
            if cue.channel == asking.line.channel and cue.kind in (KINDS | OF_WORDS).intersection(asking.policy.kinds):
                for channel, stretch in of_cue(channels, asking, cue):
                    _hide(channel, stretch)


def of_cue(channels: Sequence[Channel], asking: Channel, cue: Cue) -> Iterator[tuple[Channel, Stretch]]:
    """Yield what may be the value of a cue of one channel: what others answer, or what follows the cue's verb."""
    others = [each for each in channels if each is not asking]
    last = _end_of_utterance(asking.line, cue.last)
    if _asks(asking.line, cue, last):
        for answering in others or [asking]:
            yield answering, _answer(asking.line, answering.line, cue, last)
        return
    first = after_verb(asking.line, cue)
    if first is None and cue.kind == EntityKind.SPELLED_NAME:
        first = cue.last + 1
    if first is not None:
        end = cue.end + MAX_STATED
        for other in others:
            end = _next_move(other.line, _first_from(other.line, cue.end), end)
        yield asking, Stretch(EntityKind(cue.kind), first, cue.end, end, is_asked=False)


def _asks(line: Line, cue: Cue, last: int) -> bool:
    """Return whether a cue is the end of a request, whose speaker does not state the value."""
    language, first = line.packs[cue.first], cue.first
    while first and cue.first - first < MAX_LOOK and _continues(line, first - 1) and not line.ends_sentence(first - 1):
        first -= 1
    end = next((at for at in range(cue.last + 1, last + 1) if line.ends_sentence(at)), last + 1)
    rest = [at for at in range(cue.last + 1, end) if line.lower[at].isalnum()]
    is_ordinary = " ".join(line.lower[cue.first : cue.last + 1]) in language.words("redaction", "not_asked")
    if is_ordinary or is_own(line, cue) or any(is_figure(line, at) for at in rest):
        return False
    if end <= last and line.lower[end] == "?":
        return True
    words = {line.lower[at] for at in [*range(first, cue.first), *rest] if line.lower[at].isalnum()}
    is_short = (
        0 < len(words) <= MAX_SIGNAL and words <= language.words("text", "stopwords") and cue.kind in ALWAYS | _CARD
    )
    return len(rest) <= MAX_TO_END and (is_short or not words.isdisjoint(language.words("redaction", "requests")))


def _answer(asking: Line, answering: Line, cue: Cue, last: int) -> Stretch:
    kind = EntityKind(cue.kind)
    if asking is answering:
        first = next((at + 1 for at in range(cue.last, last) if asking.lower[at] == "?"), last + 1)
        start = asking.words[first - 1].end
        return Stretch(kind, first, start, start + MAX_ASKED, is_asked=True)
    first = _first_from(answering, cue.end - EARLY)
    starts = [place.start for place in answering.words[first : first + 1]]
    starts += [max(cue.end, piece.start) for piece in _sounds(answering, cue.end, cue.end + MAX_ASKED)][:1]
    moves = max(last + 1, _first_from(asking, min(starts, default=cue.end)))
    return Stretch(kind, first, cue.end, _next_move(asking, moves, cue.end + MAX_ASKED), is_asked=True)


def _next_move(line: Line, at: int, limit: float) -> float:
    """Return when the first utterance from a token on begins that does more than let the other party continue."""
    while at < len(line.tokens) and line.words[at].start < limit:
        last = _end_of_utterance(line, at)
        words = [each for each in range(at, last + 1) if line.lower[each].isalnum()]
        signals = interruptions(line.packs[at].language)
        if len(words) > MAX_SIGNAL or any(line.lower[each] not in signals or is_figure(line, each) for each in words):
            return line.words[at].start
        at = last + 1
    return limit


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
    whole = WHOLE.get(stretch.kind, MIN_WHOLE)
    for tokens in segments(line, stretch):
        taken = {at for at in tokens if channel.taken.get(at) in KINDS.intersection(channel.policy.kinds)}
        if only_opens(line, tokens) or (not taken and not _is_value(channel, stretch, tokens)):
            if only_opens(line, tokens) or (stretch.is_asked and not line.mixed):
                continue
            end = min(end, line.words[tokens[0]].start)
            break
        count = sum(figures_of(line, at) for at in tokens)
        hidden_figures = sum(figures_of(line, at) for at in taken)
        is_part = hidden_figures < whole if stretch.kind in ALWAYS else not (hidden_figures or has_value)
        if is_part and _is_value(channel, stretch, tokens):
            rest = [at for at in without_opening(line, tokens) if at not in taken]
            for at in rest:
                channel.taken.pop(at, None)  # by a kind that the policy does not hide
            channel.add(stretch.kind, rest, POSSIBLE)
        figures, has_value = figures + count, True
        if figures >= whole or not stretch.is_asked or stretch.kind not in ALWAYS:
            end = min(stretch.end, line.words[tokens[-1]].end + MAX_UNCLAIMED)
        if figures >= whole:
            break
    _hide_sound(channel, stretch, end, has_value)


def _hide_sound(channel: Channel, stretch: Stretch, end: float, has_value: bool) -> None:
    """Hide sound without words that is not hidden yet; of an announcement without a value, what follows its verb."""
    line, start = channel.line, stretch.start
    sounds = _sounds(line, start, end)
    is_unclear = (stretch.is_asked and line.mixed) or stretch.kind is EntityKind.SPELLED_NAME
    if is_unclear and not has_value and stretch.kind not in ALWAYS:
        return  # it may be the other party's
    if not (stretch.is_asked or has_value):
        start = line.words[stretch.first - 1].end
        limit = min([start + MAX_TO_SOUND, *(place.start for place in line.words[stretch.first : stretch.first + 1])])
        sounds = [each for each in sounds if start - EARLY <= each.start < limit and each.end - start >= MIN_STATED][:1]
    sounds = [replace(each, start=max(each.start, start), end=min(each.end, end)) for each in sounds]
    pieces = tuple(each for each in sounds if not _is_hidden(channel, each))
    if pieces:
        channel.entities.append(Entity(stretch.kind, pieces, POSSIBLE))


def _sounds(line: Line, start: float, end: float) -> list[EntityWords]:
    first = bisect_right(line.unwritten, start, key=lambda piece: piece.end)
    return line.unwritten[first : bisect_left(line.unwritten, end, key=lambda piece: piece.start)]


def _is_hidden(channel: Channel, piece: EntityWords) -> bool:
    """Return whether sound is hidden with the word before or after it."""
    line, after = channel.line, _first_from(channel.line, piece.start)
    near = (at for at in (after - 1, after) if 0 <= at < len(line.words) and line.words[at].text == piece.text)
    return piece.end - piece.start <= MAX_UNCLAIMED and any(
        channel.taken.get(at) in channel.policy.kinds for at in near
    )


def segments(line: Line, stretch: Stretch) -> Iterator[list[int]]:
    """Yield the words of sentences and of what is said between pauses."""
    tokens: list[int] = []
    for at in range(stretch.first, len(line.tokens)):
        if line.words[at].start >= stretch.end:
            break
        if line.lower[at].isalnum():
            tokens.append(at)
        if tokens and (line.ends_sentence(at) or at + 1 == len(line.tokens) or not _continues(line, at)):
            yield tokens
            tokens = []
    if tokens:
        yield tokens


def _is_value(channel: Channel, stretch: Stretch, tokens: list[int]) -> bool:
    """Return whether a segment may be a value, and is no other kind of answer."""
    line, kind, language = channel.line, stretch.kind, channel.line.packs[tokens[0]]
    latest = next(channel.cues.before(line.channel, tokens[-1], line.words[tokens[-1]].start), None)
    if latest and latest.kind != kind and {latest.kind, kind} - _CARD:
        return False
    words = {line.lower[at] for at in tokens}
    counts = [figures_of(line, at) for at in tokens]
    denies = not words.isdisjoint(language.words("redaction", "no_value"))
    if kind in OF_WORDS:
        has_dot = not words.isdisjoint(language.words("contact", "dot"))
        is_host = has_dot or any(channel.taken.get(at) is kind for at in tokens)
        if kind is EntityKind.EMAIL and (is_host or (stretch.is_asked and line.mixed)):
            return is_host
        doubts = sum(line.words[at].confidence < DOUBTFUL and not _is_small(line, at) for at in tokens)
        return doubts > 0 and other_words(line, tokens, counts) <= 2 * doubts and not denies
    is_year = [line.lower[at][:2] for at, count in zip(tokens, counts, strict=True) if count] in (["19"], ["20"])
    is_amount = sum(counts) < MIN_SURE and not words.isdisjoint(language.words("redaction", "units"))
    if is_amount or (is_year and kind is not EntityKind.BIRTH_DATE):
        return False
    if sum(counts) >= (MIN_FIGURES if stretch.is_asked or kind is EntityKind.CARD_EXPIRY else MIN_STATED_FIGURES):
        others = other_words(line, tokens, counts)
        is_free = kind is EntityKind.ADDRESS or (stretch.is_asked and kind in ALWAYS)
        return is_free or others <= max(MAX_WORDS, len(tokens) - counts.count(0))
    is_fluent = len(tokens) >= MIN_FLUENT and not any(counts) and line.sure(tokens) >= SURE
    return stretch.is_asked and kind in ALWAYS and not (is_question(line, tokens) or is_fluent or denies)


def other_words(line: Line, tokens: list[int], counts: list[int]) -> int:
    return sum(not (count or _is_small(line, at)) for count, at in zip(counts, tokens, strict=True))


def is_question(line: Line, tokens: list[int]) -> bool:
    return line.lower[min(tokens[-1] + 1, len(line.lower) - 1)] == "?"


def only_opens(line: Line, tokens: list[int]) -> bool:
    return not any(figures_of(line, at) for at in tokens) and all(_is_small(line, at) for at in tokens)


def without_opening(line: Line, tokens: list[int]) -> list[int]:
    """Return the tokens without words that only open an answer; stopwords stay: they may be garbled digits."""
    first = next((at for at in tokens if figures_of(line, at) or not opens(line, at)), tokens[0])
    return tokens[tokens.index(first) :]


def _is_small(line: Line, at: int) -> bool:
    return opens(line, at) or is_stopword(line, at)


def figures_of(line: Line, at: int) -> int:
    """Return how many digits or letters a token has as a symbol, two for a month; "one" only next to others."""
    word = line.lower[at]
    if word in line.packs[at].months:
        return 2
    if not _is_symbol(line, at) or not word.isalpha() or not _is_small(line, at):
        return sum(map(str.isdecimal, word)) or int(_is_symbol(line, at))
    near = (each for each in (at - 1, at + 1) if 0 <= each < len(line.tokens))
    return int(any(_is_symbol(line, each) and not _is_small(line, each) for each in near))


def _is_symbol(line: Line, at: int) -> bool:
    return line.lower[at].isalnum() and (is_figure(line, at) or len(line.lower[at]) == 1)
