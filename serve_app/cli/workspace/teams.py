from typing import TYPE_CHECKING, Annotated

import typer

from db.workspace.legal_holds import OnHold
from serve_app.cli.ui.erasing import carry_out
from serve_app.cli.ui.errors import FAILED
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import SWAPPED, Rename, Swapped, Yes
from serve_app.cli.ui.resource import RELEASE, Group, Result, Scope, confirm, deleted, drop_none, listing

if TYPE_CHECKING:
    from db.records import erasures
    from db.workspace import directory, removal
else:
    erasures, directory, removal = lazy("db.records.erasures", "db.workspace.directory", "db.workspace.removal")


app = Group("Teams of a workspace: every call belongs to one.", {OnHold: (RELEASE, FAILED)})

TeamArgument = Annotated[str, typer.Argument(metavar="NAME|ID", help="The team.")]


@app.writes()
async def create(
    scope: Scope,
    name: Annotated[str, typer.Argument(help="The name of the team; its id is the teamId of submissions.")],
    channels_swapped: Annotated[bool, typer.Option("--channels-swapped", help=SWAPPED)] = False,
) -> Result:
    """Create a team."""
    team = await directory.create_team(scope.database, scope.id, name, channels_swapped=channels_swapped)
    return Result(team, f"Created team {team.name!r}: {team.team_id}")


@app.updates()
async def update(scope: Scope, team: TeamArgument, name: Rename = None, channels_swapped: Swapped = None) -> Result:
    """Rename a team, or swap its channels for recordings submitted from now on.

    Examples:

      switchboard teams update support --name "customer care"

      switchboard teams update support --channels-swapped
    """
    changes = drop_none(name=name, channels_swapped=channels_swapped)
    changed = await directory.update_team(scope.database, await scope.team(team), changes)
    order = "swapped: the customer comes first" if changed.channels_swapped else "as sent: the agent comes first"
    return Result(changed, f"Team {changed.name!r}: channels {order}")


@app.writes()
async def delete(scope: Scope, team: TeamArgument, yes: Yes = False) -> Result:
    """Delete a team. If it has calls, keys or endpoints, --yes is required and deletes them too.

    Its members stay, without a team. `switchboard erase --team` does the same.
    """
    group = await scope.team(team)
    contents = await removal.contents(scope.database, scope.id, group.team_id)
    confirm(f"Team {group.name!r}", contents, yes or not (contents.calls or contents.keys or contents.endpoints))
    target = erasures.Target(erasures.ErasureKind.TEAM, group.team_id)
    return deleted("team", team, contents, await carry_out(scope.database, scope.id, target))


@app.reads()
async def list_(scope: Scope) -> Result:
    """List the teams of a workspace, with the ids to submit as teamId."""
    return listing(
        await directory.list_teams(scope.database, scope.id),
        ("name", "!id", "!channels"),
        lambda team: (team.name, team.team_id, "swapped" if team.channels_swapped else ""),
        "No teams yet: `switchboard teams create NAME` creates one.",
    )
