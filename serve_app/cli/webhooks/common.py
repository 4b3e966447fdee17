"""What the commands of `switchboard webhooks` share: their group, and the endpoint that an id names."""

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

LISTED = "`switchboard webhooks list` shows the ids."
parse_endpoint = parse_id(LISTED)

app = Group(
    """Webhooks: tell another system when calls are received, transcribed, completed or failed.

    Events are signed after Standard Webhooks 1.0, so that any of its libraries verifies them. None is written before
    an endpoint is created.

    Examples:

      switchboard webhooks create https://crm.example/hooks/calls --workspace acme

      switchboard webhooks test ID

      switchboard webhooks deliveries --failed

      switchboard webhooks replay ID --failed
""",
    {ValueError: ("", USAGE)},
)

Id = Annotated[
    UUID, typer.Argument(metavar="ID", parser=parse_endpoint, help="The endpoint's id, from `webhooks list`.")
]


async def find(database: "Database", endpoint_id: UUID) -> "Endpoint":
    endpoint = await endpoints.find(database, endpoint_id)
    if endpoint is None:
        raise CommandError(f"No endpoint has the id {endpoint_id}.", LISTED)
    return endpoint


def changed(endpoint: "Endpoint | None") -> "Endpoint":
    """Return what a change made of an endpoint."""
    if endpoint is None:
        raise CommandError("The endpoint was deleted in the meantime.")
    return endpoint


def poster() -> "Poster":
    from serve_app.webhooks.post import Poster

    settings = Settings()
    return Poster(settings.webhooks, settings.fetch.ca_file)


def secret_lines(secret: str) -> tuple[Text, str]:
    note = "The receiver verifies with it: pass it on now, it cannot be shown again."
    return Text(f"\n  {secret}\n", "bold green"), note
