from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database
from db.core.tables import (
    api_keys,
    calls,
    console_links,
    console_sessions,
    contacts,
    host_credentials,
    members,
    recordings,
    saved_views,
    teams,
    webhook_endpoints,
    workspaces,
)
from db.workspace import legal_holds
from db.workspace.admin_log import Actor, Changing, changing

BATCH = 200  # calls in one transaction, so that submissions never wait long
ERASURE = sa.text("SET LOCAL switchboard.erasure = 'on'")  # else submissions cannot be deleted


@dataclass(frozen=True, slots=True)
class Contents:
    """Counts of what is removed with a workspace or a team. Files that others share are not deleted."""

    calls: int
    keys: int
    endpoints: int
    members: int  # of a team: they stay without a team
    recordings: int  # of the calls, stored
    teams: int = 0
    contacts: int = 0
    credentials: int = 0


async def contents(database: Database, workspace_id: UUID, team_id: UUID | None = None) -> Contents:
    """Count the contents of a workspace, or of one of its teams."""

    def of(table: sa.Table, key: sa.ColumnElement[UUID]) -> sa.ScalarSelect[int]:
        condition = key == workspace_id if team_id is None else table.c.team_id == team_id
        return sa.select(sa.func.count()).select_from(table).where(condition).scalar_subquery()

    condition = calls.c.workspace_id == workspace_id if team_id is None else calls.c.team_id == team_id
    of_calls = recordings.join(calls, calls.c.id == recordings.c.call_pk)
    stored = sa.select(sa.func.count()).select_from(of_calls).where(condition).scalar_subquery()
    counts = {
        "calls": of(calls, calls.c.workspace_id),
        "keys": of(api_keys, api_keys.c.workspace_id),
        "endpoints": of(webhook_endpoints, webhook_endpoints.c.workspace_id),
        "members": of(members, members.c.workspace_id),
        "recordings": stored,
    }
    if team_id is None:
        counts |= {
            "teams": of(teams, teams.c.workspace_id),
            "contacts": of(contacts, contacts.c.workspace_id),
            "credentials": of(host_credentials, host_credentials.c.workspace_id),
        }
    row = await database.first(workspace_id, sa.select(*(count.label(name) for name, count in counts.items())))
    return Contents(**row._mapping)


async def remove_workspace(database: Database, workspace_id: UUID) -> None:
    """Remove a workspace and its contents: keys first, so that no more calls are submitted.

    Raises `legal_holds.OnHold`.
    """
    async with database.transaction(workspace_id) as connection:
        await legal_holds.require_free_calls(connection, workspace_id)
    await _remove_keys(database, workspace_id, api_keys.c.workspace_id == workspace_id)
    await _remove_calls(database, workspace_id, calls.c.workspace_id == workspace_id)
    async with changing(database, workspace_id) as change:
        await legal_holds.require_free_calls(change.connection, workspace_id)
        await change.run(ERASURE)  # of calls submitted in between
        await change.run(sa.delete(workspaces).where(workspaces.c.id == workspace_id))


class TeamInUse(ValueError):
    """The team still has calls, or active keys or endpoints, counted in `contents`."""

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents)
        self.contents = contents


async def remove_team(database: Database, workspace_id: UUID, team_id: UUID, by: Actor | None = None) -> None:
    """Remove a team with its calls, keys and endpoints; its members stay without a team.

    Raises `legal_holds.OnHold`.
    """
    async with database.transaction(workspace_id) as connection:
        await legal_holds.require_free_calls(connection, workspace_id, team_id)
    await _remove_keys(database, workspace_id, api_keys.c.team_id == team_id, by)
    await _remove_calls(database, workspace_id, calls.c.team_id == team_id)
    await _remove_empty(database, workspace_id, team_id, by, with_contents=True)


async def remove_unused_team(database: Database, workspace_id: UUID, team_id: UUID, by: Actor | None = None) -> None:
    """Remove a team without calls, endpoints and valid keys; its members stay without a team.

    Raises `TeamInUse`, and then nothing has changed. A concurrent submission waits, and either finds no team or keeps
    it.
    """
    await _remove_empty(database, workspace_id, team_id, by, with_contents=False)


async def _remove_empty(
    database: Database, workspace_id: UUID, team_id: UUID, by: Actor | None, with_contents: bool
) -> None:
    async with changing(database, workspace_id, by) as change:
        # A submission to the team with a key of the workspace waits here, and then finds no team.
        is_team = sa.and_(teams.c.id == team_id, teams.c.workspace_id == workspace_id)
        rows = await change.run(sa.select(teams.c.name).where(is_team).with_for_update())
        if not rows:
            return
        if with_contents:
            await legal_holds.require_free_calls(change.connection, workspace_id, team_id)
            await change.run(ERASURE)
            await change.run(sa.delete(calls).where(calls.c.team_id == team_id))
            await change.run(sa.delete(webhook_endpoints).where(webhook_endpoints.c.team_id == team_id))
        else:
            await _require_unused(change, team_id)
        await _delete_keys(change, api_keys.c.team_id == team_id)
        for table in (console_sessions, console_links, saved_views):
            await change.run(sa.delete(table).where(table.c.team_id == team_id))
        await change.run(sa.update(members).where(members.c.team_id == team_id).values(team_id=None))
        await change.run(sa.delete(teams).where(is_team))
        await change.note("removed", "team", team_id, rows[0].name, team_id=team_id)


async def _require_unused(change: Changing, team_id: UUID) -> None:
    ended = sa.func.coalesce(api_keys.c.expires_at <= sa.func.now(), sa.false())
    in_use = sa.and_(api_keys.c.revoked_at.is_(None), sa.not_(ended))
    counts = {"calls": (calls, sa.true()), "keys": (api_keys, in_use), "endpoints": (webhook_endpoints, sa.true())}
    (row,) = await change.run(
        sa.select(
            *(
                sa.select(sa.func.count())
                .select_from(table)
                .where(table.c.team_id == team_id, condition)
                .scalar_subquery()
                .label(name)
                for name, (table, condition) in counts.items()
            )
        )
    )
    if any(row):
        raise TeamInUse(Contents(**row._mapping, members=0, recordings=0))


async def _remove_keys(
    database: Database, workspace_id: UUID, condition: sa.ColumnElement[bool], by: Actor | None = None
) -> None:
    async with changing(database, workspace_id, by) as change:
        await _delete_keys(change, condition)


async def _delete_keys(change: Changing, condition: sa.ColumnElement[bool]) -> None:
    columns = (api_keys.c.id, api_keys.c.name, api_keys.c.prefix, api_keys.c.team_id)
    for key in await change.run(sa.delete(api_keys).where(condition).returning(*columns)):
        await change.note("removed", "key", key.id, key.name, f"began with {key.prefix}", key.team_id)


async def _remove_calls(database: Database, workspace_id: UUID, condition: sa.ColumnElement[bool]) -> None:
    is_free = sa.not_(sa.literal_column("is_on_hold(calls)", sa.Boolean()))
    batch = sa.select(calls.c.id).where(condition, is_free).limit(BATCH)
    while True:
        async with database.transaction(workspace_id) as connection:
            await connection.execute(ERASURE)
            if not (await connection.execute(sa.delete(calls).where(calls.c.id.in_(batch)))).rowcount:
                return
