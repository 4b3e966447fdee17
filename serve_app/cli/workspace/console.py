from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import this_machine
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Team
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Group, Result, Scope, data_line, listing

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace import sessions as console_sessions
    from serve_app import settings
else:
    console_sessions, settings = lazy("db.workspace.sessions", "serve_app.settings")

app = Group("""The console: pages with calls, transcripts and tasks, at /console of the service.

    People sign in with a key of scope read, or with a link from here.
""")


@app.writes()
async def link(
    scope: Scope,
    team: Team = None,
    name: Annotated[str, typer.Option("--for", help="Person who signs in; shown with the session.")] = "operator",
    edit: Annotated[bool, typer.Option("--edit", help="Allow corrections of calls and completing tasks.")] = False,
    hours: Annotated[float, typer.Option(min=0.01, max=168, help="Hours until it expires.")] = 1.0,
) -> Result:
    """Issue a link that signs in one browser, once. Without --team, it shows the calls of all teams.

    Example:

      switchboard console link --workspace acme --team support --for Ana --edit --hours 24
    """
    secret, expires = await console_sessions.issue_link(
        scope.database, scope.id, await scope.team_id(team), name, timedelta(hours=hours), edit
    )
    url = link_url(f"{this_machine.url_of(settings.Settings())}/console", secret)
    shown = data_line(f"\n  {url}\n", "bold green")
    return Result({"url": url, "expiresAt": expires}, (shown, f"It works once, until {moment(expires)}."))


def link_url(console_url: str, secret: str) -> str:
    """Return the link. Browsers do not send the part after #, so no log contains the secret."""
    return f"{console_url}/sign-in#link={secret}"


@app.reads()
async def sessions(scope: Scope) -> Result:
    """List signed-in browsers, the last used first."""
    return listing(
        await console_sessions.list_sessions(scope.database, scope.id),
        ("!session", "signed in as", "!last used", "!ends", "browser"),
        attrgetter("session_id", "name", "last_used_at", "expires_at", "user_agent"),
        "No browser is signed in. `switchboard console link` issues a link.",
    )


@app.writes()
async def revoke(
    database: "Database",
    session: Annotated[UUID, typer.Argument(metavar="SESSION", help="An id from `console sessions`.")],
) -> Result:
    """End a session; its browser must sign in again."""
    if not await console_sessions.revoke(database, session):
        raise CommandError(f"No open session {session}.", "`switchboard console sessions` lists them.", USAGE)
    return Result({"sessionId": session, "revoked": True}, f"Ended session {session}.")
