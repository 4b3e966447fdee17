from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.domain.speech import Turn, Word, text_of

MIN_WORDS = 25  # words that a passage has before it ends with its turn
MAX_WORDS = 80  # words of a passage: longer turns are cut


@dataclass(frozen=True, slots=True)
class Passage:
    """Consecutive words, from `first_word` of turn `first_turn`; seconds of the recording."""

    first_turn: int
    last_turn: int
    first_word: int  # of its turn
    last_word: int  # of the last turn
    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class _Piece:
    turn: int
    first_word: int
    words: Sequence[Word]


def passages_of(turns: Sequence[Turn]) -> list[Passage]:
    """Return the passages of a transcript in order; every word is in exactly one.

    Short turns are joined with the next ones: an answer ("yes", "no") is found through its question.
    """
    passages: list[Passage] = []
    waiting: list[_Piece] = []
    for piece in _pieces(turns):
        if waiting and _size(waiting) + len(piece.words) > MAX_WORDS:
            passages.append(_passage(waiting))
            waiting = []
        waiting.append(piece)
        if _size(waiting) >= MIN_WORDS:
            passages.append(_passage(waiting))
            waiting = []
    return [*passages, _passage(waiting)] if waiting else passages


def _pieces(turns: Sequence[Turn]) -> Iterator[_Piece]:
    """Split turns into parts of equal length of at most `MAX_WORDS` words."""
    for turn in turns:
        parts = -(-len(turn.words) // MAX_WORDS)
        for part in range(parts):
            first, last = (len(turn.words) * at // parts for at in (part, part + 1))
            yield _Piece(turn.index, first, turn.words[first:last])


def _size(pieces: Sequence[_Piece]) -> int:
    return sum(len(piece.words) for piece in pieces)


def _passage(pieces: Sequence[_Piece]) -> Passage:
    first, last = pieces[0], pieces[-1]
    return Passage(
        first_turn=first.turn,
        last_turn=last.turn,
        first_word=first.first_word,
        last_word=last.first_word + len(last.words) - 1,
        start=min(piece.words[0].start for piece in pieces),
        end=max(piece.words[-1].end for piece in pieces),
        text=" ".join(text_of(piece.words) for piece in pieces),
    )
