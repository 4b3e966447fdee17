"""Upkeep of the outbox: replays, restarts, deletion of old events, endpoints that fail for days. `outbox.py` sends."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import from_now
from db.core.tables import events, webhook_deliveries, webhook_endpoints
from db.events.outbox import NOTIFY

SWEEP_ROWS = 1000  # deleted in one transaction

_LOCK_LINE = sa.text("""
    SELECT id FROM webhook_deliveries WHERE endpoint_id = :endpoint AND state IN ('waiting', 'behind', 'sending')
    ORDER BY id FOR NO KEY UPDATE
""")

# Locks only the listed calls: a lock on a row here delays the next change of its call.
_LOCK_CALLS = sa.text("""
    SELECT id FROM webhook_deliveries
    WHERE endpoint_id = :endpoint AND call_pk = ANY (CAST(:calls AS bigint[]))
        AND state IN ('waiting', 'behind', 'sending')
    ORDER BY id FOR NO KEY UPDATE
""")
_LINE_UP = sa.text("""
    WITH line AS (
        SELECT id, bool_or(state = 'sending') OVER (PARTITION BY call_pk) AS busy,
            row_number() OVER (PARTITION BY call_pk ORDER BY id) AS place
        FROM webhook_deliveries
        WHERE endpoint_id = :endpoint AND call_pk = ANY (CAST(:calls AS bigint[]))
            AND state IN ('waiting', 'behind', 'sending')
    ), lined AS (
        SELECT id, CASE WHEN place = 1 AND NOT busy THEN 'waiting' ELSE 'behind' END AS state FROM line
    )
    UPDATE webhook_deliveries SET state = lined.state
    FROM lined WHERE webhook_deliveries.id = lined.id AND webhook_deliveries.state IN ('waiting', 'behind')
        AND webhook_deliveries.state <> lined.state
""")

_STUCK = """
    SELECT b.endpoint_id, array_agg(DISTINCT b.call_pk) FROM webhook_deliveries b
    WHERE b.state = 'behind' AND {of} AND NOT EXISTS (
        SELECT FROM webhook_deliveries d
        WHERE d.endpoint_id = b.endpoint_id AND d.call_pk = b.call_pk AND d.state IN ('waiting', 'sending')
    )
    GROUP BY b.endpoint_id
"""
# Not an error at a disabled endpoint: the sweep deletes old events, the first of a call before the others.
_STUCK_ANYWHERE = sa.text(
    _STUCK.format(of="b.endpoint_id IN (SELECT id FROM webhook_endpoints WHERE disabled_at IS NULL)")
)
_STUCK_AT = sa.text(_STUCK.format(of="b.endpoint_id = :endpoint"))

# By an array of ids, for which the planner uses their index; joined with a query it would read the whole table.
_SWEEP = sa.text("""
    DELETE FROM events WHERE id = ANY (ARRAY(
        SELECT e.id FROM events e
        WHERE e.at < now() - make_interval(secs => :seconds) AND NOT EXISTS (
            SELECT FROM webhook_deliveries d JOIN webhook_endpoints w ON w.id = d.endpoint_id
            WHERE d.event_id = e.id AND d.state IN ('waiting', 'behind', 'sending') AND w.disabled_at IS NULL
        ) AND NOT EXISTS (SELECT FROM calls c WHERE c.id = e.call_pk AND is_on_hold(c))
        ORDER BY e.at LIMIT :rows FOR UPDATE SKIP LOCKED
    ))
""")

_FORGET = sa.text("""
    DELETE FROM webhook_deliveries WHERE id = ANY (ARRAY(
        SELECT id FROM webhook_deliveries WHERE endpoint_id = :endpoint LIMIT :rows FOR UPDATE SKIP LOCKED
    ))
""")

_PASS_OVER = sa.text("""
    WITH passed AS (
        UPDATE webhook_deliveries SET state = 'failed', finished_at = now(), attempts = attempts + 1, run = run + 1
        WHERE endpoint_id = :endpoint AND state IN ('waiting', 'behind', 'sending')
        RETURNING id, attempts, workspace_id
    )
    INSERT INTO webhook_attempts (delivery_id, number, workspace_id, at, seconds, outcome)
    SELECT id, attempts, workspace_id, now(), 0, 'passed over when the endpoint was enabled' FROM passed
""")


async def disable_lasting_failures(database: Database, seconds: float) -> list[tuple[UUID, str]]:
    """Disable endpoints that accepted nothing for `seconds` and failed a delivery; return their ids and reasons."""
    table = webhook_endpoints.c
    lasting = sa.and_(
        table.disabled_at.is_(None),
        table.gave_up_at.is_not(None),
        table.failing_since < from_now(-seconds),
    )
    days = sa.func.round(sa.extract("epoch", sa.func.now() - table.failing_since) / 86400, 1)
    reason = sa.func.concat("No event was accepted for ", days, " days; the last failure: ", table.last_failure, ".")
    query = (
        sa.update(webhook_endpoints)
        .where(lasting)
        .values(disabled_at=sa.func.now(), disabled_reason=reason)
        .returning(table.id, table.disabled_reason)
    )
    return [(row.id, row.disabled_reason) for row in await database.rows(EVERY_WORKSPACE, query)]


async def sweep(database: Database, seconds: float) -> int:
    """Delete events older than `seconds` with their deliveries and log; return how many.

    Unsent events stay, unless their endpoint is disabled.
    """
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return (await connection.execute(_SWEEP, {"seconds": seconds, "rows": SWEEP_ROWS})).rowcount


async def requeue_stuck(database: Database) -> int:
    """Requeue events marked as behind another without one; return at how many endpoints. Expected: 0."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return await _requeue(connection, _STUCK_ANYWHERE, {})


async def replay(
    database: Database,
    workspace_id: UUID,
    endpoint_id: UUID,
    event_id: UUID | None = None,
    since: datetime | None = None,
    failed_only: bool = True,
) -> int:
    """Send again one event, those since a time, or all that failed; return how many.

    The older events of a call come first, also before waiting ones. `failed_only` leaves out delivered events.
    """
    table = webhook_deliveries.c
    states = ("failed",) if failed_only else ("failed", "delivered")
    is_chosen = sa.and_(table.endpoint_id == endpoint_id, table.state.in_(states))
    if event_id is not None:
        is_chosen &= table.event_id == event_id
    if since is not None:
        is_chosen &= table.event_id.in_(sa.select(events.c.id).where(events.c.at >= since))
    async with database.transaction(workspace_id) as connection:
        result = await connection.execute(
            sa.update(webhook_deliveries)
            .where(is_chosen)
            .values(state="behind", failures=0, not_before=sa.func.now(), finished_at=None)
            .returning(table.call_pk)
        )
        calls = list(result.scalars())
        await _line_up(connection, endpoint_id, calls)
        await connection.execute(NOTIFY)
        return len(calls)


async def restart(connection: AsyncConnection, endpoint_id: UUID, pass_over: bool) -> None:
    """Make an endpoint's waiting deliveries due at once on a new schedule; or fail them, with an entry in the log."""
    if pass_over:
        await connection.execute(_LOCK_LINE, {"endpoint": endpoint_id})
        await connection.execute(_PASS_OVER, {"endpoint": endpoint_id})
        return
    waiting = sa.and_(webhook_deliveries.c.endpoint_id == endpoint_id, webhook_deliveries.c.state == "waiting")
    await connection.execute(sa.update(webhook_deliveries).where(waiting).values(failures=0, not_before=sa.func.now()))
    await _requeue(connection, _STUCK_AT, {"endpoint": endpoint_id})


async def forget(database: Database, workspace_id: UUID, endpoint_id: UUID) -> int:
    """Delete up to `SWEEP_ROWS` of an endpoint's deliveries with their log; return how many."""
    async with database.transaction(workspace_id) as connection:
        return (await connection.execute(_FORGET, {"endpoint": endpoint_id, "rows": SWEEP_ROWS})).rowcount


async def _requeue(connection: AsyncConnection, query: sa.TextClause, values: dict[str, object]) -> int:
    stuck = (await connection.execute(query, values)).all()
    for endpoint_id, calls in stuck:
        await _line_up(connection, endpoint_id, calls)
    return len(stuck)


async def _line_up(connection: AsyncConnection, endpoint_id: UUID, calls: Sequence[int]) -> None:
    """Set the first unsent delivery of each call to waiting and the others to behind."""
    values = {"endpoint": endpoint_id, "calls": list(set(calls))}
    await connection.execute(_LOCK_CALLS, values)  # no sender claims in the meantime
    await connection.execute(_LINE_UP, values)
