"""`switchboard members`: the people who handle calls."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, print_list, say
from serve_app.cli.workspace.managed import given

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace.directory import DirectoryMember, Workspace

app = command_group("""Members: the people who handle calls. Submissions name them by user id (userId).

    Examples:

      switchboard members add "Dana Wolf" --team support --alias Dana

      switchboard members update "Dana Wolf" --name "Dana Wolf-Berg"
""")

Named = Annotated[str, typer.Argument(metavar="NAME|ID", help="The member, by name or user id.")]


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The name as people say it on the phone.")],
    workspace: lookup.Workspace = None,
    team: lookup.Team = None,
    user: Annotated[
        str | None, typer.Option(metavar="ID", help="The sender's userId for this person.", show_default="new")
    ] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name; may be repeated.", show_default=False)] = None,
    json_: Json = False,
) -> None:
    """Add a member, so that calls are matched to their agent by name or voice.

    Example:

      switchboard members add "Dana Wolf" --team support --user 6f1c0a52-... --alias Dana
    """
    user_id = lookup.need_uuid(user, "--user takes the sender's userId.") if user else None

    async def work(database: "Database", home: "Workspace") -> "DirectoryMember":
        from db.workspace import directory

        group = await lookup.team_id(database, home.workspace_id, team)
        return await directory.add_member(database, home.workspace_id, name, user_id, group, alias or ())

    made = lookup.run(workspace, work, writes=True)
    say(f"Created member {made.name!r}: {made.user_id}", made, json_)


@app.command("update")
def update(
    member: Named,
    workspace: lookup.Workspace = None,
    name: Annotated[str | None, typer.Option(help="The new name.", show_default=False)] = None,
    alias: Annotated[
        list[str] | None, typer.Option(help="Another name; may be repeated. Replaces all.", show_default=False)
    ] = None,
    no_alias: Annotated[bool, typer.Option("--no-alias", help="Remove all other names.")] = False,
    team: lookup.Team = None,
    no_team: Annotated[bool, typer.Option("--no-team", help="Leave the team: known to all of them.")] = False,
    json_: Json = False,
) -> None:
    """Change a member's name, other names or team.

    Examples:

      switchboard members update "Dana Wolf" --alias Dana --alias Dani

      switchboard members update "Dana Wolf" --no-team
    """
    if (alias and no_alias) or (team and no_team):
        raise CommandError("--alias and --no-alias, --team and --no-team exclude each other.", "", USAGE)
    changes = given(name=name, aliases=[] if no_alias else alias or None, team_id=team or no_team or None)

    async def work(database: "Database", home: "Workspace") -> "tuple[DirectoryMember, dict[UUID, str]]":
        from db.workspace import directory

        found = await lookup.member(database, home.workspace_id, member)
        if "team_id" in changes:
            changes["team_id"] = await lookup.team_id(database, home.workspace_id, team)
        changed = await directory.update_member(database, found, changes)
        return changed, await lookup.of_teams(database, home.workspace_id)

    changed, teams = lookup.run(workspace, work, writes=True)
    called = f", also called {', '.join(changed.aliases)}" if changed.aliases else ""
    team_ = f", team {teams[changed.team_id]!r}" if changed.team_id else ", in no team"
    say(f"Member {changed.name!r}{called}{team_}", changed, json_)


@app.command("remove")
def remove(member: Named, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Remove a member. Calls keep the userId; what the member sounds like is forgotten.

    Example:

      switchboard members remove "Dana Wolf"
    """

    async def work(database: "Database", home: "Workspace") -> "DirectoryMember":
        from db.workspace import directory

        found = await lookup.member(database, home.workspace_id, member)
        await directory.remove_member(database, found)
        return found

    gone = lookup.run(workspace, work, writes=True)
    say(f"Removed member {gone.name!r}; calls keep the userId {gone.user_id}.", {"removed": gone}, json_)


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List the members of a workspace.

    Example:

      switchboard members list --json
    """

    async def work(database: "Database", home: "Workspace") -> "tuple[list[DirectoryMember], dict[UUID, str]]":
        from db.workspace import directory

        found = await directory.list_members(database, home.workspace_id)
        return found, await lookup.of_teams(database, home.workspace_id)

    found, teams = lookup.run(workspace, work)
    print_list(
        found,
        json_,
        ("name", "!user id", "also called", "team"),
        lambda one: (one.name, str(one.user_id), ", ".join(one.aliases), teams[one.team_id] if one.team_id else ""),
        "No members yet: `switchboard members add NAME` adds one.",
    )
