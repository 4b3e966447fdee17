"""Console sign-in: one-time links and browser sessions. Of secrets only the SHA-256 is stored.

The client of a link or a cookie has no scope yet. As with `find_key`, only the one statement with the secret, which has
256 random bits, runs without a workspace.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import filter_by, read
from db.core.tables import api_keys, console_links, console_sessions, teams, workspaces
from db.workspace.admin_log import KEY_IS_VALID, Actor, changing
from db.workspace.keys import digest
from pipeline.domain.call import Sender
from pipeline.errors import UnknownTeam

LINK_LIFE = timedelta(hours=1)  # until it must be used
SESSION_LIFE = timedelta(days=7)  # until the next sign-in
RETENTION = timedelta(days=30)  # after its end
MAX_USER_AGENT_LENGTH = 300  # stored characters
MAX_SESSIONS = 20  # of one key; a link opens one


@dataclass(frozen=True, slots=True)
class Viewer:
    """The scope and permissions of a session, and its data for pages."""

    session_id: UUID
    workspace_id: UUID
    team_id: UUID | None  # None: every team of the workspace
    key_id: UUID | None  # None: opened by a link
    name: str  # of the key or link
    workspace_name: str
    team_name: str | None
    time_zone: str  # of the workspace, IANA
    may_edit: bool = False  # its key has the scope, or its link allows it
    may_admin: bool = False  # its key has the scope
    may_unredact: bool = False  # its key has the scope


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The public data of a session."""

    session_id: UUID
    workspace_id: UUID
    team_id: UUID | None
    key_id: UUID | None
    name: str
    user_agent: str
    created_at: datetime
    last_used_at: datetime  # to the minute
    expires_at: datetime
    revoked_at: datetime | None


async def issue_link(
    database: Database,
    workspace_id: UUID,
    team_id: UUID | None,
    name: str,
    life: timedelta = LINK_LIFE,
    may_edit: bool = False,
) -> tuple[str, datetime]:
    """Return the secret of a new link, shown only once, and when it expires. `may_edit`: it allows corrections.

    Raises UnknownTeam if the workspace or its team does not exist.
    """
    secret = secrets.token_urlsafe(32)
    values = {"workspace_id": workspace_id, "team_id": team_id, "name": name, "may_edit": may_edit}
    insertion = sa.insert(console_links).values(**values, secret_sha256=digest(secret), expires_at=sa.func.now() + life)
    try:
        row = await database.first(workspace_id, insertion.returning(console_links.c.expires_at))
    except IntegrityError as error:
        raise UnknownTeam from error
    return secret, row.expires_at


async def open_by_link(database: Database, secret: str, user_agent: str) -> str | None:
    """Use a link and return the secret of the new session; None for an unknown, used or expired link."""
    valid = sa.and_(
        console_links.c.secret_sha256 == digest(secret),
        console_links.c.used_at.is_(None),
        console_links.c.expires_at > sa.func.now(),
    )
    update = sa.update(console_links).where(valid).values(used_at=sa.func.now())
    columns = (console_links.c.workspace_id, console_links.c.team_id, console_links.c.name, console_links.c.may_edit)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        row = (await connection.execute(update.returning(*columns))).one_or_none()
        return None if row is None else await _open(connection, dict(row._mapping), None, user_agent)


async def open_by_key(database: Database, sender: Sender, user_agent: str) -> str:
    """Return the secret of a new session of a key's sender; it ends with the key, or as the oldest of too many."""
    # The lock lets sign-ins with one key take turns, so that they do not exceed the limit together.
    name = sa.select(api_keys.c.name).where(api_keys.c.id == sender.key_id).with_for_update(key_share=True)
    async with database.transaction(sender.workspace_id) as connection:
        scope = {
            "workspace_id": sender.workspace_id,
            "team_id": sender.team_id,
            "name": (await connection.execute(name)).scalar_one(),
        }
        secret = await _open(connection, scope, sender.key_id, user_agent)
        await _end_oldest(connection, sender)
        return secret


async def find(database: Database, secret: str) -> Viewer | None:
    """Return the viewer of a session; None for an unknown, revoked or expired session or key."""
    query = _VIEWER.where(console_sessions.c.secret_sha256 == digest(secret), _LIVE)
    stale = console_sessions.c.last_used_at < sa.func.now() - timedelta(minutes=1)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        update = sa.update(console_sessions).where(console_sessions.c.id == row.session_id, stale)
        await connection.execute(update.values(last_used_at=sa.func.now()))
        return read(Viewer, row)


async def list_sessions(
    database: Database, workspace_id: UUID | None = None, viewer: Viewer | None = None
) -> list[SessionInfo]:
    """Return open sessions, the one used last first.

    With a viewer, those of the same key, or its own; for an administrator, all of its workspace or team.
    """
    query = filter_by(sa.select(*_COLUMNS).where(_LIVE), console_sessions.c.workspace_id, workspace_id)
    if viewer is not None:
        query = query.where(_in_scope_of(viewer) if viewer.may_admin else _same_key(viewer))
    query = query.order_by(console_sessions.c.last_used_at.desc(), console_sessions.c.id)
    return [read(SessionInfo, row) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)]


async def revoke(
    database: Database, session_id: UUID, workspace_id: UUID | None = None, viewer: Viewer | None = None
) -> bool:
    """End a session. Return False if there is no such open one visible to the viewer (see `list_sessions`)."""
    is_open = sa.and_(console_sessions.c.id == session_id, console_sessions.c.revoked_at.is_(None))
    if viewer is not None:
        is_open = sa.and_(is_open, _same_key(viewer))
    update = sa.update(console_sessions).where(is_open).values(revoked_at=sa.func.now())
    return await database.change(workspace_id or EVERY_WORKSPACE, update) == 1


async def end(database: Database, viewer: Viewer, session_id: UUID) -> bool:
    """End a session visible to an administrator (`list_sessions`) and log it. Return False if there is none.

    Raises `admin_log.NotAdmin` if the viewer has lost the right.
    """
    by = Actor(viewer.name, viewer.key_id, viewer.team_id, viewer.session_id)
    is_open = sa.and_(console_sessions.c.id == session_id, _LIVE, _in_scope_of(viewer))
    async with changing(database, viewer.workspace_id, by) as change:
        update = sa.update(console_sessions).where(is_open).values(revoked_at=sa.func.now())
        ended_sessions = await change.run(update.returning(console_sessions.c.name, console_sessions.c.team_id))
        for session in ended_sessions:
            await change.note("ended", "session", session_id, session.name, team_id=session.team_id)
    return bool(ended_sessions)


_COLUMNS = (
    console_sessions.c.id.label("session_id"),
    *(console_sessions.c[name] for name in SessionInfo.__dataclass_fields__ if name != "session_id"),
)
_KEY_LIVES = sa.exists(
    sa.select(1).where(
        api_keys.c.id == console_sessions.c.key_id,
        api_keys.c.workspace_id == console_sessions.c.workspace_id,
        KEY_IS_VALID,
    )
)


def _key_has(scope: str) -> sa.ColumnElement[bool]:
    return sa.exists(
        sa.select(1).where(
            api_keys.c.id == console_sessions.c.key_id,
            api_keys.c.workspace_id == console_sessions.c.workspace_id,
            api_keys.c.scopes.contains([scope]),
        )
    )


_LIVE = sa.and_(
    console_sessions.c.revoked_at.is_(None),
    console_sessions.c.expires_at > sa.func.now(),
    sa.or_(console_sessions.c.key_id.is_(None), _KEY_LIVES),
)
_VIEWER: sa.Select[Any] = (
    sa.select(
        console_sessions.c.id.label("session_id"),
        *(console_sessions.c[name] for name in ("workspace_id", "team_id", "key_id", "name")),
        workspaces.c.name.label("workspace_name"),
        workspaces.c.time_zone,
        teams.c.name.label("team_name"),
        sa.or_(console_sessions.c.may_edit, _key_has("edit")).label("may_edit"),
        _key_has("admin").label("may_admin"),
        _key_has("unredacted").label("may_unredact"),
    )
    .join(workspaces, workspaces.c.id == console_sessions.c.workspace_id)
    .outerjoin(teams, teams.c.id == console_sessions.c.team_id)
)


def _in_scope_of(viewer: Viewer) -> sa.ColumnElement[bool]:
    home = console_sessions.c.workspace_id == viewer.workspace_id
    return home if viewer.team_id is None else sa.and_(home, console_sessions.c.team_id == viewer.team_id)


def _same_key(viewer: Viewer) -> sa.ColumnElement[bool]:
    is_visible: sa.ColumnElement[bool] = console_sessions.c.id == viewer.session_id
    if viewer.key_id is not None:
        is_visible = sa.or_(is_visible, console_sessions.c.key_id == viewer.key_id)
    return sa.and_(console_sessions.c.workspace_id == viewer.workspace_id, is_visible)


async def _open(connection: AsyncConnection, scope: dict[str, Any], key_id: UUID | None, user_agent: str) -> str:
    """Create a session, and delete those that ended some time ago."""
    for table in (console_links, console_sessions):
        has_ended = table.c.expires_at < sa.func.now() - RETENTION
        await connection.execute(sa.delete(table).where(table.c.workspace_id == scope["workspace_id"], has_ended))
    secret = secrets.token_urlsafe(32)
    values = scope | {
        "key_id": key_id,
        "secret_sha256": digest(secret),
        "user_agent": user_agent[:MAX_USER_AGENT_LENGTH],
        "expires_at": sa.func.now() + SESSION_LIFE,
    }
    await connection.execute(sa.insert(console_sessions).values(**values))
    return secret


async def _end_oldest(connection: AsyncConnection, sender: Sender) -> None:
    """Delete the sessions of a key beyond `MAX_SESSIONS`: those that ended first, then the oldest."""
    of_key = (console_sessions.c.workspace_id == sender.workspace_id, console_sessions.c.key_id == sender.key_id)
    order = (sa.not_(_LIVE), console_sessions.c.created_at.desc(), console_sessions.c.id)
    excess = sa.select(console_sessions.c.id).where(*of_key).order_by(*order).offset(MAX_SESSIONS)
    await connection.execute(sa.delete(console_sessions).where(console_sessions.c.id.in_(excess)))
