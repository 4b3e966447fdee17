"""Finds personal data in the timed words of a call. It never raises: a fault is the outcome "could not look"."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from pipeline.domain.redaction import (
    NEEDS_ENGINE,
    Entity,
    EntityKind,
    Redaction,
    RedactionMode,
    RedactionPolicy,
    RedactionState,
)
from pipeline.domain.speech import Recognized
from pipeline.language.pack import pack
from pipeline.redaction import answers, doubtful, leftovers, numbers, stretches, symbols, texts
from pipeline.redaction.channel import Channel
from pipeline.redaction.cues import Cue, Cues, cues_of
from pipeline.redaction.lines import Line, lines, main_language
from pipeline.redaction.numbers import LIKELY, POSSIBLE
from pipeline.redaction.runs import Reading

MAX_FOREIGN_WORDS = 12  # of a call, in languages without a pack; they are read as the language of the call

log = logging.getLogger(__name__)
Names = Callable[[Recognized], Iterable[Entity]]
"""An engine that finds names of persons, organizations and places in words."""


def find_entities(recognized: Recognized, policy: RedactionPolicy, engine: Names | None = None) -> Redaction:
    """Return what the policy hides in a call, or why redaction could not look. `engine` adds names to the rules'."""
    if policy.mode is RedactionMode.OFF:
        return Redaction(RedactionState.OFF)
    if reason := _unreadable(recognized) or ("" if engine else _needs_engine(policy)):
        return Redaction(RedactionState.COULD_NOT_LOOK, reason=reason)
    try:
        entities = [*_entities(recognized, policy), *(engine(recognized) if engine else ())]
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]  # the message may quote the call
        log.error("Redaction failed: %s in %s:%s", type(error).__name__, place.filename, place.lineno)
        return Redaction(RedactionState.COULD_NOT_LOOK, reason=f"The detectors failed: {type(error).__name__}.")
    hidden = tuple(sorted((entity for entity in entities if entity.kind in policy.kinds or entity.pattern), key=_start))
    if any(not piece.end > piece.start for entity in hidden for piece in entity.pieces):
        return Redaction(RedactionState.COULD_NOT_LOOK, reason="Words of an entity have no times.")
    return Redaction(RedactionState.FOUND if hidden else RedactionState.NOTHING_FOUND, hidden)


def _start(entity: Entity) -> tuple[float, int, int]:
    first = entity.pieces[0]
    return first.start, first.text, first.first


def _needs_engine(policy: RedactionPolicy) -> str:
    kinds = sorted(NEEDS_ENGINE.intersection(policy.kinds))
    return f"No engine finds {' and '.join(kinds)}: set one up, or leave the kind out of the policy." if kinds else ""


def _unreadable(recognized: Recognized) -> str:
    """Return why the words cannot be read; empty if they can."""
    spoken = [text for text in recognized.texts if text.words]
    foreign = Counter(text.language for text in spoken for _ in text.words if not pack(text.language).known)
    if foreign.total() > MAX_FOREIGN_WORDS or (foreign and not main_language(recognized)):
        return f"No language pack for {', '.join(sorted(foreign))}."
    untimed = sum(not word.end > word.start for text in spoken for word in text.words)
    words = sum(len(text.words) for text in spoken)
    return f"{untimed} of {words} words have no times." if untimed > words // 2 else ""


def _entities(recognized: Recognized, policy: RedactionPolicy) -> Iterator[Entity]:
    channels = lines(recognized)
    cues = cues_of(channels)
    stated = frozenset(cue for line in channels for cue in answers.stated_in(line, cues))
    redacted = [_of_channel(line, cues, policy, stated) for line in channels]
    leftovers.complete(redacted)
    ends = leftovers.ends_of(redacted)
    for channel in redacted:
        for cue, tokens in answers.partly_of(channel.line, cues):
            first = channel.line.words[tokens[0]]
            completes = answers.completes(channel.line, EntityKind(cue.kind), tokens, channel.taken)
            if completes and not leftovers.is_answered(cue, first.start, first.text, ends):
                channel.add(EntityKind(cue.kind), tokens, POSSIBLE)
    stretches.hide(redacted)
    doubtful.hide(redacted)
    for channel in redacted:
        yield from channel.entities


def _of_channel(line: Line, cues: Cues, policy: RedactionPolicy, stated: frozenset[Cue]) -> Channel:
    channel = Channel(line, cues, policy, [cue.end for cue in cues.cues if cue.channel != line.channel])
    for pattern, tokens in symbols.typed_patterns(line, policy.patterns):
        channel.add(EntityKind.CUSTOM, tokens, LIKELY, pattern.name)
    for reading in (Reading.SYMBOLS, Reading.DIGITS) if policy.patterns else ():
        for pattern, row in symbols.of_patterns(channel.rows(reading), policy.patterns):
            channel.add(EntityKind.CUSTOM, row.taken, LIKELY, pattern.name)
    channel.add_all(EntityKind.EMAIL, texts.emails_of(line, cues), LIKELY)
    channel.add_values(symbols.values(channel.rows(Reading.SYMBOLS), cues))
    channel.add_values(numbers.dates(channel.rows(Reading.DATES), cues))
    channel.add_all(EntityKind.ADDRESS, texts.addresses_of(line, cues), LIKELY)
    channel.add_values(numbers.values(channel.rows(Reading.DIGITS), cues))
    channel.add_all(EntityKind.SPELLED_NAME, texts.spelled_of(line, cues), LIKELY)
    channel.add_all(EntityKind.PASSWORD, answers.passwords_of(line, cues, stated), POSSIBLE)
    channel.add_all(EntityKind.PERSON, answers.names_of(line, cues, stated), POSSIBLE)
    channel.add_all(EntityKind.HEALTH, texts.health_of(line), POSSIBLE)
    return channel
