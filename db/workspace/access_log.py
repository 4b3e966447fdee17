"""Log of who read or played which part of a call, written before the data is returned.

A key that reads the same part of a call again within an hour adds to a count, not a row: however fast it reads, it
leaves a bounded number of rows. Reads that wait for the same commit share a transaction; none is delayed to fill it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, OUTAGES, Database, Reader, Scope
from db.core.rows import read
from db.core.tables import api_keys, console_sessions, reads

MAX_WAIT_SECONDS = 2.0  # for the log; then the read is refused
MAX_BATCH = 32  # reads per transaction, each of a page of calls
RETENTION = timedelta(days=365)  # after the hour of the read
SWEEP_ROWS = 1000  # deleted in one transaction

# In one order everywhere, so that transactions never wait for each other in a circle.
_ADD = sa.text("""
    INSERT INTO reads (workspace_id, call_id, key_id, what, detail, count, request_id)
    SELECT :workspace, added.*
    FROM unnest(
        CAST(:calls AS uuid[]), CAST(:keys AS uuid[]), CAST(:kinds AS text[]), CAST(:details AS text[]),
        CAST(:counts AS integer[]), CAST(:requests AS text[])
    ) AS added (call_id, key_id, what, detail, count, request_id)
    ORDER BY call_id, key_id, what, detail
    ON CONFLICT (call_id, hour, key_id, what, detail) DO UPDATE
    SET count = reads.count + excluded.count, last_at = excluded.last_at, request_id = excluded.request_id
""")

# By the places of rows: their key is wide, and nothing changes a row of a past hour.
_SWEEP = sa.text("""
    DELETE FROM reads WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM reads r WHERE hour < now() - CAST(:age AS interval) AND NOT EXISTS (
            SELECT FROM calls c
            WHERE c.call_id = r.call_id AND c.workspace_id = r.workspace_id AND is_on_hold(c)
        )
        ORDER BY hour LIMIT :rows FOR UPDATE SKIP LOCKED
    ))
""")

_NOT_WRITTEN: tuple[type[Exception], ...] = (TimeoutError, *OUTAGES)

_Part: TypeAlias = tuple[UUID, UUID, str, str]  # call, key, what, detail
_Group: TypeAlias = tuple[UUID, UUID | None]  # workspace and team of a reader


@dataclass(frozen=True, slots=True)
class Read:
    """The reads of one part of a call by one key within an hour."""

    first_at: datetime
    last_at: datetime
    count: int
    key_id: UUID  # of the API key, or of the session that a sign-in link opened
    name: str | None  # of that key or link; None: it was deleted
    call_id: UUID
    what: str  # record, transcript, audio, export, search
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
    values |= {"counts": list(counts.values()), "requests": [requests[part] for part in counts]}
    await database.change(Reader(*group, seconds=MAX_WAIT_SECONDS), _ADD, values | {"workspace": group[0]})


async def list_reads(database: Database, scope: Scope, call_id: UUID, limit: int = 100) -> list[Read]:
    """Return the reads of a call, the latest first."""
    name = sa.func.coalesce(api_keys.c.name, console_sessions.c.name).label("name")
    query = (
        sa.select(reads, name)
        .outerjoin(api_keys, api_keys.c.id == reads.c.key_id)
        .outerjoin(console_sessions, console_sessions.c.id == reads.c.key_id)
        .where(reads.c.call_id == call_id)
        .order_by(reads.c.hour.desc(), reads.c.last_at.desc())
    )
    return [read(Read, row) for row in await database.rows(scope, query.limit(limit))]


async def sweep(database: Database) -> int:
    """Delete up to `SWEEP_ROWS` rows older than `RETENTION`; return how many."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return (await connection.execute(_SWEEP, {"age": RETENTION, "rows": SWEEP_ROWS})).rowcount
