"""Sends from the outbox: claims deliveries and records attempts. Triggers write the events; see `db.events.upkeep`.

A delivery is one event for one endpoint. It is leased as jobs are: `run` grows with each claim, and a sender whose
lease expired cannot record anything. The events of one call go to one endpoint one after another.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Clock, Database
from db.core.rows import from_now, read
from db.core.tables import events, webhook_attempts, webhook_deliveries, webhook_endpoints
from db.queue.jobs import origin_of_job
from pipeline.errors import LeaseLost

CHANNEL = "switchboard_events"
NOTIFY = sa.text(f"NOTIFY {CHANNEL}")


class DeliveryVerdict(StrEnum):
    """Consequence of an attempt for its delivery."""

    DELIVERED = "delivered"
    RETRY = "retry"
    FAILED = "failed"  # the schedule has run out
    GONE = "gone"  # the receiver rejects all further events: the endpoint is disabled, the delivery kept


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a call. `data`, `record` and `transcript` are JSON as written by the trigger."""

    event_id: UUID
    type: str
    at: datetime
    data: dict[str, Any]
    record: dict[str, Any] | None = None
    transcript: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The right to send an event to an endpoint until the lease expires."""

    delivery_id: int
    run: int
    number: int  # of this attempt, from 1, over all replays
    failures: int  # since the schedule began
    workspace_id: UUID
    endpoint_id: UUID
    call_pk: int
    url: str
    include: tuple[str, ...]
    failing: bool  # the endpoint, at the claim
    clock: Clock
    sealed_secrets: tuple[str, ...] = field(repr=False)  # the newest first
    event: Event = field(repr=False)
    request_id: str | None = None  # of the submission that led to the event
    traceparent: str | None = None  # its trace


@dataclass(frozen=True, slots=True)
class Attempt:
    """Result of one attempt to send. `answer` is the beginning of the response's body, cleaned."""

    at: datetime
    seconds: float
    status: int | None  # None: no response
    outcome: str
    answer: str = ""


# The present secret and, until its overlap ends, the previous one.
SEALED_SECRETS: sa.Label[Any] = sa.literal_column(
    "CASE WHEN webhook_endpoints.previous_until > now() AND webhook_endpoints.previous_secret IS NOT NULL"
    " THEN ARRAY[webhook_endpoints.secret, webhook_endpoints.previous_secret]"
    " ELSE ARRAY[webhook_endpoints.secret] END"
).label("sealed_secrets")

# As for jobs: statistics of a queue are always out of date, and a plan that sorts thousands is always wrong.
_WALK_THE_INDEX = sa.text(
    "SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)"
)

# In random order, so that many slow endpoints cannot crowd out those later in the table.
_CLAIM = sa.text("""
    WITH open AS (
        SELECT e.id,
            greatest(CASE WHEN e.failing_since IS NULL THEN :each ELSE 1 END - coalesce(busy.sending, 0), 0) AS room
        FROM webhook_endpoints e
        LEFT JOIN unnest(CAST(:endpoints AS uuid[]), CAST(:sending AS integer[])) AS busy (id, sending)
            ON busy.id = e.id
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

# The next event of the call, unless an earlier one is unsent or being sent.
_MAKE_NEXT_DUE = sa.text("""
    UPDATE webhook_deliveries SET state = 'waiting', not_before = now()
    WHERE state = 'behind' AND id = (
        SELECT min(id) FROM webhook_deliveries
        WHERE endpoint_id = :endpoint AND call_pk = :call AND state IN ('waiting', 'behind', 'sending')
        HAVING NOT bool_or(state = 'sending')
    )
""")

_DELIVERIES = webhook_deliveries.join(
    webhook_endpoints, webhook_endpoints.c.id == webhook_deliveries.c.endpoint_id
).join(events, events.c.id == webhook_deliveries.c.event_id)


_JOB = sa.cast(events.c.data["jobId"].astext, sa.Uuid())
_ORIGIN = tuple(
    origin_of_job(column, webhook_deliveries.c.call_pk, _JOB, otherwise="first").label(column)
    for column in ("request_id", "traceparent")
)


async def claim(
    database: Database, room: int, each: int, busy: Mapping[UUID, int], lease_seconds: float
) -> list[Delivery]:
    """Claim up to `room` due deliveries, the longest due first, with a share for every endpoint.

    `each`: max. deliveries of one endpoint at once, one while it fails; `busy` counts those being sent. Several
    processes may claim at once; no delivery goes to two of them before its lease of `lease_seconds` expires.
    """
    values = {
        "room": room,
        "each": each,
        "endpoints": list(busy),
        "sending": list(busy.values()),
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
                *_ORIGIN,
            )
            .select_from(_DELIVERIES)
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
    """Record an attempt, and make the next event of the call due once this one is finished.

    `retry_in`: seconds until the next attempt; `pause`: seconds for which the receiver requested no requests. Raises
    LeaseLost if the delivery was taken over, or deleted with its call or endpoint.
    """
    async with database.transaction(delivery.workspace_id) as connection:
        if (await connection.execute(_noted(delivery, attempt, verdict, retry_in))).first() is None:
            raise LeaseLost().with_facts(delivery_id=delivery.delivery_id, run=delivery.run)
        if verdict in (DeliveryVerdict.DELIVERED, DeliveryVerdict.FAILED):
            await connection.execute(_MAKE_NEXT_DUE, {"endpoint": delivery.endpoint_id, "call": delivery.call_pk})
        if verdict is not DeliveryVerdict.DELIVERED or delivery.failing:
            await connection.execute(_health(delivery.endpoint_id, attempt, verdict, pause))


async def release(database: Database, deliveries: Sequence[Delivery]) -> None:
    """Make deliveries due again at once and count nothing: the sender is stopping. Lost leases are skipped."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for delivery in sorted(deliveries, key=attrgetter("delivery_id")):
            update = sa.update(webhook_deliveries).where(_is_leased(delivery))
            await connection.execute(update.values(state="waiting", not_before=sa.func.now()))
        await connection.execute(NOTIFY)


def _is_leased(delivery: Delivery) -> sa.ColumnElement[bool]:
    return sa.and_(
        webhook_deliveries.c.id == delivery.delivery_id,
        webhook_deliveries.c.run == delivery.run,
        webhook_deliveries.c.state == "sending",
    )


def _noted(delivery: Delivery, attempt: Attempt, verdict: DeliveryVerdict, retry_in: float) -> sa.Insert:
    """Return the statement that updates the delivery and adds to its log; no row if the lease is lost."""
    changed = (
        sa.update(webhook_deliveries)
        .where(_is_leased(delivery))
        .values(**_state_after(verdict, retry_in))
        .returning(webhook_deliveries.c.id)
        .cte("changed")
    )
    line = {"number": delivery.number, "workspace_id": delivery.workspace_id, **asdict(attempt)}
    values = [sa.cast(value, webhook_attempts.c[name].type) for name, value in line.items()]
    insert = sa.insert(webhook_attempts).from_select(["delivery_id", *line], sa.select(changed.c.id, *values))
    return insert.returning(webhook_attempts.c.number)


def _state_after(verdict: DeliveryVerdict, retry_in: float) -> dict[str, Any]:
    if verdict is DeliveryVerdict.DELIVERED:
        return {"state": "delivered", "finished_at": sa.func.now()}
    failures = webhook_deliveries.c.failures + 1
    if verdict is DeliveryVerdict.FAILED:
        return {"state": "failed", "finished_at": sa.func.now(), "failures": failures}
    return {"state": "waiting", "not_before": from_now(retry_in), "failures": failures}


def _health(endpoint_id: UUID, attempt: Attempt, verdict: DeliveryVerdict, pause: float) -> sa.Update:
    table = webhook_endpoints.c
    update = sa.update(webhook_endpoints).where(table.id == endpoint_id)
    if verdict is DeliveryVerdict.DELIVERED:
        healthy = dict.fromkeys(("failing_since", "gave_up_at", "last_failure", "paused_until"))
        return update.where(table.failing_since.is_not(None)).values(**healthy)
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
            table.disabled_reason, f"The receiver accepts no more events: {attempt.outcome}."
        )
    return update.values(**values)


def wakes(database: Database) -> AsyncIterator[None]:
    """Yield as `Database.wakes`, each time an event is written."""
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
