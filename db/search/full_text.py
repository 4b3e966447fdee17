"""Finds calls by spoken words, names and numbers, and the places of the words.

`search_calls` (schema/functions) walks the index of completed calls. The other conditions are checked here for its
candidates, so that a page reads no more than a few thousand rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from rapidfuzz import fuzz
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.pages import Place, gather
from db.core.tables import PRESENT, call_search, calls, transcripts
from db.search.hits import Hit, Offload, candidate_words, split_words, word_hits
from db.search.stored_turns import spoken_in_parts

MIN_SIMILARITY = 80.0  # of a name to the requested one, 0..100: one letter of six
MAX_FUZZY = 16  # letters; the terms of the query grow with the square
MAX_GRAMS = 24  # trigrams per word that the index looks up


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
    is_expired = calls.c.content_expired == calls.c.job_id  # its numbers remain in the index
    query = (
        sa.select(calls.c.id, call_search.c.names)
        .join(call_search, call_search.c.call_pk == calls.c.id)
        .outerjoin(transcripts, PRESENT)
        .where(calls.c.id.in_(call_pks), sa.or_(transcripts.c.call_pk.is_not(None), is_expired), *conditions)
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
    words = split_words(name)
    long_words = [word for word in words if len(word) > 2]
    return (long_words or words)[:8]


def _is_fuzzy(word: str) -> bool:
    return len(word) >= 6 and not any(letter.isdigit() for letter in word)


def _grams_query(word: str) -> str:
    grams = [f"'~{word[at : at + 3]}'" for at in range(max(len(word) - 2, 1))]
    if not _is_fuzzy(word):
        return " & ".join(dict.fromkeys(grams[:MAX_GRAMS]))
    if len(word) > MAX_FUZZY:  # one wrong letter leaves one half of the word as it is
        alternatives = [grams[: len(word) // 2 - 2][:MAX_GRAMS], grams[len(word) // 2 :][:MAX_GRAMS]]
    else:  # a wrong letter is in max. three consecutive trigrams: any three may be missing
        alternatives = [[*grams[:at], *grams[at + 3 :]] for at in range(max(len(grams) - 2, 1))]
    return " | ".join(dict.fromkeys(f"({' & '.join(some)})" for some in alternatives if some)) or " & ".join(grams)


async def hits(
    database: Database, reader: Reader, call_pks: Sequence[int], text: str, offload: Offload
) -> dict[int, tuple[Hit, ...]]:
    """Return where the words of `text` were said in calls, by the row's id."""
    positive = " ".join(word for word in text.split() if not word.startswith("-"))
    places: dict[int, tuple[Hit, ...]] = {}
    if not split_words(positive):
        return places
    async for spoken in spoken_in_parts(database, reader, call_pks):
        words = await offload(candidate_words, spoken, positive)
        places |= await offload(word_hits, spoken, await _lexemes(database, reader, words, positive))
    return places


_LEXEMES = sa.text("""
    SELECT config, word, lexeme FROM unnest(CAST(:configs AS text[]), CAST(:words AS text[])) AS spoken (config, word),
        unnest(tsvector_to_array(to_tsvector(config::regconfig, word))) AS lexeme
    WHERE lexeme = ANY (tsvector_to_array(to_tsvector(config::regconfig, :text)))
""")


async def _lexemes(
    database: Database, reader: Reader, words: set[tuple[str, str]], text: str
) -> dict[tuple[str, str], str]:
    """Return the lexeme of `text` that each word is a form of, by configuration and word; others are left out."""
    values = {"configs": [config for config, _ in words], "words": [word for _, word in words], "text": text}
    return {(row.config, row.word): row.lexeme for row in await database.rows(reader, _LEXEMES, values)}
