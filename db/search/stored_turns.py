import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import sqlalchemy as sa

from db.core.database import Database, Reader
from db.core.tables import transcripts
from db.records.corrected_columns import turns_text
from db.search.hits import Spoken
from db.search.passages import turns_of
from db.secrets import call_keys
from db.secrets.call_keys import CallKeys

PART_SECONDS = 3600.0  # of talk that is read at once: 1 MB of words


async def spoken_in_parts(database: Database, reader: Reader, call_pks: Sequence[int]) -> AsyncIterator[list[Spoken]]:
    """Yield the turns of the calls that have some, an hour of talk at a time, each from a transaction of its own."""
    lengths = sa.select(transcripts.c.call_pk, transcripts.c.duration).where(transcripts.c.call_pk.in_(call_pks))
    for part in parts([(row.call_pk, row.duration) for row in await database.rows(reader, lengths)]):
        rows = await database.rows(reader, _turns(part))
        # A thread, since deciphering and decompressing do not need Python's lock.
        yield await asyncio.to_thread(_opened, call_keys.of(database), rows)


def parts(calls: Sequence[tuple[int, float]]) -> list[list[int]]:
    """Group row ids, given with seconds, by `PART_SECONDS`; a longer call is alone."""
    groups: list[list[int]] = []
    length = 0.0
    for call_pk, duration in calls:
        if not groups or length + duration > PART_SECONDS:
            groups.append([])
            length = 0.0
        groups[-1].append(call_pk)
        length += duration
    return groups


def _turns(call_pks: Sequence[int]) -> sa.Select[Any]:
    return turns_of(call_pks, as_text=True).add_columns(sa.func.search_config(transcripts.c.language).label("config"))


def _opened(keys: CallKeys, rows: Sequence[sa.Row[Any]]) -> list[Spoken]:
    return [Spoken(row.call_pk, row.config, turns_text(keys, row.turns)) for row in rows]
