"""Words in doubt where a cue is expected: "your pain?" may be the cue of any kind, so that the value's form decides.

A recognizer may also join a cue, or the letters of a number, with digits: "CVC678", "GB-79".
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from pipeline.domain.redaction import EntityKind
from pipeline.redaction import stretches
from pipeline.redaction.answers import MAX_WORDS, is_figure, is_stopword
from pipeline.redaction.channel import Channel
from pipeline.redaction.cues import Cue, cue_at
from pipeline.redaction.lines import DOUBTFUL, Line
from pipeline.redaction.numbers import MAX_CODE, POSSIBLE
from pipeline.redaction.texts import HOST

MIN_JOINED, MIN_AFTER = 3, 6  # digits joined with letters before them, and with others: "350km" is no value
MAX_TO_VALUE = 2  # tokens between a value and letters with fewer digits
_LETTERS_FIRST = re.compile(r"[^\W\d]+\W?\d")
_LONG = (
    EntityKind.NATIONAL_ID, EntityKind.IBAN, EntityKind.ACCOUNT, EntityKind.PASSWORD, EntityKind.CARD,
)  # fmt: skip


def hide(channels: Sequence[Channel]) -> None:
    """Hide what has the form of a value after a request or a statement whose subject is in doubt."""
    for asking in channels:
        for cue in _cues_of(asking):
            for channel, stretch in stretches.of_cue(channels, asking, cue):
                if not stretch.is_asked or _is_request(asking.line, cue.first):
                    _hide(channel, stretch)
    for channel in channels:
        _hide_joined(channel)


def _is_request(line: Line, at: int) -> bool:
    """Return whether a word is what a party is asked for: "your X", "which X"."""
    asking = line.packs[at].words("roles", "yours") | line.packs[at].words("redaction", "requests")
    return not asking.isdisjoint(line.lower[max(0, at - 2) : at])


def _cues_of(channel: Channel) -> Iterator[Cue]:
    """Yield the words in doubt in turns without a cue, as those of a password, which may be asked in any words."""
    line = channel.line
    turns = {line.words[cue.first].text for cue in channel.cues.cues if cue.channel == line.channel}
    for at, place in enumerate(line.words):
        is_word = line.lower[at].isalpha() and not is_figure(line, at) and not is_stopword(line, at)
        if is_word and place.confidence < DOUBTFUL and place.text not in turns:
            yield cue_at(EntityKind.PASSWORD, line, at, at)


def _hide(channel: Channel, stretch: stretches.Stretch) -> None:
    for tokens in stretches.segments(channel.line, stretch):
        kind = next((kind for kind in _kinds(channel, stretch, tokens) if kind in channel.policy.kinds), None)
        if kind:
            channel.add(kind, stretches.without_opening(channel.line, tokens), POSSIBLE)
        elif not stretches.only_opens(channel.line, tokens):
            return


def _kinds(channel: Channel, stretch: stretches.Stretch, tokens: list[int]) -> Sequence[EntityKind]:
    """Return the kinds that a segment may be by its form, the strictest first; none if it is another answer."""
    line, language = channel.line, channel.line.packs[tokens[0]]
    words, counts = {line.lower[at] for at in tokens}, [stretches.figures_of(line, at) for at in tokens]
    count, others = sum(counts), stretches.other_words(line, tokens, counts)
    is_year = count == MAX_CODE and any(line.lower[at][:2] in ("19", "20") for at in tokens)
    is_other = any(not words.isdisjoint(language.words("redaction", key)) for key in ("units", "no_value"))
    if HOST.search(line.text, line.firsts[tokens[0]], line.tokens[tokens[-1]].end()):
        return (EntityKind.EMAIL,)
    if is_other or is_year or others > MAX_WORDS or stretches.is_question(line, tokens):
        return ()
    if not words.isdisjoint(language.months):
        is_expiry = line.lower[tokens[0]] in language.months and "23" < line.lower[tokens[-1]] <= "99"  # not "April 12"
        return (EntityKind.BIRTH_DATE,) if count > MAX_CODE else (EntityKind.CARD_EXPIRY,) * is_expiry
    if stretches.MIN_FIGURES < count <= MAX_CODE:
        return (EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY, EntityKind.PASSWORD)
    is_password = count == stretches.MIN_FIGURES and others and stretch.is_asked
    return (EntityKind.PASSWORD, EntityKind.ACCOUNT, EntityKind.CARD) if count > MAX_CODE or is_password else ()


def _hide_joined(channel: Channel) -> None:
    """Hide words in doubt in which digits are joined with letters."""
    line = channel.line
    for _, group in groupby(range(len(line.words)), key=lambda at: (line.words[at].text, line.words[at].word)):
        tokens = list(group)
        if line.words[tokens[0]].confidence < DOUBTFUL and channel.taken.keys().isdisjoint(tokens):
            kind = next((kind for kind in _kinds_joined(channel, tokens) if kind in channel.policy.kinds), None)
            if kind:
                channel.add(kind, tokens, POSSIBLE)


def _kinds_joined(channel: Channel, tokens: list[int]) -> Sequence[EntityKind]:
    """Return the kinds that a word may be by its digits and letters; none if it is an ordinary word."""
    line, first, last = channel.line, tokens[0], tokens[-1]
    word = line.text[line.firsts[first] : line.tokens[last].end()]
    figures = sum(map(str.isdecimal, word))
    if not figures or not any(map(str.isalpha, word)):
        return ()
    if HOST.search(word):
        return (EntityKind.EMAIL,)
    if not (_LETTERS_FIRST.match(word) or figures >= MIN_AFTER):
        return ()
    near = (at for at in range(first - MAX_TO_VALUE, last + MAX_TO_VALUE + 1) if at in channel.taken)
    if kinds := [channel.taken[at] for at in near if line.words[at].text == line.words[first].text]:
        return kinds
    if figures < MIN_JOINED:
        return ()
    return _LONG if figures > MAX_CODE else (EntityKind.CARD_CODE, EntityKind.PASSWORD)
