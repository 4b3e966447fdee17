"""Workspaces, their teams, members and contacts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from db.database import EVERY_WORKSPACE, Database, Scope
from db.identity import e164
from db.rows import read, within
from db.tables import calls, contacts, members, stage_results, teams, transcripts, voice_centroids, workspaces
from pipeline.domain.insight import Contact
from pipeline.domain.stage import Stage

MOST_TERMS, LONGEST_TERM = 500, 60  # recognition takes about fifty at a time, the most relevant first


class NotInDirectory(LookupError):
    """A workspace or team that does not exist, or a team of another workspace."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Whose calls they are. `default_country` (ISO 3166 alpha-2) reads national numbers; `time_zone` is IANA's name.

    `terms` are the workspace's own words (products, places, jargon), which recognition listens for. `keep_digits`:
    whether labels say which keys were pressed in a call, and not only how many. `allowed_hosts`: hosts inside an own
    network that this workspace's recordings may be fetched from, and nobody else's.
    """

    workspace_id: UUID
    name: str
    default_country: str | None  # ISO 3166 alpha-2, to read national numbers
    time_zone: str  # IANA
    terms: tuple[str, ...] = ()
    keep_digits: bool = False
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Team:
    """A part of a workspace; every call belongs to one. `channels_swapped`: its PBX records the customer first."""

    team_id: UUID
    workspace_id: UUID
    name: str
    channels_swapped: bool = False


@dataclass(frozen=True, slots=True)
class Priorities:
    """Shares of turns at the queue; a team's counts times its workspace's."""

    workspace: str
    priority: float
    live_seconds: int  # a call is live that ended less than so long before it was submitted
    teams: dict[str, float]


@dataclass(frozen=True, slots=True)
class DirectoryMember:
    """A person of a workspace; `user_id` is the sender's userId. In no team: known to all of them."""

    user_id: UUID
    workspace_id: UUID
    team_id: UUID | None
    name: str
    aliases: tuple[str, ...]


async def create_workspace(
    database: Database,
    name: str,
    default_country: str | None = None,
    time_zone: str = "UTC",
    workspace_id: UUID | None = None,
    terms: Iterable[str] = (),
) -> Workspace:
    """A new workspace; `workspace_id` where it must have a given one. `terms` as `set_terms` takes them."""
    made = Workspace(workspace_id or uuid4(), name, default_country, time_zone, tidy_terms(terms))
    values = {"id": made.workspace_id, "name": name, "default_country": default_country, "time_zone": time_zone}
    await _execute(database, made.workspace_id, sa.insert(workspaces).values(**values, terms=list(made.terms)))
    return made


async def update_workspace(database: Database, workspace_id: UUID, changes: Mapping[str, Any]) -> Workspace:
    """Change `name`, `default_country` or `time_zone`, for calls worked on from now on. Raises NotInDirectory."""
    return await _set(database, workspace_id, **changes)


async def list_workspaces(database: Database) -> list[Workspace]:
    """All workspaces, oldest first."""
    rows = await _execute(database, EVERY_WORKSPACE, sa.select(workspaces).order_by(workspaces.c.created_at))
    return [_workspace(row) for row in rows]


async def set_terms(database: Database, workspace_id: UUID, terms: Iterable[str]) -> Workspace:
    """Replace a workspace's terms. Calls that are recognized from now on use them.

    Raises NotInDirectory for an unknown workspace, ValueError for what `tidy_terms` does not take.
    """
    return await _set(database, workspace_id, terms=list(tidy_terms(terms)))


async def set_keep_digits(database: Database, workspace_id: UUID, keep: bool) -> Workspace:
    """Whether calls that are heard from now on keep which keys were pressed; never what may hold a card number.

    False removes those that earlier calls kept as well. Raises NotInDirectory for an unknown workspace.
    """
    changed = await _set(database, workspace_id, keep_digits=keep)
    if not keep:
        await _drop_digits(database, workspace_id)
    return changed


async def set_allowed_hosts(database: Database, workspace_id: UUID, hosts: Iterable[str]) -> Workspace:
    """The hosts, addresses and networks that this workspace's recordings may be fetched from beside the open Internet.

    Entries are taken as they are: the caller has parsed them (`pipeline.fetch.address.parse_allowed`). Raises
    NotInDirectory for an unknown workspace.
    """
    return await _set(database, workspace_id, allowed_hosts=list(dict.fromkeys(hosts)))


async def allowed_hosts(database: Database, workspace_id: UUID) -> tuple[str, ...]:
    """See `set_allowed_hosts`; empty for an unknown workspace."""
    query = sa.select(workspaces.c.allowed_hosts).where(workspaces.c.id == workspace_id)
    rows = await _execute(database, workspace_id, query)
    return tuple(rows[0].allowed_hosts) if rows else ()


async def _drop_digits(database: Database, workspace_id: UUID) -> None:
    """In batches, so that no call of the workspace is held up."""
    batch = sa.select(calls.c.id).where(calls.c.workspace_id == workspace_id).order_by(calls.c.id).limit(500)
    last = -1
    while ids := [row.id for row in await _execute(database, workspace_id, batch.where(calls.c.id > last))]:
        last = ids[-1]
        for table, column in ((stage_results, "result"), (transcripts, "content")):
            held = table.c[column]
            some = sa.and_(table.c.call_pk.in_(ids), held != sa.func.without_digits(held))
            if table is stage_results:
                some &= table.c.stage.in_((Stage.AUDIO, Stage.SPEAKERS))
            await _execute(
                database, workspace_id, sa.update(table).where(some).values({column: sa.func.without_digits(held)})
            )


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


async def set_priority(
    database: Database,
    workspace_id: UUID,
    value: float | None = None,
    team_id: UUID | None = None,
    live_seconds: int | None = None,
) -> Priorities:
    """Change what is given, and say how it is: the priority of the workspace, or of `team_id`; 0.01 to 100.

    Raises NotInDirectory for an unknown workspace or team, and for a value outside its range.
    """
    if live_seconds is not None:
        await _set(database, workspace_id, live_seconds=live_seconds)
    if value is not None and team_id is None:
        await _set(database, workspace_id, priority=value)
    elif value is not None:
        own = sa.and_(teams.c.id == team_id, teams.c.workspace_id == workspace_id)
        update = sa.update(teams).where(own).values(priority=value).returning(teams.c.id)
        if not await _execute(database, workspace_id, update):
            raise NotInDirectory(f"there is no team {team_id} in the workspace")
    home = await _the_one(database, workspace_id, sa.select(workspaces))
    of_it = sa.select(teams.c.name, teams.c.priority).where(teams.c.workspace_id == workspace_id).order_by(teams.c.name)
    shares = await _execute(database, workspace_id, of_it)
    return Priorities(home.name, home.priority, home.live_seconds, {row.name: row.priority for row in shares})


async def create_team(
    database: Database, workspace_id: UUID, name: str, team_id: UUID | None = None, channels_swapped: bool = False
) -> Team:
    """A new team; raises NotInDirectory for an unknown workspace."""
    made = Team(team_id or uuid4(), workspace_id, name, channels_swapped)
    values = {"id": made.team_id, "name": name, "channels_swapped": channels_swapped}
    await _execute(database, workspace_id, sa.insert(teams).values(workspace_id=workspace_id, **values))
    return made


async def update_team(database: Database, team: Team, changes: Mapping[str, Any]) -> Team:
    """Change `name` or `channels_swapped`, which is for recordings submitted from now on. Raises NotInDirectory."""
    return _team(await _changed(database, team.workspace_id, teams, teams.c.id == team.team_id, changes))


async def list_teams(database: Database, workspace_id: UUID | None = None) -> list[Team]:
    """All teams, or those of a workspace, oldest first."""
    query = within(sa.select(teams), teams.c.workspace_id, workspace_id).order_by(teams.c.created_at)
    rows = await _execute(database, workspace_id or EVERY_WORKSPACE, query)
    return [_team(row) for row in rows]


async def add_member(
    database: Database,
    workspace_id: UUID,
    name: str,
    user_id: UUID | None = None,
    team_id: UUID | None = None,
    aliases: Iterable[str] = (),
) -> DirectoryMember:
    """A member, or the new data of one whose `user_id` is known. Earlier calls with that userId are theirs at once."""
    made = DirectoryMember(user_id or uuid4(), workspace_id, team_id, name, tuple(aliases))
    data = {"team_id": team_id, "name": name, "aliases": list(made.aliases)}
    await _execute(
        database,
        workspace_id,
        insert(members)
        .values(workspace_id=workspace_id, user_id=made.user_id, **data)
        .on_conflict_do_update(index_elements=["workspace_id", "user_id"], set_=data),
    )
    return made


async def update_member(database: Database, member: DirectoryMember, changes: Mapping[str, Any]) -> DirectoryMember:
    """Change `name`, `aliases` or `team_id` (None: in no team, known to all of them). Raises NotInDirectory."""
    return _member(await _changed(database, member.workspace_id, members, _is(member), changes))


async def remove_member(database: Database, member: DirectoryMember) -> None:
    """Calls keep the userId; what the member sounds like is forgotten."""
    own = (voice_centroids.c.workspace_id == member.workspace_id, voice_centroids.c.user_id == member.user_id)
    async with database.transaction(member.workspace_id) as connection:
        await connection.execute(sa.delete(voice_centroids).where(*own))
        await connection.execute(sa.delete(members).where(_is(member)))


async def list_members(database: Database, workspace_id: UUID | None = None) -> list[DirectoryMember]:
    """All members, or those of a workspace, by name."""
    query = within(sa.select(members), members.c.workspace_id, workspace_id).order_by(members.c.name)
    rows = await _execute(database, workspace_id or EVERY_WORKSPACE, query)
    return [_member(row) for row in rows]


async def add_contact(
    database: Database,
    workspace_id: UUID,
    name: str,
    company: str | None = None,
    email: str | None = None,
    phone: str | None = None,
) -> Contact:
    """A contact. `phone` is kept in E.164; ValueError where it cannot be read as a number."""
    number = await _number(database, workspace_id, phone)
    made = uuid4()
    data = {"name": name, "company": company, "email": email, "phone": number}
    await _execute(database, workspace_id, sa.insert(contacts).values(id=made, workspace_id=workspace_id, **data))
    return Contact(str(made), name, company, email, number)


async def update_contact(
    database: Database, workspace_id: UUID, contact_id: UUID, changes: Mapping[str, Any]
) -> Contact:
    """Change `name`, `company`, `email` or `phone`; None removes a value. Raises as `add_contact` does."""
    values = dict(changes) | {"updated_at": sa.func.now()}
    if "phone" in changes:
        values["phone"] = await _number(database, workspace_id, changes["phone"])
    return _contact(await _changed(database, workspace_id, contacts, contacts.c.id == contact_id, values))


async def remove_contact(database: Database, workspace_id: UUID, contact_id: UUID) -> None:
    """Calls keep what was said in them, and are no longer linked to the contact."""
    await _execute(database, workspace_id, sa.delete(contacts).where(contacts.c.id == contact_id))


async def list_contacts(database: Database, workspace_id: UUID | None = None) -> list[Contact]:
    """All contacts, or those of a workspace, by name."""
    query = within(sa.select(contacts), contacts.c.workspace_id, workspace_id).order_by(contacts.c.name)
    rows = await _execute(database, workspace_id or EVERY_WORKSPACE, query)
    return [_contact(row) for row in rows]


async def _number(database: Database, workspace_id: UUID, phone: str | None) -> str | None:
    """In E.164. ValueError where it cannot be read."""
    home = await _the_one(database, workspace_id, sa.select(workspaces))
    number = e164(phone, home.default_country) if phone else None
    if phone and number is None:
        raise ValueError("the phone number cannot be read; write it with + and the country's code")
    return number


async def _changed(
    database: Database, workspace_id: UUID, table: sa.Table, where: sa.ColumnElement[bool], changes: Mapping[str, Any]
) -> sa.Row[Any]:
    rows = await _execute(database, workspace_id, sa.update(table).where(where).values(**changes).returning(table))
    if not rows:
        raise NotInDirectory("it was removed meanwhile")
    return rows[0]


def _is(member: DirectoryMember) -> sa.ColumnElement[bool]:
    return sa.and_(members.c.workspace_id == member.workspace_id, members.c.user_id == member.user_id)


def _team(row: sa.Row[Any]) -> Team:
    return read(Team, row, team_id=row.id)


def _member(row: sa.Row[Any]) -> DirectoryMember:
    return read(DirectoryMember, row, aliases=tuple(row.aliases))


def _contact(row: sa.Row[Any]) -> Contact:
    return read(Contact, row, contact_id=str(row.id))


def _workspace(row: sa.Row[Any]) -> Workspace:
    lists = {"terms": tuple(row.terms), "allowed_hosts": tuple(row.allowed_hosts)}
    return read(Workspace, row, workspace_id=row.id, **lists)


async def _set(database: Database, workspace_id: UUID, **values: Any) -> Workspace:
    changed = sa.update(workspaces).values(**values).returning(workspaces)
    return _workspace(await _the_one(database, workspace_id, changed))


async def _the_one(database: Database, workspace_id: UUID, statement: Any) -> sa.Row[Any]:
    rows = await _execute(database, workspace_id, statement.where(workspaces.c.id == workspace_id))
    if not rows:
        raise NotInDirectory(f"there is no workspace {workspace_id}")
    return rows[0]


async def _execute(database: Database, scope: Scope, statement: sa.Executable) -> list[sa.Row[Any]]:
    try:
        async with database.transaction(scope) as connection:
            result = await connection.execute(statement)
            return list(result.all()) if result.returns_rows else []
    except IntegrityError as error:
        raise NotInDirectory("no such workspace, or no such team in it") from error
