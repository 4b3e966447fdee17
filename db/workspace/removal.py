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
)
from db.workspace.admin_log import Actor, Changing, changing

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


class TeamInUse(ValueError):
    """The team still has calls, or active keys or endpoints, counted in `contents`."""

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents)
        self.contents = contents


async def remove_unused_team(database: Database, workspace_id: UUID, team_id: UUID, by: Actor | None = None) -> None:
    """Remove a team without calls, endpoints and valid keys; its members stay without a team.

    Raises `TeamInUse`, and then nothing has changed. A concurrent submission waits, then finds no team, or keeps it.
    """
    async with changing(database, workspace_id, by) as change:
        if await lock_team(change, team_id):
            await _require_unused(change, team_id)
            await delete_team(change, team_id)


async def lock_team(change: Changing, team_id: UUID) -> bool:
    """Lock a team and return whether it exists: a submission to it waits, and then may find no team."""
    return bool(await change.run(sa.select(teams.c.id).where(_is_team(change, team_id)).with_for_update()))


async def delete_team(change: Changing, team_id: UUID) -> None:
    """Delete a locked team without calls, with its keys and endpoints; its members stay without a team."""
    await change.run(sa.delete(webhook_endpoints).where(webhook_endpoints.c.team_id == team_id))
    await delete_keys(change, api_keys.c.team_id == team_id)
    for table in (console_sessions, console_links, saved_views):
        await change.run(sa.delete(table).where(table.c.team_id == team_id))
    await change.run(sa.update(members).where(members.c.team_id == team_id).values(team_id=None))
    (row,) = await change.run(sa.delete(teams).where(_is_team(change, team_id)).returning(teams.c.name))
    await change.note("removed", "team", team_id, row.name, team_id=team_id)


def _is_team(change: Changing, team_id: UUID) -> sa.ColumnElement[bool]:
    return sa.and_(teams.c.id == team_id, teams.c.workspace_id == change.workspace_id)


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


async def delete_keys(change: Changing, condition: sa.ColumnElement[bool]) -> None:
    """Delete keys and log each of them."""
    columns = (api_keys.c.id, api_keys.c.name, api_keys.c.prefix, api_keys.c.team_id)
    for key in await change.run(sa.delete(api_keys).where(condition).returning(*columns)):
        await change.note("removed", "key", key.id, key.name, f"began with {key.prefix}", key.team_id)
