"""Calls of a few turns with words every 0.4 s, as a recognizer returns them."""

from collections.abc import Sequence

from pipeline.domain.redaction import NEEDS_ENGINE, EntityKind, Redaction, RedactionMode, RedactionPolicy
from pipeline.domain.speech import Chunk, ChunkText, Recognized, Word, text_of
from pipeline.redaction.detect import find_entities
from pipeline.redaction.mask import mask_words

EVERYTHING = RedactionPolicy(RedactionMode.MASK, tuple(sorted(frozenset(EntityKind) - NEEDS_ENGINE)))


def call(*turns: tuple[int, str], language: str = "en") -> Recognized:
    """Return a call of turns: channel and text."""
    texts, now = [], 0.0
    for channel, text in turns:
        words = [Word(now + 0.4 * at, now + 0.4 * at + 0.35, word, 0.9) for at, word in enumerate(text.split())]
        texts.append(ChunkText(Chunk(channel, now, now + 0.4 * len(words)), language, 1.0, tuple(words), -0.2, 0.0))
        now += 0.4 * len(words) + 0.6
    return Recognized(tuple(texts), "test")


def masked(
    *turns: tuple[int, str], language: str = "en", policy: RedactionPolicy = EVERYTHING
) -> tuple[list[str], Redaction]:
    """Return the text of each turn after masking, and what was found."""
    recognized = call(*turns, language=language)
    redaction = find_entities(recognized, policy)
    return texts(mask_words(recognized, redaction, policy)), redaction


def texts(recognized: Recognized) -> list[str]:
    return [text_of(text.words) for text in recognized.texts]


def kinds(redaction: Redaction) -> Sequence[EntityKind]:
    return [entity.kind for entity in redaction.entities]
