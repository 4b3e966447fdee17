"""Finds personal data in the timed words of a call. It never raises: a fault is the outcome "could not look"."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from pipeline.domain.redaction import Entity, EntityKind, Redaction, RedactionMode, RedactionPolicy, RedactionState
from pipeline.domain.speech import Recognized
from pipeline.language.pack import pack
from pipeline.redaction import answers, numbers, symbols, texts
from pipeline.redaction.cues import Cue, Cues, cues_of
from pipeline.redaction.lines import Line, lines, main_language
from pipeline.redaction.numbers import LIKELY, POSSIBLE, Value
from pipeline.redaction.runs import Reading, Row, interruptions, rows_of

MAX_REPEAT_SECONDS = 90.0  # after a code of three or four digits, in which the same digits are hidden
MAX_CODE_SECONDS = 60.0  # from a card to its code
MAX_AROUND = 3  # other words of a turn that is a code
MAX_FOREIGN_WORDS = 12  # of a call, in languages without a pack; they are read as the language of the call
MIN_REPEATED = 4  # digits of a longer value that are hidden anywhere in the call

log = logging.getLogger(__name__)
Names = Callable[[Recognized], Iterable[Entity]]
"""An engine that finds names of persons, organizations and places in words."""


def find_entities(recognized: Recognized, policy: RedactionPolicy, engine: Names | None = None) -> Redaction:
    """Return what the policy hides in a call, or why redaction could not look. `engine` adds names to the rules'."""
    if policy.mode is RedactionMode.OFF:
        return Redaction(RedactionState.OFF)
    if reason := _unreadable(recognized):
        return Redaction(RedactionState.COULD_NOT_LOOK, reason=reason)
    try:
        entities = [*_entities(recognized, policy), *(engine(recognized) if engine else ())]
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]  # the message may quote the call
        log.error("Redaction failed: %s in %s:%s", type(error).__name__, place.filename, place.lineno)
        return Redaction(RedactionState.COULD_NOT_LOOK, reason=f"The detectors failed: {type(error).__name__}.")
    hidden = tuple(sorted((entity for entity in entities if entity.kind in policy.kinds or entity.pattern), key=_start))
    return Redaction(RedactionState.FOUND if hidden else RedactionState.NOTHING_FOUND, hidden)


def _start(entity: Entity) -> tuple[float, int, int]:
    first = entity.pieces[0]
    return first.start, first.text, first.first


def _unreadable(recognized: Recognized) -> str:
    """Return why the words cannot be read; empty if they can."""
    spoken = [text for text in recognized.texts if text.words]
    foreign = Counter(text.language for text in spoken for _ in text.words if not pack(text.language).known)
    if foreign.total() > MAX_FOREIGN_WORDS or (foreign and not main_language(recognized)):
        return f"No language pack for {', '.join(sorted(foreign))}."
    untimed = sum(not word.end > word.start for text in spoken for word in text.words)
    words = sum(len(text.words) for text in spoken)
    return f"{untimed} of {words} words have no times." if untimed > words // 2 else ""


@dataclass(slots=True)
class _Channel:
    """What is found in one line; a token belongs to one entity."""

    line: Line
    cues: Cues
    policy: RedactionPolicy
    breaks: list[float]
    taken: set[int] = field(default_factory=set)
    entities: list[Entity] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def add(self, kind: EntityKind, tokens: Iterable[int], confidence: float, pattern: str = "") -> bool:
        tokens = list(tokens)
        free = [token for token in tokens if token not in self.taken]
        if free and (len(free) == len(tokens) or not all(self._interrupts(token) for token in free)):
            self.taken.update(free)
            self.entities.append(Entity(kind, self.line.pieces(free), confidence, pattern))
            return True
        return False

    def _interrupts(self, token: int) -> bool:
        word, language = self.line.lower[token], self.line.packs[token]
        return not word.isalnum() or word in interruptions(language.language) | language.words("text", "stopwords")

    def add_all(self, kind: EntityKind, spans: Iterable[list[int]], confidence: float) -> None:
        for tokens in list(spans):
            self.add(kind, tokens, confidence)

    def add_values(self, values: Iterable[Value]) -> None:
        for value in list(values):
            self.add_value(value)

    def add_value(self, value: Value) -> None:
        tokens = [token for row in value.rows for token in row.taken]
        kind = value.kind
        if kind not in self.policy.kinds and EntityKind.CARD in self.policy.kinds and numbers.is_card(value.digits):
            kind = EntityKind.CARD
        if kind is EntityKind.ADDRESS:
            tokens = [*texts.town_around(self.line, tokens[0], tokens[-1]), *tokens]
        if self.add(kind, sorted(tokens), value.confidence):
            self.values.append(value)

    def rows(self, reading: Reading) -> Iterator[Row]:
        """Yield rows without what belongs to another entity."""
        for row in rows_of(self.line, self.breaks, reading):
            is_free = [self.taken.isdisjoint(range(part.first, part.end)) for part in row.parts]
            for free, group in groupby(zip(is_free, row.parts, strict=True), key=itemgetter(0)):
                if free:
                    yield Row(self.line, tuple(part for _, part in group), row.corrected, row.amount, row.decimal)


def _entities(recognized: Recognized, policy: RedactionPolicy) -> Iterator[Entity]:
    channels = lines(recognized)
    cues = cues_of(channels)
    stated = frozenset(cue for line in channels for cue in answers.stated_in(line, cues))
    redacted = [_of_channel(line, cues, policy, stated) for line in channels]
    values = [value for channel in redacted for value in channel.values if value.kind in policy.kinds]
    for channel in redacted:
        _repeat(channel, values)
        _codes_after_card(channel, values)
        yield from channel.entities


def _of_channel(line: Line, cues: Cues, policy: RedactionPolicy, stated: frozenset[Cue]) -> _Channel:
    channel = _Channel(line, cues, policy, [cue.end for cue in cues.cues if cue.channel != line.channel])
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


def _codes_after_card(channel: _Channel, values: list[Value]) -> None:
    """Hide three or four digits that are a whole turn soon after a card: the recognizer may have garbled their cue."""
    cards = [value.end for value in values if value.kind is EntityKind.CARD]
    for row in list(channel.rows(Reading.DIGITS)) if cards and EntityKind.CARD_CODE in channel.policy.kinds else ():
        soon = any(0 <= row.start - end <= MAX_CODE_SECONDS for end in cards)
        if soon and not row.amount and len(row.text) in (3, 4) and _is_whole_turn(row):
            channel.add(EntityKind.CARD_CODE, row.taken, POSSIBLE)


def _is_whole_turn(row: Row) -> bool:
    turn, line = row.line.words[row.first].text, row.line
    around = [*range(max(0, row.first - MAX_AROUND - 1), row.first), *range(row.last + 1, row.last + MAX_AROUND + 2)]
    others = [at for at in around if at < len(line.words) and line.words[at].text == turn and line.lower[at].isalnum()]
    return len(others) <= MAX_AROUND


def _repeat(channel: _Channel, values: list[Value]) -> None:
    """Hide values that are said again: read back, or the last digits of a card."""
    for row in list(channel.rows(Reading.DIGITS)):
        if row.amount:
            continue
        for value in values:
            if _is_repeated(row, value):
                channel.add(value.kind, row.taken, LIKELY)
                break


def _is_repeated(row: Row, value: Value) -> bool:
    digits = value.digits
    if len(digits) <= MIN_REPEATED:
        return row.text == digits and 0 <= row.start - value.end <= MAX_REPEAT_SECONDS
    return len(row.text) >= MIN_REPEATED and not row.is_year and (row.text in digits or digits in row.text)
