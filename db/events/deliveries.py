from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import read
from db.core.tables import calls, events, webhook_deliveries
from db.events.outbox import Attempt

UNSENT = ("waiting", "behind", "sending")
_call_id: sa.ColumnElement[UUID] = sa.cast(events.c.data["callId"].astext, sa.Uuid())  # an erased call has no row
_OF_EVENTS = webhook_deliveries.join(events, events.c.id == webhook_deliveries.c.event_id)


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """One event for one endpoint. `attempts` counts started attempts; `log` holds their results, oldest first."""

    delivery_id: int
    endpoint_id: UUID
    event_id: UUID
    type: str
    call_id: UUID
    at: datetime  # of the event
    state: str  # waiting, behind (an earlier event of the call), sending, delivered, failed
    attempts: int
    next_try: datetime | None  # while it waits
    finished_at: datetime | None
    log: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class EndpointProgress:
    """Counts of an endpoint's deliveries. The seconds are None if nothing is unsent."""

    unsent: int = 0
    failed: int = 0
    delivered: int = 0
    oldest_seconds: float | None = None  # how long ago the oldest unsent event happened
    delivered_at: datetime | None = None  # the latest


async def list_deliveries(
    database: Database,
    workspace_id: UUID | None = None,
    endpoint_id: UUID | None = None,
    state: str | None = None,
    call_id: UUID | None = None,
    limit: int = 50,
) -> list[DeliverySummary]:
    """Return deliveries, the latest first."""
    query = (
        sa.select(*webhook_deliveries.c, events.c.type, events.c.at, _call_id.label("call_id"))
        .select_from(_OF_EVENTS)
        .order_by(webhook_deliveries.c.id.desc())
        .limit(limit)
    )
    conditions = {
        webhook_deliveries.c.workspace_id: workspace_id,
        webhook_deliveries.c.endpoint_id: endpoint_id,
        webhook_deliveries.c.state: state,
    }
    query = query.where(*(column == value for column, value in conditions.items() if value is not None))
    if call_id is not None:
        of_call = events.c.call_pk == sa.any_(sa.func.array(sa.select(calls.c.id).where(calls.c.call_id == call_id)))
        query = query.where(sa.or_(of_call, sa.and_(events.c.call_pk.is_(None), _call_id == call_id)))
    async with database.transaction(workspace_id or EVERY_WORKSPACE, snapshot=True) as connection:
        rows = (await connection.execute(query)).all()
        log = await connection.execute(_LOG, {"ids": [row.id for row in rows]})
        attempts: dict[int, list[Attempt]] = {}
        for row in log:
            attempts.setdefault(row.delivery_id, []).append(read(Attempt, row))
    return [_summary(row, attempts.get(row.id, ())) for row in rows]


async def standings(database: Database, workspace_id: UUID | None = None) -> dict[UUID, EndpointProgress]:
    """Return the progress of each endpoint; endpoints without deliveries are left out."""
    query = _STANDINGS if workspace_id is None else _STANDINGS.where(webhook_deliveries.c.workspace_id == workspace_id)
    return {row[0]: EndpointProgress(*row[1:]) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)}


async def backlog(database: Database) -> tuple[int, float]:
    """Return the number of unsent deliveries of all workspaces, and the age of the oldest in seconds."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        count, seconds = (await connection.execute(_BACKLOG)).one()
    return count, seconds


_BACKLOG = sa.text("""
    SELECT count(*), coalesce(extract(epoch FROM now() - min(d.created_at)), 0)::float
    FROM webhook_deliveries d JOIN webhook_endpoints w ON w.id = d.endpoint_id
    WHERE d.state IN ('waiting', 'behind', 'sending') AND w.disabled_at IS NULL
""")
_LOG = sa.text("SELECT * FROM webhook_attempts WHERE delivery_id = ANY (CAST(:ids AS bigint[])) ORDER BY number")

_unsent = webhook_deliveries.c.state.in_(UNSENT)
_STANDINGS = (
    sa.select(
        webhook_deliveries.c.endpoint_id,
        sa.func.count().filter(_unsent),
        sa.func.count().filter(webhook_deliveries.c.state == "failed"),
        sa.func.count().filter(webhook_deliveries.c.state == "delivered"),
        sa.cast(sa.extract("epoch", sa.func.now() - sa.func.min(events.c.at).filter(_unsent)), sa.Double),
        sa.func.max(webhook_deliveries.c.finished_at).filter(webhook_deliveries.c.state == "delivered"),
    )
    .select_from(_OF_EVENTS)
    .group_by(webhook_deliveries.c.endpoint_id)
)


def _summary(row: Any, log: Sequence[Attempt]) -> DeliverySummary:
    next_try = row.not_before if row.state == "waiting" else None
    return read(DeliverySummary, row, delivery_id=row.id, next_try=next_try, log=tuple(log))
