from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database, Reader
from db.core.pages import Page, Place
from db.core.rows import read
from db.core.tables import calls, contacts, members, teams
from db.records.corrected_columns import calls_of_contact
from db.workspace.directory import Team
from pipeline.domain.insight import Contact


@dataclass(frozen=True, slots=True)
class ContactLine:
    """A contact with its calls: all of the workspace's, or of the reader's team."""

    contact_id: UUID
    name: str | None
    company: str | None
    email: str | None
    phone: str | None  # E.164
    source: str  # directory: entered by users; call: created from calls
    updated_at: datetime
    calls: int
    last_call: datetime | None  # when it started


@dataclass(frozen=True, slots=True)
class MemberLine:
    """A member; without a team: of all teams."""

    user_id: UUID
    name: str
    aliases: tuple[str, ...]
    team_id: UUID | None


async def list_contacts(
    database: Database, reader: Reader, text: str | None = None, cursor: str | None = None, limit: int = 50
) -> Page[ContactLine]:
    """Return contacts by name. `text`: part of name, company, e-mail address or number. Raises `InvalidCursor`."""
    place = Place.decode(cursor, ("contacts", text), ids=str)
    shown = sa.func.coalesce(contacts.c.name, contacts.c.company, contacts.c.email, contacts.c.phone, "")
    query = sa.select(*contacts.c, shown.label("shown"), *_calls_of_contact()).where(
        contacts.c.workspace_id == reader.workspace_id
    )
    if text:
        fields = (contacts.c.name, contacts.c.company, contacts.c.email, contacts.c.phone)
        query = query.where(sa.or_(*(field.icontains(text, autoescape=True) for field in fields)))
    rows, last_row = await _page(database, reader, query, (shown, contacts.c.id), place, limit)
    lines = tuple(read(ContactLine, row, contact_id=row.id) for row in rows)
    return Page(lines, last_row and Place(last_row.shown, str(last_row.id)).encode(("contacts", text)))


async def contacts_by_id(database: Database, reader: Reader, ids: Collection[UUID]) -> list[Contact]:
    """Return those of the contacts that the reader may see."""
    if not ids:
        return []
    query = sa.select(contacts).where(contacts.c.workspace_id == reader.workspace_id, contacts.c.id.in_(ids))
    return [read(Contact, row, contact_id=str(row.id)) for row in await database.rows(reader, query)]


def _calls_of_contact() -> tuple[Any, Any]:
    linked = sa.select(calls.c.start_time).where(calls.c.id.in_(calls_of_contact(contacts.c.id))).correlate(contacts)
    number = linked.with_only_columns(sa.func.count()).scalar_subquery()
    last = linked.with_only_columns(sa.func.max(calls.c.start_time)).scalar_subquery()
    return number.label("calls"), last.label("last_call")


async def list_members(
    database: Database, reader: Reader, team_id: UUID | None = None, cursor: str | None = None, limit: int = 50
) -> Page[MemberLine]:
    """Return members by name. Raises `pages.InvalidCursor`."""
    place = Place.decode(cursor, ("members", team_id), ids=str)
    query = sa.select(members).where(members.c.workspace_id == reader.workspace_id)
    if team_id is not None:
        query = query.where(members.c.team_id == team_id)
    rows, last_row = await _page(database, reader, query, (members.c.name, members.c.user_id), place, limit)
    lines = tuple(read(MemberLine, row, aliases=tuple(row.aliases)) for row in rows)
    return Page(lines, last_row and Place(last_row.name, str(last_row.user_id)).encode(("members", team_id)))


async def list_teams(database: Database, reader: Reader) -> list[Team]:
    """Return the teams that the reader may see, by name."""
    query = sa.select(teams).where(teams.c.workspace_id == reader.workspace_id).order_by(teams.c.name)
    return [read(Team, row, team_id=row.id) for row in await database.rows(reader, query)]


async def _page(
    database: Database, reader: Reader, query: sa.Select[Any], order: tuple[Any, Any], place: Place | None, limit: int
) -> tuple[Sequence[sa.Row[Any]], Any]:
    """Return the rows of a page, and its last row if there are more after it."""
    query = query.order_by(*order).limit(limit + 1)
    if place is not None:
        query = query.where(sa.tuple_(*order) > sa.tuple_(place.key, sa.cast(place.row, sa.Uuid())))
    rows = await database.rows(reader, query, snapshot=True)
    return rows[:limit], rows[limit - 1] if len(rows) > limit else None
