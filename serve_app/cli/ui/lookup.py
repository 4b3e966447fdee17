"""Workspaces and teams as people name them: by name or by id."""

import re
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar
from uuid import UUID

import typer

from serve_app.cli.ui import database as state
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import err

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace import directory
    from pipeline.domain.insight import Contact


class Named(Protocol):
    @property
    def name(self) -> str | None: ...


N = TypeVar("N", bound=Named)
T = TypeVar("T")

DEFAULT = "default"  # the workspace and the team of somebody who named none

Workspace = Annotated[
    str | None,
    typer.Option(
        "--workspace", "-w", metavar="NAME|ID", help="Not needed while there is only one.", show_default=False
    ),
]
Team = Annotated[
    str | None, typer.Option("--team", "-t", metavar="NAME|ID", help="A team of the workspace.", show_default=False)
]


NewName = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, dots, dashes and underscores.")]


def check_new(name: str, of: str) -> None:
    """Raise `CommandError` (2) for what cannot be the name of a run or of a gold set; `of` says which."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or as_uuid(name):
        hint = "Letters, digits, dots, dashes and underscores, at most 64; no UUID."
        raise CommandError(f"{name!r} cannot be the name of {of}.", hint, USAGE)


def run(named: str | None, work: "Callable[[Database, directory.Workspace], Awaitable[T]]", writes: bool = False) -> T:
    """As `state.run`; `work` is given the workspace called `named` as well."""

    async def within(database: "Database") -> T:
        return await work(database, await workspace(database, named))

    return state.run(within, writes)


async def workspace(database: "Database", named: str | None, create: bool = False) -> "directory.Workspace":
    """The workspace called `named`; without a name the only one.

    With `create`, a name that is not taken yet, or "default" where there is no workspace at all, is created, and
    stderr says so; a name that looks like a misspelt one is refused.
    """
    from db.workspace import directory

    known = await directory.list_workspaces(database)
    if named is None and len(known) == 1:
        return known[0]
    if named is None and known:
        raise CommandError(
            f"There are {len(known)} workspaces: {_quoted(known)}.", "Say which one with --workspace NAME.", USAGE
        )
    if named is None and not create:
        raise CommandError("There is no workspace yet.", "`switchboard workspaces create NAME` makes one.")
    found = _find(known, [one.workspace_id for one in known], named) if named else None
    if found is not None:
        return found
    name = named or DEFAULT
    _refuse_unless_new(known, name, "workspace", create)
    made = await directory.create_workspace(database, name)
    err().print(f"Created workspace {name!r}.", markup=False)
    return made


async def team(database: "Database", workspace_id: UUID, named: str, create: bool = False) -> "directory.Team":
    """The team called `named` in a workspace; created as a workspace is."""
    from db.workspace import directory

    known = await directory.list_teams(database, workspace_id)
    found = _find(known, [one.team_id for one in known], named)
    if found is not None:
        return found
    _refuse_unless_new(known, named, "team", create)
    made = await directory.create_team(database, workspace_id, named)
    err().print(f"Created team {named!r}.", markup=False)
    return made


async def workspace_id(database: "Database", named: str | None) -> UUID | None:
    """The id of the workspace called `named`; None, which is every workspace, without a name."""
    return (await workspace(database, named)).workspace_id if named else None


async def team_id(database: "Database", home: UUID, named: str | None) -> UUID | None:
    """The id of the team called `named` in a workspace; None without a name."""
    return (await team(database, home, named)).team_id if named else None


async def of_teams(database: "Database", workspace_id: UUID) -> dict[UUID, str]:
    """The names of a workspace's teams by their ids."""
    from db.workspace import directory

    return {one.team_id: one.name for one in await directory.list_teams(database, workspace_id)}


async def member(database: "Database", workspace_id: UUID, named: str) -> "directory.DirectoryMember":
    """The member called `named` in a workspace, or with that user id."""
    from db.workspace import directory

    known = await directory.list_members(database, workspace_id)
    found = _find(known, [one.user_id for one in known], named)
    if found is None:
        _refuse_unless_new(known, named, "member", False)
    assert found is not None
    return found


async def contact(database: "Database", workspace_id: UUID, named: str) -> "Contact":
    """The contact called `named` in a workspace, or with that id."""
    from db.workspace import directory

    known = await directory.list_contacts(database, workspace_id)
    found = _find(known, [UUID(one.contact_id) for one in known], named)
    if found is None:
        raise CommandError(f"No contact {named!r}.", "`switchboard contacts list` shows them.")
    return found


def as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def need_uuid(text: str, what: str) -> UUID:
    """`what` names the thing and the command that lists its ids."""
    found = as_uuid(text)
    if found is None:
        raise CommandError(f"{text!r} is not an id (a UUID).", what, USAGE)
    return found


def _find(known: Sequence[N], ids: Sequence[UUID], named: str) -> N | None:
    wanted = as_uuid(named)
    alike = [
        (one, id_)
        for one, id_ in zip(known, ids, strict=True)
        if (id_ == wanted if wanted else (one.name or "").casefold() == named.casefold())
    ]
    if len(alike) > 1:
        told = ", ".join(str(id_) for _, id_ in alike)
        raise CommandError(f"{len(alike)} are called {named!r}: {told}.", "Name it by its id.", USAGE)
    return alike[0][0] if alike else None


def _refuse_unless_new(known: Sequence[Named], name: str, kind: str, create: bool) -> None:
    names = [one.name or "" for one in known]
    near = get_close_matches(name.casefold(), [other.casefold() for other in names], n=1, cutoff=0.8)
    if create and not near and as_uuid(name) is None:
        return
    makes = "add" if kind == "member" else "create"
    if near:
        advice = f"Did you mean {near[0]!r}? `switchboard {kind}s {makes} {name}` makes a new one."
    elif names:
        advice = f"There are: {_quoted(known)}."
    else:
        advice = f"`switchboard {kind}s {makes} NAME` makes one."
    raise CommandError(f"No {kind} {name!r}.", advice)


def _quoted(known: Sequence[Named]) -> str:
    return ", ".join(repr(one.name) for one in known[:10]) + (" ..." if len(known) > 10 else "")
