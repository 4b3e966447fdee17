"""`switchboard webhooks`: where a workspace's events are sent; further commands are in `care.py` and `log.py`."""

import dataclasses
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from db.events.types import type_names
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, duration, fields, moment, out, print_json, print_list, say
from serve_app.cli.ui.table import table
from serve_app.cli.webhooks import care, log
from serve_app.cli.webhooks.common import Id, change, find, poster, run, settings, show_secret

if TYPE_CHECKING:
    from db.core.database import Database
    from db.events.deliveries import EndpointProgress
    from db.events.endpoints import Endpoint

app = command_group("""Webhooks: tell another system when calls are received, transcribed, completed or failed.

    Events are signed after Standard Webhooks 1.0, so that any of its libraries verifies them. None is written before
    an endpoint is added.

    Examples:

      switchboard webhooks add https://crm.example/hooks/calls --workspace acme

      switchboard webhooks test ID

      switchboard webhooks deliveries --failed

      switchboard webhooks replay ID --failed
""")

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
        show_default="ids, state and times alone",
    ),
]


@app.command()
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="https://...; events are posted there, signed.")],
    workspace: lookup.Workspace = None,
    team: lookup.Team = None,
    event: EventTypes = None,
    include: Include = None,
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    json_: Json = False,
) -> None:
    """Add an endpoint and show its signing secret, once. It receives events from now on.

    By default an event names the call and says how it stands; nothing that was said or found leaves the service.
    --include record adds summary, tone, tasks, contact and figures to call.completed, --include transcript the words.

    Examples:

      switchboard webhooks add https://crm.example/hooks/calls --workspace acme

      switchboard webhooks add https://crm.example/hooks --event call.completed --include record --team support
    """
    from db.events import endpoints as webhooks
    from serve_app.webhooks import signing

    secret = signing.new_secret()

    async def work(database: "Database") -> "Endpoint":
        sealed = settings().sealer().seal(secret)  # now that its folder is there
        await poster().look(url)
        home = await lookup.workspace(database, workspace)
        group = await lookup.team_id(database, home.workspace_id, team)
        return await webhooks.add(
            database, home.workspace_id, url, sealed, event or None, include or (), group, description
        )

    made = run(work, writes=True)
    if json_:
        print_json({"endpoint": made, "secret": secret})
        return
    out().print(f"Endpoint {made.endpoint_id}: {', '.join(made.events)} to {made.url}", markup=False)
    show_secret(secret)
    out().print(f"See whether events arrive: `switchboard webhooks test {made.endpoint_id}`")


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List endpoints: state, progress, and why one fails or is disabled.

    Example:

      switchboard webhooks list --workspace acme
    """

    async def work(database: "Database") -> "list[tuple[Endpoint, EndpointProgress]]":
        from db.events import deliveries as event_views
        from db.events import endpoints as webhooks

        home = await lookup.workspace_id(database, workspace)
        standings = await event_views.standings(database, home)
        found = await webhooks.list_endpoints(database, home)
        return [(one, standings.get(one.endpoint_id, event_views.EndpointProgress())) for one in found]

    def row(found: "tuple[Endpoint, EndpointProgress]") -> "tuple[str | Text, ...]":
        one, standing = found
        counts = (str(standing.unsent), str(standing.failed), moment(standing.delivered_at))
        return str(one.endpoint_id), _state(one), *counts, one.url, _about(one)

    found = run(work)
    print_list(
        found,
        json_,
        ("!id", "!state", "#unsent", "#failed", "!delivered", "url", "about"),
        row,
        "No endpoints yet: `switchboard webhooks add URL` makes one.",
        [fields(one) | {"standing": standing} for one, standing in found],
    )


@app.command()
def show(endpoint: Id, json_: Json = False) -> None:
    """Show one endpoint in full, except its secret.

    Example:

      switchboard webhooks show 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """

    async def work(database: "Database") -> "tuple[Endpoint, EndpointProgress]":
        from db.events import deliveries as event_views

        one = await find(database, endpoint)
        standings = await event_views.standings(database, one.workspace_id)
        return one, standings.get(one.endpoint_id, event_views.EndpointProgress())

    one, standing = run(work)
    if json_:
        print_json(fields(one) | {"standing": standing})
        return
    lines = table("!what", "value")
    lines.show_header = False
    for field in (*dataclasses.fields(one), *dataclasses.fields(standing)):
        value = getattr(one if field in dataclasses.fields(one) else standing, field.name)
        if value not in (None, "", ()):
            lines.add_row(field.name.replace("_", " "), _shown(value))
    out().print(lines)


@app.command()
def update(
    endpoint: Id,
    url: Annotated[str | None, typer.Option(help="Send there from now on.", show_default=False)] = None,
    event: EventTypes = None,
    include: Include = None,
    thin: Annotated[
        bool, typer.Option("--thin", help="Send only ids, state and times, also for queued events.")
    ] = False,
    description: Annotated[str | None, typer.Option(help="What it is for.", show_default=False)] = None,
    json_: Json = False,
) -> None:
    """Change an endpoint; options that are not given stay as they are.

    Examples:

      switchboard webhooks update ID --url https://crm.example/v2/hooks

      switchboard webhooks update ID --event call.completed --event call.failed
    """
    from db.events import endpoints as webhooks

    if thin and include:
        raise CommandError("--thin and --include contradict each other.", "", USAGE)

    async def work(database: "Database", one: "Endpoint") -> "Endpoint | None":
        if url is not None:
            await poster().look(url)
        return await webhooks.change(database, one, url, event or None, [] if thin else include or None, description)

    changed = change(endpoint, work)
    say(f"Changed {changed.endpoint_id}.", changed, json_)


@app.command()
def remove(endpoint: Id, json_: Json = False) -> None:
    """Remove an endpoint with its queued events and its log.

    Example:

      switchboard webhooks remove 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """

    async def work(database: "Database") -> bool:
        from db.events import endpoints as webhooks

        return await webhooks.remove(database, await find(database, endpoint))

    removed = run(work, writes=True)
    say(f"Removed {endpoint}.", {"endpoint_id": endpoint, "removed": removed}, json_)


@app.command()
def schema() -> None:
    """Print the JSON Schema of all events, for receivers.

    Example:

      switchboard webhooks schema > events.schema.json
    """
    from serve_app.webhooks import payload

    print_json(payload.schema())


def _state(one: "Endpoint") -> Text:
    if one.disabled_at is not None:
        return Text("disabled", style="bold red")
    return Text("failing", style="yellow") if one.failing_since else Text("enabled", style="green")


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, float):
        return duration(value)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _about(one: "Endpoint") -> str:
    if one.disabled_at is not None:
        return f"since {moment(one.disabled_at)}: {one.disabled_reason}"
    if one.failing_since is not None:
        return f"since {moment(one.failing_since)}: {one.last_failure}"
    return one.description


care.register(app)
log.register(app)
