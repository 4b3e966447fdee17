from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Rename, Team, parse_id
from serve_app.cli.ui.resource import Group, Result, Scope, drop_none, listing

if TYPE_CHECKING:
    from db.workspace import directory
else:
    (directory,) = lazy("db.workspace.directory")


app = Group("Members: the people who handle calls. Submissions identify them by userId.")

MemberArgument = Annotated[str, typer.Argument(metavar="NAME|ID", help="The member, by name or user id.")]
Aliases = Annotated[list[str] | None, typer.Option(help="Another name; may be repeated.")]
UserId = Annotated[
    UUID | None,
    typer.Option(
        metavar="ID",
        parser=parse_id("--user takes the sender's userId."),
        help="The sender's userId for this person.",
        show_default="new",
    ),
]


@app.writes()
async def create(
    scope: Scope,
    name: Annotated[str, typer.Argument(help="Name, as spoken on the phone.")],
    team: Team = None,
    user: UserId = None,
    alias: Aliases = None,
) -> Result:
    """Create a member, so that calls are matched to their agent by name or voice.

    Example:

      switchboard members create "Dana Wolf" --team support --user 6f1c0a52-... --alias Dana
    """
    team_id = await scope.team_id(team)
    member = await directory.add_member(scope.database, scope.id, name, user, team_id, alias or ())
    return Result(member, f"Created member {member.name!r}: {member.user_id}")


@app.updates("alias no_alias", "team no_team")
async def update(
    scope: Scope,
    member: MemberArgument,
    name: Rename = None,
    alias: Aliases = None,
    no_alias: Annotated[bool, typer.Option("--no-alias", help="Remove all other names.")] = False,
    team: Team = None,
    no_team: Annotated[bool, typer.Option("--no-team", help="Remove from the team; belongs to all teams.")] = False,
) -> Result:
    """Change a member's name, other names (--alias replaces all of them) or team.

    Examples:

      switchboard members update "Dana Wolf" --alias Dana --alias Dani

      switchboard members update "Dana Wolf" --no-team
    """
    changes = drop_none(name=name, aliases=[] if no_alias else alias or None)
    if team or no_team:
        changes["team_id"] = await scope.team_id(team)
    changed = await directory.update_member(
        scope.database, await lookup.member(scope.database, scope.id, member), changes
    )
    aliases = f", also called {', '.join(changed.aliases)}" if changed.aliases else ""
    place = f"team {(await scope.team_names())[changed.team_id]!r}" if changed.team_id else "in no team"
    return Result(changed, f"Member {changed.name!r}{aliases}, {place}")


@app.writes()
async def delete(scope: Scope, member: MemberArgument) -> Result:
    """Delete a member and their voice profile. Calls keep the userId."""
    match = await lookup.member(scope.database, scope.id, member)
    await directory.remove_member(scope.database, match)
    return Result({"removed": match}, f"Deleted member {match.name!r}; calls keep the userId {match.user_id}.")


@app.reads()
async def list_(scope: Scope) -> Result:
    """List the members of a workspace."""
    teams = await scope.team_names()
    return listing(
        await directory.list_members(scope.database, scope.id),
        ("name", "!user id", "also called", "team"),
        lambda member: (member.name, member.user_id, member.aliases, member.team_id and teams[member.team_id]),
        "No members yet: `switchboard members create NAME` creates one.",
    )
