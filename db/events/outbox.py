"""The outbox on its way: deliveries claimed and noted. Triggers write it; see `event_upkeep.py`.

A delivery is one event for one endpoint. It is leased as jobs are: `run` grows with each claim, and who noted nothing
until the lease ran out may note nothing after it. The events of one call go to one endpoint one after another.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from db.core.clock import Clock
from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import from_now, read
from db.core.tables import events, webhook_attempts, webhook_deliveries, webhook_endpoints
from db.queue.origins import brought
from pipeline.errors import LeaseLost

CHANNEL = "switchboard_events"
NOTIFY = sa.text(f"NOTIFY {CHANNEL}")


class DeliveryVerdict(StrEnum):
    """What an attempt means for its delivery."""

    DELIVERED = "delivered"
    RETRY = "retry"
    FAILED = "failed"  # the schedule has run out
    GONE = "gone"  # the receiver wants nothing more: the endpoint is disabled, the delivery kept


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a call. `data`, `record` and `transcript` are JSON as the trigger wrote it."""

    event_id: UUID
    type: str
    at: datetime
    data: dict[str, Any]
    record: dict[str, Any] | None = None
    transcript: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The right to send an event to an endpoint until the lease runs out."""

    delivery_id: int
    run: int
    number: int  # of this attempt, from 1, over all replays
    failures: int  # since the schedule began
    workspace_id: UUID
    endpoint_id: UUID
    call_pk: int
    url: str
    include: tuple[str, ...]
    failing: bool  # the endpoint, when this was claimed
    clock: Clock
    sealed_secrets: tuple[str, ...] = field(repr=False)  # the newest first
    event: Event = field(repr=False)
    request_id: str | None = None  # of the submission that led to the event
    traceparent: str | None = None  # its trace


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of sending. `answer` is the beginning of the response's body, cleaned."""

    at: datetime
    seconds: float
    status: int | None  # None: no answer
    outcome: str
    answer: str = ""


# Beside the present secret the one before it, until its time is over.
SEALED_SECRETS: sa.Label[Any] = sa.literal_column(
    "CASE WHEN webhook_endpoints.previous_until > now() AND webhook_endpoints.previous_secret IS NOT NULL"
    " THEN ARRAY[webhook_endpoints.secret, webhook_endpoints.previous_secret]"
    " ELSE ARRAY[webhook_endpoints.secret] END"
).label("sealed_secrets")

# As for jobs: statistics of a queue are always out of date, and a plan that sorts thousands is never the right one.
_WALK_THE_INDEX = sa.text(
    "SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)"
)

# In an order of chance, so that many slow endpoints cannot crowd out those that come later in the table.
_CLAIM = sa.text("""
    WITH open AS (
        SELECT e.id,
            greatest(CASE WHEN e.failing_since IS NULL THEN :each ELSE 1 END - coalesce(busy.held, 0), 0) AS room
        FROM webhook_endpoints e
        LEFT JOIN unnest(CAST(:endpoints AS uuid[]), CAST(:held AS integer[])) AS busy (id, held) ON busy.id = e.id
        WHERE e.disabled_at IS NULL AND coalesce(e.paused_until <= now(), true)
        ORDER BY random()
    ), due AS (
        SELECT d.id FROM open CROSS JOIN LATERAL (
            SELECT id FROM webhook_deliveries
            WHERE endpoint_id = open.id AND state IN ('waiting', 'sending') AND not_before <= now()
            ORDER BY not_before, id
            LIMIT open.room
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS d
        LIMIT :room
    )
    UPDATE webhook_deliveries SET
        state = 'sending', run = run + 1, attempts = attempts + 1, not_before = now() + make_interval(secs => :ttl)
    FROM due WHERE webhook_deliveries.id = due.id
    RETURNING webhook_deliveries.id
""")

# The next event of the call, unless one is still before it or on its way.
_MOVE_UP = sa.text("""
    UPDATE webhook_deliveries SET state = 'waiting', not_before = now()
    WHERE state = 'behind' AND id = (
        SELECT min(id) FROM webhook_deliveries
        WHERE endpoint_id = :endpoint AND call_pk = :call AND state IN ('waiting', 'behind', 'sending')
        HAVING NOT bool_or(state = 'sending')
    )
""")

_TAKEN = webhook_deliveries.join(webhook_endpoints, webhook_endpoints.c.id == webhook_deliveries.c.endpoint_id).join(
    events, events.c.id == webhook_deliveries.c.event_id
)


_JOB = sa.cast(events.c.data["jobId"].astext, sa.Uuid())
_BROUGHT = tuple(
    brought(column, webhook_deliveries.c.call_pk, _JOB, otherwise="first").label(column)
    for column in ("request_id", "traceparent")
)


async def claim(
    database: Database, room: int, each: int, busy: Mapping[UUID, int], lease_seconds: float
) -> list[Delivery]:
    """Claim at most `room` deliveries that are due, those due longest first, of every endpoint a share.

    `each`: how many one endpoint may have at once, one while it fails; `busy` counts those in hand already. Several
    processes may claim at once; no delivery goes to two of them before its lease of `lease_seconds` has run out.
    """
    values = {
        "room": room,
        "each": each,
        "endpoints": list(busy),
        "held": list(busy.values()),
        "ttl": lease_seconds,
    }
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(_WALK_THE_INDEX)
        ids = list((await connection.execute(_CLAIM, values)).scalars())
        if not ids:
            return []
        query = (
            sa.select(
                *webhook_deliveries.c,
                webhook_endpoints.c.url,
                webhook_endpoints.c.include,
                webhook_endpoints.c.failing_since,
                SEALED_SECRETS,
                sa.func.now().label("claimed_at"),
                *(events.c[name] for name in ("type", "at", "data", "record", "transcript")),
                *_BROUGHT,
            )
            .select_from(_TAKEN)
            .where(webhook_deliveries.c.id.in_(ids))
            .order_by(webhook_deliveries.c.id)
        )
        return [_delivery(row) for row in await connection.execute(query)]


async def note(
    database: Database,
    delivery: Delivery,
    attempt: Attempt,
    verdict: DeliveryVerdict,
    retry_in: float = 0.0,
    pause: float = 0.0,
) -> None:
    """Keep what came of an attempt, and let the next event of the call move up where this one is done with.

    `retry_in`: seconds until the next attempt; `pause`: seconds for which the receiver wants nothing at all. Raises
    LeaseLost where the delivery was taken over, or is gone with its call or endpoint.
    """
    async with database.transaction(delivery.workspace_id) as connection:
        if (await connection.execute(_noted(delivery, attempt, verdict, retry_in))).first() is None:
            raise LeaseLost().with_facts(delivery_id=delivery.delivery_id, run=delivery.run)
        if verdict in (DeliveryVerdict.DELIVERED, DeliveryVerdict.FAILED):
            await connection.execute(_MOVE_UP, {"endpoint": delivery.endpoint_id, "call": delivery.call_pk})
        if verdict is not DeliveryVerdict.DELIVERED or delivery.failing:
            await connection.execute(_health(delivery.endpoint_id, attempt, verdict, pause))


async def release(database: Database, deliveries: Sequence[Delivery]) -> None:
    """Due again at once, nothing counted: their sender is leaving. Those it had lost already are passed over."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for delivery in sorted(deliveries, key=lambda one: one.delivery_id):
            this = sa.update(webhook_deliveries).where(_held(delivery))
            await connection.execute(this.values(state="waiting", not_before=sa.func.now()))
        await connection.execute(NOTIFY)


def _held(delivery: Delivery) -> sa.ColumnElement[bool]:
    return sa.and_(
        webhook_deliveries.c.id == delivery.delivery_id,
        webhook_deliveries.c.run == delivery.run,
        webhook_deliveries.c.state == "sending",
    )


def _noted(delivery: Delivery, attempt: Attempt, verdict: DeliveryVerdict, retry_in: float) -> sa.Insert:
    """The delivery's new state and the line of its log, in one statement; no row where the lease is lost."""
    changed = (
        sa.update(webhook_deliveries)
        .where(_held(delivery))
        .values(**_state_after(verdict, retry_in))
        .returning(webhook_deliveries.c.id)
        .cte("changed")
    )
    line = {"number": delivery.number, "workspace_id": delivery.workspace_id, **asdict(attempt)}
    values = [sa.cast(value, webhook_attempts.c[name].type) for name, value in line.items()]
    logged = sa.insert(webhook_attempts).from_select(["delivery_id", *line], sa.select(changed.c.id, *values))
    return logged.returning(webhook_attempts.c.number)


def _state_after(verdict: DeliveryVerdict, retry_in: float) -> dict[str, Any]:
    if verdict is DeliveryVerdict.DELIVERED:
        return {"state": "delivered", "finished_at": sa.func.now()}
    failures = webhook_deliveries.c.failures + 1
    if verdict is DeliveryVerdict.FAILED:
        return {"state": "failed", "finished_at": sa.func.now(), "failures": failures}
    return {"state": "waiting", "not_before": from_now(retry_in), "failures": failures}


def _health(endpoint_id: UUID, attempt: Attempt, verdict: DeliveryVerdict, pause: float) -> sa.Update:
    """How the endpoint stands after it."""
    table = webhook_endpoints.c
    this = sa.update(webhook_endpoints).where(table.id == endpoint_id)
    if verdict is DeliveryVerdict.DELIVERED:
        well = dict.fromkeys(("failing_since", "gave_up_at", "last_failure", "paused_until"))
        return this.where(table.failing_since.is_not(None)).values(**well)
    values: dict[str, Any] = {
        "failing_since": sa.func.coalesce(table.failing_since, sa.func.now()),
        "last_failure": attempt.outcome,
    }
    if pause > 0:
        values["paused_until"] = from_now(pause)
    if verdict is DeliveryVerdict.FAILED:
        values["gave_up_at"] = sa.func.now()
    if verdict is DeliveryVerdict.GONE:
        values["disabled_at"] = sa.func.coalesce(table.disabled_at, sa.func.now())
        values["disabled_reason"] = sa.func.coalesce(
            table.disabled_reason, f"The receiver wants nothing more: {attempt.outcome}."
        )
    return this.values(**values)


def wakes(database: Database) -> AsyncIterator[None]:
    """As `Database.wakes`, each time an event is written."""
    return database.wakes(CHANNEL)


def _delivery(row: Any) -> Delivery:
    return read(
        Delivery,
        row,
        delivery_id=row.id,
        number=row.attempts,
        include=tuple(row.include),
        failing=row.failing_since is not None,
        clock=Clock(row.claimed_at),
        sealed_secrets=tuple(row.sealed_secrets),
        event=read(Event, row),
    )
