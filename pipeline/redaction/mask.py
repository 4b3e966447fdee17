"""Hides entities in recognized words without changing how many there are or when they are said."""

import re
from collections.abc import Iterable
from dataclasses import replace

from pipeline.domain.redaction import Entity, EntityKind, EntityWords, Redaction, RedactionPolicy
from pipeline.domain.speech import Doubt, Recognized, Word, text_of
from pipeline.language.pack import pack
from pipeline.language.spoken.numbers import digit_runs

_KEEP_LAST = frozenset([EntityKind.CARD, EntityKind.ACCOUNT, EntityKind.IBAN, EntityKind.PHONE])
_PUNCTUATION = re.compile(r"[.,?!…]+$")


def mask_words(recognized: Recognized, redaction: Redaction, policy: RedactionPolicy) -> Recognized:
    """Return the words with a mark in place of the first word of each piece, and empty words for its others.

    Their number, times and confidence do not change. Text that doubts repeat is hidden too, and text that was removed
    from the words always, since nothing looked into it.
    """
    words = [list(text.words) for text in recognized.texts]
    hidden: set[tuple[int, int]] = set()
    for entity in sorted(redaction.entities, key=lambda entity: -entity.confidence):
        mark = _mark(entity, recognized, policy)
        for piece in entity.pieces:
            places = [at for at in range(piece.first, piece.last + 1) if (piece.text, at) not in hidden]
            hidden.update((piece.text, at) for at in places)
            for at in places:
                words[piece.text][at] = replace(words[piece.text][at], text="", joined=True)
            if places:
                ending = _PUNCTUATION.search(recognized.texts[piece.text].words[places[-1]].text.strip())
                original = recognized.texts[piece.text].words[places[0]]
                text = mark + (ending.group() if ending else "")
                words[piece.text][places[0]] = replace(original, text=text, joined=original.joined and not places[0])
    texts = tuple(replace(text, words=tuple(words[at])) for at, text in enumerate(recognized.texts))
    masked = replace(recognized, texts=texts)
    pieces = [piece for entity in redaction.entities for piece in entity.pieces]
    return replace(masked, doubts=tuple(_masked_doubt(doubt, pieces, masked) for doubt in recognized.doubts))


def _mark(entity: Entity, recognized: Recognized, policy: RedactionPolicy) -> str:
    """Return the mark, with the last digits if the policy keeps them and they are less than half of all."""
    if not policy.last_digits or entity.kind not in _KEEP_LAST:
        return entity.kind.mark
    last = entity.pieces[-1]
    digits = "".join(_digits(recognized, piece) for piece in entity.pieces)
    shown = _digits(recognized, last)[-policy.last_digits :]
    if len(shown) < policy.last_digits or len(digits) <= 2 * policy.last_digits:
        return entity.kind.mark
    return f"{entity.kind.mark[:-1]} {shown}]"


def _digits(recognized: Recognized, piece: EntityWords) -> str:
    chunk = recognized.texts[piece.text]
    spoken = text_of(chunk.words[piece.first : piece.last + 1])
    return "".join(run.text for run in digit_runs(spoken, pack(chunk.language), min_digits=1))


def _masked_doubt(doubt: Doubt, pieces: Iterable[EntityWords], masked: Recognized) -> Doubt:
    if not doubt.text or not doubt.kept:
        return replace(doubt, text="")
    near = [piece for piece in pieces if piece.channel == doubt.channel]
    if not any(piece.start < doubt.end and piece.end > doubt.start for piece in near):
        return doubt
    return replace(doubt, text=text_of(_between(masked, doubt)))


def _between(masked: Recognized, doubt: Doubt) -> list[Word]:
    words = [word for text in masked.texts if text.chunk.channel == doubt.channel for word in text.words]
    return sorted(
        (word for word in words if word.start < doubt.end and word.end > doubt.start), key=lambda word: word.start
    )
