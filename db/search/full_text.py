"""Calls found by what was said in them, and by names and numbers; and where it was said.

`search_calls` (schema/functions) walks the index of what completed calls are found by; what else was asked for is
looked up for its candidates here, so that a page costs no more than a few thousand rows.
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

LIKENESS = 80.0  # of a name with one that was asked for, 0..100: one letter of six
HITS = 3  # shown of a call
AROUND = 8  # words shown on either side of a hit
_BETWEEN = re.compile(r"[\s!-/:-@\[-`{-~]+")  # as search_grams splits
_WORD = TypeAdapter(Word)


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for; see `call_list.CallFilter`."""

    text: str | None = None
    name: str | None = None
    language: str | None = None
    started_from: datetime | None = None
    started_before: datetime | None = None
    number: str | None = None  # with these digits in one of the numbers, or in a name; who asks compares them whole
    tone: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """Words that were looked for, as they were said: `words` in `start`..`end`, and `quote` around them.

    Found by meaning: a passage that begins with this turn, and how like the question it is.
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
    """Rows' ids of at most `limit` calls, the latest first, and the place to go on from, if there may be more."""
    asked = [one for one in (query.name, query.number) if one is not None]
    names = " & ".join(filter(None, map(names_query, asked))) or None
    if asked and names is None:
        return [], None  # no letter or digit in it
    values = {
        "language": query.language,
        "text": query.text,
        "names": names,
        "from": query.started_from,
        "until": query.started_before,
        "tone": query.tone,
    }

    async def candidates(behind: Place | None, count: int) -> list[Place]:
        after = {"before": behind and behind.at, "call": behind and behind.row, "limit": count}
        rows = await connection.execute(_SEARCH, values | after)
        return [Place(row.start_time.isoformat(), row.call_pk) for row in rows]

    async def kept(call_pks: list[int]) -> set[int]:
        return await _kept(connection, call_pks, conditions, query.name)

    return await gather(candidates, kept, place, limit)


async def _kept(
    connection: AsyncConnection, call_pks: list[int], conditions: Sequence[sa.ColumnElement[bool]], name: str | None
) -> set[int]:
    """Those of the candidates for which everything else holds, by the tables themselves."""
    query = (
        sa.select(calls.c.id, call_search.c.names)
        .join(call_search, call_search.c.call_pk == calls.c.id)
        .join(transcripts, PRESENT)
        .where(calls.c.id.in_(call_pks), *conditions)
    )
    return {row.id for row in await connection.execute(query) if name is None or is_named(name, row.names)}


def names_query(name: str) -> str:
    """The tsquery for names in which all trigrams of a name occur, or most of them where one letter may be wrong.

    Empty: there is neither a letter nor a digit in it.
    """
    return " & ".join(f"({_grams_query(word)})" for word in _words(name))


def is_named(name: str, names: str) -> bool:
    """Whether each word of a name is in `names` (`call_search.names`), but for a wrong letter in a long one."""
    for word in _words(name):
        if word not in names and (not _is_fuzzy(word) or fuzz.partial_ratio(word, names) < LIKENESS):
            return False
    return True


def _words(name: str) -> list[str]:
    found = [word for word in _BETWEEN.split(name.lower()) if word]
    long = [word for word in found if len(word) > 2]
    return (long or found)[:8]


def _is_fuzzy(word: str) -> bool:
    return len(word) >= 6 and not any(letter.isdigit() for letter in word)


def _grams_query(word: str) -> str:
    grams = [f"'~{word[at : at + 3]}'" for at in range(max(len(word) - 2, 1))]
    if not _is_fuzzy(word):
        return " & ".join(dict.fromkeys(grams))
    # A wrong letter is in at most three trigrams, one behind the other: any three may be missing.
    left = [[*grams[:at], *grams[at + 3 :]] for at in range(max(len(grams) - 2, 1))]
    return " | ".join(dict.fromkeys(f"({' & '.join(some)})" for some in left if some)) or " & ".join(grams)


async def hits(connection: AsyncConnection, call_pks: Sequence[int], text: str) -> dict[int, tuple[Hit, ...]]:
    """Where the words of `text` were said in calls, by the row's id: at most `HITS` of each, the fullest first."""
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
    meant = await _lexemes(connection, words, text)
    return {pk: tuple(_best(list(_places(turns, config, meant)))) for pk, (config, turns) in spoken.items()}


_LEXEMES = sa.text("""
    SELECT config, word, lexeme FROM unnest(CAST(:configs AS text[]), CAST(:words AS text[])) AS said (config, word),
        unnest(tsvector_to_array(to_tsvector(config::regconfig, word))) AS lexeme
    WHERE lexeme = ANY (tsvector_to_array(to_tsvector(config::regconfig, :text)))
""")


async def _lexemes(connection: AsyncConnection, words: set[tuple[str, str]], text: str) -> dict[tuple[str, str], str]:
    """The lexeme of `text` that each word is a form of, by configuration and word; others are left out."""
    asked = " ".join(word for word in text.split() if not word.startswith("-"))
    values = {"configs": [config for config, _ in words], "words": [word for _, word in words], "text": asked}
    return {(row.config, row.word): row.lexeme for row in await connection.execute(_LEXEMES, values)}


def _initial(word: str) -> str:
    return next((letter for letter in word.lower() if letter.isalnum()), "")


@dataclass(frozen=True, slots=True)
class _Found:
    turn: dict[str, Any]
    first: int  # of the turn's words
    last: int
    lexemes: frozenset[str]


def _places(turns: Sequence[dict[str, Any]], config: str, meant: dict[tuple[str, str], str]) -> Iterator[_Found]:
    """Runs of words that were looked for, with at most one other word between two of them."""
    for turn in turns:
        at = [(n, lexeme) for n, word in enumerate(turn["words"]) if (lexeme := meant.get((config, word["text"])))]
        while at:
            size = next((n for n in range(1, len(at)) if at[n][0] - at[n - 1][0] > 2), len(at))
            run, at = at[:size], at[size:]
            yield _Found(turn, run[0][0], run[-1][0], frozenset(lexeme for _, lexeme in run))


def _best(found: list[_Found]) -> Iterator[Hit]:
    fullest = sorted(found, key=lambda one: -len(one.lexemes))[:HITS]
    for one in sorted(fullest, key=lambda one: (one.turn["index"], one.first)):
        begin = max(0, one.first - AROUND)
        around = [_WORD.validate_python(word) for word in one.turn["words"][begin : one.last + 1 + AROUND]]
        said = around[one.first - begin : one.last - begin + 1]
        turn = one.turn
        yield Hit(turn["index"], turn["speaker"], said[0].start, said[-1].end, text_of(said), text_of(around))
