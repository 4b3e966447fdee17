from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import as_uuid
from serve_app.cli.ui.output import err

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records import views
    from db.workspace import directory
    from pipeline.domain.insight import Contact
else:
    directory, views = lazy("db.workspace.directory", "db.records.views")


class HasName(Protocol):
    @property
    def name(self) -> str | None: ...


N = TypeVar("N", bound=HasName)

CALL_ID_HELP = "`switchboard calls list` shows the ids."
DEFAULT = "default"  # name of a workspace or team that is created without one


async def workspace(database: "Database", name_or_id: str | None, create: bool = False) -> "directory.Workspace":
    """Return the workspace; without a name, the only one. Raises `CommandError`.

    With `create`, an unknown name is created ("default" if there is neither a name nor a workspace) and stderr reports
    it. A name similar to an existing one is rejected as a typo.
    """
    workspaces = await directory.list_workspaces(database)
    if name_or_id is None and len(workspaces) == 1:
        return workspaces[0]
    if name_or_id is None and workspaces:
        names = _quoted(workspaces, lambda workspace: workspace.workspace_id)
        raise CommandError(f"There are {len(workspaces)} workspaces: {names}.", "Pass --workspace NAME|ID.", USAGE)
    if name_or_id is None and not create:
        raise CommandError("No workspace yet.", "`switchboard workspaces create NAME` creates one.")
    match = _find(workspaces, lambda workspace: workspace.workspace_id, name_or_id) if name_or_id else None
    if match is None:
        name = name_or_id or DEFAULT
        _refuse_unless_new(workspaces, lambda workspace: workspace.workspace_id, "workspace", name, create)
        match = await directory.create_workspace(database, name)
        err().print(f"Created workspace {name!r}.", markup=False)
    return match


async def team(database: "Database", workspace_id: UUID, name_or_id: str, create: bool = False) -> "directory.Team":
    """Return a team of a workspace; `create` works as in `workspace`."""
    teams = await directory.list_teams(database, workspace_id)
    match = _find(teams, lambda team: team.team_id, name_or_id)
    if match is None:
        _refuse_unless_new(teams, lambda team: team.team_id, "team", name_or_id, create)
        match = await directory.create_team(database, workspace_id, name_or_id)
        err().print(f"Created team {name_or_id!r}.", markup=False)
    return match


async def workspace_id(database: "Database", name_or_id: str | None) -> UUID | None:
    return (await workspace(database, name_or_id)).workspace_id if name_or_id else None


async def team_id(database: "Database", workspace_id: UUID, name_or_id: str | None) -> UUID | None:
    return (await team(database, workspace_id, name_or_id)).team_id if name_or_id else None


async def team_names(database: "Database", workspace_id: UUID) -> dict[UUID, str]:
    return {team.team_id: team.name for team in await directory.list_teams(database, workspace_id)}


async def member(database: "Database", workspace_id: UUID, name_or_id: str) -> "directory.DirectoryMember":
    members = await directory.list_members(database, workspace_id)
    return pick("member", members, lambda member: member.user_id, name_or_id)


async def contact(database: "Database", workspace_id: UUID, name_or_id: str) -> "Contact":
    contacts = await directory.list_contacts(database, workspace_id)
    return pick("contact", contacts, lambda contact: UUID(contact.contact_id), name_or_id)


def pick(kind: str, items: Sequence[N], id_of: Callable[[N], UUID], name_or_id: str) -> N:
    """Return the item with this name or id. Raises `CommandError` with the existing names."""
    match = _find(items, id_of, name_or_id)
    if match is None:
        _refuse_unless_new(items, id_of, kind, name_or_id, create=False)
        raise AssertionError
    return match


def _find(items: Sequence[N], id_of: Callable[[N], UUID], name_or_id: str) -> N | None:
    by_id = as_uuid(name_or_id)
    name = name_or_id.casefold()
    matches = [item for item in items if (id_of(item) == by_id if by_id else (item.name or "").casefold() == name)]
    if len(matches) > 1:
        ids = ", ".join(str(id_of(item)) for item in matches)
        raise CommandError(f"{len(matches)} have the name {name_or_id!r}: {ids}.", "Use the id.", USAGE)
    return matches[0] if matches else None


def _refuse_unless_new(items: Sequence[N], id_of: Callable[[N], UUID], kind: str, name: str, create: bool) -> None:
    names = [(item.name or "").casefold() for item in items]
    near = get_close_matches(name.casefold(), names, n=1, cutoff=0.8)
    if create and not near and as_uuid(name) is None:
        return
    if near:
        advice = f"Did you mean {near[0]!r}? `switchboard {kind}s create {name}` creates a new one."
    elif names:
        advice = f"Existing: {_quoted(items, id_of)}."
    else:
        advice = f"`switchboard {kind}s create NAME` creates one."
    raise CommandError(f"No {kind} {name!r}.", advice)


def _quoted(items: Sequence[N], id_of: Callable[[N], UUID]) -> str:
    counts = Counter((item.name or "").casefold() for item in items)
    shown = (
        f"{item.name!r} ({id_of(item)})" if counts[(item.name or "").casefold()] > 1 else repr(item.name)
        for item in items[:10]
    )
    return ", ".join(shown) + (" ..." if len(items) > 10 else "")


async def call_id(database: "Database", id_: str, workspace_id: UUID | None = None) -> UUID:
    """Return the id of the call that `id_`, a UUID or its beginning, identifies. Raises `CommandError`."""
    if (whole := as_uuid(id_)) is not None:
        return whole
    matches = await views.call_ids_from(database, id_, workspace_id)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise CommandError(f"Several calls begin with {id_}.", f"Pass more of the id: {matches[0]}.", USAGE)
    raise CommandError(f"No call begins with {id_}.", CALL_ID_HELP)
