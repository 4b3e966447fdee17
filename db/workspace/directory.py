"""Workspaces, their teams, members and contacts.

Each change takes its actor (`by`; None: the operator of this process) and is logged in the change log.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID, uuid4

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.exc import IntegrityError

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.core.rows import filter_by, read
from db.core.tables import contacts, members, teams, voice_centroids, workspaces
from db.workspace import legal_holds
from db.workspace.admin_log import Actor, Changing, NotInDirectory, changing
from pipeline.domain.insight import Contact
from pipeline.domain.summaries import SummaryTemplate
from pipeline.domain.telephone import e164

_TEMPLATE = TypeAdapter(SummaryTemplate)
log = logging.getLogger(__name__)
MAX_TERMS, MAX_TERM_LENGTH = 500, 60  # recognition uses about fifty at a time, the most relevant first


class AlreadyExists(ValueError):
    """The id is taken."""


class NoSuchTeam(NotInDirectory):
    """The workspace does not exist, or has no such team."""


class UnreadableNumber(ValueError):
    """An invalid telephone number."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A tenant that owns calls. `default_country` (ISO 3166 alpha-2) applies to national numbers; `time_zone` is an
    IANA name.

    `terms` are the workspace's vocabulary (products, places, jargon), which recognition favors. `keep_digits`: whether
    labels contain the pressed keys of a call, or only their number. `allowed_hosts`: hosts in a private network that
    only this workspace's recordings may be fetched from. `summary`: its template; None: that of the call's language.
    `voiceprints`: whose are stored, as `KeptVoices`.
    """

    workspace_id: UUID
    name: str
    default_country: str | None  # ISO 3166 alpha-2, to read national numbers
    time_zone: str  # IANA
    terms: tuple[str, ...] = ()
    keep_digits: bool = False
    allowed_hosts: tuple[str, ...] = ()
    summary: SummaryTemplate | None = None
    voiceprints: Literal["off", "consented", "all"] = "off"


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
    """A person of a workspace; `user_id` is the sender's userId. Without a team: of all teams."""

    user_id: UUID
    workspace_id: UUID
    team_id: UUID | None
    name: str
    aliases: tuple[str, ...]


def tidy_terms(terms: Iterable[str]) -> tuple[str, ...]:
    """Return terms with single spaces, without empty ones and repetitions, in the given order.

    Raises ValueError if one is longer than `MAX_TERM_LENGTH` characters or there are more than `MAX_TERMS`.
    """
    cleaned = tuple(dict.fromkeys(filter(None, (" ".join(term.replace("\x00", "").split()) for term in terms))))
    if len(cleaned) > MAX_TERMS:
        raise ValueError(f"a workspace can have max. {MAX_TERMS} terms, not {len(cleaned)}")
    too_long = next((term for term in cleaned if len(term) > MAX_TERM_LENGTH), None)
    if too_long is not None:
        raise ValueError(f"a term can have max. {MAX_TERM_LENGTH} characters; too long: {too_long[:20]!r}...")
    return cleaned


async def create_workspace(
    database: Database, name: str, default_country: str | None = None, time_zone: str = "UTC", terms: Iterable[str] = ()
) -> Workspace:
    """Create a workspace. `terms`: see `set_terms`."""
    workspace = Workspace(uuid4(), name, default_country, time_zone, tidy_terms(terms))
    values = {"id": workspace.workspace_id, "name": name, "default_country": default_country, "time_zone": time_zone}
    async with changing(database, workspace.workspace_id, new=True) as change:
        await change.run(sa.insert(workspaces).values(**values, terms=list(workspace.terms)))
        await change.note("created", "workspace", workspace.workspace_id, name)
    return workspace


async def update_workspace(
    database: Database, workspace_id: UUID, changes: Mapping[str, Any], by: Actor | None = None
) -> Workspace:
    """Change `name`, `default_country`, `time_zone` or `summary`, for later calls. Raises NotInDirectory."""
    return await set_columns(database, workspace_id, by, **changes)


async def find_workspace(database: Database, workspace_id: UUID) -> Workspace:
    """Return a workspace. Raises NotInDirectory."""
    return _workspace(await workspace_row(database, workspace_id, sa.select(workspaces)))


async def list_workspaces(database: Database) -> list[Workspace]:
    """Return all workspaces, oldest first."""
    rows = await database.rows(EVERY_WORKSPACE, sa.select(workspaces).order_by(workspaces.c.created_at))
    return [_workspace(row) for row in rows]


async def create_team(
    database: Database,
    workspace_id: UUID,
    name: str,
    team_id: UUID | None = None,
    channels_swapped: bool = False,
    by: Actor | None = None,
) -> Team:
    """Create a team. Raises NotInDirectory for an unknown workspace, AlreadyExists if its id is taken."""
    team = Team(team_id or uuid4(), workspace_id, name, channels_swapped)
    values = {"id": team.team_id, "name": name, "channels_swapped": channels_swapped}
    async with _changing(database, workspace_id, by) as change:
        await _insert(change, insert(teams).values(workspace_id=workspace_id, **values))
        await change.note("created", "team", team.team_id, name, team_id=team.team_id)
    return team


async def update_team(database: Database, team: Team, changes: Mapping[str, Any], by: Actor | None = None) -> Team:
    """Change `name`, `channels_swapped` or `summary`, for later recordings and analyses. Raises NotInDirectory."""
    async with _changing(database, team.workspace_id, by) as change:
        return _team(await update(change, teams, is_team(team.workspace_id, team.team_id), changes, "team"))


async def list_teams(database: Database, workspace_id: UUID | None = None) -> list[Team]:
    """Return all teams, or those of a workspace, oldest first."""
    return [_team(row) for row in await _list(database, teams, "created_at", workspace_id)]


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
    """Add a member, or replace the data of the one with this `user_id`, to which earlier calls with it belong at once.

    `new`: raise AlreadyExists if the `user_id` exists. Raises NotInDirectory for an unknown workspace or team.
    """
    member = DirectoryMember(user_id or uuid4(), workspace_id, team_id, name, tuple(aliases))
    data = {"team_id": team_id, "name": name, "aliases": list(member.aliases)}
    insertion = insert(members).values(workspace_id=workspace_id, user_id=member.user_id, **data)
    async with _changing(database, workspace_id, by) as change:
        if new:
            await _insert(change, insertion)
        else:
            await change.run(insertion.on_conflict_do_update(index_elements=["workspace_id", "user_id"], set_=data))
        await change.note("created", "member", member.user_id, name, team_id=team_id)
    return member


async def update_member(
    database: Database, member: DirectoryMember, changes: Mapping[str, Any], by: Actor | None = None
) -> DirectoryMember:
    """Change `name`, `aliases` or `team_id` (None: of all teams). Raises NotInDirectory."""
    async with _changing(database, member.workspace_id, by) as change:
        return _member(await update(change, members, _is(member, by), changes, "member"))


async def remove_member(database: Database, member: DirectoryMember, by: Actor | None = None) -> None:
    """Remove a member and its voice profile; calls keep the userId. Raises NotInDirectory."""
    of_member = (voice_centroids.c.workspace_id == member.workspace_id, voice_centroids.c.user_id == member.user_id)
    async with _changing(database, member.workspace_id, by) as change:
        removed = await change.run(sa.delete(members).where(_is(member, by)).returning(members))
        if not removed:
            raise NotInDirectory("it has been removed")
        await change.run(sa.delete(voice_centroids).where(*of_member))
        await change.note("removed", "member", member.user_id, removed[0].name, team_id=removed[0].team_id)


async def list_members(database: Database, workspace_id: UUID | None = None) -> list[DirectoryMember]:
    """Return all members, or those of a workspace, by name."""
    return [_member(row) for row in await _list(database, members, "name", workspace_id)]


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
    """Add a contact. `phone` is stored in E.164; raises UnreadableNumber if it is not valid.

    Raises NotInDirectory for an unknown workspace, AlreadyExists if the id is taken.
    """
    e164_ = await number(database, workspace_id, phone)
    new_id = contact_id or uuid4()
    data = {"name": name, "company": company, "email": email, "phone": e164_}
    async with _changing(database, workspace_id, by) as change:
        await _insert(change, insert(contacts).values(id=new_id, workspace_id=workspace_id, **data))
        await change.note("created", "contact", new_id)
    return Contact(str(new_id), name, company, email, e164_)


async def update_contact(
    database: Database, workspace_id: UUID, contact_id: UUID, changes: Mapping[str, Any], by: Actor | None = None
) -> Contact:
    """Change `name`, `company`, `email` or `phone`; None removes a value. Raises as `add_contact` does."""
    values = dict(changes)
    if "phone" in changes:
        values["phone"] = await number(database, workspace_id, changes["phone"])
    is_contact = sa.and_(contacts.c.workspace_id == workspace_id, contacts.c.id == contact_id)
    async with _changing(database, workspace_id, by) as change:
        return _contact(await update(change, contacts, is_contact, values, "contact"))


async def remove_contact(database: Database, workspace_id: UUID, contact_id: UUID, by: Actor | None = None) -> None:
    """Remove a contact; calls keep their content without the link. Raises NotInDirectory, `legal_holds.OnHold`."""
    is_contact = sa.and_(contacts.c.workspace_id == workspace_id, contacts.c.id == contact_id)
    async with _changing(database, workspace_id, by) as change:
        await legal_holds.require_free_contact(change, contact_id)
        if not await change.run(sa.delete(contacts).where(is_contact).returning(contacts.c.id)):
            raise NotInDirectory("it has been removed")
        await change.note("removed", "contact", contact_id)


async def list_contacts(database: Database, workspace_id: UUID | None = None) -> list[Contact]:
    """Return all contacts, or those of a workspace, by name."""
    return [_contact(row) for row in await _list(database, contacts, "name", workspace_id)]


async def _list(database: Database, table: sa.Table, order: str, workspace_id: UUID | None) -> Sequence[sa.Row[Any]]:
    query = filter_by(sa.select(table), table.c.workspace_id, workspace_id).order_by(table.c[order])
    return await database.rows(workspace_id or EVERY_WORKSPACE, query)


async def number(database: Database, workspace_id: UUID, phone: str | None) -> str | None:
    """Return a telephone number of the workspace's country in E.164. Raises UnreadableNumber."""
    workspace = await workspace_row(database, workspace_id, sa.select(workspaces))
    normalized = e164(phone, workspace.default_country) if phone else None
    if phone and normalized is None:
        raise UnreadableNumber("the phone number is invalid; write it with + and the country code")
    return normalized


async def find_team(database: Database, reader: Reader, team_id: UUID) -> Team | None:
    """Return the team, if the reader may see it."""
    rows = await database.rows(reader, sa.select(teams).where(is_team(reader.workspace_id, team_id)))
    return _team(rows[0]) if rows else None


async def find_member(database: Database, reader: Reader, user_id: UUID) -> DirectoryMember | None:
    """Return the member, if the reader may see it."""
    is_member = sa.and_(members.c.workspace_id == reader.workspace_id, members.c.user_id == user_id)
    rows = await database.rows(reader, sa.select(members).where(is_member))
    return _member(rows[0]) if rows else None


async def find_contact(database: Database, reader: Reader, contact_id: UUID) -> Contact | None:
    """Return the contact, if the reader may see it."""
    is_contact = sa.and_(contacts.c.workspace_id == reader.workspace_id, contacts.c.id == contact_id)
    rows = await database.rows(reader, sa.select(contacts).where(is_contact))
    return _contact(rows[0]) if rows else None


@asynccontextmanager
async def _changing(database: Database, workspace_id: UUID, by: Actor | None) -> AsyncIterator[Changing]:
    """Open a transaction as `admin_log.changing`; an unknown team of the workspace raises NoSuchTeam."""
    try:
        async with changing(database, workspace_id, by) as change:
            yield change
    except IntegrityError as error:
        raise NoSuchTeam("workspace or team not found") from error


async def _insert(change: Changing, statement: Insert) -> None:
    if not await change.run(statement.on_conflict_do_nothing().returning(sa.literal(1))):
        raise AlreadyExists("This id is taken.")


_LOGGED_FIELDS = {"contact": (), "member": ("name", "team_id"), "team": ("name", "id")}
"""Fields that the change log stores besides the id: none of contacts, who are customers; else name and team."""


async def update(
    change: Changing, table: sa.Table, where: sa.ColumnElement[bool], changes: Mapping[str, Any], kind: str
) -> sa.Row[Any]:
    """Change a row, log the change and return the row. Raises NotInDirectory if it does not exist."""
    values = _stored(changes) | ({"updated_at": sa.func.now()} if "updated_at" in table.c else {})
    rows = await change.run(sa.update(table).where(where).values(**values).returning(table))
    if not rows:
        raise NotInDirectory(f"{kind} not found")
    row = rows[0]._mapping
    name, team = (row[column] for column in _LOGGED_FIELDS[kind]) if _LOGGED_FIELDS[kind] else ("", None)
    id_ = row["user_id"] if kind == "member" else row["id"]
    await change.note("changed", kind, id_, name, ", ".join(changes), team)
    return rows[0]


def is_team(workspace_id: UUID, team_id: UUID | None) -> sa.ColumnElement[bool]:
    return sa.and_(teams.c.id == team_id, teams.c.workspace_id == workspace_id)


def _is(member: DirectoryMember, by: Actor | None) -> sa.ColumnElement[bool]:
    """Return the condition for the member; for an actor bound to a team, only while the member is in it."""
    is_member = sa.and_(members.c.workspace_id == member.workspace_id, members.c.user_id == member.user_id)
    return is_member if by is None or by.team_id is None else sa.and_(is_member, members.c.team_id == by.team_id)


def _team(row: sa.Row[Any]) -> Team:
    return read(Team, row, team_id=row.id, summary=template(row.summary))


def _member(row: sa.Row[Any]) -> DirectoryMember:
    return read(DirectoryMember, row, aliases=tuple(row.aliases))


def _contact(row: sa.Row[Any]) -> Contact:
    return read(Contact, row, contact_id=str(row.id))


def _workspace(row: sa.Row[Any]) -> Workspace:
    lists = {"terms": tuple(row.terms), "allowed_hosts": tuple(row.allowed_hosts)}
    return read(Workspace, row, workspace_id=row.id, summary=template(row.summary), **lists)


def template(stored: Any) -> SummaryTemplate | None:
    """Return a stored template of summaries; None for one that only a later version can parse."""
    try:
        return None if stored is None else _TEMPLATE.validate_python(stored)
    except ValidationError:
        log.warning("a stored template of summaries cannot be parsed by this version")
        return None


def _stored(changes: Mapping[str, Any]) -> dict[str, Any]:
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


async def workspace_row(database: Database, workspace_id: UUID, statement: Any) -> sa.Row[Any]:
    """Return the workspace's row of a SELECT. Raises NotInDirectory."""
    row: sa.Row[Any] | None = await database.first(workspace_id, statement.where(workspaces.c.id == workspace_id))
    if row is None:
        raise NotInDirectory(f"no workspace {workspace_id}")
    return row
