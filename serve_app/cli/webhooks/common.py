"""What the commands of `switchboard webhooks` have in common."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from serve_app.cli.ui import database as state
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import out

if TYPE_CHECKING:
    from db.core.database import Database
    from db.events.endpoints import Endpoint
    from serve_app.settings import Settings
    from serve_app.webhooks.post import Poster

Id = Annotated[str, typer.Argument(metavar="ID", help="The endpoint's id, from `webhooks list`.")]


async def find(database: "Database", named: str) -> "Endpoint":
    """The endpoint of that id, or a CommandError that says where ids are."""
    from db.events import endpoints

    wanted: UUID = lookup.need_uuid(named, "`switchboard webhooks list` shows the ids.")
    found = await endpoints.find(database, wanted)
    if found is None:
        raise CommandError(f"No endpoint has the id {wanted}.", "`switchboard webhooks list` shows them.")
    return found


def run(work: Any, writes: bool = False) -> Any:
    """As `state.run`; what an endpoint may not be is wrong usage."""
    try:
        return state.run(work, writes)
    except ValueError as error:
        raise CommandError(f"{str(error)[:1].upper()}{str(error)[1:]}.", "", USAGE) from error


def settings() -> "Settings":
    from serve_app.settings import Settings

    return Settings()


def poster() -> "Poster":
    from serve_app.webhooks.post import Poster

    return Poster(settings().webhooks, settings().fetch.ca_file)


def show_secret(secret: str) -> None:
    out().print(f"\n  {secret}\n", style="bold green")
    out().print("The receiver verifies with it: give it to them now, it cannot be shown again.")


def change(endpoint: str, work: "Callable[[Database, Endpoint], Awaitable[Endpoint | None]]") -> "Endpoint":
    """What `work` makes of the endpoint of that id."""

    async def on_found(database: "Database") -> "Endpoint | None":
        return await work(database, await find(database, endpoint))

    changed: Endpoint | None = run(on_found, writes=True)
    if changed is None:
        raise CommandError("The endpoint was removed meanwhile.")
    return changed
