"""Finds the words of a search in stored turns: CPU-bound, 20 ms per hour of talk, so never in an event loop."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import from_json

from pipeline.domain.speech import Word, text_of

Offload = Callable[..., Awaitable[Any]]
"""Runs a function outside of the event loop: `offload(function, *arguments)`, as `asyncio.to_thread`."""

HITS: Final = 3  # per call
CONTEXT_WORDS: Final = 8  # on either side of a hit
_BETWEEN: Final = re.compile(r"[\s!-/:-@\[-`{-~]+")  # as search_grams splits
_WORDS: Final = TypeAdapter(tuple[Word, ...])


@dataclass(frozen=True, slots=True)
class Hit:
    """Words that match, as spoken: `words` in `start`..`end`, and `quote` around them.

    In semantic search: a passage that begins with this turn, and its similarity to the question.
    """

    turn: int
    speaker: str
    start: float
    end: float
    words: str
    quote: str
    similarity: float | None = None  # cosine, up to 1; None: found by its words


@dataclass(frozen=True, slots=True)
class Spoken:
    """The turns of a call, JSON as `turns_text` returns it, and the text search configuration of its language."""

    call_pk: int
    config: str
    turns: str


_parsed: Final[dict[Spoken, Any]] = {}  # turns between the two steps of a search: to parse takes most of their time


@dataclass(frozen=True, slots=True)
class SimilarPassage:
    """A passage and its similarity to the question."""

    call_pk: int
    first_turn: int
    first_word: int
    last_turn: int
    last_word: int
    similarity: float


def split_words(text: str) -> list[str]:
    """Return the words of a search term in lower case."""
    return [word for word in _BETWEEN.split(text.lower()) if word]


def candidate_words(spoken: Sequence[Spoken], text: str) -> set[tuple[str, str]]:
    """Return the words that may be forms of a word in `text`, each with its configuration."""
    initials = {word[0] for word in split_words(text)}
    parsed = {call: _turns(call) for call in spoken}
    _parsed.clear()  # of a search that was canceled
    _parsed.update(parsed)
    return {
        (call.config, word["text"])
        for call in spoken
        for turn in parsed[call]
        for word in turn["words"]
        if _initial(word["text"]) in initials  # a stem begins as the word does
    }


def word_hits(spoken: Sequence[Spoken], lexemes: Mapping[tuple[str, str], str]) -> dict[int, tuple[Hit, ...]]:
    """Return up to `HITS` places per call, the fullest ones, in order. `lexemes`: of the words that match."""
    hits = {}
    for call in spoken:
        turns = _parsed.pop(call, None) or _turns(call)
        hits[call.call_pk] = tuple(_best(list(_places(turns, call.config, lexemes))))
    return hits


def passage_hits(
    spoken: Sequence[Spoken], passages: Mapping[int, Sequence[SimilarPassage]]
) -> dict[int, tuple[Hit, ...]]:
    """Return the passages of calls as hits."""
    return {call.call_pk: tuple(_passages_shown(_turns(call), passages[call.call_pk])) for call in spoken}


def _turns(spoken: Spoken) -> list[dict[str, Any]]:
    stored = from_json(spoken.turns)
    turns: list[dict[str, Any]] = stored["turns"] if isinstance(stored, dict) else stored
    return turns


def _initial(word: str) -> str:
    return next((letter for letter in word.lower() if letter.isalnum()), "")


@dataclass(frozen=True, slots=True)
class _Run:
    turn: dict[str, Any]
    first: int  # of the turn's words
    last: int
    lexemes: frozenset[str]


def _places(turns: Sequence[dict[str, Any]], config: str, lexemes: Mapping[tuple[str, str], str]) -> Iterator[_Run]:
    """Yield runs of matching words with max. one other word between two of them."""
    for turn in turns:
        matches = [
            (n, lexeme) for n, word in enumerate(turn["words"]) if (lexeme := lexemes.get((config, word["text"])))
        ]
        while matches:
            size = next((n for n in range(1, len(matches)) if matches[n][0] - matches[n - 1][0] > 2), len(matches))
            run, matches = matches[:size], matches[size:]
            yield _Run(turn, run[0][0], run[-1][0], frozenset(lexeme for _, lexeme in run))


def _best(runs: list[_Run]) -> Iterator[Hit]:
    fullest = sorted(runs, key=lambda run: -len(run.lexemes))[:HITS]
    for run in sorted(fullest, key=lambda run: (run.turn["index"], run.first)):
        begin = max(0, run.first - CONTEXT_WORDS)
        around = _WORDS.validate_python(run.turn["words"][begin : run.last + 1 + CONTEXT_WORDS])
        words = around[run.first - begin : run.last - begin + 1]
        turn = run.turn
        yield Hit(turn["index"], turn["speaker"], words[0].start, words[-1].end, text_of(words), text_of(around))


def _passages_shown(turns: Sequence[dict[str, Any]], passages: Sequence[SimilarPassage]) -> Iterator[Hit]:
    by_index = {turn["index"]: turn for turn in turns}
    for passage in passages:
        first, last = (passage.first_turn, passage.first_word), (passage.last_turn, passage.last_word)
        words = _WORDS.validate_python(
            [
                word
                for index in range(passage.first_turn, passage.last_turn + 1)
                if index in by_index
                for at, word in enumerate(by_index[index]["words"])
                if first <= (index, at) <= last
            ]
        )
        if words:
            speaker, text = by_index[passage.first_turn]["speaker"], text_of(words)
            start, end = min(word.start for word in words), max(word.end for word in words)
            yield Hit(passage.first_turn, speaker, start, end, text, text, round(passage.similarity, 4))
