from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.tables import calls, run_calls, stage_results, teams, transcripts, workspaces
from db.secrets import call_keys
from db.secrets.call_keys import CallSealed
from db.workspace import directory
from db.workspace.admin_log import changing
from db.workspace.directory import Workspace, tidy_terms
from pipeline.domain.stage import Stage


@dataclass(frozen=True, slots=True)
class Priorities:
    """Shares of turns at the queue; a team's is multiplied by its workspace's."""

    workspace: str
    priority: float
    live_seconds: int  # a call is live if it ended less than this before its submission
    teams: dict[str, float]


async def set_terms(database: Database, workspace_id: UUID, terms: Iterable[str]) -> Workspace:
    """Replace a workspace's terms, for calls recognized from now on.

    Raises NotInDirectory for an unknown workspace, ValueError for invalid terms (`tidy_terms`).
    """
    return await directory.set_columns(database, workspace_id, terms=list(tidy_terms(terms)))


async def set_keep_digits(database: Database, workspace_id: UUID, keep: bool) -> Workspace:
    """Set whether calls processed from now on store which keys were pressed; never digits that may be a card number.

    False also removes those of earlier calls. Raises NotInDirectory for an unknown workspace.
    """
    changed = await directory.set_columns(database, workspace_id, keep_digits=keep)
    if not keep:
        await _drop_digits(database, workspace_id)
    return changed


async def set_allowed_hosts(database: Database, workspace_id: UUID, hosts: Iterable[str]) -> Workspace:
    """Set the hosts, addresses and networks besides the Internet for this workspace's recordings and webhooks.

    Entries are stored unchanged: the caller has parsed them (`pipeline.fetch.address.parse_allowed`). Raises
    NotInDirectory for an unknown workspace.
    """
    return await directory.set_columns(database, workspace_id, allowed_hosts=list(dict.fromkeys(hosts)))


async def allowed_hosts(database: Database, workspace_id: UUID) -> tuple[str, ...]:
    """Return the hosts of `set_allowed_hosts`; empty for an unknown workspace."""
    query = sa.select(workspaces.c.allowed_hosts).where(workspaces.c.id == workspace_id)
    row = await database.first(workspace_id, query)
    return tuple(row.allowed_hosts) if row else ()


_DROP_FORMER_DIGITS = sa.text("""
    UPDATE run_calls SET former = jsonb_set(
        former, '{transcript,content}', without_digits(former #> '{transcript,content}')
    )
    WHERE call_pk = ANY (CAST(:ids AS bigint[])) AND former IS NOT NULL
        AND former #> '{transcript,content}' <> without_digits(former #> '{transcript,content}')
""")


async def _drop_digits(database: Database, workspace_id: UUID) -> None:
    """Remove digits in batches, so that no call of the workspace waits."""
    batch = sa.select(calls.c.id).where(calls.c.workspace_id == workspace_id).order_by(calls.c.id).limit(500)
    last = -1
    while ids := await database.column(workspace_id, batch.where(calls.c.id > last)):
        last = ids[-1]
        for table, column in ((stage_results, "result"), (transcripts, "content"), (run_calls, "transcript")):
            value = table.c[column]
            with_digits = sa.and_(table.c.call_pk.in_(ids), value != sa.func.without_digits(value))
            if table is stage_results:
                with_digits &= table.c.stage.in_((Stage.AUDIO, Stage.SPEAKERS))
            update = sa.update(table).where(with_digits).values({column: sa.func.without_digits(value)})
            await database.change(workspace_id, update)
        await database.change(workspace_id, _DROP_FORMER_DIGITS, {"ids": ids})
        async with database.transaction(workspace_id) as connection:
            await _drop_sealed_digits(connection, stage_results, stage_results.c.result, ids)
            await _drop_sealed_digits(connection, transcripts, transcripts.c.content, ids)
            await _drop_sealed_digits(connection, run_calls, run_calls.c.former["transcript"]["content"], ids)


async def _drop_sealed_digits(
    connection: AsyncConnection, table: sa.Table, column: sa.ColumnElement[Any], ids: list[int]
) -> None:
    """Remove digits from sealed values, which SQL cannot read."""
    keys = call_keys.of(connection)
    sealed = sa.and_(table.c.call_pk.in_(ids), sa.func.jsonb_typeof(column) == "string")
    columns = (table.c.call_pk, column.label("stored"), call_keys.readable(column, table.c.call_pk).label("value"))
    for row in (await connection.execute(sa.select(*columns).where(sealed))).all():
        try:
            value = keys.open(row.value)
        except CallSealed:  # its key was deleted, and nothing can be read
            continue
        without = await connection.scalar(sa.select(sa.func.without_digits(sa.cast(value, JSONB), type_=JSONB())))
        if without == value:
            continue
        again = keys.sealed_again(row.value, without)
        in_former = sa.func.jsonb_set(run_calls.c.former, sa.text("'{transcript,content}'"), sa.cast(again, JSONB))
        values = {"former": in_former} if table is run_calls else {column: again}
        unchanged = sa.and_(table.c.call_pk == row.call_pk, column == sa.cast(row.stored, JSONB))
        await connection.execute(sa.update(table).where(unchanged).values(values))


async def set_priority(
    database: Database,
    workspace_id: UUID,
    value: float | None = None,
    team_id: UUID | None = None,
    live_seconds: int | None = None,
) -> Priorities:
    """Change the given values and return the present ones: the priority of the workspace, or of `team_id`; 0.01 to 100.

    Raises NotInDirectory for an unknown workspace or team, and for a value outside its range.
    """
    if live_seconds is not None:
        await directory.set_columns(database, workspace_id, live_seconds=live_seconds)
    if value is not None and team_id is None:
        await directory.set_columns(database, workspace_id, priority=value)
    elif value is not None:
        async with changing(database, workspace_id) as change:
            await directory.update(change, teams, directory.is_team(workspace_id, team_id), {"priority": value}, "team")
    workspace = await directory.workspace_row(database, workspace_id, sa.select(workspaces))
    query = sa.select(teams.c.name, teams.c.priority).where(teams.c.workspace_id == workspace_id).order_by(teams.c.name)
    shares = await database.rows(workspace_id, query)
    return Priorities(
        workspace.name, workspace.priority, workspace.live_seconds, {row.name: row.priority for row in shares}
    )
