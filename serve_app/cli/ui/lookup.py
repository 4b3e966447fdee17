"""Workspaces, teams and other things as people name them: by name or by id."""

from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from serve_app.cli.ui import database as databases
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import NewName, Team, Workspace, as_uuid, check_new, parse_id
from serve_app.cli.ui.output import err

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace import directory
    from pipeline.domain.insight import Contact

__all__ = ["NewName", "Team", "Workspace", "as_uuid", "check_new"]


class Named(Protocol):
    @property
    def name(self) -> str | None: ...


N = TypeVar("N", bound=Named)
T = TypeVar("T")

DEFAULT = "default"  # the workspace and the team of a person who names none


def run(named: str | None, work: "Callable[[Database, directory.Workspace], Awaitable[T]]", writes: bool = False) -> T:
    """Do as `database.run`; `work` receives the workspace called `named` as well."""

    async def within(database: "Database") -> T:
        return await work(database, await workspace(database, named))

    return databases.run(within, writes)


async def workspace(database: "Database", named: str | None, create: bool = False) -> "directory.Workspace":
    """Return the workspace called `named`; without a name the only one.

    With `create`, a new name, or "default" where there is no workspace at all, is created, and stderr says so; a name
    that looks like a misspelt one is refused.
    """
    from db.workspace import directory

    workspaces = await directory.list_workspaces(database)
    if named is None and len(workspaces) == 1:
        return workspaces[0]
    if named is None and workspaces:
        raise CommandError(
            f"There are {len(workspaces)} workspaces: {_quoted(workspaces)}.", "Name it with --workspace NAME.", USAGE
        )
    if named is None and not create:
        raise CommandError("No workspace yet.", "`switchboard workspaces create NAME` creates one.")
    match = _find(workspaces, lambda one: one.workspace_id, named) if named else None
    if match is None:
        name = named or DEFAULT
        _refuse_unless_new(workspaces, name, "workspace", create)
        match = await directory.create_workspace(database, name)
        err().print(f"Created workspace {name!r}.", markup=False)
    return match


async def team(database: "Database", workspace_id: UUID, named: str, create: bool = False) -> "directory.Team":
    """Return the team called `named` in a workspace; created as a workspace is."""
    from db.workspace import directory

    teams = await directory.list_teams(database, workspace_id)
    match = _find(teams, lambda one: one.team_id, named)
    if match is None:
        _refuse_unless_new(teams, named, "team", create)
        match = await directory.create_team(database, workspace_id, named)
        err().print(f"Created team {named!r}.", markup=False)
    return match


async def workspace_id(database: "Database", named: str | None) -> UUID | None:
    """Return the id of the workspace called `named`; None, which is every workspace, without a name."""
    return (await workspace(database, named)).workspace_id if named else None


async def team_id(database: "Database", home: UUID, named: str | None) -> UUID | None:
    """Return the id of the team called `named` in a workspace; None without a name."""
    return (await team(database, home, named)).team_id if named else None


async def team_names(database: "Database", workspace_id: UUID) -> dict[UUID, str]:
    from db.workspace import directory

    return {team.team_id: team.name for team in await directory.list_teams(database, workspace_id)}


async def member(database: "Database", workspace_id: UUID, named: str) -> "directory.DirectoryMember":
    from db.workspace import directory

    return pick("member", await directory.list_members(database, workspace_id), lambda one: one.user_id, named)


async def contact(database: "Database", workspace_id: UUID, named: str) -> "Contact":
    from db.workspace import directory

    contacts = await directory.list_contacts(database, workspace_id)
    return pick("contact", contacts, lambda one: UUID(one.contact_id), named)


def pick(kind: str, items: Sequence[N], id_of: Callable[[N], UUID], named: str) -> N:
    """Return the one called `named`, or of that id. Raises `CommandError` that says what there is."""
    match = _find(items, id_of, named)
    if match is None:
        _refuse_unless_new(items, named, kind, create=False)
        raise AssertionError
    return match


def need_uuid(text: str, what: str) -> UUID:
    """`what` names the thing and the command that lists its ids."""
    return parse_id(what)(text)


def _find(items: Sequence[N], id_of: Callable[[N], UUID], named: str) -> N | None:
    by_id = as_uuid(named)
    matches = [
        item for item in items if (id_of(item) == by_id if by_id else (item.name or "").casefold() == named.casefold())
    ]
    if len(matches) > 1:
        ids = ", ".join(str(id_of(item)) for item in matches)
        raise CommandError(f"{len(matches)} are called {named!r}: {ids}.", "Name it by its id.", USAGE)
    return matches[0] if matches else None


def _refuse_unless_new(items: Sequence[Named], name: str, kind: str, create: bool) -> None:
    names = [(item.name or "").casefold() for item in items]
    near = get_close_matches(name.casefold(), names, n=1, cutoff=0.8)
    if create and not near and as_uuid(name) is None:
        return
    if near:
        advice = f"Did you mean {near[0]!r}? `switchboard {kind}s create {name}` creates a new one."
    elif names:
        advice = f"There are: {_quoted(items)}."
    else:
        advice = f"`switchboard {kind}s create NAME` creates one."
    raise CommandError(f"No {kind} {name!r}.", advice)


def _quoted(items: Sequence[Named]) -> str:
    return ", ".join(repr(item.name) for item in items[:10]) + (" ..." if len(items) > 10 else "")
