"""`switchboard console`: links that open the console once, and who is signed in."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import database as state
from serve_app.cli.ui import lookup, this_machine
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, moment, out, print_json, print_list, say

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace.directory import Workspace

app = command_group("""The console: pages with calls, transcripts and tasks, at /console of the service.

    People sign in with a key of scope read, or with a link from here.

    Examples:

      switchboard console link --workspace acme --for "Ana in sales"

      switchboard console sessions
""")


@app.command()
def link(
    workspace: lookup.Workspace = None,
    team: lookup.Team = None,
    name: Annotated[str, typer.Option("--for", help="Who signs in with it; shown beside the session.")] = "operator",
    edit: Annotated[
        bool, typer.Option("--edit", help="Who signs in with it may correct calls and tick tasks off.")
    ] = False,
    hours: Annotated[float, typer.Option(min=0.01, max=168, help="Until when it must be used.")] = 1.0,
    json_: Json = False,
) -> None:
    """Issue a link that signs one browser in, once. Without --team it shows the calls of all teams.

    Examples:

      switchboard console link

      switchboard console link --workspace acme --team support --for Ana --edit --hours 24
    """
    from serve_app.settings import Settings

    async def work(database: "Database", home: "Workspace") -> tuple[str, datetime]:
        from db.workspace import sessions as console_sessions

        bound = await lookup.team(database, home.workspace_id, team) if team else None
        bound_id = bound.team_id if bound else None
        return await console_sessions.issue_link(
            database, home.workspace_id, bound_id, name, timedelta(hours=hours), edit
        )

    secret, expires = lookup.run(workspace, work, writes=True)
    url = link_url(f"{this_machine.url_of(Settings())}/console", secret)
    if json_:
        print_json({"url": url, "expiresAt": expires})
        return
    out().print(f"\n  {url}\n", style="bold green", soft_wrap=True, markup=False)
    out().print(f"It opens the console once, until {moment(expires)}.")


def link_url(console_url: str, secret: str) -> str:
    """The secret stands behind the #: browsers tell it to no server, and so no log has it."""
    return f"{console_url}/sign-in#link={secret}"


@app.command()
def sessions(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Browsers that are signed in, the one used last first.

    Example:

      switchboard console sessions --workspace acme
    """
    from db.workspace import sessions as console_sessions

    found = lookup.run(workspace, lambda database, home: console_sessions.list_sessions(database, home.workspace_id))
    print_list(
        found,
        json_,
        ("!session", "signed in as", "!last used", "!ends", "browser"),
        lambda one: (
            str(one.session_id),
            one.name,
            moment(one.last_used_at),
            moment(one.expires_at),
            one.user_agent,
        ),
        "Nobody is signed in. `switchboard console link` issues a link.",
    )


@app.command()
def revoke(
    session: Annotated[UUID, typer.Argument(metavar="SESSION", help="As `console sessions` lists it.")],
    json_: Json = False,
) -> None:
    """End a session: its browser has to sign in again.

    Example:

      switchboard console revoke 3f0c1d5e-...
    """
    from db.workspace import sessions as console_sessions

    if not state.run(lambda database: console_sessions.revoke(database, session), writes=True):
        raise CommandError(f"There is no open session {session}.", "`switchboard console sessions` lists them.", USAGE)
    say(f"Ended session {session}.", {"sessionId": session, "revoked": True}, json_)
