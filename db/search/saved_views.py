"""Filters and search of the list of calls, saved by name.

A view belongs to a workspace, or to a team of it: all who see the same calls share it.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from db.core.database import Database, Reader
from db.core.rows import read
from db.core.tables import saved_views, workspaces

MOST_VIEWS, LONGEST_NAME, LONGEST_QUERY = 50, 60, 4_000  # of one scope; characters


@dataclass(frozen=True, slots=True)
class SavedView:
    """`query`: the filters, as in the address of the list."""

    view_id: UUID
    name: str
    query: str


class TooManyViews(ValueError):
    """There are as many views as there may be."""


class NameTaken(ValueError):
    """Another view has this name."""


async def list_views(database: Database, reader: Reader) -> list[SavedView]:
    """Those of the reader's workspace, or of its team, by name."""
    query = sa.select(*_SHOWN).where(_shared_with(reader)).order_by(sa.func.lower(saved_views.c.name), saved_views.c.id)
    return [read(SavedView, row) for row in await database.rows(reader, query)]


async def save(database: Database, reader: Reader, name: str, query: str) -> SavedView:
    """Save a view; the one that has this name gets the new filters. Raises ValueError, TooManyViews."""
    if len(query) > LONGEST_QUERY:
        raise ValueError(f"the filters have more than {LONGEST_QUERY} characters")
    values = {"workspace_id": reader.workspace_id, "team_id": reader.team_id, "name": tidy_name(name), "query": query}
    scope = [sa.text("workspace_id"), sa.text("coalesce(team_id, workspace_id)"), sa.text("name")]
    saving = insert(saved_views).values(**values).on_conflict_do_update(index_elements=scope, set_={"query": query})
    home = sa.select(workspaces.c.id).where(workspaces.c.id == reader.workspace_id)
    count = sa.select(sa.func.count()).where(_shared_with(reader))
    async with database.transaction(reader) as connection:
        await connection.execute(home.with_for_update(key_share=True))  # who saves at the same time is counted
        view = read(SavedView, (await connection.execute(saving.returning(*_SHOWN))).one())
        if (await connection.execute(count)).scalar_one() > MOST_VIEWS:
            raise TooManyViews(f"there are {MOST_VIEWS} views already")
    return view


async def rename(database: Database, reader: Reader, view_id: UUID, name: str) -> bool:
    """False where there is no such view. Raises ValueError, NameTaken."""
    renamed = sa.update(saved_views).where(_shared_with(reader), saved_views.c.id == view_id)
    try:
        async with database.transaction(reader) as connection:
            done = await connection.execute(renamed.values(name=tidy_name(name)))
    except IntegrityError as error:
        raise NameTaken(f"there is a view called {name!r}") from error
    return done.rowcount == 1


async def remove(database: Database, reader: Reader, view_id: UUID) -> bool:
    """False where there is no such view."""
    async with database.transaction(reader) as connection:
        gone = sa.delete(saved_views).where(_shared_with(reader), saved_views.c.id == view_id)
        return (await connection.execute(gone)).rowcount == 1


def tidy_name(name: str) -> str:
    """The name with single spaces. Raises ValueError for an empty one, or one that is too long."""
    tidy = " ".join(name.replace("\x00", "").split())
    if not 0 < len(tidy) <= LONGEST_NAME:
        raise ValueError(f"a view's name has 1 to {LONGEST_NAME} characters, not {len(tidy)}")
    return tidy


_SHOWN: tuple[Any, ...] = (saved_views.c.id.label("view_id"), saved_views.c.name, saved_views.c.query)


def _shared_with(reader: Reader) -> sa.ColumnElement[bool]:
    of_team = saved_views.c.team_id.is_not_distinct_from(reader.team_id)
    return sa.and_(saved_views.c.workspace_id == reader.workspace_id, of_team)
