"""Gold sets: human truth about calls, in immutable versions."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.rows import read
from db.core.tables import call_search, calls, corrections, gold_calls, gold_sets, members
from db.records.corrected_columns import AGENT
from db.workspace.admin_log import Actor, changing

MAX_CALLS = 20_000  # in a version
PAGE = 200  # calls in one transaction of a reader


@dataclass(frozen=True, slots=True)
class GoldSet:
    """A version of a gold set: its number of calls at creation, and (`left`) of those still stored."""

    set_id: UUID
    name: str
    version: int
    digest: str
    calls: int
    left: int  # language: ok
    source: str  # corrections, or the imported format
    made_at: datetime
    made_by: str


class NoSuchSet(LookupError):
    """No gold set has this name or version."""


class UnknownCalls(LookupError):
    """Calls that the workspace does not have; `names` are their ids."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{len(names)} of the calls are not in this workspace")
        self.names = tuple(names)


async def add_version(
    database: Database, workspace_id: UUID, name: str, source: str, digest: str, truths: dict[UUID, Any]
) -> tuple[GoldSet, bool]:
    """Create the next version of a set and return it with True; if the latest is equal, return that with False.

    `truths`: by callId, as JSON. Raises `UnknownCalls`, and ValueError for none or more than `MAX_CALLS`.
    """
    if not 0 < len(truths) <= MAX_CALLS:
        raise ValueError(f"a gold set has 1 to {MAX_CALLS} calls, not {len(truths)}")
    async with changing(database, workspace_id) as change:
        latest = (await _versions(change.connection, workspace_id, name))[:1]
        if latest and latest[0].digest == digest and latest[0].left == latest[0].calls:
            return latest[0], False
        rows = await change.run(
            sa.select(calls.c.id, calls.c.call_id).where(
                calls.c.workspace_id == workspace_id, calls.c.call_id.in_(truths)
            )
        )
        pk_by_call_id = {row.call_id: row.id for row in rows}
        if missing := [str(call_id) for call_id in truths if call_id not in pk_by_call_id]:
            raise UnknownCalls(missing)
        inserted = sa.insert(gold_sets).values(
            workspace_id=workspace_id,
            name=name,
            version=latest[0].version + 1 if latest else 1,
            digest=digest,
            calls=len(truths),
            source=source,
            made_by=change.by.name,
        )
        (row,) = await change.run(inserted.returning(gold_sets.c.id, gold_sets.c.version))
        shared = {"set_id": row.id, "workspace_id": workspace_id}
        values = [shared | {"call_pk": pk_by_call_id[call_id], "truth": truth} for call_id, truth in truths.items()]
        for start in range(0, len(values), PAGE):
            await change.connection.execute(sa.insert(gold_calls), values[start : start + PAGE])
        await change.note("created", "gold set", row.id, f"{name} v{row.version}", f"{len(truths)} calls")
        return (await _versions(change.connection, workspace_id, name))[0], True


async def list_sets(database: Database, workspace_id: UUID, name: str | None = None) -> list[GoldSet]:
    """Return all versions, by name, the latest first."""
    async with database.transaction(workspace_id) as connection:
        return await _versions(connection, workspace_id, name)


async def find(database: Database, workspace_id: UUID, name: str, version: int | None = None) -> GoldSet:
    """Return a version of a set; None: the latest. Raises `NoSuchSet`."""
    versions = await list_sets(database, workspace_id, name)
    for gold_set in versions:
        if version in (None, gold_set.version):
            return gold_set
    raise NoSuchSet(name)


async def truths(database: Database, workspace_id: UUID, gold_set: GoldSet) -> AsyncIterator[list[tuple[UUID, Any]]]:
    """Yield the stored calls of a version with the truth of each as JSON: `PAGE` at a time, by callId."""
    query = (
        sa.select(calls.c.call_id, gold_calls.c.truth)
        .join(gold_calls, gold_calls.c.call_pk == calls.c.id)
        .where(gold_calls.c.set_id == gold_set.set_id)
        .order_by(calls.c.call_id)
        .limit(PAGE)
    )
    last: UUID | None = None
    while True:
        rows = await database.rows(workspace_id, query if last is None else query.where(calls.c.call_id > last))
        if rows:
            yield [(row.call_id, row.truth) for row in rows]
        if len(rows) < PAGE:
            return
        last = rows[-1].call_id


async def agents(database: Database, workspace_id: UUID, gold_set: GoldSet) -> dict[UUID, str]:
    """Return the agents' names by callId, for the calls of a version with an agent."""
    query = (
        sa.select(calls.c.call_id, members.c.name)
        .join(gold_calls, gold_calls.c.call_pk == calls.c.id)
        .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
        .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
        .join(members, sa.and_(members.c.workspace_id == calls.c.workspace_id, members.c.user_id == AGENT))
        .where(gold_calls.c.set_id == gold_set.set_id)
    )
    return {row.call_id: row.name for row in await database.rows(workspace_id, query)}


async def remove(database: Database, workspace_id: UUID, gold_set: GoldSet, by: Actor | None = None) -> None:
    """Remove a version. Its calls, and other versions, stay. Raises `NoSuchSet` if it is already removed."""
    async with changing(database, workspace_id, by) as change:
        removed = await change.run(
            sa.delete(gold_sets).where(gold_sets.c.id == gold_set.set_id).returning(gold_sets.c.id)
        )
        if not removed:
            raise NoSuchSet(gold_set.name)
        await change.note("removed", "gold set", gold_set.set_id, f"{gold_set.name} v{gold_set.version}")


async def _versions(connection: AsyncConnection, workspace_id: UUID, name: str | None) -> list[GoldSet]:
    remaining = sa.select(sa.func.count()).where(gold_calls.c.set_id == gold_sets.c.id).scalar_subquery()
    query = sa.select(gold_sets, gold_sets.c.id.label("set_id"), remaining.label("left"))
    query = query.where(gold_sets.c.workspace_id == workspace_id)
    if name is not None:
        query = query.where(gold_sets.c.name == name)
    rows = await connection.execute(query.order_by(gold_sets.c.name, gold_sets.c.version.desc()))
    return [read(GoldSet, row) for row in rows]
