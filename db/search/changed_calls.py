"""Which calls changed since a moment: what a stream of changes looks for every second."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database, Reader
from db.core.rows import read
from db.core.tables import calls

MOST_CHANGES = 2_000  # at once


@dataclass(frozen=True, slots=True)
class Change:
    """A call as it is after its latest change."""

    call_id: UUID
    team_id: UUID
    state: str
    start_time: datetime
    updated_at: datetime


_FIELDS = tuple(calls.c[name] for name in Change.__dataclass_fields__)


async def since(database: Database, reader: Reader, at: datetime) -> list[Change]:
    """Calls that changed after `at`, the earliest change first."""
    query = (
        sa.select(*_FIELDS)
        .where(calls.c.workspace_id == reader.workspace_id, calls.c.updated_at > at)
        .order_by(calls.c.updated_at, calls.c.id)
        .limit(MOST_CHANGES)
    )
    return [read(Change, row) for row in await database.rows(reader, query)]
