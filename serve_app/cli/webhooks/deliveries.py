"""`switchboard webhooks deliveries` and `replay`: what became of events, and sending them again."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from db.events import deliveries as event_views
from db.events import upkeep
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import Time, moment_of, parse_id, parse_time
from serve_app.cli.ui.output import fields, moment
from serve_app.cli.ui.resource import Answer, listing
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
        typer.Argument(metavar="[ID]", parser=parse_endpoint, help="Of one endpoint.", show_default="of every one"),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed deliveries.")] = False,
    call: Annotated[
        UUID | None,
        typer.Option(
            metavar="CALLID", parser=parse_id("--call takes the callId of a submission."), help="Of one call."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 20,
    workspace: lookup.Workspace = None,
) -> Answer:
    """List the latest deliveries: event, state, and the last answer of the receiver.

    With --json each comes with all its attempts: time, status, seconds, beginning of the answer.

    Examples:

      switchboard webhooks deliveries --failed

      switchboard webhooks deliveries --call 7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210 --json
    """
    home, state = await lookup.workspace_id(database, workspace), "failed" if failed else None
    items = await event_views.list_deliveries(database, home, endpoint, state, call, limit)
    return listing(
        items,
        ("!event", "!state", "#tries", "!happened", "!type", "!call", "about"),
        lambda one: (
            *(
                payload.message_id(one.event_id),
                Text(SHOWN.get(one.state, one.state), STYLES[one.state]),
                str(one.attempts),
            ),
            *(moment(one.at), one.type, str(one.call_id), _about(one)),
        ),
        "No delivery failed." if failed else "No deliveries yet.",
        [fields(one) | {"webhook_id": payload.message_id(one.event_id)} for one in items],
    )


def _selects(given: set[str]) -> bool:
    if not given & {"event", "since", "failed"}:
        raise CommandError("Replay what?", "--failed, --since TIME or --event EVENT.", USAGE)
    if {"event", "since"} <= given:
        raise CommandError("--event names one event, --since many.", "Give one of them.", USAGE)
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
        bool, typer.Option("--failed", help="Only failed deliveries; with --since, of that time.")
    ] = False,
) -> Answer:
    """Send events again with their original ids, so that receivers can recognize duplicates.

    Examples:

      switchboard webhooks replay ID --failed

      switchboard webhooks replay ID --since 12h

      switchboard webhooks replay ID --event evt_0f4c3b1e6d8a4b0b9b8a3d1c2e5f7a90
    """
    match, start = await find(database, endpoint), await moment_of(database, since)
    count = await upkeep.replay(database, match.workspace_id, match.endpoint_id, event, start, failed)
    disabled = f"The endpoint is disabled: `switchboard webhooks enable {endpoint}` sends them."
    return Answer(
        {"endpoint_id": endpoint, "replayed": count},
        f"{count} queued again." if count else "No events to send again.",
        warnings=(disabled,) if match.disabled_at else (),
    )


def _about(one: "DeliverySummary") -> str:
    if one.state == "behind":
        return "an earlier event of the call comes first"
    parts = [one.log[-1].outcome] if one.log else []
    if one.next_try is not None and one.log:
        parts.append(f"next try {moment(one.next_try)}")
    if one.log and one.log[-1].answer and one.state != "delivered":
        parts.append(one.log[-1].answer[:80])
    return ", ".join(parts)
