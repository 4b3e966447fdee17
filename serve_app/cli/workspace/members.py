from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Rename, Team, parse_id
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Group, Result, Scope, drop_none, listing

if TYPE_CHECKING:
    from db.voices import consent as voice_consent
    from db.workspace import consents, directory
    from serve_app import settings
else:
    voice_consent, consents, directory, settings = lazy(
        "db.voices.consent", "db.workspace.consents", "db.workspace.directory", "serve_app.settings"
    )


app = Group("Members: the people who handle calls. Submissions identify them by userId.", {ValueError: ("", USAGE)})

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


@app.setting("text", "withdraw", exclusive=("text withdraw", "expires withdraw"))
async def consent(
    scope: Scope,
    member: MemberArgument,
    text: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Record a consent to this version of your text.")
    ] = None,
    expires: Annotated[
        datetime | None, typer.Option(help="End of the consent; left out: until it is withdrawn.")
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw it and delete the voice profile.")] = False,
) -> Result:
    """Show, record or withdraw a member's consent to voiceprints.

    `switchboard workspaces voiceprints consented` stores voiceprints of members with a consent.

    Examples:

      switchboard members consent "Dana Wolf" --text 2026-01 --expires 2027-01-31

      switchboard members consent "Dana Wolf" --withdraw
    """
    match = await lookup.member(scope.database, scope.id, member)
    if expires is not None and text is None:
        raise CommandError("--expires needs --text.", "Record the consent with --text VERSION.", USAGE)
    if withdraw:
        history = await voice_consent.withdraw(scope.database, match, settings.Settings().voices())
    elif text is not None:
        await consents.record(scope.database, match, text, expires and expires.astimezone())
        history = await consents.list_(scope.database, scope.id, match.user_id)
    else:
        history = await consents.list_(scope.database, scope.id, match.user_id)
    empty = f"{match.name} has not agreed to voiceprints: none is stored."
    return Result(history, [_consent_line(entry) for entry in history], () if history else (empty,))


def _consent_line(entry: "consents.VoiceConsent") -> str:
    line = f"{moment(entry.recorded_at)} agreed to {entry.text_version}, recorded by {entry.recorded_by}"
    if entry.withdrawn_at is not None:
        return f"{line}; withdrawn {moment(entry.withdrawn_at)} by {entry.withdrawn_by}"
    until = f"; until {moment(entry.expires_at)}" if entry.expires_at else ""
    return f"{line}{until}{'' if entry.active else '; not in force'}"


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
