"""Values that only the words before them announce: passwords, names, and what a recognizer wrote only in part."""

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum

from pipeline.domain.redaction import EntityKind
from pipeline.redaction.cues import Cue, Cues
from pipeline.redaction.lines import Line
from pipeline.redaction.runs import interruptions

MAX_VALUE = 8  # tokens of a password or name
MAX_NAME = 4
MAX_TO_END = 6  # tokens between the cue of a question and its end
MAX_TO_NAME = 3
MAX_SUBJECT = 4  # tokens before the verb of an answer
MAX_REST = 4  # ... that complete a value in the next turn
MAX_REST_SECONDS = 6.0
MAX_ANSWER_SECONDS = 8.0  # from the end of a question to the answer's first word
MAX_PARTLY = 60  # tokens of a value that is written only in part, signs included
MAX_WORDS = 3  # of it that are no symbols, if it has fewer; and its least symbols, of an address digits
MIN_SYMBOLS = {EntityKind.CARD: 8, EntityKind.CARD_CODE: 3, EntityKind.IBAN: 8, EntityKind.PHONE: 6,
               EntityKind.NATIONAL_ID: 5, EntityKind.ADDRESS: 3}  # fmt: skip
_ENDS = frozenset(".?!;")


class _Stop(Enum):
    OVER = "over"
    NO_VALUE = "no value"


def stated_in(line: Line, cues: Cues) -> Iterator[Cue]:
    """Yield the cues whose value follows in the same sentence: the other party's next words are no answer."""
    for cue in cues.cues:
        if cue.channel == line.channel and cue.kind in ("password", "spelled_name"):
            at = after_verb(line, cue)
            if (at is not None and any(_taken(line, at, MAX_VALUE))) or is_own(line, cue):
                yield cue


def is_own(line: Line, cue: Cue) -> bool:
    """Return whether the speaker means an own value ("my last name, I'll spell it"), and asks for none."""
    before = range(max(0, cue.first - 1), cue.first + 1)
    return any(line.lower[at] in line.packs[at].words("roles", "mine") for at in before)


def passwords_of(line: Line, cues: Cues, stated: frozenset[Cue]) -> Iterator[list[int]]:
    """Yield the tokens of passwords: what follows "my password is", and answers to a question for one."""
    for cue in cues.cues:
        if cue.kind == "password":
            for tokens in _value(line, cue, MAX_VALUE, stated):
                yield tokens
                yield from _rest(line, tokens)


def names_of(line: Line, cues: Cues, stated: frozenset[Cue]) -> Iterator[list[int]]:
    """Yield the tokens of names after "my name is", and of short answers to a question for one."""
    for cue in cues.cues:
        if cue.kind == "person" and cue.channel == line.channel:
            yield from _taken(line, cue.last + 1, MAX_NAME, strict=True)
        elif cue.kind == "spelled_name" and (cue in stated or (not line.mixed and cue.to_end <= MAX_TO_NAME)):
            for tokens in _value(line, cue, MAX_NAME, stated):
                yield from _taken(line, tokens[0], MAX_NAME, strict=True)


def partly_of(line: Line, cues: Cues) -> Iterator[tuple[Cue, list[int]]]:
    """Yield sentences after a cue that may be its value: a recognizer wrote "free to 7" for "3 2 7"."""
    for cue in (cue for cue in cues.cues if cue.kind in MIN_SYMBOLS):
        stated = (after_verb(line, cue) or cue.last + 1) if cue.channel == line.channel else None
        asks = cue.to_end <= MAX_TO_END and (line.mixed or line.channel != cue.channel)
        for start in (stated, _answer(line, cue) if asks else None):
            spans = _sentences(line, start) if start is not None and start < len(line.tokens) else ()
            if values := [tokens for tokens in spans if _may_be(line, cues, cue, tokens)]:
                yield from ((cue, tokens) for tokens in values)
                break


def _sentences(line: Line, first: int) -> Iterator[list[int]]:
    tokens = range(first, min(first + MAX_PARTLY, len(line.tokens)))
    of_turn = [at for at in tokens if line.words[at].text == line.words[first].text]
    for start in (first, *(at + 1 for at in of_turn[:-1] if line.ends_sentence(at))):
        yield from _taken(line, start, MAX_PARTLY, joins=False)


def _may_be(line: Line, cues: Cues, cue: Cue, tokens: list[int]) -> bool:
    """Return whether tokens may be the value of a cue, written only in part."""
    language, first = line.packs[tokens[0]], tokens[0]
    latest = next(cues.before(line.channel, first, line.words[first].start), cue)
    words = [word for word in line.lower[first : tokens[-1] + 2] if word.isalnum()]
    figures = [word for word in words if word in language.numbers or not word.isalpha()]
    digits = sum(max(1, sum(sign.isdecimal() for sign in figure)) for figure in figures)
    is_year = len(figures) == 1 and digits == 4 and figures[0][:2] in ("19", "20")
    if latest.kind != cue.kind or is_year or not language.words("redaction", "units").isdisjoint(words):
        return False
    others = sum(len(word) > 1 for word in words if word not in figures)
    symbols = digits if cue.kind == EntityKind.ADDRESS else digits + len(words) - len(figures)
    fits = cue.kind == EntityKind.ADDRESS or others <= max(MAX_WORDS, len(figures) + len(words) - others)
    return bool(figures) and fits and symbols >= MIN_SYMBOLS[EntityKind(cue.kind)]


def completes(line: Line, kind: EntityKind, tokens: list[int], taken: dict[int, EntityKind]) -> bool:
    """Return whether nothing of an answer is hidden yet, or all of it may be one value, of which a part is hidden."""
    hidden = [at for at in tokens if at in taken]
    rest = [at for at in tokens if hidden and not hidden[0] <= at <= hidden[-1] and line.lower[at].isalnum()]
    words = [at for at in rest if len(line.lower[at]) > 1 and not is_figure(line, at)]
    if kind is EntityKind.ADDRESS:  # house and postal code may be written as one number
        return {kind, EntityKind.CARD, EntityKind.PHONE}.issuperset(taken[at] for at in hidden)
    is_alike = {kind, EntityKind.SPELLED_NAME}.issuperset(taken[at] for at in hidden)
    return is_alike and len(words) <= MAX_WORDS and all(_carries(line, at) for at in words)


def _value(line: Line, cue: Cue, limit: int, stated: frozenset[Cue]) -> Iterator[list[int]]:
    """Yield the value in the sentence of the cue ("... is X"), or the other party's answer."""
    if cue in stated:
        at = after_verb(line, cue) if cue.channel == line.channel else None
        yield from _taken(line, at, limit) if at is not None else ()
        return
    asks = cue.to_end <= MAX_TO_END and (line.mixed or line.channel != cue.channel)
    start = _answer(line, cue) if asks else None
    if start is not None:
        yield from _taken(line, start, limit)


def _rest(line: Line, tokens: list[int]) -> Iterator[list[int]]:
    """Yield what completes a value in the speaker's next turn, if it is short: "tiger" - "okay" - "eighty-four"."""
    at = tokens[-1] + 1
    while at < len(line.tokens) and (line.words[at].text == line.words[tokens[-1]].text or opens(line, at)):
        if line.words[at].text == line.words[tokens[-1]].text and line.lower[at].isalnum():
            return  # the turn continues with something else
        at += 1
    if at == len(line.tokens) or line.words[at].start - line.words[tokens[-1]].end > MAX_REST_SECONDS:
        return
    for rest in _taken(line, at, MAX_REST + 1):
        figures = [is_figure(line, token) for token in rest]
        words = any(is_stopword(line, token) and not figure for token, figure in zip(rest, figures, strict=True))
        if len(rest) <= MAX_REST and not words and (any(figures) or not line.mixed):
            yield rest


def after_verb(line: Line, cue: Cue) -> int | None:
    """Return the token after the verb that states a value, at most four words after the cue."""
    for at in range(cue.last + 1, min(len(line.tokens), cue.last + 6)):
        word = line.lower[at]
        is_over = line.ends_sentence(at) or line.words[at].text != line.words[cue.last].text
        if is_over or word in line.packs[at].words("redaction", "no_value"):
            return None
        if word == ":" or word in line.packs[at].words("redaction", "states"):
            return at + 1
    return None


def _answer(line: Line, cue: Cue) -> int | None:
    """Return the first token of what the other party, or on a mixed channel the next turn, says after a question."""
    at = _first_after(line, cue)
    while at < len(line.tokens) and line.channel == cue.channel and line.words[at].text == line.words[cue.last].text:
        if line.lower[at] == "?":
            return at + 1
        if line.ends_sentence(at) and line.words[min(at + 1, len(line.words) - 1)].text == line.words[at].text:
            return None
        at += 1
        if at - cue.last > MAX_VALUE:
            return None
    if at >= len(line.tokens) or line.words[at].start - cue.end > MAX_ANSWER_SECONDS:
        return None
    return at


def _first_after(line: Line, cue: Cue) -> int:
    if line.channel == cue.channel:
        return cue.last + 1
    return bisect_left(line.words, cue.end - 0.2, key=lambda place: place.start)


def _taken(line: Line, first: int, limit: int, strict: bool = False, joins: bool = True) -> Iterator[list[int]]:
    """Yield the tokens of a value from `first` on; none if it says that there is no value.

    `strict`: only words that can be a name. `joins`: "for" and "to" are words, and not digits that sound alike.
    """
    at = first
    tokens: list[int] = []
    while at < len(line.tokens) and opens(line, at) and not all(is_figure(line, n) for n in (at, at + 1)):
        at += 1
    while at < len(line.tokens) and len(tokens) < limit:
        word, language = line.lower[at], line.packs[at]
        stop = _stop(line, at, tokens, joins)
        if stop is _Stop.NO_VALUE:
            return
        if stop is _Stop.OVER:
            break
        if word in language.words("redaction", "states") and len(tokens) < MAX_SUBJECT:
            tokens, at = [], at + 1  # "the word is ..."
            continue
        if strict and (word in language.words("text", "stopwords") or not word[:1].isalpha() or _is_no_name(line, at)):
            break
        tokens.append(at)
        at += 1
    while tokens and not line.lower[tokens[-1]][:1].isalnum():
        tokens.pop()
    if tokens and any(_carries(line, at) for at in tokens):
        yield tokens


def _stop(line: Line, at: int, tokens: list[int], joining: bool) -> _Stop | None:
    """Return whether a token ends the value that `tokens` begin ("tulip77 but it doesn't work"), or denies it."""
    word, language = line.lower[at], line.packs[at]
    if tokens and line.words[at].text != line.words[tokens[0]].text:
        return _Stop.OVER
    if line.ends_sentence(at) or (tokens and line.words[at].start - line.words[tokens[-1]].end > 2.0):
        return _Stop.OVER
    denies, joins = (word in language.words("redaction", key) for key in ("no_value", "no_value_first"))
    if not (denies or (joins and joining)):
        return None
    if not any(_carries(line, token) for token in tokens):
        return _Stop.NO_VALUE
    is_number = all(is_figure(line, token) for token in tokens)  # "4242 for the invoice"
    return _Stop.OVER if denies or is_number else None


def _is_no_name(line: Line, at: int) -> bool:
    language, word = line.packs[at], line.lower[at]
    return word in language.words("people", "not_names") or word in language.words("redaction", "not_names")


def opens(line: Line, at: int) -> bool:
    """Return whether a word only opens an answer: "sure, it's"."""
    language, word = line.packs[at], line.lower[at]
    return (
        word in _ENDS | {",", ":", "-"}
        or word in interruptions(language.language)
        or word in language.words("redaction", "states")
        or word in language.words("redaction", "openers")
    )


def _carries(line: Line, at: int) -> bool:
    return line.lower[at].isalnum() and not is_stopword(line, at) and not opens(line, at)


def is_figure(line: Line, at: int) -> bool:
    return at < len(line.tokens) and (line.lower[at].isdecimal() or line.lower[at] in line.packs[at].numbers)


def is_stopword(line: Line, at: int) -> bool:
    return line.lower[at] in line.packs[at].words("text", "stopwords")
