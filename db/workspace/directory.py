"""Workspaces, their teams, members and contacts.

What changes one says who does it (`by`; None: whose process this is), and is kept in the change log.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.exc import IntegrityError

from db.core.database import EVERY_WORKSPACE, Database, Reader, Scope
from db.core.identity import e164
from db.core.rows import read, within
from db.core.tables import contacts, members, teams, voice_centroids, workspaces
from db.workspace.admin_log import Actor, Changing, NotInDirectory, changing
from pipeline.domain.insight import Contact
from pipeline.domain.summaries import SummaryTemplate

_TEMPLATE = TypeAdapter(SummaryTemplate)
log = logging.getLogger(__name__)
MOST_TERMS, LONGEST_TERM = 500, 60  # recognition takes about fifty at a time, the most relevant first


class AlreadyThere(ValueError):
    """The id is taken."""


class NoSuchTeam(NotInDirectory):
    """No such team in the workspace, or no such workspace."""


class UnreadableNumber(ValueError):
    """A telephone number that cannot be read."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Whose calls they are. `default_country` (ISO 3166 alpha-2) reads national numbers; `time_zone` is IANA's name.

    `terms` are the workspace's own words (products, places, jargon), which recognition listens for. `keep_digits`:
    whether labels say which keys were pressed in a call, and not only how many. `allowed_hosts`: hosts inside an own
    network that this workspace's recordings may be fetched from, and nobody else's. `summary`: its template; None: that
    of the call's language.
    """

    workspace_id: UUID
    name: str
    default_country: str | None  # ISO 3166 alpha-2, to read national numbers
    time_zone: str  # IANA
    terms: tuple[str, ...] = ()
    keep_digits: bool = False
    allowed_hosts: tuple[str, ...] = ()
    summary: SummaryTemplate | None = None


@dataclass(frozen=True, slots=True)
class Team:
    """A part of a workspace; every call belongs to one. `channels_swapped`: its PBX records the customer first.

    `summary`: its template of summaries; None: its workspace's.
    """

    team_id: UUID
    workspace_id: UUID
    name: str
    channels_swapped: bool = False
    summary: SummaryTemplate | None = None


@dataclass(frozen=True, slots=True)
class DirectoryMember:
    """A person of a workspace; `user_id` is the sender's userId. In no team: known to all of them."""

    user_id: UUID
    workspace_id: UUID
    team_id: UUID | None
    name: str
    aliases: tuple[str, ...]


def tidy_terms(terms: Iterable[str]) -> tuple[str, ...]:
    """Terms with single spaces, without empty ones and repetitions, in the order given.

    ValueError where one is longer than `LONGEST_TERM` characters or there are more than `MOST_TERMS`.
    """
    tidy = tuple(dict.fromkeys(filter(None, (" ".join(term.replace("\x00", "").split()) for term in terms))))
    if len(tidy) > MOST_TERMS:
        raise ValueError(f"a workspace has at most {MOST_TERMS} terms, not {len(tidy)}")
    too_long = next((term for term in tidy if len(term) > LONGEST_TERM), None)
    if too_long is not None:
        raise ValueError(f"a term has at most {LONGEST_TERM} characters, but one begins with {too_long[:20]!r}")
    return tidy


async def create_workspace(
    database: Database,
    name: str,
    default_country: str | None = None,
    time_zone: str = "UTC",
    terms: Iterable[str] = (),
) -> Workspace:
    """A new workspace. `terms` as `set_terms` takes them."""
    made = Workspace(uuid4(), name, default_country, time_zone, tidy_terms(terms))
    values = {"id": made.workspace_id, "name": name, "default_country": default_country, "time_zone": time_zone}
    async with changing(database, made.workspace_id, new=True) as change:
        await change.run(sa.insert(workspaces).values(**values, terms=list(made.terms)))
        await change.note("created", "workspace", made.workspace_id, name)
    return made


async def update_workspace(
    database: Database, workspace_id: UUID, changes: Mapping[str, Any], by: Actor | None = None
) -> Workspace:
    """Change `name`, `default_country`, `time_zone` or `summary`, for calls worked on from now on. Raises
    NotInDirectory."""
    return await set_columns(database, workspace_id, by, **changes)


async def find_workspace(database: Database, workspace_id: UUID) -> Workspace:
    """Raises NotInDirectory."""
    return _workspace(await the_one(database, workspace_id, sa.select(workspaces)))


async def list_workspaces(database: Database) -> list[Workspace]:
    """All workspaces, oldest first."""
    rows = await execute(database, EVERY_WORKSPACE, sa.select(workspaces).order_by(workspaces.c.created_at))
    return [_workspace(row) for row in rows]


async def create_team(
    database: Database,
    workspace_id: UUID,
    name: str,
    team_id: UUID | None = None,
    channels_swapped: bool = False,
    by: Actor | None = None,
) -> Team:
    """A new team. Raises NotInDirectory for an unknown workspace, AlreadyThere where its id is taken."""
    made = Team(team_id or uuid4(), workspace_id, name, channels_swapped)
    values = {"id": made.team_id, "name": name, "channels_swapped": channels_swapped}
    async with _changing(database, workspace_id, by) as change:
        await _insert(change, insert(teams).values(workspace_id=workspace_id, **values))
        await change.note("created", "team", made.team_id, name, team_id=made.team_id)
    return made


async def update_team(database: Database, team: Team, changes: Mapping[str, Any], by: Actor | None = None) -> Team:
    """Change `name`, `channels_swapped`, which is for recordings submitted from now on, or `summary`, for calls that
    are analyzed from now on. Raises NotInDirectory."""
    async with _changing(database, team.workspace_id, by) as change:
        return _team(await update(change, teams, the_team(team.workspace_id, team.team_id), changes, "team"))


async def list_teams(database: Database, workspace_id: UUID | None = None) -> list[Team]:
    """All teams, or those of a workspace, oldest first."""
    query = within(sa.select(teams), teams.c.workspace_id, workspace_id).order_by(teams.c.created_at)
    rows = await execute(database, workspace_id or EVERY_WORKSPACE, query)
    return [_team(row) for row in rows]


async def add_member(
    database: Database,
    workspace_id: UUID,
    name: str,
    user_id: UUID | None = None,
    team_id: UUID | None = None,
    aliases: Iterable[str] = (),
    by: Actor | None = None,
    new: bool = False,
) -> DirectoryMember:
    """A member, or the new data of one whose `user_id` is known. Earlier calls with that userId are theirs at once.

    `new`: raise AlreadyThere where the `user_id` is known. Raises NotInDirectory for an unknown workspace or team.
    """
    made = DirectoryMember(user_id or uuid4(), workspace_id, team_id, name, tuple(aliases))
    data = {"team_id": team_id, "name": name, "aliases": list(made.aliases)}
    adding = insert(members).values(workspace_id=workspace_id, user_id=made.user_id, **data)
    async with _changing(database, workspace_id, by) as change:
        if new:
            await _insert(change, adding)
        else:
            await change.run(adding.on_conflict_do_update(index_elements=["workspace_id", "user_id"], set_=data))
        await change.note("created", "member", made.user_id, name, team_id=team_id)
    return made


async def update_member(
    database: Database, member: DirectoryMember, changes: Mapping[str, Any], by: Actor | None = None
) -> DirectoryMember:
    """Change `name`, `aliases` or `team_id` (None: in no team, known to all of them). Raises NotInDirectory."""
    async with _changing(database, member.workspace_id, by) as change:
        return _member(await update(change, members, _is(member, by), changes, "member"))


async def remove_member(database: Database, member: DirectoryMember, by: Actor | None = None) -> None:
    """Calls keep the userId; what the member sounds like is forgotten. Raises NotInDirectory."""
    own = (voice_centroids.c.workspace_id == member.workspace_id, voice_centroids.c.user_id == member.user_id)
    async with _changing(database, member.workspace_id, by) as change:
        gone = await change.run(sa.delete(members).where(_is(member, by)).returning(members))
        if not gone:
            raise NotInDirectory("it was removed meanwhile")
        await change.run(sa.delete(voice_centroids).where(*own))
        await change.note("removed", "member", member.user_id, gone[0].name, team_id=gone[0].team_id)


async def list_members(database: Database, workspace_id: UUID | None = None) -> list[DirectoryMember]:
    """All members, or those of a workspace, by name."""
    query = within(sa.select(members), members.c.workspace_id, workspace_id).order_by(members.c.name)
    rows = await execute(database, workspace_id or EVERY_WORKSPACE, query)
    return [_member(row) for row in rows]


async def add_contact(
    database: Database,
    workspace_id: UUID,
    name: str,
    company: str | None = None,
    email: str | None = None,
    phone: str | None = None,
    contact_id: UUID | None = None,
    by: Actor | None = None,
) -> Contact:
    """A contact. `phone` is kept in E.164; ValueError where it cannot be read as a number.

    Raises NotInDirectory for an unknown workspace, AlreadyThere where the id is taken.
    """
    e164_ = await number(database, workspace_id, phone)
    made = contact_id or uuid4()
    data = {"name": name, "company": company, "email": email, "phone": e164_}
    async with _changing(database, workspace_id, by) as change:
        await _insert(change, insert(contacts).values(id=made, workspace_id=workspace_id, **data))
        await change.note("created", "contact", made)
    return Contact(str(made), name, company, email, e164_)


async def update_contact(
    database: Database, workspace_id: UUID, contact_id: UUID, changes: Mapping[str, Any], by: Actor | None = None
) -> Contact:
    """Change `name`, `company`, `email` or `phone`; None removes a value. Raises as `add_contact` does."""
    values = dict(changes)
    if "phone" in changes:
        values["phone"] = await number(database, workspace_id, changes["phone"])
    own = sa.and_(contacts.c.workspace_id == workspace_id, contacts.c.id == contact_id)
    async with _changing(database, workspace_id, by) as change:
        return _contact(await update(change, contacts, own, values, "contact"))


async def remove_contact(database: Database, workspace_id: UUID, contact_id: UUID, by: Actor | None = None) -> None:
    """Calls keep what was said in them, and are no longer linked to the contact. Raises NotInDirectory."""
    own = sa.and_(contacts.c.workspace_id == workspace_id, contacts.c.id == contact_id)
    async with _changing(database, workspace_id, by) as change:
        if not await change.run(sa.delete(contacts).where(own).returning(contacts.c.id)):
            raise NotInDirectory("it was removed meanwhile")
        await change.note("removed", "contact", contact_id)


async def list_contacts(database: Database, workspace_id: UUID | None = None) -> list[Contact]:
    """All contacts, or those of a workspace, by name."""
    query = within(sa.select(contacts), contacts.c.workspace_id, workspace_id).order_by(contacts.c.name)
    rows = await execute(database, workspace_id or EVERY_WORKSPACE, query)
    return [_contact(row) for row in rows]


async def number(database: Database, workspace_id: UUID, phone: str | None) -> str | None:
    """A telephone number in E.164, read as in the workspace's country. Raises UnreadableNumber."""
    home = await the_one(database, workspace_id, sa.select(workspaces))
    found = e164(phone, home.default_country) if phone else None
    if phone and found is None:
        raise UnreadableNumber("the phone number cannot be read; write it with + and the country's code")
    return found


async def find_team(database: Database, reader: Reader, team_id: UUID) -> Team | None:
    """The team, if the reader may see it."""
    rows = await execute(database, reader, sa.select(teams).where(the_team(reader.workspace_id, team_id)))
    return _team(rows[0]) if rows else None


async def find_member(database: Database, reader: Reader, user_id: UUID) -> DirectoryMember | None:
    """The member, if the reader may see it."""
    own = sa.and_(members.c.workspace_id == reader.workspace_id, members.c.user_id == user_id)
    rows = await execute(database, reader, sa.select(members).where(own))
    return _member(rows[0]) if rows else None


async def find_contact(database: Database, reader: Reader, contact_id: UUID) -> Contact | None:
    """The contact, if the reader may see it."""
    own = sa.and_(contacts.c.workspace_id == reader.workspace_id, contacts.c.id == contact_id)
    rows = await execute(database, reader, sa.select(contacts).where(own))
    return _contact(rows[0]) if rows else None


@asynccontextmanager
async def _changing(database: Database, workspace_id: UUID, by: Actor | None) -> AsyncIterator[Changing]:
    """As `admin_log.changing`; a team that is none of the workspace's raises NotInDirectory."""
    try:
        async with changing(database, workspace_id, by) as change:
            yield change
    except IntegrityError as error:
        raise NoSuchTeam("no such workspace, or no such team in it") from error


async def _insert(change: Changing, statement: Insert) -> None:
    if not await change.run(statement.on_conflict_do_nothing().returning(sa.literal(1))):
        raise AlreadyThere("This id is taken.")


_SHARED = {"contact": (), "member": ("name", "team_id"), "team": ("name", "id")}
"""What the change log keeps beside the id: of contacts, who are customers, nothing; name and team of others."""


async def update(
    change: Changing, table: sa.Table, where: sa.ColumnElement[bool], changes: Mapping[str, Any], kind: str
) -> sa.Row[Any]:
    """The row with what is changed, and a line in the change log. Raises NotInDirectory where there is none."""
    values = _stored(changes) | ({"updated_at": sa.func.now()} if "updated_at" in table.c else {})
    rows = await change.run(sa.update(table).where(where).values(**values).returning(table))
    if not rows:
        raise NotInDirectory(f"there is no such {kind}")
    row = rows[0]._mapping
    name, team = (row[column] for column in _SHARED[kind]) if _SHARED[kind] else ("", None)
    id_ = row["user_id"] if kind == "member" else row["id"]
    await change.note("changed", kind, id_, name, ", ".join(changes), team)
    return rows[0]


def the_team(workspace_id: UUID, team_id: UUID | None) -> sa.ColumnElement[bool]:
    """The condition for a team of a workspace."""
    return sa.and_(teams.c.id == team_id, teams.c.workspace_id == workspace_id)


def _is(member: DirectoryMember, by: Actor | None) -> sa.ColumnElement[bool]:
    """The member; for who is bound to a team, only while it is a member of that team."""
    own = sa.and_(members.c.workspace_id == member.workspace_id, members.c.user_id == member.user_id)
    return own if by is None or by.team_id is None else sa.and_(own, members.c.team_id == by.team_id)


def _team(row: sa.Row[Any]) -> Team:
    return read(Team, row, team_id=row.id, summary=template(row.summary))


def _member(row: sa.Row[Any]) -> DirectoryMember:
    return read(DirectoryMember, row, aliases=tuple(row.aliases))


def _contact(row: sa.Row[Any]) -> Contact:
    return read(Contact, row, contact_id=str(row.id))


def _workspace(row: sa.Row[Any]) -> Workspace:
    lists = {"terms": tuple(row.terms), "allowed_hosts": tuple(row.allowed_hosts)}
    return read(Workspace, row, workspace_id=row.id, summary=template(row.summary), **lists)


def template(held: Any) -> SummaryTemplate | None:
    """A template of summaries as it is stored; None for one that only a later version of the service can read."""
    try:
        return None if held is None else _TEMPLATE.validate_python(held)
    except ValidationError:
        log.warning("a template of summaries cannot be read here")
        return None


def _stored(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as they are stored."""
    if "summary" not in changes:
        return dict(changes)
    summary = changes["summary"]
    return {**changes, "summary": sa.null() if summary is None else _TEMPLATE.dump_python(summary, mode="json")}


async def set_columns(database: Database, workspace_id: UUID, by: Actor | None = None, **values: Any) -> Workspace:
    """Change columns of a workspace. Raises NotInDirectory."""
    statement = sa.update(workspaces).where(workspaces.c.id == workspace_id).values(**_stored(values))
    async with changing(database, workspace_id, by) as change:
        (row,) = await change.run(statement.returning(workspaces))
        await change.note("changed", "workspace", workspace_id, row.name, ", ".join(values))
    return _workspace(row)


async def the_one(database: Database, workspace_id: UUID, statement: Any) -> sa.Row[Any]:
    """The workspace's row of a SELECT. Raises NotInDirectory."""
    rows = await execute(database, workspace_id, statement.where(workspaces.c.id == workspace_id))
    if not rows:
        raise NotInDirectory(f"there is no workspace {workspace_id}")
    return rows[0]


async def execute(database: Database, scope: Scope, statement: sa.Executable) -> list[sa.Row[Any]]:
    """The rows of a statement, in a transaction of its own. Raises NotInDirectory."""
    try:
        async with database.transaction(scope) as connection:
            result = await connection.execute(statement)
            return list(result.all()) if result.returns_rows else []
    except IntegrityError as error:
        raise NotInDirectory("no such workspace, or no such team in it") from error
