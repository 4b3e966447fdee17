"""`switchboard console`: links that open the console once, and who is signed in."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from db.workspace import sessions as console_sessions
from serve_app.cli.ui import this_machine
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import Team
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Answer, Group, Home, data_line, listing
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.core.database import Database

app = Group("""The console: pages with calls, transcripts and tasks, at /console of the service.

    People sign in with a key of scope read, or with a link from here.

    Examples:

      switchboard console link --workspace acme --for "Ana in sales"

      switchboard console sessions
""")


@app.writes()
async def link(
    home: Home,
    team: Team = None,
    name: Annotated[str, typer.Option("--for", help="Who signs in with it; shown with the session.")] = "operator",
    edit: Annotated[bool, typer.Option("--edit", help="Allow corrections of calls, and ticking tasks off.")] = False,
    hours: Annotated[float, typer.Option(min=0.01, max=168, help="Until when it must be used.")] = 1.0,
) -> Answer:
    """Issue a link that signs one browser in, once. Without --team it shows the calls of all teams.

    Examples:

      switchboard console link

      switchboard console link --workspace acme --team support --for Ana --edit --hours 24
    """
    secret, expires = await console_sessions.issue_link(
        home.database, home.id, await home.team_id(team), name, timedelta(hours=hours), edit
    )
    url = link_url(f"{this_machine.url_of(Settings())}/console", secret)
    shown = data_line(f"\n  {url}\n", "bold green")
    return Answer({"url": url, "expiresAt": expires}, (shown, f"It opens the console once, until {moment(expires)}."))


def link_url(console_url: str, secret: str) -> str:
    """Return the link, with the secret behind the #: browsers send it to no server, so no log has it."""
    return f"{console_url}/sign-in#link={secret}"


@app.reads()
async def sessions(home: Home) -> Answer:
    """List browsers that are signed in, the one used last first.

    Example:

      switchboard console sessions --workspace acme
    """
    return listing(
        await console_sessions.list_sessions(home.database, home.id),
        ("!session", "signed in as", "!last used", "!ends", "browser"),
        lambda one: (str(one.session_id), one.name, moment(one.last_used_at), moment(one.expires_at), one.user_agent),
        "No browser is signed in. `switchboard console link` issues a link.",
    )


@app.writes()
async def revoke(
    database: "Database",
    session: Annotated[UUID, typer.Argument(metavar="SESSION", help="As `console sessions` lists it.")],
) -> Answer:
    """End a session: its browser has to sign in again.

    Example:

      switchboard console revoke 3f0c1d5e-...
    """
    if not await console_sessions.revoke(database, session):
        raise CommandError(f"No open session {session}.", "`switchboard console sessions` lists them.", USAGE)
    return Answer({"sessionId": session, "revoked": True}, f"Ended session {session}.")
