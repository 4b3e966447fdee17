from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from pipeline.domain.redaction import Entity, EntityKind, RedactionPolicy
from pipeline.redaction import numbers, texts
from pipeline.redaction.cues import Cues
from pipeline.redaction.lines import Line
from pipeline.redaction.numbers import Value
from pipeline.redaction.runs import Reading, Row, interruptions, rows_of


@dataclass(slots=True)
class Channel:
    """What is found in one line; a token belongs to one entity."""

    line: Line
    cues: Cues
    policy: RedactionPolicy
    breaks: list[float]
    taken: dict[int, EntityKind] = field(default_factory=dict)
    entities: list[Entity] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def add(self, kind: EntityKind, tokens: Iterable[int], confidence: float, pattern: str = "") -> bool:
        tokens = list(tokens)
        free = [token for token in tokens if token not in self.taken]
        if free and (len(free) == len(tokens) or not all(self._interrupts(token) for token in free)):
            self.taken.update(dict.fromkeys(free, kind))
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

    def drop(self, value: Value) -> None:
        tokens = {token for row in value.rows for token in row.taken}
        places = {(self.line.words[token].text, self.line.words[token].word) for token in tokens}
        self.values.remove(value)
        self.entities = [each for each in self.entities if places.isdisjoint((p.text, p.first) for p in each.pieces)]
        self.taken = {token: kind for token, kind in self.taken.items() if token not in tokens}

    def rows(self, reading: Reading) -> Iterator[Row]:
        """Yield rows without what belongs to another entity."""
        for row in rows_of(self.line, self.breaks, reading):
            is_free = [self.taken.keys().isdisjoint(range(part.first, part.end)) for part in row.parts]
            for free, group in groupby(zip(is_free, row.parts, strict=True), key=itemgetter(0)):
                if free:
                    yield Row(self.line, tuple(part for _, part in group), row.corrected, row.amount, row.decimal)
