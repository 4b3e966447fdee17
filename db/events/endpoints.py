"""Webhook endpoints of a workspace. Secrets are sealed whenever they enter or leave (`db.secrets.encryption`).

Each change takes its actor (`by`; None: the operator of this process) and is logged in the change log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import filter_by, from_now, read
from db.core.tables import calls, events, webhook_deliveries, webhook_endpoints
from db.events import outbox, upkeep
from db.events.outbox import Attempt
from db.events.types import PARTS, type_names
from db.workspace.admin_log import Actor, Changing, NotInDirectory, changing

MAX_ENDPOINTS = 20  # of a workspace: each adds a row to every change of every call
UNSENT = ("waiting", "behind", "sending")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A webhook endpoint and its health. Times are aware; those of health are None while it is healthy."""

    endpoint_id: UUID
    workspace_id: UUID
    team_id: UUID | None  # None: calls of every team
    url: str
    description: str
    events: tuple[str, ...]
    include: tuple[str, ...]
    previous_until: datetime | None  # until then the previous secret signs too
    failing_since: datetime | None  # the first failure since the last accepted event
    gave_up_at: datetime | None  # a delivery ran out of attempts since the last accepted event
    last_failure: str | None
    paused_until: datetime | None  # requested by the receiver's Retry-After
    disabled_at: datetime | None
    disabled_reason: str | None
    created_at: datetime


class TooManyEndpoints(ValueError):
    """The workspace has `MAX_ENDPOINTS` endpoints."""


class EndpointExists(ValueError):
    """An endpoint with this id exists."""


async def add(
    database: Database,
    workspace_id: UUID,
    url: str,
    sealed_secret: str,
    event_types: Iterable[str] | None = None,
    include: Iterable[str] = (),
    team_id: UUID | None = None,
    description: str = "",
    by: Actor | None = None,
    endpoint_id: UUID | None = None,
) -> Endpoint:
    """Create an endpoint, which gets the events from now on. No `event_types`: all of them.

    Raises ValueError for unknown or no event types and unknown parts, TooManyEndpoints, EndpointExists if the id
    `endpoint_id` is used, NotInDirectory if the workspace or its team does not exist. The caller checks the URL.
    """
    values = {
        "workspace_id": workspace_id,
        "url": url,
        "secret": sealed_secret,
        "events": _checked(type_names() if event_types is None else event_types, type_names(), "event type"),
        "include": _checked(include, PARTS, "part of a record", none_allowed=True),
        "team_id": team_id,
        "description": description,
        "id": endpoint_id or uuid4(),
        "created_by": by and by.key_id,
    }
    try:
        async with changing(database, workspace_id, by) as change:
            return await _insert(change, workspace_id, values)
    except IntegrityError as error:
        raise NotInDirectory("workspace or team not found") from error


async def _insert(change: Changing, workspace_id: UUID, values: dict[str, Any]) -> Endpoint:
    of_workspace = webhook_endpoints.c.workspace_id == workspace_id
    (others,) = await change.run(sa.select(sa.func.count().label("number")).where(of_workspace))
    inserting = insert(webhook_endpoints).values(**values).on_conflict_do_nothing(index_elements=["id"])
    rows = await change.run(inserting.returning(*_COLUMNS))
    if not rows:
        raise EndpointExists
    if others.number >= MAX_ENDPOINTS:
        raise TooManyEndpoints(f"a workspace can have max. {MAX_ENDPOINTS} endpoints")
    endpoint = _endpoint(rows[0])
    await _note(change, "created", endpoint, f"events {', '.join(endpoint.events)}")
    return endpoint


async def list_endpoints(database: Database, workspace_id: UUID | None = None) -> list[Endpoint]:
    """Return all endpoints, disabled ones too, oldest first."""
    query = filter_by(sa.select(*_COLUMNS), webhook_endpoints.c.workspace_id, workspace_id)
    query = query.order_by(webhook_endpoints.c.created_at, webhook_endpoints.c.id)
    return [_endpoint(row) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)]


async def find(database: Database, endpoint_id: UUID) -> Endpoint | None:
    rows = await database.rows(EVERY_WORKSPACE, sa.select(*_COLUMNS).where(webhook_endpoints.c.id == endpoint_id))
    return _endpoint(rows[0]) if rows else None


async def change(
    database: Database,
    endpoint: Endpoint,
    url: str | None = None,
    event_types: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    description: str | None = None,
    by: Actor | None = None,
) -> Endpoint | None:
    """Change an endpoint's values that are not None and return it; None if it was removed. Raises ValueError as `add`.

    New event types apply to events from now on; removed parts are also left out of unsent events.
    """
    values: dict[str, Any] = {"url": url, "description": description}
    if event_types is not None:
        values["events"] = _checked(event_types, type_names(), "event type")
    if include is not None:
        values["include"] = _checked(include, PARTS, "part of a record", none_allowed=True)
    changes = {name: value for name, value in values.items() if value is not None}
    return await _update(database, endpoint, changes, by, "changed", ", ".join(changes))


async def remove(database: Database, endpoint: Endpoint, by: Actor | None = None) -> bool:
    """Remove an endpoint with its unsent deliveries and log. Return False if it is already removed.

    Deliveries are deleted in batches, so that changes of calls wait only for the deletion of the endpoint row.
    """
    values = {"events": [], "disabled_at": sa.func.now(), "disabled_reason": "Being removed."}
    if await _update(database, endpoint, values, by, "removed") is None:
        return False
    while await upkeep.forget(database, endpoint.workspace_id, endpoint.endpoint_id):
        pass
    async with database.transaction(endpoint.workspace_id) as connection:
        result = await connection.execute(
            sa.delete(webhook_endpoints).where(webhook_endpoints.c.id == endpoint.endpoint_id)
        )
    return result.rowcount == 1


async def disable(database: Database, endpoint: Endpoint, reason: str, by: Actor | None = None) -> Endpoint | None:
    """Stop sending; unsent and new events are stored until it is enabled again."""
    values = {"disabled_at": sa.func.now(), "disabled_reason": reason}
    return await _update(database, endpoint, values, by, "disabled")


async def enable(
    database: Database, endpoint: Endpoint, pass_over: bool = False, by: Actor | None = None
) -> Endpoint | None:
    """Resume sending, oldest events first, on a new schedule; with `pass_over` unsent events fail instead."""
    healthy = dict.fromkeys(
        ("disabled_at", "disabled_reason", "failing_since", "gave_up_at", "last_failure", "paused_until")
    )
    async with changing(database, endpoint.workspace_id, by) as change:
        await upkeep.restart(change.connection, endpoint.endpoint_id, pass_over)
        enabled = await _changed(change, endpoint, healthy, "enabled")
        await change.run(outbox.NOTIFY)
    return enabled


async def rotate(
    database: Database, endpoint: Endpoint, sealed_secret: str, overlap_seconds: float, by: Actor | None = None
) -> Endpoint | None:
    """Set a new secret. The present one also signs for `overlap_seconds`; an older one stops."""
    values = {
        "previous_secret": webhook_endpoints.c.secret if overlap_seconds > 0 else None,
        "previous_until": from_now(overlap_seconds) if overlap_seconds > 0 else None,
        "secret": sealed_secret,
    }
    return await _update(database, endpoint, values, by, "rotated", "the secret")


async def sealed_secrets(database: Database, endpoint: Endpoint) -> tuple[str, ...]:
    """Return the secrets that sign at present, the newest first; none if the endpoint was removed."""
    query = sa.select(outbox.SEALED_SECRETS).where(webhook_endpoints.c.id == endpoint.endpoint_id)
    async with database.transaction(endpoint.workspace_id) as connection:
        return tuple((await connection.execute(query)).scalar_one_or_none() or ())


_COLUMNS = tuple(
    webhook_endpoints.c["id" if name == "endpoint_id" else name]
    for name in Endpoint.__dataclass_fields__  # columns have the fields' names, except the key
)


async def _update(
    database: Database, endpoint: Endpoint, values: dict[str, Any], by: Actor | None, action: str, detail: str = ""
) -> Endpoint | None:
    if not values:
        return endpoint
    async with changing(database, endpoint.workspace_id, by) as change:
        return await _changed(change, endpoint, values, action, detail)


async def _changed(
    change: Changing, endpoint: Endpoint, values: dict[str, Any], action: str, detail: str = ""
) -> Endpoint | None:
    """Update the endpoint and add an entry to the change log; None if it was removed."""
    where = webhook_endpoints.c.id == endpoint.endpoint_id
    rows = await change.run(sa.update(webhook_endpoints).where(where).values(**values).returning(*_COLUMNS))
    if not rows:
        return None
    updated = _endpoint(rows[0])
    await _note(change, action, updated, detail)
    return updated


async def _note(change: Changing, action: str, endpoint: Endpoint, detail: str) -> None:
    """Log the change without the URL: some contain secrets."""
    await change.note(action, "webhook", endpoint.endpoint_id, endpoint.description, detail, endpoint.team_id)


def _checked(names: Iterable[str], allowed: Sequence[str], label: str, none_allowed: bool = False) -> list[str]:
    chosen = set(names)
    unknown = sorted(chosen - set(allowed))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no {label}; choose from {', '.join(allowed)}")
    if not chosen and not none_allowed:
        raise ValueError(f"choose at least one {label} from {', '.join(allowed)}")
    return [name for name in allowed if name in chosen]


def _endpoint(row: sa.Row[Any]) -> Endpoint:
    return read(Endpoint, row, endpoint_id=row.id, events=tuple(row.events), include=tuple(row.include))


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
        of_call = events.c.call_pk == sa.any_(
            sa.func.array(sa.select(calls.c.id).where(calls.c.call_id == call_id).scalar_subquery())
        )
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
