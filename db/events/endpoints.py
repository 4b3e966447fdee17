"""Endpoints: where a workspace wants its events sent. Secrets come sealed and leave sealed (`db.secrets.encryption`).

What changes one says who does it (`by`; None: whose process this is), and is kept in the change log.
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
from db.core.rows import from_now, read, within
from db.core.tables import webhook_endpoints as endpoints
from db.events import outbox as events
from db.events import upkeep
from db.events.types import PARTS, type_names
from db.secrets.encryption import Sealer
from db.workspace.admin_log import Actor, Changing, NotInDirectory, changing

MOST_ENDPOINTS = 20  # of a workspace: each costs every change of every call a row


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where events go and how it stands. Times are aware; those of health are None while all is well."""

    endpoint_id: UUID
    workspace_id: UUID
    team_id: UUID | None  # None: calls of every team
    url: str
    description: str
    events: tuple[str, ...]
    include: tuple[str, ...]
    previous_until: datetime | None  # until then the secret before the present one signs too
    failing_since: datetime | None  # the first failure since anything was taken
    gave_up_at: datetime | None  # a delivery ran out of attempts since anything was taken
    last_failure: str | None
    paused_until: datetime | None  # as the receiver asked by Retry-After
    disabled_at: datetime | None
    disabled_reason: str | None
    created_at: datetime


class TooManyEndpoints(ValueError):
    """The workspace has as many endpoints as it may have."""


class EndpointExists(ValueError):
    """There is an endpoint of this id."""


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
    """Return a new endpoint; it is sent what happens from now on. No `event_types`: all of them.

    Raises ValueError for unknown or no event types and unknown parts, TooManyEndpoints, EndpointExists where there is
    an endpoint `endpoint_id`, NotInDirectory where the workspace or its team does not exist. The URL is the caller's
    to check.
    """
    values = {
        "workspace_id": workspace_id,
        "url": url,
        "secret": sealed_secret,
        "events": _known(type_names() if event_types is None else event_types, type_names(), "event type"),
        "include": _known(include, PARTS, "part of a record", none_allowed=True),
        "team_id": team_id,
        "description": description,
        "id": endpoint_id or uuid4(),
    }
    making = insert(endpoints).values(**values).on_conflict_do_nothing(index_elements=["id"]).returning(*_SHOWN)
    try:
        async with changing(database, workspace_id, by) as change:
            (others,) = await change.run(
                sa.select(sa.func.count().label("number")).where(endpoints.c.workspace_id == workspace_id)
            )
            rows = await change.run(making)
            if not rows:
                raise EndpointExists
            if others.number >= MOST_ENDPOINTS:
                raise TooManyEndpoints(f"a workspace has at most {MOST_ENDPOINTS} endpoints")
            made = _endpoint(rows[0])
            await _note(change, "created", made, f"events {', '.join(made.events)}")
    except IntegrityError as error:
        raise NotInDirectory("no such workspace, or no such team in it") from error
    return made


async def list_endpoints(database: Database, workspace_id: UUID | None = None) -> list[Endpoint]:
    """All endpoints, disabled ones too, oldest first."""
    query = within(sa.select(*_SHOWN), endpoints.c.workspace_id, workspace_id)
    query = query.order_by(endpoints.c.created_at, endpoints.c.id)
    return [_endpoint(row) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)]


async def find(database: Database, endpoint_id: UUID) -> Endpoint | None:
    """The endpoint, or None."""
    found = await database.rows(EVERY_WORKSPACE, sa.select(*_SHOWN).where(endpoints.c.id == endpoint_id))
    return _endpoint(found[0]) if found else None


async def change(
    database: Database,
    endpoint: Endpoint,
    url: str | None = None,
    event_types: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    description: str | None = None,
    by: Actor | None = None,
) -> Endpoint | None:
    """The endpoint with what is not None changed, or None where it was removed; ValueError as `add`.

    Event types count for what happens from now on; parts that are no longer wanted are left out of what waits, too.
    """
    values: dict[str, Any] = {"url": url, "description": description}
    if event_types is not None:
        values["events"] = _known(event_types, type_names(), "event type")
    if include is not None:
        values["include"] = _known(include, PARTS, "part of a record", none_allowed=True)
    given = {name: value for name, value in values.items() if value is not None}
    return await _update(database, endpoint, given, by, "changed", ", ".join(given))


async def remove(database: Database, endpoint: Endpoint, by: Actor | None = None) -> bool:
    """Remove it, with what waits for it and its log. False where it is gone already.

    Little by little: what happens to calls meanwhile waits for the deletion of the endpoint itself.
    """
    leaving = {"events": [], "disabled_at": sa.func.now(), "disabled_reason": "It is being removed."}
    if await _update(database, endpoint, leaving, by, "removed") is None:
        return False
    while await upkeep.forget(database, endpoint.workspace_id, endpoint.endpoint_id):
        pass
    async with database.transaction(endpoint.workspace_id) as connection:
        done = await connection.execute(sa.delete(endpoints).where(endpoints.c.id == endpoint.endpoint_id))
    return done.rowcount == 1


async def disable(database: Database, endpoint: Endpoint, reason: str, by: Actor | None = None) -> Endpoint | None:
    """Send nothing more; what waits and what happens from now on is kept until it is enabled again."""
    values = {"disabled_at": sa.func.now(), "disabled_reason": reason}
    return await _update(database, endpoint, values, by, "disabled")


async def enable(
    database: Database, endpoint: Endpoint, pass_over: bool = False, by: Actor | None = None
) -> Endpoint | None:
    """Send again, what was kept first, on a fresh schedule; with `pass_over` what was kept fails instead."""
    well = dict.fromkeys(
        ("disabled_at", "disabled_reason", "failing_since", "gave_up_at", "last_failure", "paused_until")
    )
    async with changing(database, endpoint.workspace_id, by) as change:
        await upkeep.restart(change.connection, endpoint.endpoint_id, pass_over)
        found = await _changed(change, endpoint, well, "enabled")
        await change.run(events.NOTIFY)
    return found


async def rotate(
    database: Database, endpoint: Endpoint, sealed_secret: str, overlap_seconds: float, by: Actor | None = None
) -> Endpoint | None:
    """A new secret; the present one signs beside it for `overlap_seconds`, an older one no more."""
    values = {
        "previous_secret": endpoints.c.secret if overlap_seconds > 0 else None,
        "previous_until": from_now(overlap_seconds) if overlap_seconds > 0 else None,
        "secret": sealed_secret,
    }
    return await _update(database, endpoint, values, by, "rotated", "the secret")


async def sealed_secrets(database: Database, endpoint: Endpoint) -> tuple[str, ...]:
    """What signs at present, the newest first; none where the endpoint was removed."""
    query = sa.select(events.SEALED_SECRETS).where(endpoints.c.id == endpoint.endpoint_id)
    async with database.transaction(endpoint.workspace_id) as connection:
        return tuple((await connection.execute(query)).scalar_one_or_none() or ())


async def reseal(database: Database, sealer: Sealer) -> int:
    """Seal every secret of every workspace with the first key; of how many endpoints that changed something.

    Raises SecretSealed; then nothing has changed.
    """
    changed = 0
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for row in await connection.execute(sa.select(endpoints).with_for_update(key_share=True)):
            kept = {name: row._mapping[name] for name in ("secret", "previous_secret")}
            fresh = {name: text and sealer.reseal(text) for name, text in kept.items()}
            if fresh != kept:
                await connection.execute(sa.update(endpoints).where(endpoints.c.id == row.id).values(**fresh))
                changed += 1
    return changed


_SHOWN = tuple(
    endpoints.c["id" if name == "endpoint_id" else name]
    for name in Endpoint.__dataclass_fields__  # one name for one thing, save the key
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
    """The endpoint with what is changed, and a line in the change log; None: it was removed."""
    where = endpoints.c.id == endpoint.endpoint_id
    rows = await change.run(sa.update(endpoints).where(where).values(**values).returning(*_SHOWN))
    if not rows:
        return None
    found = _endpoint(rows[0])
    await _note(change, action, found, detail)
    return found


async def _note(change: Changing, action: str, endpoint: Endpoint, detail: str) -> None:
    """The URL stays out of it: some carry secrets."""
    await change.note(action, "webhook", endpoint.endpoint_id, endpoint.description, detail, endpoint.team_id)


def _known(given: Iterable[str], known: Sequence[str], what: str, none_allowed: bool = False) -> list[str]:
    wanted = set(given)
    strange = sorted(wanted - set(known))
    if strange:
        raise ValueError(f"{strange[0]!r} is no {what}: there are {', '.join(known)}")
    if not wanted and not none_allowed:
        raise ValueError(f"at least one {what} of {', '.join(known)}")
    return [one for one in known if one in wanted]


def _endpoint(row: sa.Row[Any]) -> Endpoint:
    return read(Endpoint, row, endpoint_id=row.id, events=tuple(row.events), include=tuple(row.include))
