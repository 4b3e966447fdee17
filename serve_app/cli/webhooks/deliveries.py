from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from db.events import deliveries as event_views
from db.events import upkeep
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import Time, Workspace, moment_of, parse_id, parse_time
from serve_app.cli.ui.output import fields, moment
from serve_app.cli.ui.resource import Result, listing
from serve_app.cli.webhooks.common import Id, app, find, parse_endpoint
from serve_app.webhooks import payload

if TYPE_CHECKING:
    from db.core.database import Database
    from db.events.deliveries import DeliverySummary

SHOWN = {"behind": "waiting"}  # for an earlier event of the call
STYLES = {"waiting": "cyan", "behind": "cyan", "sending": "yellow", "delivered": "green", "failed": "bold red"}


def _event(text: str) -> UUID:
    try:
        return payload.event_id(text)
    except ValueError as error:
        hint = "`switchboard webhooks deliveries` shows them."
        raise CommandError(f"{text!r} is not an event id.", hint, USAGE) from error


@app.reads()
async def deliveries(
    database: "Database",
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
    workspace: Workspace = None,
) -> Result:
    """List the latest deliveries: event, state, and the last response of the receiver.

    With --json, each includes all attempts: time, status, seconds, beginning of the response.

    Examples:

      switchboard webhooks deliveries --failed

      switchboard webhooks deliveries --call 7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210 --json
    """
    workspace_id, state = await lookup.workspace_id(database, workspace), "failed" if failed else None
    items = await event_views.list_deliveries(database, workspace_id, endpoint, state, call, limit)
    return listing(
        items,
        ("!event", "!status", "#tries", "!occurred", "!type", "!call", "about"),
        lambda delivery: (
            *(
                payload.message_id(delivery.event_id),
                Text(SHOWN.get(delivery.state, delivery.state), STYLES[delivery.state]),
                str(delivery.attempts),
            ),
            *(moment(delivery.at), delivery.type, str(delivery.call_id), _about(delivery)),
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

      switchboard webhooks replay ID --event evt_0f4c3b1e6d8a4b0b9b8a3d1c2e5f7a90
    """
    match, start = await find(database, endpoint), await moment_of(database, since)
    count = await upkeep.replay(database, match.workspace_id, match.endpoint_id, event, start, failed)
    disabled = f"The endpoint is disabled: `switchboard webhooks enable {endpoint}` sends them."
    return Result(
        {"endpoint_id": endpoint, "replayed": count},
        f"{count} queued again." if count else "No events to send again.",
        warnings=(disabled,) if match.disabled_at else (),
    )


def _about(delivery: "DeliverySummary") -> str:
    if delivery.state == "behind":
        return "waits for an earlier event of the call"
    parts = [delivery.log[-1].outcome] if delivery.log else []
    if delivery.next_try is not None and delivery.log:
        parts.append(f"next try {moment(delivery.next_try)}")
    if delivery.log and delivery.log[-1].answer and delivery.state != "delivered":
        parts.append(delivery.log[-1].answer[:80])
    return ", ".join(parts)
