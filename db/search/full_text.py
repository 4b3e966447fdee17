"""Finds calls by spoken words, names and numbers, and the places of the words.

`search_calls` (schema/functions) walks the index of completed calls. The other conditions are checked here for its
candidates, so that a page reads no more than a few thousand rows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter
from rapidfuzz import fuzz
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.pages import Place, gather
from db.core.tables import PRESENT, call_search, calls, corrections, transcripts
from pipeline.domain.speech import Word, text_of

MIN_SIMILARITY = 80.0  # of a name to the requested one, 0..100: one letter of six
HITS = 3  # per call
CONTEXT_WORDS = 8  # on either side of a hit
_BETWEEN = re.compile(r"[\s!-/:-@\[-`{-~]+")  # as search_grams splits
_WORD = TypeAdapter(Word)


@dataclass(frozen=True, slots=True)
class Query:
    """Search terms; see `call_list.CallFilter`."""

    text: str | None = None
    name: str | None = None
    language: str | None = None
    started_from: datetime | None = None
    started_before: datetime | None = None
    number: str | None = None  # with these digits in one of the numbers, or in a name; callers compare whole numbers
    tone: str | None = None


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


_SEARCH = sa.text(
    "SELECT call_pk, start_time FROM"
    " search_calls(CASE WHEN :language IS NULL THEN NULL ELSE search_config(:language) END, :text,"
    " CAST(:names AS tsquery), :from, :until, :before, :call, :limit, :tone)"
).bindparams(
    sa.bindparam("language", type_=sa.Text()),
    sa.bindparam("text", type_=sa.Text()),
    sa.bindparam("names", type_=sa.Text()),
    sa.bindparam("from", type_=sa.DateTime(timezone=True)),
    sa.bindparam("until", type_=sa.DateTime(timezone=True)),
    sa.bindparam("before", type_=sa.DateTime(timezone=True)),
    sa.bindparam("call", type_=sa.BigInteger()),
    sa.bindparam("limit", type_=sa.Integer()),
    sa.bindparam("tone", type_=sa.Text()),
)


async def matching(
    connection: AsyncConnection,
    query: Query,
    conditions: Sequence[sa.ColumnElement[bool]],
    place: Place | None,
    limit: int,
) -> tuple[list[int], Place | None]:
    """Return the row ids of up to `limit` calls, the latest first, and where to continue, if there may be more."""
    terms = [term for term in (query.name, query.number) if term is not None]
    names = " & ".join(filter(None, map(names_query, terms))) or None
    if terms and names is None:
        return [], None  # no letter or digit
    values = {
        "language": query.language,
        "text": query.text,
        "names": names,
        "from": query.started_from,
        "until": query.started_before,
        "tone": query.tone,
    }

    async def candidates(behind: Place | None, count: int) -> list[Place]:
        position = {"before": behind and behind.at, "call": behind and behind.row, "limit": count}
        rows = await connection.execute(_SEARCH, values | position)
        return [Place(row.start_time.isoformat(), row.call_pk) for row in rows]

    async def kept(call_pks: list[int]) -> set[int]:
        return await _matching_ids(connection, call_pks, conditions, query.name)

    return await gather(candidates, kept, place, limit)


async def _matching_ids(
    connection: AsyncConnection, call_pks: list[int], conditions: Sequence[sa.ColumnElement[bool]], name: str | None
) -> set[int]:
    query = (
        sa.select(calls.c.id, call_search.c.names)
        .join(call_search, call_search.c.call_pk == calls.c.id)
        .join(transcripts, PRESENT)
        .where(calls.c.id.in_(call_pks), *conditions)
    )
    return {row.id for row in await connection.execute(query) if name is None or is_named(name, row.names)}


def names_query(name: str) -> str:
    """Return the tsquery for names with all trigrams of a name, or most of them where one letter may be wrong.

    Empty if the name has neither a letter nor a digit.
    """
    return " & ".join(f"({_grams_query(word)})" for word in _words(name))


def is_named(name: str, names: str) -> bool:
    """Return whether each word of a name is in `names` (`call_search.names`); a long one may have a wrong letter."""
    for word in _words(name):
        if word not in names and (not _is_fuzzy(word) or fuzz.partial_ratio(word, names) < MIN_SIMILARITY):
            return False
    return True


def _words(name: str) -> list[str]:
    words = [word for word in _BETWEEN.split(name.lower()) if word]
    long_words = [word for word in words if len(word) > 2]
    return (long_words or words)[:8]


def _is_fuzzy(word: str) -> bool:
    return len(word) >= 6 and not any(letter.isdigit() for letter in word)


def _grams_query(word: str) -> str:
    grams = [f"'~{word[at : at + 3]}'" for at in range(max(len(word) - 2, 1))]
    if not _is_fuzzy(word):
        return " & ".join(dict.fromkeys(grams))
    # A wrong letter is in max. three consecutive trigrams: any three may be missing.
    alternatives = [[*grams[:at], *grams[at + 3 :]] for at in range(max(len(grams) - 2, 1))]
    return " | ".join(
        dict.fromkeys(f"({' & '.join(kept_grams)})" for kept_grams in alternatives if kept_grams)
    ) or " & ".join(grams)


async def hits(connection: AsyncConnection, call_pks: Sequence[int], text: str) -> dict[int, tuple[Hit, ...]]:
    """Return where the words of `text` were said in calls, by the row's id: up to `HITS` of each, the fullest first."""
    of_transcript = sa.and_(
        corrections.c.call_pk == transcripts.c.call_pk, corrections.c.written_at == transcripts.c.written_at
    )
    query = (
        sa.select(
            transcripts.c.call_pk,
            sa.func.search_config(transcripts.c.language).label("config"),
            sa.func.coalesce(corrections.c.turns, transcripts.c.content["turns"]).label("turns"),
        )
        .outerjoin(corrections, of_transcript)
        .where(transcripts.c.call_pk.in_(call_pks))
    )
    spoken = {row.call_pk: (row.config, row.turns) for row in await connection.execute(query)}
    initials = {word[0] for word in _BETWEEN.split(text.lower()) if word}
    words = {
        (config, word["text"])
        for config, turns in spoken.values()
        for turn in turns
        for word in turn["words"]
        if _initial(word["text"]) in initials  # a stem begins as the word does
    }
    lexemes = await _lexemes(connection, words, text)
    return {pk: tuple(_best(list(_places(turns, config, lexemes)))) for pk, (config, turns) in spoken.items()}


_LEXEMES = sa.text("""
    SELECT config, word, lexeme FROM unnest(CAST(:configs AS text[]), CAST(:words AS text[])) AS spoken (config, word),
        unnest(tsvector_to_array(to_tsvector(config::regconfig, word))) AS lexeme
    WHERE lexeme = ANY (tsvector_to_array(to_tsvector(config::regconfig, :text)))
""")


async def _lexemes(connection: AsyncConnection, words: set[tuple[str, str]], text: str) -> dict[tuple[str, str], str]:
    """Return the lexeme of `text` that each word is a form of, by configuration and word; others are left out."""
    positive = " ".join(word for word in text.split() if not word.startswith("-"))
    values = {"configs": [config for config, _ in words], "words": [word for _, word in words], "text": positive}
    return {(row.config, row.word): row.lexeme for row in await connection.execute(_LEXEMES, values)}


def _initial(word: str) -> str:
    return next((letter for letter in word.lower() if letter.isalnum()), "")


@dataclass(frozen=True, slots=True)
class _Run:
    turn: dict[str, Any]
    first: int  # of the turn's words
    last: int
    lexemes: frozenset[str]


def _places(turns: Sequence[dict[str, Any]], config: str, lexemes: dict[tuple[str, str], str]) -> Iterator[_Run]:
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
        around = [_WORD.validate_python(word) for word in run.turn["words"][begin : run.last + 1 + CONTEXT_WORDS]]
        words = around[run.first - begin : run.last - begin + 1]
        turn = run.turn
        yield Hit(turn["index"], turn["speaker"], words[0].start, words[-1].end, text_of(words), text_of(around))
