from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from db.events import endpoints
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import parse_id
from serve_app.cli.ui.resource import Group
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.core.database import Database
    from db.events.endpoints import Endpoint
    from serve_app.webhooks.post import Poster

LIST_HINT = "`switchboard webhooks list` shows the ids."
parse_endpoint = parse_id(LIST_HINT)

app = Group(
    """Webhooks: notify another system when calls are received, transcribed, completed or failed.

    Events are signed according to Standard Webhooks 1.0; any of its libraries can verify them. No events are stored
    before an endpoint exists.
""",
    {ValueError: ("", USAGE)},
)

Id = Annotated[
    UUID, typer.Argument(metavar="ID", parser=parse_endpoint, help="The endpoint's id, from `webhooks list`.")
]


async def find(database: "Database", endpoint_id: UUID) -> "Endpoint":
    endpoint = await endpoints.find(database, endpoint_id)
    if endpoint is None:
        raise CommandError(f"No endpoint has the id {endpoint_id}.", LIST_HINT)
    return endpoint


def require_endpoint(endpoint: "Endpoint | None") -> "Endpoint":
    """Return the endpoint after a change. Raises `CommandError` if it was deleted."""
    if endpoint is None:
        raise CommandError("The endpoint was deleted in the meantime.")
    return endpoint


def poster() -> "Poster":
    from serve_app.webhooks.post import Poster

    settings = Settings()
    return Poster(settings.webhooks, settings.fetch.ca_file)


def secret_lines(secret: str) -> tuple[Text, str]:
    note = "The receiver verifies events with it. Copy it now, it cannot be shown again."
    return Text(f"\n  {secret}\n", "bold green"), note
