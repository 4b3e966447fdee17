"""Changes of calls in order of time, for streams that follow them."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.rows import read
from db.core.tables import calls, events

MAX_CHANGES = 2_000  # per query
OVERLAP = timedelta(seconds=10)  # a transaction may commit this long after its timestamps
SHARED_SECONDS = 0.5  # how long a read serves other streams
SLACK = timedelta(seconds=2)  # streams are that much apart; one that fell behind reads for itself


@dataclass(frozen=True, slots=True)
class Change:
    """A call after its latest change."""

    call_id: UUID
    team_id: UUID
    state: str
    start_time: datetime
    updated_at: datetime

    @property
    def at(self) -> datetime:
        return self.updated_at


_CHANGE_FIELDS = tuple(calls.c[name] for name in Change.__dataclass_fields__)


async def _changes_since(connection: AsyncConnection, workspace_id: UUID, after: datetime) -> list[Change]:
    query = (
        sa.select(*_CHANGE_FIELDS)
        .where(calls.c.workspace_id == workspace_id, calls.c.updated_at > after)
        .order_by(calls.c.updated_at, calls.c.id)
        .limit(MAX_CHANGES)
    )
    return [read(Change, row) for row in await connection.execute(query)]


@dataclass(frozen=True, slots=True)
class Deletion:
    """An erased call."""

    call_id: UUID
    team_id: UUID
    deleted_at: datetime

    @property
    def at(self) -> datetime:
        return self.deleted_at


async def _deletions_since(connection: AsyncConnection, workspace_id: UUID, after: datetime) -> list[Deletion]:
    """Return the calls erased after a time, the earliest first, as long as their events are stored."""
    data = events.c.data
    query = (
        sa.select(
            sa.cast(data["callId"].astext, sa.Uuid()).label("call_id"),
            sa.cast(data["teamId"].astext, sa.Uuid()).label("team_id"),
            events.c.at.label("deleted_at"),
        )
        .where(events.c.workspace_id == workspace_id, events.c.call_pk.is_(None), events.c.at > after)
        .order_by(events.c.at)
        .limit(MAX_CHANGES)
    )
    return [read(Deletion, row) for row in await connection.execute(query)]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes and deletions after a time, the earliest first. All until `end` are known; if `is_full`, more follow."""

    after: datetime
    items: Sequence[Change | Deletion]
    end: datetime
    is_full: bool


async def read_changes(database: Database, reader: Reader, after: datetime) -> Changes:
    """Return the changes and deletions after a time."""
    async with database.transaction(reader) as connection:
        present: datetime = (await connection.execute(sa.select(sa.func.now()))).scalar_one()
        parts: list[Sequence[Change | Deletion]] = [
            await _changes_since(connection, reader.workspace_id, after),
            await _deletions_since(connection, reader.workspace_id, after),
        ]
    full = [part[-1].at for part in parts if len(part) == MAX_CHANGES]
    end = min(full, default=present - OVERLAP)
    changes = sorted((change for part in parts for change in part), key=lambda change: change.at)
    return Changes(after, [change for change in changes if not full or change.at <= end], end, bool(full))


class LatestChanges:
    """The latest changes of workspaces and teams, read once for all streams that have caught up."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: dict[Reader, tuple[float, asyncio.Task[Changes]]] = {}

    async def read(self, reader: Reader, after: datetime) -> Changes:
        """Return the changes after a time, as another stream read them at most `SHARED_SECONDS` ago."""
        present = time.monotonic()
        self._reads = {other: begun for other, begun in self._reads.items() if present - begun[0] < SHARED_SECONDS}
        if reader not in self._reads:
            task = asyncio.create_task(read_changes(self._database, reader, after - SLACK))
            task.add_done_callback(lambda done: done.exception())  # its streams may be gone
            self._reads[reader] = present, task
        changes = await asyncio.shield(self._reads[reader][1])
        if changes.after > after or changes.is_full:
            return await read_changes(self._database, reader, after)
        return replace(changes, items=[change for change in changes.items if change.at > after])
