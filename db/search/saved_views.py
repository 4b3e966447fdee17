"""Filters and search of the list of calls, saved by name.

A view belongs to a workspace, or to one of its teams: readers of the same calls share it.
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

MAX_VIEWS, MAX_NAME_LENGTH, MAX_QUERY_LENGTH = 50, 60, 4_000  # of one scope; characters


@dataclass(frozen=True, slots=True)
class SavedView:
    """A saved view. `query`: the filters, as in the address of the list."""

    view_id: UUID
    name: str
    query: str


class TooManyViews(ValueError):
    """The scope has `MAX_VIEWS` views."""


class NameTaken(ValueError):
    """Another view has this name."""


async def list_views(database: Database, reader: Reader) -> list[SavedView]:
    """Return the views of the reader's workspace, or of its team, by name."""
    query = (
        sa.select(*_COLUMNS).where(_shared_with(reader)).order_by(sa.func.lower(saved_views.c.name), saved_views.c.id)
    )
    return [read(SavedView, row) for row in await database.rows(reader, query)]


async def save(database: Database, reader: Reader, name: str, query: str) -> SavedView:
    """Save a view, or the new filters of the view with this name. Raises ValueError, TooManyViews."""
    if len(query) > MAX_QUERY_LENGTH:
        raise ValueError(f"the filters have more than {MAX_QUERY_LENGTH} characters")
    values = {"workspace_id": reader.workspace_id, "team_id": reader.team_id, "name": tidy_name(name), "query": query}
    scope = [sa.text("workspace_id"), sa.text("coalesce(team_id, workspace_id)"), sa.text("name")]
    upsert = insert(saved_views).values(**values).on_conflict_do_update(index_elements=scope, set_={"query": query})
    workspace = sa.select(workspaces.c.id).where(workspaces.c.id == reader.workspace_id)
    count = sa.select(sa.func.count()).where(_shared_with(reader))
    async with database.transaction(reader) as connection:
        await connection.execute(workspace.with_for_update(key_share=True))  # counts concurrent saves
        view = read(SavedView, (await connection.execute(upsert.returning(*_COLUMNS))).one())
        if (await connection.execute(count)).scalar_one() > MAX_VIEWS:
            raise TooManyViews(f"{MAX_VIEWS} views exist, the maximum")
    return view


async def rename(database: Database, reader: Reader, view_id: UUID, name: str) -> bool:
    """Rename a view; return False if it does not exist. Raises ValueError, NameTaken."""
    update = sa.update(saved_views).where(_shared_with(reader), saved_views.c.id == view_id)
    try:
        return await database.change(reader, update.values(name=tidy_name(name))) == 1
    except IntegrityError as error:
        raise NameTaken(f"a view named {name!r} exists") from error


async def remove(database: Database, reader: Reader, view_id: UUID) -> bool:
    """Remove a view; return False if it does not exist."""
    deletion = sa.delete(saved_views).where(_shared_with(reader), saved_views.c.id == view_id)
    return await database.change(reader, deletion) == 1


def tidy_name(name: str) -> str:
    """Return the name with single spaces. Raises ValueError if it is empty or too long."""
    cleaned = " ".join(name.replace("\x00", "").split())
    if not 0 < len(cleaned) <= MAX_NAME_LENGTH:
        raise ValueError(f"a view's name has 1 to {MAX_NAME_LENGTH} characters, not {len(cleaned)}")
    return cleaned


_COLUMNS: tuple[Any, ...] = (saved_views.c.id.label("view_id"), saved_views.c.name, saved_views.c.query)


def _shared_with(reader: Reader) -> sa.ColumnElement[bool]:
    of_team = saved_views.c.team_id.is_not_distinct_from(reader.team_id)
    return sa.and_(saved_views.c.workspace_id == reader.workspace_id, of_team)
