"""Cuts a text into the pieces of SentencePiece's unigram model: those whose scores add up to the most.

T. Kudo: "Subword Regularization", arXiv 1804.10959, section 3. The library `tokenizers` finds the same pieces (a test
compares them) and takes 260 MB for the 250,000 of this model, against 40 MB here: each process that asks has one.
"""

import re
from functools import lru_cache

from pipeline.embedding.q4 import Q4Model

SPACE = "\u2581"  # what stands for a space in pieces
UNKNOWN_COSTS = 10.0  # below the lowest score, as SentencePiece has it
_SPACES = re.compile(" {2,}")


class Tokenizer:
    """From text to numbers of pieces."""

    def __init__(self, model: Q4Model) -> None:
        self._numbers = {piece: number for number, piece in enumerate(model.pieces) if piece}
        self._scores = model.scores
        self._replacements = model.replacements
        self._marks = model.first, model.last
        self._unknown = model.unknown
        self._unknown_score = min(model.scores) - UNKNOWN_COSTS
        self._longest = max(map(len, model.pieces))
        self._of_word = lru_cache(20_000)(self._pieces)

    def tokens(self, text: str, most: int) -> list[int]:
        """Return the numbers of a text's pieces, at most so many, between the two marks."""
        plain = _SPACES.sub(" ", text.translate(self._replacements))
        spaced = f" {plain.removeprefix(' ')}".replace(" ", SPACE)
        words = [f"{SPACE}{word}" for word in spaced.split(SPACE)[1:]]  # no piece goes beyond a space
        found = [number for word in words for number in self._of_word(word)]
        return [self._marks[0], *found[:most], self._marks[1]]

    def _pieces(self, word: str) -> tuple[int, ...]:
        """The best way to cut a word, by dynamic programming over its characters."""
        best: list[tuple[float, int, int]] = [(0.0, 0, 0)]  # up to here: score, where the last piece begins, its number
        for end in range(1, len(word) + 1):
            score, begin = best[end - 1][0] + self._unknown_score, end - 1
            way = (score, begin, self._unknown)
            for begin in range(max(0, end - self._longest), end):
                number = self._numbers.get(word[begin:end])
                if number is not None and best[begin][0] + self._scores[number] > way[0]:
                    way = (best[begin][0] + self._scores[number], begin, number)
            best.append(way)
        cut: list[int] = []
        end = len(word)
        while end:
            _, end, number = best[end]
            if number != self._unknown or cut[-1:] != [self._unknown]:  # several unknown characters are one piece
                cut.append(number)
        return tuple(reversed(cut))
