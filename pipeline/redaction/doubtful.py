"""Words in doubt where a cue is expected: "your pain?" may be the cue of any kind, so that the value's form decides."""

from collections.abc import Iterator, Sequence

from pipeline.domain.redaction import EntityKind
from pipeline.redaction.answers import MAX_WORDS, is_figure
from pipeline.redaction.channel import Channel
from pipeline.redaction.cues import Cue, cue_at
from pipeline.redaction.lines import DOUBTFUL
from pipeline.redaction.numbers import MAX_CODE, POSSIBLE
from pipeline.redaction.stretches import (
    MIN_FIGURES,
    Stretch,
    figures_of,
    is_question,
    only_opens,
    other_words,
    segments,
    stretches_of,
    without_opening,
)
from pipeline.redaction.texts import HOST


def hide(channels: Sequence[Channel]) -> None:
    """Hide what has the form of a value after a request or a statement whose subject is in doubt."""
    for asking in channels:
        for cue in _cues_of(asking):
            for channel, stretch in stretches_of(channels, asking, cue):
                _hide(channel, stretch)


def _cues_of(channel: Channel) -> Iterator[Cue]:
    """Yield the words in doubt in turns without a cue, as those of a password, which may be asked in any words."""
    line = channel.line
    turns = {line.words[cue.first].text for cue in channel.cues.cues if cue.channel == line.channel}
    for at, place in enumerate(line.words):
        is_word = line.lower[at].isalpha() and not is_figure(line, at)
        if is_word and place.confidence < DOUBTFUL and place.text not in turns:
            yield cue_at(EntityKind.PASSWORD, line, at, at)


def _hide(channel: Channel, stretch: Stretch) -> None:
    for tokens in segments(channel.line, stretch):
        if only_opens(channel.line, tokens):
            continue
        kind = next((kind for kind in _kinds(channel, stretch, tokens) if kind in channel.policy.kinds), None)
        if kind is None:
            return
        rest = [at for at in without_opening(channel.line, tokens) if at not in channel.taken]
        channel.add(kind, rest, POSSIBLE)


def _kinds(channel: Channel, stretch: Stretch, tokens: list[int]) -> Sequence[EntityKind]:
    """Return the kinds that a segment may be by its form, the strictest first; none if it is another answer."""
    line, language = channel.line, channel.line.packs[tokens[0]]
    words, counts = {line.lower[at] for at in tokens}, [figures_of(line, at) for at in tokens]
    count, others = sum(counts), other_words(line, tokens, counts)
    is_year = count == MAX_CODE and any(line.lower[at][:2] in ("19", "20") for at in tokens)
    is_other = any(not words.isdisjoint(language.words("redaction", key)) for key in ("units", "no_value"))
    if HOST.search(line.text, line.firsts[tokens[0]], line.tokens[tokens[-1]].end()):
        return (EntityKind.EMAIL,)
    if is_other or is_year or others > MAX_WORDS or is_question(line, tokens):
        return ()
    if not words.isdisjoint(language.months):
        return (EntityKind.CARD_EXPIRY, EntityKind.BIRTH_DATE) if count == MAX_CODE else (EntityKind.BIRTH_DATE,)
    if MIN_FIGURES < count <= MAX_CODE:
        return (EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY, EntityKind.PASSWORD)
    is_password = count == MIN_FIGURES and others and stretch.is_asked
    return (EntityKind.PASSWORD, EntityKind.ACCOUNT, EntityKind.CARD) if count > MAX_CODE or is_password else ()
