"""Values without a form of their own: passwords and names, which only the words before them announce."""

from collections.abc import Iterable, Iterator

from pipeline.redaction.cues import Cue, Cues
from pipeline.redaction.lines import Line

MAX_VALUE = 8  # tokens of a password or name
MAX_NAME = 4
MAX_ANSWER_SECONDS = 8.0  # from the end of a question to the answer's first word
_ENDS = frozenset(".?!;")


def passwords_of(line: Line, cues: Cues, mixed: bool) -> Iterator[list[int]]:
    """Yield the tokens of passwords: what follows "my password is", and answers to a question for one.

    `mixed`: one channel has both parties.
    """
    for cue in cues.cues:
        if cue.kind == "password":
            yield from _value(line, cue, MAX_VALUE, mixed)


def names_of(line: Line, cues: Cues, mixed: bool) -> Iterator[list[int]]:
    """Yield the tokens of names after "my name is", and of answers to a question for one."""
    for cue in cues.cues:
        if cue.kind == "person" and cue.channel == line.channel:
            yield from _taken(line, cue.last + 1, MAX_NAME, strict=True)
        elif cue.kind == "spelled_name":
            for tokens in _value(line, cue, MAX_NAME, mixed):
                yield from _taken(line, tokens[0], MAX_NAME, strict=True)


def _value(line: Line, cue: Cue, limit: int, mixed: bool) -> Iterator[list[int]]:
    """Yield the value in the sentence of the cue ("... is X"), or the other party's answer."""
    if cue.channel == line.channel:
        stated = _after_verb(line, cue)
        if stated is not None:
            yield from _taken(line, stated, limit)
            return
    start = _answer(line, cue) if mixed or line.channel != cue.channel else None
    if start is not None:
        yield from _taken(line, start, limit)


def _after_verb(line: Line, cue: Cue) -> int | None:
    """Return the token after the verb that states a value, at most four words after the cue."""
    for at in range(cue.last + 1, min(len(line.tokens), cue.last + 6)):
        word = line.lower[at]
        if word in _ENDS or word in line.packs[at].words("redaction", "no_value"):
            return None
        if word == ":" or word in line.packs[at].words("redaction", "states"):
            return at + 1
    return None


def _answer(line: Line, cue: Cue) -> int | None:
    """Return the first token of what the other party, or on a mixed channel the next turn, says after a question."""
    at = _first_after(line, cue)
    while at < len(line.tokens) and line.channel == cue.channel and line.words[at].text == line.words[cue.last].text:
        if line.lower[at] in _ENDS:
            return None if line.lower[at] != "?" else at + 1
        at += 1
        if at - cue.last > MAX_VALUE:
            return None
    if at >= len(line.tokens) or line.words[at].start - cue.end > MAX_ANSWER_SECONDS:
        return None
    return at


def _first_after(line: Line, cue: Cue) -> int:
    if line.channel == cue.channel:
        return cue.last + 1
    low, high = 0, len(line.words)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if line.words[middle].start < cue.end - 0.2 else (low, middle)
    return low


def _taken(line: Line, first: int, limit: int, strict: bool = False) -> Iterator[list[int]]:
    """Yield the tokens of a value from `first` on; none if it says that there is no value.

    `strict`: only words that can be a name.
    """
    at, tokens = first, []
    while at < len(line.tokens) and _opens(line, at):
        at += 1
    while at < len(line.tokens) and len(tokens) < limit:
        word, language = line.lower[at], line.packs[at]
        if word in _ENDS or (tokens and line.words[at].start - line.words[tokens[-1]].end > 2.0):
            break
        if word in language.words("redaction", "no_value"):
            return
        if strict and (word in language.words("text", "stopwords") or not word[:1].isalpha() or _is_no_name(line, at)):
            break
        tokens.append(at)
        at += 1
    while tokens and not line.lower[tokens[-1]][:1].isalnum():
        tokens.pop()
    if tokens and any(_carries(line, at) for at in tokens):
        yield tokens


def _is_no_name(line: Line, at: int) -> bool:
    language, word = line.packs[at], line.lower[at]
    return word in language.words("people", "not_names") or word in language.words("redaction", "not_names")


def _opens(line: Line, at: int) -> bool:
    """Return whether a word only opens an answer: "sure, it's"."""
    language, word = line.packs[at], line.lower[at]
    return (
        word in _ENDS | {",", ":", "-"}
        or word in language.words("redaction", "between")
        or word in language.words("redaction", "states")
        or word in language.words("redaction", "openers")
    )


def _carries(line: Line, at: int) -> bool:
    return line.lower[at] not in line.packs[at].words("text", "stopwords")


def repeated(line: Line, secrets: Iterable[str]) -> Iterator[list[int]]:
    """Yield the tokens of words that were hidden elsewhere in the call."""
    words = frozenset(secrets)
    for at, word in enumerate(line.lower):
        if word in words:
            yield [at]
