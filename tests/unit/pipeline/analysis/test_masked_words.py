"""Redaction leaves a mark and empty words: every step of the analysis reads such transcripts."""

import random
from dataclasses import replace

from pipeline.analysis import analyze
from pipeline.domain.redaction import EntityKind
from pipeline.domain.speech import Turn, Word
from tests.support.spoken_facts import CALLS

MAX_HIDDEN = 6  # words at once, and in some turns all


def masked(turn: Turn, chance: random.Random) -> Turn:
    """Return the turn with a span of words hidden, as `pipeline.redaction.mask` does it."""
    first = chance.randrange(len(turn.words))
    last = chance.choice([len(turn.words), min(first + chance.randint(1, MAX_HIDDEN), len(turn.words))])
    mark = chance.choice(list(EntityKind)).mark

    def hidden(at: int, word: Word) -> Word:
        if not first <= at < last:
            return word
        return replace(word, text=mark) if at == first else replace(word, text="", joined=True)

    return replace(turn, words=tuple(hidden(at, word) for at, word in enumerate(turn.words)))


def test_every_step_reads_hidden_words() -> None:
    chance = random.Random(45)
    for small in CALLS:
        material = small.material
        for lower in (False, True):
            turns = [masked(turn, chance) if turn.words and chance.random() < 0.6 else turn
                     for turn in material.transcript.turns]  # fmt: skip
            if lower:
                turns = [replace(turn, words=tuple(replace(word, text=word.text.lower()) for word in turn.words))
                         for turn in turns]  # fmt: skip
            transcript = replace(material.transcript, turns=tuple(turns))
            failed = {finding.step: finding.note for finding in analyze(replace(material, transcript=transcript))
                      if "failed" in (finding.note or "")}  # fmt: skip
            assert not failed, (small.talk, failed)
