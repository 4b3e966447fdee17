"""`switchboard teams`: every call belongs to one."""

from typing import Annotated

import typer

from db.workspace import directory, removal
from serve_app.cli.ui.options import SWAPPED, Rename, Swapped, Yes
from serve_app.cli.ui.resource import Answer, Group, Home, confirm, deleted, given, listing

app = Group("""Teams of a workspace: every call belongs to one.

    Examples:

      switchboard teams create support --workspace acme

      switchboard teams update support --channels-swapped
""")

Named = Annotated[str, typer.Argument(metavar="NAME|ID", help="The team.")]


@app.writes()
async def create(
    home: Home,
    name: Annotated[str, typer.Argument(help="The name of the team; its id is the teamId of submissions.")],
    channels_swapped: Annotated[bool, typer.Option("--channels-swapped", help=SWAPPED)] = False,
) -> Answer:
    """Create a team.

    Example:

      switchboard teams create support --workspace acme
    """
    team = await directory.create_team(home.database, home.id, name, channels_swapped=channels_swapped)
    return Answer(team, f"Created team {team.name!r}: {team.team_id}")


@app.updates()
async def update(home: Home, team: Named, name: Rename = None, channels_swapped: Swapped = None) -> Answer:
    """Rename a team, or say that its channels are swapped: for recordings that are submitted afterwards.

    Examples:

      switchboard teams update support --name "customer care"

      switchboard teams update support --channels-swapped
    """
    changes = given(name=name, channels_swapped=channels_swapped)
    changed = await directory.update_team(home.database, await home.team(team), changes)
    order = "swapped: the customer comes first" if changed.channels_swapped else "as sent: the agent comes first"
    return Answer(changed, f"Team {changed.name!r}: channels {order}")


@app.writes()
async def delete(home: Home, team: Named, yes: Yes = False) -> Answer:
    """Delete a team. One that has calls, keys or endpoints is deleted with --yes only, and they go with it.

    Its members stay, in no team.

    Example:

      switchboard teams delete support --workspace acme
    """
    group = await home.team(team)
    contents = await removal.contents(home.database, home.id, group.team_id)
    confirm(f"Team {group.name!r}", contents, yes or not (contents.calls or contents.keys or contents.endpoints))
    await removal.remove_team(home.database, home.id, group.team_id)
    return deleted("team", team, contents)


@app.reads()
async def list_(home: Home) -> Answer:
    """List the teams of a workspace, with the ids to submit as teamId.

    Example:

      switchboard teams list --workspace acme
    """
    return listing(
        await directory.list_teams(home.database, home.id),
        ("name", "!id", "!channels"),
        lambda team: (team.name, str(team.team_id), "swapped" if team.channels_swapped else ""),
        "No teams yet: `switchboard teams create NAME` creates one.",
    )
