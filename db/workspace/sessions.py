"""Who is signed in to the console: one-time links, and sessions of browsers. Of secrets only the SHA-256 is stored.

Who shows a link or a cookie has no scope yet; as with `find_key` it is open for the one statement that needs the
secret, which has 256 random bits.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import read, within
from db.core.tables import api_keys, console_links, console_sessions, teams, workspaces
from db.workspace.admin_log import KEY_IS_VALID, Actor, changing
from pipeline.domain.call import Sender
from pipeline.errors import UnknownTeam

LINK_LIFE = timedelta(hours=1)  # until it must be used
SESSION_LIFE = timedelta(days=7)  # then one signs in again
KEPT_AFTER = timedelta(days=30)  # its end
MOST_OF_USER_AGENT = 300  # characters that are kept


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whom a session speaks for, and what pages say about it."""

    session_id: UUID
    workspace_id: UUID
    team_id: UUID | None  # None: every team of the workspace
    key_id: UUID | None  # None: opened by a link
    name: str  # of the key or link
    workspace_name: str
    team_name: str | None
    time_zone: str  # of the workspace, IANA
    may_edit: bool = False  # its key has the scope, or its link was issued so
    may_admin: bool = False  # its key has the scope


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as it may be shown."""

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
    """Return the secret of a new link, shown this once, and when it ends unused. `may_edit`: calls may be corrected.

    Raises UnknownTeam where the workspace or its team does not exist.
    """
    secret = secrets.token_urlsafe(32)
    values = {"workspace_id": workspace_id, "team_id": team_id, "name": name, "may_edit": may_edit}
    made = sa.insert(console_links).values(**values, secret_sha256=_digest(secret), expires_at=sa.func.now() + life)
    try:
        async with database.transaction(workspace_id) as connection:
            expires: datetime = (await connection.execute(made.returning(console_links.c.expires_at))).scalar_one()
    except IntegrityError as error:
        raise UnknownTeam from error
    return secret, expires


async def open_by_link(database: Database, secret: str, user_agent: str) -> str | None:
    """Use a link up and return the secret of the session that it opens; None for an unknown, used or expired one."""
    valid = sa.and_(
        console_links.c.secret_sha256 == _digest(secret),
        console_links.c.used_at.is_(None),
        console_links.c.expires_at > sa.func.now(),
    )
    used = sa.update(console_links).where(valid).values(used_at=sa.func.now())
    columns = (console_links.c.workspace_id, console_links.c.team_id, console_links.c.name, console_links.c.may_edit)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        row = (await connection.execute(used.returning(*columns))).one_or_none()
        return None if row is None else await _open(connection, dict(row._mapping), None, user_agent)


async def open_by_key(database: Database, sender: Sender, user_agent: str) -> str:
    """Return the secret of a new session for whom a key speaks for; it ends with the key."""
    name = sa.select(api_keys.c.name).where(api_keys.c.id == sender.key_id)
    async with database.transaction(sender.workspace_id) as connection:
        known = {
            "workspace_id": sender.workspace_id,
            "team_id": sender.team_id,
            "name": (await connection.execute(name)).scalar_one(),
        }
        return await _open(connection, known, sender.key_id, user_agent)


async def find(database: Database, secret: str) -> Viewer | None:
    """Whom a session speaks for; None for an unknown, revoked or expired one, or one whose key is."""
    query = _VIEWER.where(console_sessions.c.secret_sha256 == _digest(secret), _LIVE)
    stale = console_sessions.c.last_used_at < sa.func.now() - timedelta(minutes=1)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        noted = sa.update(console_sessions).where(console_sessions.c.id == row.session_id, stale)
        await connection.execute(noted.values(last_used_at=sa.func.now()))
        return read(Viewer, row)


async def list_sessions(
    database: Database, workspace_id: UUID | None = None, viewer: Viewer | None = None
) -> list[SessionInfo]:
    """Sessions that are open, the one used last first.

    With a viewer, those opened by the same key, or its own; for one who may administer, all of its workspace or team.
    """
    query = within(sa.select(*_SHOWN).where(_LIVE), console_sessions.c.workspace_id, workspace_id)
    if viewer is not None:
        query = query.where(_seen_by(viewer) if viewer.may_admin else _of(viewer))
    query = query.order_by(console_sessions.c.last_used_at.desc(), console_sessions.c.id)
    return [read(SessionInfo, row) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)]


async def revoke(
    database: Database, session_id: UUID, workspace_id: UUID | None = None, viewer: Viewer | None = None
) -> bool:
    """End a session. False where there is no such open one, or the viewer may not (see `list_sessions`)."""
    open_one = sa.and_(console_sessions.c.id == session_id, console_sessions.c.revoked_at.is_(None))
    if viewer is not None:
        open_one = sa.and_(open_one, _of(viewer))
    async with database.transaction(workspace_id or EVERY_WORKSPACE) as connection:
        done = await connection.execute(sa.update(console_sessions).where(open_one).values(revoked_at=sa.func.now()))
    return done.rowcount == 1


async def end(database: Database, viewer: Viewer, session_id: UUID) -> bool:
    """End a session that an administrator sees (`list_sessions`), with a line in the change log. False: there is none.

    Raises `admin_log.NotAdmin` where the viewer may no longer.
    """
    by = Actor(viewer.name, viewer.key_id, viewer.team_id, viewer.session_id)
    open_one = sa.and_(console_sessions.c.id == session_id, _LIVE, _seen_by(viewer))
    async with changing(database, viewer.workspace_id, by) as change:
        ended = sa.update(console_sessions).where(open_one).values(revoked_at=sa.func.now())
        found = await change.run(ended.returning(console_sessions.c.name, console_sessions.c.team_id))
        for one in found:
            await change.note("ended", "session", session_id, one.name, team_id=one.team_id)
    return bool(found)


_SHOWN = (
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
    )
    .join(workspaces, workspaces.c.id == console_sessions.c.workspace_id)
    .outerjoin(teams, teams.c.id == console_sessions.c.team_id)
)


def _seen_by(viewer: Viewer) -> sa.ColumnElement[bool]:
    """Sessions of the viewer's workspace, or of its team."""
    home = console_sessions.c.workspace_id == viewer.workspace_id
    return home if viewer.team_id is None else sa.and_(home, console_sessions.c.team_id == viewer.team_id)


def _of(viewer: Viewer) -> sa.ColumnElement[bool]:
    """Sessions of the viewer's own workspace that were opened by the same key, or its own."""
    mine: sa.ColumnElement[bool] = console_sessions.c.id == viewer.session_id
    if viewer.key_id is not None:
        mine = sa.or_(mine, console_sessions.c.key_id == viewer.key_id)
    return sa.and_(console_sessions.c.workspace_id == viewer.workspace_id, mine)


async def _open(connection: AsyncConnection, known: dict[str, Any], key_id: UUID | None, user_agent: str) -> str:
    """A new session; what ended a while ago is removed meanwhile."""
    for ended in (console_links, console_sessions):
        over = ended.c.expires_at < sa.func.now() - KEPT_AFTER
        await connection.execute(sa.delete(ended).where(ended.c.workspace_id == known["workspace_id"], over))
    secret = secrets.token_urlsafe(32)
    values = known | {
        "key_id": key_id,
        "secret_sha256": _digest(secret),
        "user_agent": user_agent[:MOST_OF_USER_AGENT],
        "expires_at": sa.func.now() + SESSION_LIFE,
    }
    await connection.execute(sa.insert(console_sessions).values(**values))
    return secret


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
