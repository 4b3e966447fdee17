"""Log of who read, changed or erased which part of a call: written before data is returned, and with a change.

A key that reads the same part of a call again within an hour adds to a count, not a row: however fast it reads, it
leaves a bounded number of rows. Reads that wait for the same commit share a transaction; none is delayed to fill it.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid5
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, OUTAGES, Database, Reader, Scope
from db.core.pages import Page, Place, aware
from db.core.rows import read
from db.core.tables import api_keys, console_sessions, reads
from db.workspace import access_chain

MAX_WAIT_SECONDS = 2.0  # for the log; then the read is refused
MAX_BATCH = 32  # reads per transaction, each of a page of calls
RETENTION = timedelta(days=365)  # after the hour of the read
SWEEP_ROWS = 1000  # deleted in one transaction
OPERATORS = UUID("6f3a4c0e-52f1-4f0a-9d0b-0a6f6c1f7d35")  # namespace of their ids

# In one order everywhere, so that transactions never wait for each other in a circle.
_ADD = sa.text("""
    INSERT INTO reads (workspace_id, operator, call_id, key_id, what, detail, count, request_id)
    SELECT :workspace, CAST(:operator AS text), added.*
    FROM unnest(
        CAST(:calls AS uuid[]), CAST(:keys AS uuid[]), CAST(:kinds AS text[]), CAST(:details AS text[]),
        CAST(:counts AS integer[]), CAST(:requests AS text[])
    ) AS added (call_id, key_id, what, detail, count, request_id)
    ORDER BY call_id, key_id, what, detail
    ON CONFLICT (call_id, hour, key_id, what, detail) DO UPDATE
    SET count = reads.count + excluded.count, last_at = excluded.last_at, request_id = excluded.request_id
""")

# Workspaces with rows that are due, and the hour from which rows remain: not later than the first of a call on hold.
_DUE = sa.text("""
    WITH periods AS (
        SELECT w.id,
            date_trunc('hour', now() - least(CAST(:age AS interval), make_interval(days => p.days)), 'UTC') AS hour
        FROM workspaces w LEFT JOIN retention_periods p
            ON p.workspace_id = w.id AND p.team_id IS NULL AND p.kind = 'access_log'
    ), kept AS (
        SELECT id, least(hour, CASE WHEN EXISTS (
            SELECT FROM legal_holds h WHERE h.workspace_id = periods.id AND h.released_at IS NULL
        ) THEN (
            SELECT min(r.hour) FROM reads r JOIN calls c ON c.call_id = r.call_id AND c.workspace_id = r.workspace_id
            WHERE r.workspace_id = periods.id AND r.hour < periods.hour AND is_on_hold(c)
        ) END) AS hour
        FROM periods
    )
    SELECT id, hour AS kept_from FROM kept
    WHERE EXISTS (SELECT FROM reads r WHERE r.workspace_id = kept.id AND r.hour < kept.hour)
""")

# By the places of rows: their key is wide, and nothing changes a row of a past hour.
_SWEEP = sa.text("""
    DELETE FROM reads WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM reads WHERE workspace_id = :workspace AND hour < :kept_from ORDER BY hour LIMIT :rows
    ))
""")

_NOT_WRITTEN: tuple[type[Exception], ...] = (TimeoutError, *OUTAGES)

_Part: TypeAlias = tuple[UUID, UUID, str, str]  # call, key, what, detail
_Group: TypeAlias = tuple[UUID, UUID | None]  # workspace and team of a reader


@dataclass(frozen=True, slots=True)
class Read:
    """The reads of one part of a call by one key within an hour, or its changes of the call."""

    hour: datetime
    first_at: datetime
    last_at: datetime
    count: int
    key_id: UUID  # of the API key, or of the session that a sign-in link opened; of an operator from the name
    name: str | None  # of that key or link, or of the operator's login; None: it was deleted
    call_id: UUID
    what: str  # record, transcript, audio, export, search, correction, erasure
    detail: str  # a format, a channel
    request_id: str | None  # of the last read


@dataclass(eq=False, slots=True)
class _Waiting:
    parts: list[_Part]
    request_id: str | None
    written: asyncio.Future[None]


@dataclass(eq=False, slots=True)
class _Log:
    """The reads of a process that wait for the log, and the tasks that write them, for each workspace and team."""

    waiting: dict[_Group, list[_Waiting]] = field(default_factory=dict)
    tasks: dict[_Group, asyncio.Task[None]] = field(default_factory=dict)


_logs: WeakKeyDictionary[Database, _Log] = WeakKeyDictionary()


async def note(
    database: Database,
    reader: Reader,
    key_id: UUID,
    call_ids: Sequence[UUID],
    what: str,
    detail: str = "",
    request_id: str | None = None,
) -> None:
    """Log that calls are read, in a separate transaction: durable when it returns.

    Raises one of `OUTAGES` if that takes longer than `MAX_WAIT_SECONDS`: the data must not be returned then.
    """
    if not call_ids:
        return
    log = _logs.setdefault(database, _Log())
    group = (reader.workspace_id, reader.team_id)
    written = asyncio.get_running_loop().create_future()
    parts = [(call_id, key_id, what, detail) for call_id in call_ids]
    log.waiting.setdefault(group, []).append(_Waiting(parts, request_id, written))
    if group not in log.tasks:
        log.tasks[group] = asyncio.create_task(_write_all(database, log, group))
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            await written
    except _NOT_WRITTEN as error:
        raise psycopg.OperationalError("The access log cannot be written now.") from error


async def _write_all(database: Database, log: _Log, group: _Group) -> None:
    """Write the waiting reads of a group, and those that arrive in the meantime with the next transaction."""
    try:
        while waiting := log.waiting.pop(group, None):
            if later := waiting[MAX_BATCH:]:
                log.waiting[group] = later
            # A read that waited for too long or was canceled has canceled its future: it returns no data.
            if due := [item for item in waiting[:MAX_BATCH] if not item.written.done()]:
                await _write(database, group, due)
    finally:
        del log.tasks[group]


async def _write(database: Database, group: _Group, waiting: Sequence[_Waiting]) -> None:
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            await _add(database, group, waiting)
    except Exception as error:
        if len(waiting) > 1 and not isinstance(error, _NOT_WRITTEN):  # one read must not fail the others
            for item in waiting:
                await _write(database, group, [item])
            return
        for item in waiting:
            if not item.written.done():
                item.written.set_exception(error)
    for item in waiting:
        if not item.written.done():
            item.written.set_result(None)


async def _add(database: Database, group: _Group, waiting: Sequence[_Waiting]) -> None:
    counts = Counter(part for item in waiting for part in item.parts)
    requests = {part: item.request_id for item in waiting for part in item.parts}
    calls, keys, kinds, details = (list(column) for column in zip(*counts, strict=True))
    values: dict[str, Any] = {"calls": calls, "keys": keys, "kinds": kinds, "details": details}
    values |= {"counts": list(counts.values()), "requests": [requests[part] for part in counts], "operator": None}
    await database.change(Reader(*group, seconds=MAX_WAIT_SECONDS), _ADD, values | {"workspace": group[0]})


async def note_change(
    connection: AsyncConnection, workspace_id: UUID, call_id: UUID, what: str, key_id: UUID | None, operator: str
) -> None:
    """Log in the transaction of a change of a call that a key or a session, or without one an operator, makes it."""
    values: dict[str, Any] = {"calls": [call_id], "keys": [key_id or operator_id(operator)], "kinds": [what]}
    values |= {"details": [""], "counts": [1], "requests": [None], "workspace": workspace_id}
    await connection.execute(_ADD, values | {"operator": None if key_id else operator})


def operator_id(name: str) -> UUID:
    """Return the id of an operator in the log, from the name of the login."""
    return uuid5(OPERATORS, name)


async def list_reads(database: Database, scope: Scope, call_id: UUID, limit: int = 100) -> list[Read]:
    """Return the reads of a call, the latest first."""
    query = _READS.where(reads.c.call_id == call_id).order_by(reads.c.hour.desc(), reads.c.last_at.desc())
    return [read(Read, row) for row in await database.rows(scope, query.limit(limit))]


@dataclass(frozen=True, slots=True)
class ReadFilter:
    """`since`, `until`: a read within this time."""

    call_id: UUID | None = None
    key_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


async def list_all(
    database: Database,
    scope: Scope,
    workspace_id: UUID,
    filter_: ReadFilter,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Read]:
    """Return the reads of a workspace, the latest hour first. Raises `pages.InvalidCursor`."""
    filters = ("reads", workspace_id, filter_)
    place = Place.decode(cursor, filters, _position)
    query = _READS.where(reads.c.workspace_id == workspace_id)
    for column in (reads.c.call_id, reads.c.key_id):
        if (value := getattr(filter_, column.name)) is not None:
            query = query.where(column == value)
    if filter_.since is not None:  # hours are indexed
        hour = filter_.since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        query = query.where(reads.c.hour >= hour, reads.c.last_at >= filter_.since)
    if filter_.until is not None:
        query = query.where(reads.c.hour < filter_.until, reads.c.first_at < filter_.until)
    if place is not None:
        query = query.where(sa.tuple_(*_ORDER) < sa.tuple_(*_position(place.key)))
    query = query.order_by(*(column.desc() for column in _ORDER)).limit(limit + 1)
    items = tuple(read(Read, row) for row in await database.rows(scope, query, snapshot=True))
    if len(items) <= limit:
        return Page(items)
    last = items[limit - 1]
    key = json.dumps([last.hour.isoformat(), *(str(getattr(last, column.name)) for column in _ORDER[1:])])
    return Page(items[:limit], Place(key, 0).encode(filters))


_NAME = sa.func.coalesce(api_keys.c.name, console_sessions.c.name, reads.c.operator).label("name")
_READS = (
    sa.select(reads, _NAME)
    .outerjoin(api_keys, api_keys.c.id == reads.c.key_id)
    .outerjoin(console_sessions, console_sessions.c.id == reads.c.key_id)
)
_ORDER = (reads.c.hour, reads.c.call_id, reads.c.key_id, reads.c.what, reads.c.detail)


def _position(key: str) -> list[sa.BindParameter[Any]]:
    """Return the values of `_ORDER` in a cursor. Raises ValueError."""
    hour, call_id, key_id, what, detail = json.loads(key)
    values = (aware(hour), UUID(call_id), UUID(key_id), str(what), str(detail))
    return [sa.literal(value, column.type) for value, column in zip(values, _ORDER, strict=True)]


async def sweep(database: Database) -> int:
    """Delete up to `SWEEP_ROWS` rows of each workspace that are older than its period; return how many.

    A period is at most `RETENTION`. Only whole hours are deleted, so that the chain holds.
    """
    deleted = 0
    for due in await database.rows(EVERY_WORKSPACE, _DUE, {"age": RETENTION}):
        async with database.transaction(due.id) as connection:
            await access_chain.retain(connection, due.id, due.kept_from)
            values = {"workspace": due.id, "kept_from": due.kept_from, "rows": SWEEP_ROWS}
            deleted += (await connection.execute(_SWEEP, values)).rowcount
    return deleted
