"""Which party says which piece of a call, by the words alone: a call with questions and answers has two parties.

A piece is the agent's or the customer's. Phrases of the language's pack are evidence for a party, and the words and the
pause between two pieces for a change of party: a question is answered, an offer of help gets a request. The most
probable parties of all pieces follow by the forward-backward algorithm. A reading or a voicemail has no answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipeline.domain.speech import Span, Turn, Word
from pipeline.language.pack import pack, straighten
from pipeline.speakers.roles import judge

# Log odds for the agent, set by hand on 18 dialogues of the Harper Valley corpus (`bench.real telephone`).
PHRASES = {
    ("direction", "gives_help"): 1.5,
    ("summary", "anything_else"): 1.5,
    ("summary", "declined"): -1.5,
    ("direction", "customer_placed"): -1.0,
}
MAX_PHRASES = 3.0  # of a piece
# Log odds for a change of party between two pieces.
CHANGE = -1.0
ANSWER, SECOND_QUESTION = 2.5, -0.5  # after a question: a statement, another question
REPLY = 1.2  # a piece that accepts or declines
PAUSES = ((0.4, -2.0), (0.8, -1.0), (1.5, 0.0), (float("inf"), 0.7))  # by seconds of pause, up to
ANSWER_PAUSE = 0.8  # min. seconds before an answer that shows a second party


@dataclass(frozen=True, slots=True)
class SpokenPiece:
    """Consecutive words of a mixed call that one voice says."""

    words: tuple[Word, ...]
    text: str
    language: str

    @property
    def span(self) -> Span:
        return Span(self.words[0].start, self.words[-1].end)


def party_odds(pieces: Sequence[SpokenPiece], voices: Sequence[float] | None = None) -> list[float]:
    """Return for each piece the log odds that the agent says it; `voices`: further log odds of each."""
    if not pieces:
        return []
    odds = np.array([_by_phrases(piece) for piece in pieces]) + (0.0 if voices is None else np.asarray(voices))
    changes = [_change(before, after) for before, after in pairwise(pieces)]
    forward, backward = _passed(odds, changes), _passed(odds[::-1], changes[::-1])[::-1]
    return [float(value) for value in odds + forward + backward]


def answers(pieces: Sequence[SpokenPiece]) -> int:
    """Return how many pieces answer a question, after a pause in which the party may change."""
    return sum(
        _asks(before) and not _asks(after) and _pause(before, after) >= ANSWER_PAUSE
        for before, after in pairwise(pieces)
    )


def _passed(odds: np.ndarray, changes: Sequence[float]) -> np.ndarray:
    """Return the log odds that the pieces before each piece contribute to it."""
    passed = np.zeros(len(odds))
    for at, change in enumerate(changes):
        before = 1 / (1 + np.exp(-(passed[at] + odds[at])))
        stays = 1 / (1 + np.exp(change))
        agent = before * stays + (1 - before) * (1 - stays)
        passed[at + 1] = np.log(agent / (1 - agent))
    return passed


def _by_phrases(piece: SpokenPiece) -> float:
    words, text = pack(piece.language), straighten(piece.text)
    turn = Turn(0, "", piece.words[0].start, piece.words[-1].end, piece.words, piece.language)
    odds = judge([turn]).score + sum(value * words.matches(*key, text) for key, value in PHRASES.items())
    return min(max(odds, -MAX_PHRASES), MAX_PHRASES)


def _change(before: SpokenPiece, after: SpokenPiece) -> float:
    pause = _pause(before, after)
    odds = CHANGE + next(value for seconds, value in PAUSES if pause < seconds)
    if _asks(before):
        odds += SECOND_QUESTION if _asks(after) else ANSWER
    return odds + REPLY * _replies(after)


def _pause(before: SpokenPiece, after: SpokenPiece) -> float:
    return after.words[0].start - before.words[-1].end


def _asks(piece: SpokenPiece) -> bool:
    return piece.text.endswith("?") or pack(piece.language).matches("statistics", "questions", straighten(piece.text))


def _replies(piece: SpokenPiece) -> bool:
    words, text = pack(piece.language), straighten(piece.text)
    accepts = any(pattern.match(text) for pattern in words.patterns("tasks", "accept"))
    return accepts or words.matches("summary", "declined", text)
