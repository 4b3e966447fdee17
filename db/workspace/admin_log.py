"""Log of changes of a workspace and its keys, written in the transaction of the change."""

import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Scope
from db.core.pages import Page, Place, aware
from db.core.rows import read
from db.core.tables import admin_changes, api_keys, console_sessions, workspaces

ADMIN = "admin"  # the scope of keys that may change a workspace


KEY_IS_VALID = sa.and_(
    api_keys.c.revoked_at.is_(None), sa.func.coalesce(api_keys.c.expires_at > sa.func.now(), sa.true())
)


class NotAdmin(Exception):
    """The key of an `Actor` was revoked or expired before its change, so nothing has changed."""


class NotInDirectory(LookupError):
    """The workspace or team does not exist, or the team is of another workspace."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a change: an operator, who is not limited to a workspace, or a key, whose name is logged.

    `team_id`: the only team of its key. `is_authorized`: what the key started continues after its revocation.
    """

    name: str
    key_id: UUID | None = None
    team_id: UUID | None = None
    session_id: UUID | None = None  # of the console
    request_id: str | None = None
    is_authorized: bool = False


@dataclass(frozen=True, slots=True)
class AdminChange:
    """One change. `who`: the name of the key, or of the operator's login."""

    at: datetime
    who: str
    key_id: UUID | None  # None: an operator
    session_id: UUID | None
    action: str  # created, changed, removed, revoked, replayed, ...
    kind: str  # workspace, team, member, contact, key, webhook, session, voiceprint
    object_id: str
    name: str  # of the changed object at that time; empty for contacts
    detail: str  # the fields; for keys their scopes
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Changing:
    """The transaction of a change."""

    connection: AsyncConnection
    workspace_id: UUID
    by: Actor

    async def run(self, statement: sa.Executable) -> list[sa.Row[Any]]:
        """Return the rows of one statement."""
        result = await self.connection.execute(statement)
        return list(result.all()) if result.returns_rows else []

    async def note(
        self, action: str, kind: str, object_id: object, name: str = "", detail: str = "", team_id: UUID | None = None
    ) -> None:
        """Log a change of this transaction. `team_id`: the only team concerned."""
        values = {
            "workspace_id": self.workspace_id,
            "team_id": team_id,
            "who": self.by.name,
            "key_id": self.by.key_id,
            "session_id": self.by.session_id,
            "action": action,
            "kind": kind,
            "object_id": str(object_id),
            "name": name,
            "detail": detail,
            "request_id": self.by.request_id,
        }
        await self.connection.execute(sa.insert(admin_changes).values(**values))


@asynccontextmanager
async def changing(
    database: Database, workspace_id: UUID, by: Actor | None = None, new: bool = False, seconds: float | None = None
) -> AsyncIterator[Changing]:
    """Open a transaction that changes a workspace; changes of one workspace take turns.

    `by`: None is the operator of this process. `new`: the transaction creates the workspace. `seconds`: see
    `Database.transaction`. Raises `NotInDirectory` for an unknown workspace, `NotAdmin` without the right.
    """
    actor = by or operator()
    async with database.transaction(workspace_id, seconds=seconds) as connection:
        # Concurrent submissions refer to the workspace with a weaker lock.
        lock = sa.select(workspaces.c.id).where(workspaces.c.id == workspace_id).with_for_update(key_share=True)
        if not new and (await connection.execute(lock)).first() is None:
            raise NotInDirectory(f"no workspace {workspace_id}")
        yield Changing(connection, workspace_id, await _verified(connection, actor))


async def _verified(connection: AsyncConnection, actor: Actor) -> Actor:
    if actor.session_id is not None:
        session = sa.and_(console_sessions.c.id == actor.session_id, console_sessions.c.revoked_at.is_(None))
        if (await connection.execute(sa.select(console_sessions.c.id).where(session))).first() is None:
            raise NotAdmin
    if actor.key_id is None or actor.is_authorized:
        return actor
    valid = sa.select(api_keys.c.name).where(
        api_keys.c.id == actor.key_id, sa.any_(api_keys.c.scopes) == ADMIN, KEY_IS_VALID
    )
    name: str | None = (await connection.execute(valid)).scalar_one_or_none()
    if name is None:
        raise NotAdmin
    return replace(actor, name=name)


def operator() -> Actor:
    """Return the person or service that runs this process."""
    try:
        return Actor(getpass.getuser())
    except (OSError, KeyError):  # a container's user without a name
        return Actor("operator")


async def list_changes(
    database: Database, scope: Scope, workspace_id: UUID, cursor: str | None = None, limit: int = 50
) -> Page[AdminChange]:
    """Return changes, the latest first. Raises `pages.InvalidCursor`."""
    filters = ("changes", workspace_id)
    place = Place.decode(cursor, filters, aware)
    query = sa.select(admin_changes).where(admin_changes.c.workspace_id == workspace_id)
    if place is not None:
        position = sa.tuple_(admin_changes.c.at, admin_changes.c.id)
        query = query.where(position < sa.tuple_(sa.literal(place.at), sa.literal(place.row)))
    query = query.order_by(admin_changes.c.at.desc(), admin_changes.c.id.desc()).limit(limit + 1)
    rows = await database.rows(scope, query, snapshot=True)
    last = rows[limit - 1] if len(rows) > limit else None
    next_cursor = last and Place(last.at.isoformat(), last.id).encode(filters)
    return Page(tuple(read(AdminChange, row) for row in rows[:limit]), next_cursor or None)
