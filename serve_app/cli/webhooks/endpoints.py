import dataclasses
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from db.events import deliveries as event_views
from db.events import endpoints as webhooks
from db.events.types import type_names
from serve_app.cli.ui import lookup
from serve_app.cli.ui.options import Team, Workspace
from serve_app.cli.ui.output import duration, fields, moment, print_json
from serve_app.cli.ui.resource import Result, Scope, details, listing
from serve_app.cli.webhooks import deliveries, manage
from serve_app.cli.webhooks.common import Id, app, find, poster, require_endpoint, secret_lines
from serve_app.settings import Settings
from serve_app.webhooks import payload, signing

if TYPE_CHECKING:
    from db.core.database import Database
    from db.events.endpoints import Endpoint

__all__ = ["app", "deliveries", "manage"]

EventTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--event",
        "-e",
        metavar="TYPE",
        help=f"{', '.join(type_names()[:-1])} or {type_names()[-1]}; may be repeated.",
        show_default="all",
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PART",
        help="record (summary, tone, tasks, ...) or transcript, with call.completed; may be repeated.",
        show_default="only ids, state and times",
    ),
]


@app.writes()
async def create(
    scope: Scope,
    url: Annotated[str, typer.Argument(metavar="URL", help="https://...; events are posted there, signed.")],
    team: Team = None,
    event: EventTypes = None,
    include: Include = None,
    description: Annotated[str, typer.Option(help="Description of the endpoint.")] = "",
) -> Result:
    """Create an endpoint and show its signing secret, once. It receives events from now on.

    By default, an event has the call's id and state; no content leaves the service. --include record adds summary,
    tone, tasks, contact and statistics to call.completed; --include transcript adds the words.

    Examples:

      switchboard webhooks create https://crm.example/hooks/calls --workspace acme

      switchboard webhooks create https://crm.example/hooks --event call.completed --include record --team support
    """
    secret = signing.new_secret()
    await poster().look(url)
    sealed, team_id = Settings().sealer().seal(secret), await scope.team_id(team)
    options = (event or None, include or (), team_id, description)
    endpoint = await webhooks.add(scope.database, scope.id, url, sealed, *options)
    head = f"Endpoint {endpoint.endpoint_id}: {', '.join(endpoint.events)} to {endpoint.url}"
    test = f"Test it: `switchboard webhooks test {endpoint.endpoint_id}`"
    return Result({"endpoint": endpoint, "secret": secret}, (head, *secret_lines(secret), test))


@app.reads()
async def list_(database: "Database", workspace: Workspace = None) -> Result:
    """List endpoints: state, progress, and why one fails or is disabled."""
    workspace_id = await lookup.workspace_id(database, workspace)
    progress = await event_views.standings(database, workspace_id)
    endpoints = [
        (endpoint, progress.get(endpoint.endpoint_id, event_views.EndpointProgress()))
        for endpoint in await webhooks.list_endpoints(database, workspace_id)
    ]
    return listing(
        endpoints,
        ("!id", "!status", "#unsent", "#failed", "!delivered", "url", "about"),
        lambda row: (
            *(str(row[0].endpoint_id), _state(row[0])),
            *(str(row[1].unsent), str(row[1].failed), moment(row[1].delivered_at)),
            *(row[0].url, _about(row[0])),
        ),
        "No endpoints yet: `switchboard webhooks create URL` creates one.",
        [fields(endpoint) | {"standing": standing} for endpoint, standing in endpoints],
    )


@app.reads()
async def show(database: "Database", endpoint: Id) -> Result:
    """Show one endpoint in full, except its secret."""
    match = await find(database, endpoint)
    progress = await event_views.standings(database, match.workspace_id)
    standing = progress.get(match.endpoint_id, event_views.EndpointProgress())
    values = [
        (field.name, getattr(item, field.name)) for item in (match, standing) for field in dataclasses.fields(item)
    ]
    rows = [(name, _shown(value)) for name, value in values if value not in (None, "", ())]
    return Result(fields(match) | {"standing": standing}, details(rows))


@app.updates("thin include")
async def update(
    database: "Database",
    endpoint: Id,
    url: Annotated[str | None, typer.Option(help="New URL.")] = None,
    event: EventTypes = None,
    include: Include = None,
    thin: Annotated[
        bool, typer.Option("--thin", help="Send only ids, state and times, also for queued events.")
    ] = False,
    description: Annotated[str | None, typer.Option(help="Description of the endpoint.")] = None,
) -> Result:
    """Change an endpoint; without an option, its value stays.

    Examples:

      switchboard webhooks update ID --url https://crm.example/v2/hooks

      switchboard webhooks update ID --event call.completed --event call.failed
    """
    match = await find(database, endpoint)
    if url is not None:
        await poster().look(url)
    parts = [] if thin else include or None
    updated = require_endpoint(await webhooks.change(database, match, url, event or None, parts, description))
    return Result(updated, f"Changed {updated.endpoint_id}.")


@app.writes()
async def delete(database: "Database", endpoint: Id) -> Result:
    """Delete an endpoint with its queued events and its log."""
    removed = await webhooks.remove(database, await find(database, endpoint))
    return Result({"endpoint_id": endpoint, "removed": removed}, f"Deleted {endpoint}.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of all events, for receivers.

    Example:

      switchboard webhooks schema > events.schema.json
    """
    print_json(payload.schema())


def _state(endpoint: "Endpoint") -> Text:
    if endpoint.disabled_at is not None:
        return Text("disabled", style="bold red")
    return Text("failing", style="yellow") if endpoint.failing_since else Text("enabled", style="green")


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, float):
        return duration(value)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _about(endpoint: "Endpoint") -> str:
    if endpoint.disabled_at is not None:
        return f"since {moment(endpoint.disabled_at)}: {endpoint.disabled_reason}"
    if endpoint.failing_since is not None:
        return f"since {moment(endpoint.failing_since)}: {endpoint.last_failure}"
    return endpoint.description
