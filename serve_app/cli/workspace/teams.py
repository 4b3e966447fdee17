"""`switchboard teams`: every call belongs to one."""

from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.output import Json, command_group, print_list, say
from serve_app.cli.workspace.managed import Yes, confirm, given, say_removed

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace.directory import Team, Workspace
    from db.workspace.removal import Contents

app = command_group("""Teams of a workspace: every call belongs to one.

    Examples:

      switchboard teams create support --workspace acme

      switchboard teams update support --channels-swapped
""")

Named = Annotated[str, typer.Argument(metavar="NAME|ID", help="The team.")]
SWAPPED = "The PBX records the customer on the left channel, or in the first file."


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="The name of the team; its id is the teamId of submissions.")],
    workspace: lookup.Workspace = None,
    channels_swapped: Annotated[bool, typer.Option("--channels-swapped", help=SWAPPED)] = False,
    json_: Json = False,
) -> None:
    """Create a team.

    Example:

      switchboard teams create support --workspace acme
    """

    async def work(database: "Database", home: "Workspace") -> "Team":
        from db.workspace import directory

        return await directory.create_team(database, home.workspace_id, name, channels_swapped=channels_swapped)

    made = lookup.run(workspace, work, writes=True)
    say(f"Created team {made.name!r}: {made.team_id}", made, json_)


@app.command("update")
def update(
    team: Named,
    workspace: lookup.Workspace = None,
    name: Annotated[str | None, typer.Option(help="Its new name.", show_default=False)] = None,
    channels_swapped: Annotated[
        bool | None,
        typer.Option("--channels-swapped/--channels-as-sent", help=SWAPPED, show_default=False),
    ] = None,
    json_: Json = False,
) -> None:
    """Rename a team, or say that its channels are swapped: for recordings that are submitted afterwards.

    Examples:

      switchboard teams update support --name "customer care"

      switchboard teams update support --channels-swapped
    """
    changes = given(name=name, channels_swapped=channels_swapped)

    async def work(database: "Database", home: "Workspace") -> "Team":
        from db.workspace import directory

        return await directory.update_team(database, await lookup.team(database, home.workspace_id, team), changes)

    changed = lookup.run(workspace, work, writes=True)
    swapped = "swapped: the customer comes first" if changed.channels_swapped else "as sent: the rep comes first"
    say(f"Team {changed.name!r}: channels {swapped}", changed, json_)


@app.command("remove")
def remove(team: Named, workspace: lookup.Workspace = None, yes: Yes = False, json_: Json = False) -> None:
    """Remove a team. One that has calls, keys or endpoints is removed with --yes only, and they go with it.

    Its members stay, in no team.

    Example:

      switchboard teams remove support --workspace acme
    """

    async def work(database: "Database", home: "Workspace") -> "Contents":
        from db.workspace import removal

        group = await lookup.team(database, home.workspace_id, team)
        going = await removal.contents(database, home.workspace_id, group.team_id)
        confirm(f"Team {group.name!r}", going, yes or not (going.calls or going.keys or going.endpoints))
        await removal.remove_team(database, home.workspace_id, group.team_id)
        return going

    say_removed("team", team, lookup.run(workspace, work, writes=True), json_)


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List the teams of a workspace, with the ids to submit as teamId.

    Example:

      switchboard teams list --workspace acme
    """
    from db.workspace import directory

    print_list(
        lookup.run(workspace, lambda database, home: directory.list_teams(database, home.workspace_id)),
        json_,
        ("name", "!id", "!channels"),
        lambda one: (one.name, str(one.team_id), "swapped" if one.channels_swapped else ""),
        "No teams yet: `switchboard teams create NAME` makes one.",
    )
