import dataclasses
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer
from rich.text import Text

from db.events.types import type_names
from serve_app.cli.ui import resealing
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Team, Time, moment_of, parse_id, parse_time
from serve_app.cli.ui.output import counted, duration, fields, moment, print_json
from serve_app.cli.ui.resource import AnyScope, Group, Result, Scope, details, listing

if TYPE_CHECKING:
    from db.core.database import Database
    from db.events import endpoints as webhooks
    from db.events import upkeep
    from db.events.endpoints import DeliverySummary, Endpoint
    from db.secrets import rotate
    from db.workspace import settings as workspace_settings
    from serve_app import settings
    from serve_app.webhooks import payload, signing
    from serve_app.webhooks.post import Poster
else:
    webhooks, upkeep, rotate, workspace_settings, settings, payload, signing = lazy(
        "db.events.endpoints",
        "db.events.upkeep",
        "db.secrets.rotate",
        "db.workspace.settings",
        "serve_app.settings",
        "serve_app.webhooks.payload",
        "serve_app.webhooks.signing",
    )

LIST_HINT = "`switchboard webhooks list` shows the ids."
STATE_NAMES = {"behind": "waiting"}  # for an earlier event of the call
STYLES = {"waiting": "cyan", "behind": "cyan", "sending": "yellow", "delivered": "green", "failed": "bold red"}

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
    endpoint = await webhooks.find(database, endpoint_id)
    if endpoint is None:
        raise CommandError(f"No endpoint has the id {endpoint_id}.", LIST_HINT)
    return endpoint


def require_endpoint(endpoint: "Endpoint | None") -> "Endpoint":
    """Return the endpoint after a change. Raises `CommandError` if it was deleted."""
    if endpoint is None:
        raise CommandError("The endpoint was deleted in the meantime.")
    return endpoint


async def poster(database: "Database", workspace_id: UUID) -> "Poster":
    from serve_app.webhooks.post import Poster

    current = settings.Settings()
    hosts = await workspace_settings.allowed_hosts(database, workspace_id)
    return Poster(current.webhooks, current.fetch.ca_file).for_workspace(hosts)


def secret_lines(secret: str) -> tuple[Text, str]:
    note = "The receiver verifies events with it. Copy it now, it cannot be shown again."
    return Text(f"\n  {secret}\n", "bold green"), note


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

    Example:

      switchboard webhooks create https://crm.example/hooks --event call.completed --include record --team support
    """
    await (await poster(scope.database, scope.id)).look(url)
    secret = signing.new_secret()
    endpoint = await webhooks.add(
        scope.database,
        scope.id,
        url,
        settings.Settings().sealer().seal(secret),
        event or None,
        include or (),
        await scope.team_id(team),
        description,
    )
    head = f"Endpoint {endpoint.endpoint_id}: {', '.join(endpoint.events)} to {endpoint.url}"
    test = f"Test it: `switchboard webhooks test {endpoint.endpoint_id}`"
    return Result({"endpoint": endpoint, "secret": secret}, (head, *secret_lines(secret), test))


@app.reads()
async def list_(scope: AnyScope) -> Result:
    """List endpoints: state, progress, and why one fails or is disabled."""
    progress_by_id = await webhooks.standings(scope.database, scope.id)
    endpoints = await webhooks.list_endpoints(scope.database, scope.id)
    rows = [(each, progress_by_id.get(each.endpoint_id, webhooks.EndpointProgress())) for each in endpoints]

    def cells(row: "tuple[Endpoint, webhooks.EndpointProgress]") -> tuple[Any, ...]:
        endpoint, progress = row
        numbers = (progress.unsent, progress.failed, progress.delivered_at)
        return endpoint.endpoint_id, _state(endpoint), *numbers, endpoint.url, _about(endpoint)

    return listing(
        rows,
        ("!id", "!status", "#unsent", "#failed", "!delivered", "url", "about"),
        cells,
        "No endpoints yet: `switchboard webhooks create URL` creates one.",
        [fields(endpoint) | {"standing": progress} for endpoint, progress in rows],
    )


@app.reads()
async def show(database: "Database", endpoint: Id) -> Result:
    """Show one endpoint in full, except its secret."""
    match = await find(database, endpoint)
    progress_by_id = await webhooks.standings(database, match.workspace_id)
    progress = progress_by_id.get(match.endpoint_id, webhooks.EndpointProgress())
    values = [
        (field.name, getattr(item, field.name)) for item in (match, progress) for field in dataclasses.fields(item)
    ]
    rows = [(name, _as_text(value)) for name, value in values if value not in (None, "", ())]
    return Result(fields(match) | {"standing": progress}, details(rows))


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
        await (await poster(database, match.workspace_id)).look(url)
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


def _as_text(value: Any) -> str:
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


@app.writes()
async def disable(
    database: "Database",
    endpoint: Id,
    reason: Annotated[str, typer.Option(help="Shown in `webhooks list`.")] = "Disabled by hand.",
) -> Result:
    """Disable an endpoint. Its events are stored until it is enabled, within the retention time.

    Example:

      switchboard webhooks disable ID --reason "The CRM moves this weekend."
    """
    disabled = require_endpoint(await webhooks.disable(database, await find(database, endpoint), reason))
    return Result(disabled, f"Disabled {disabled.endpoint_id}.")


@app.writes()
async def enable(
    database: "Database",
    endpoint: Id,
    pass_over: Annotated[
        bool, typer.Option("--pass-over", help="Skip the events queued so far; `webhooks replay` can send them.")
    ] = False,
) -> Result:
    """Enable an endpoint; its events are sent, oldest first. Failed deliveries need `webhooks replay`."""
    enabled = require_endpoint(await webhooks.enable(database, await find(database, endpoint), pass_over))
    return Result(enabled, f"Enabled {enabled.endpoint_id}.")


@app.writes()
async def rotate_secret(
    database: "Database",
    endpoint: Id,
    overlap_hours: Annotated[
        float, typer.Option(min=0, help="How long the current secret stays valid with the new one; 0: not at all.")
    ] = 24.0,
) -> Result:
    """Create a new signing secret and show it, once. Until the overlap ends every event carries both signatures.

    Example:

      switchboard webhooks rotate-secret ID --overlap-hours 72
    """
    secret, match = signing.new_secret(), await find(database, endpoint)
    rotated = require_endpoint(
        await webhooks.rotate(database, match, settings.Settings().sealer().seal(secret), overlap_hours * 3600)
    )
    until = f"signs until {moment(rotated.previous_until)}" if rotated.previous_until else "has ended"
    return Result({"endpoint": rotated, "secret": secret}, (*secret_lines(secret), f"The previous secret {until}."))


@app.reads()
async def test(database: "Database", endpoint: Id) -> Result:
    """Send a signed event of type webhook.test now and show the response; also to a disabled endpoint."""
    match, sealer = await find(database, endpoint), settings.Settings().sealer()
    secrets = [sealer.open(sealed) for sealed in await webhooks.sealed_secrets(database, match)]
    clock = await database.clock()
    event = payload.trial_event(match.endpoint_id, clock.now())
    message_id, body = payload.message_id(event.event_id), payload.body(event, (), 1 << 20)
    sender = await poster(database, match.workspace_id)
    attempt = (await sender.post(match.url, message_id, body, secrets, clock)).attempt
    delivered = attempt.status is not None and 200 <= attempt.status < 300
    outcome = "delivered" if delivered else "not delivered"
    return Result(
        {"webhook_id": message_id, "delivered": delivered} | fields(attempt),
        (
            f"{message_id}: {outcome}, {attempt.outcome}, {attempt.seconds:.2f} s",
            *([f"  {attempt.answer}"] if attempt.answer else []),
        ),
        failed=not delivered,
    )


@app.writes()
async def listen(
    scope: Scope,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address of this machine that the service reaches.")] = "127.0.0.1",
    event: EventTypes = None,
    include: Include = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many events.", show_default="never")] = None,
) -> Result:
    """Receive events on this machine and print them, verified, with their signatures; for development.

    Until Ctrl-C the workspace has an endpoint at this address, and the address is one of its hosts. Into a pipe each
    event is one line of JSON.

    Example:

      switchboard webhooks listen --event call.completed --include record --workspace acme
    """
    from serve_app.cli.workspace import listening

    arrived = await listening.receive(scope, host, port, event or None, include, count)
    return Result({"events": arrived}, notes=(f"{counted(arrived, 'event')} received.",))


@app.writes()
async def reseal(database: "Database") -> Result:
    """Seal the secrets of all endpoints with the first of SWITCHBOARD_SECRETS_KEYS, including those stored unsealed.

    Example:

      SWITCHBOARD_SECRETS_KEYS=NEW,OLD switchboard webhooks reseal
    """
    return await resealing.reseal(database, rotate.WEBHOOKS, "secret", "`webhooks rotate-secret` replaces them")


def _event(text: str) -> UUID:
    try:
        return payload.event_id(text)
    except ValueError as error:
        hint = "`switchboard webhooks deliveries` shows them."
        raise CommandError(f"{text!r} is not an event id.", hint, USAGE) from error


@app.reads()
async def deliveries(
    scope: AnyScope,
    endpoint: Annotated[
        UUID | None,
        typer.Argument(metavar="[ID]", parser=parse_endpoint, help="Only this endpoint.", show_default="all endpoints"),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed deliveries.")] = False,
    call: Annotated[
        UUID | None,
        typer.Option(
            metavar="CALLID", parser=parse_id("--call takes the callId of a submission."), help="Only this call."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 20,
) -> Result:
    """List the latest deliveries: event, state, and the last response of the receiver.

    With --json, each includes all attempts: time, status, seconds, beginning of the response.

    Examples:

      switchboard webhooks deliveries --failed

      switchboard webhooks deliveries --call 7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210 --json
    """
    state = "failed" if failed else None
    items = await webhooks.list_deliveries(scope.database, scope.id, endpoint, state, call, limit)
    return listing(
        items,
        ("!event", "!status", "#tries", "!occurred", "!type", "!call", "about"),
        lambda delivery: (
            payload.message_id(delivery.event_id),
            Text(STATE_NAMES.get(delivery.state, delivery.state), STYLES[delivery.state]),
            *(delivery.attempts, delivery.at, delivery.type, delivery.call_id, _last_response(delivery)),
        ),
        "No delivery failed." if failed else "No deliveries yet.",
        [fields(delivery) | {"webhook_id": payload.message_id(delivery.event_id)} for delivery in items],
    )


def _selects(present: set[str]) -> bool:
    if not present & {"event", "since", "failed"}:
        raise CommandError("Nothing selected.", "Use --failed, --since TIME or --event EVENT.", USAGE)
    if {"event", "since"} <= present:
        raise CommandError("--event and --since exclude each other.", "Use one of them.", USAGE)
    return True


@app.checked(_selects)
async def replay(
    database: "Database",
    endpoint: Id,
    event: Annotated[
        UUID | None, typer.Option(metavar="EVENT", parser=_event, help="One event, by its webhook-id.")
    ] = None,
    since: Annotated[
        Time | None,
        typer.Option(
            metavar="TIME",
            parser=parse_time,
            help="All events since then, delivered ones too: 90m, 12h, 3d or ISO 8601.",
        ),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only failed deliveries; with --since, from that time.")
    ] = False,
) -> Result:
    """Send events again with their original ids, so that receivers can recognize duplicates.

    Examples:

      switchboard webhooks replay ID --failed

      switchboard webhooks replay ID --since 12h
    """
    match, start = await find(database, endpoint), await moment_of(database, since)
    count = await upkeep.replay(database, match.workspace_id, match.endpoint_id, event, start, failed)
    disabled = f"The endpoint is disabled: `switchboard webhooks enable {endpoint}` sends them."
    return Result(
        {"endpoint_id": endpoint, "replayed": count},
        f"{count} queued again." if count else "No events to send again.",
        warnings=(disabled,) if match.disabled_at else (),
    )


def _last_response(delivery: "DeliverySummary") -> str:
    if delivery.state == "behind":
        return "waits for an earlier event of the call"
    parts = [delivery.log[-1].outcome] if delivery.log else []
    if delivery.next_try is not None and delivery.log:
        parts.append(f"next try {moment(delivery.next_try)}")
    if delivery.log and delivery.log[-1].answer and delivery.state != "delivered":
        parts.append(delivery.log[-1].answer[:80])
    return ", ".join(parts)
