"""Log of who read or played which part of a call, written before the data is returned."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database, Reader, Scope
from db.core.rows import read
from db.core.tables import api_keys, console_sessions, reads


@dataclass(frozen=True, slots=True)
class Read:
    """One access: by which key, to which call, what, and how."""

    at: datetime
    key_id: UUID  # of the API key, or of the session that a sign-in link opened
    name: str | None  # of that key or link; None: it was deleted
    call_id: UUID
    what: str  # record, transcript, audio, export
    detail: str  # a format, a channel
    request_id: str | None


async def note(
    database: Database,
    reader: Reader,
    key_id: UUID,
    call_ids: Sequence[UUID],
    what: str,
    detail: str = "",
    request_id: str | None = None,
) -> None:
    """Log that calls are read, in a separate transaction: durable when it returns."""
    if not call_ids:
        return
    row = {"workspace_id": reader.workspace_id, "key_id": key_id, "what": what, "detail": detail}
    rows = [row | {"call_id": call_id, "request_id": request_id} for call_id in call_ids]
    await database.change(reader, sa.insert(reads), rows)


async def list_reads(database: Database, scope: Scope, call_id: UUID, limit: int = 100) -> list[Read]:
    """Return the accesses to a call, the latest first."""
    name = sa.func.coalesce(api_keys.c.name, console_sessions.c.name).label("name")
    query = (
        sa.select(reads, name)
        .outerjoin(api_keys, api_keys.c.id == reads.c.key_id)
        .outerjoin(console_sessions, console_sessions.c.id == reads.c.key_id)
        .where(reads.c.call_id == call_id)
        .order_by(reads.c.at.desc(), reads.c.id.desc())
    )
    return [read(Read, row) for row in await database.rows(scope, query.limit(limit))]
