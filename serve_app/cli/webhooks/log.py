"""`switchboard webhooks deliveries` and `replay`: what became of events, and sending them again."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from serve_app.cli.ui import database as state
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, err, fields, moment, print_list, say
from serve_app.cli.ui.since import moment_of, told
from serve_app.cli.webhooks.common import Id, find

if TYPE_CHECKING:
    from db.core.database import Database
    from db.events.deliveries import DeliverySummary

STYLES = {"waiting": "cyan", "behind": "cyan", "sending": "yellow", "delivered": "green", "failed": "bold red"}


def register(app: typer.Typer) -> None:
    """Put the commands of this file into `app`."""
    app.command()(deliveries)
    app.command()(replay)


def deliveries(
    endpoint: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Of one endpoint.", show_default="of every one")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed deliveries.")] = False,
    call: Annotated[str | None, typer.Option(metavar="CALLID", help="Of one call.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 20,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """List the latest deliveries: event, state, and the last answer of the receiver.

    With --json each comes with all its attempts: time, status, seconds, beginning of the answer.

    Examples:

      switchboard webhooks deliveries --failed

      switchboard webhooks deliveries --call 7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210 --json
    """
    from serve_app.webhooks.payload import message_id

    of_endpoint = lookup.need_uuid(endpoint, "`switchboard webhooks list` shows the ids.") if endpoint else None
    of_call = lookup.need_uuid(call, "--call takes the callId of a submission.") if call else None

    async def work(database: "Database") -> "list[DeliverySummary]":
        from db.events import deliveries as event_views

        home = await lookup.workspace_id(database, workspace)
        wanted = "failed" if failed else None
        return await event_views.list_deliveries(database, home, of_endpoint, wanted, of_call, limit)

    found = state.run(work)
    print_list(
        found,
        json_,
        ("!event", "!state", "#tries", "!happened", "!type", "!call", "about"),
        lambda one: (
            message_id(one.event_id),
            Text(one.state, style=STYLES[one.state]),
            str(one.attempts),
            moment(one.at),
            one.type,
            str(one.call_id),
            Text(_about(one)),
        ),
        "No delivery failed." if failed else "Nothing was sent yet.",
        [fields(one) | {"webhook_id": message_id(one.event_id)} for one in found],
    )


def replay(
    endpoint: Id,
    event: Annotated[
        str | None, typer.Option(metavar="EVENT", help="One event, by its webhook-id.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="All events since then, delivered ones too: 90m, 12h, 3d or ISO 8601.",
            show_default=False,
        ),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only failed deliveries; with --since, of that time.")
    ] = False,
    json_: Json = False,
) -> None:
    """Send events again with their original ids, so that receivers can recognize duplicates.

    Examples:

      switchboard webhooks replay ID --failed

      switchboard webhooks replay ID --since 12h

      switchboard webhooks replay ID --event evt_0f4c3b1e6d8a4b0b9b8a3d1c2e5f7a90
    """
    if event is None and since is None and not failed:
        raise CommandError("Replay what?", "--failed, --since TIME or --event EVENT.", USAGE)
    if event is not None and since is not None:
        raise CommandError("--event names one event, --since many.", "Give one of them.", USAGE)
    one_event, asked = _event(event), told(since)

    async def work(database: "Database") -> int:
        from db.events import upkeep

        one = await find(database, endpoint)
        if one.disabled_at is not None:
            err().print(f"The endpoint is disabled: `switchboard webhooks enable {endpoint}` lets them go.")
        start = await moment_of(database, asked)
        return await upkeep.replay(database, one.workspace_id, one.endpoint_id, one_event, start, failed)

    count = state.run(work, writes=True)
    told_ = f"{count} to be sent again." if count else "There is nothing of that to send again."
    say(told_, {"endpoint_id": endpoint, "replayed": count}, json_)


def _event(text: str | None) -> UUID | None:
    from serve_app.webhooks.payload import event_id

    try:
        return event_id(text) if text else None
    except ValueError as error:
        raise CommandError(
            f"{text!r} is not an event id.", "`switchboard webhooks deliveries` shows them.", USAGE
        ) from error


def _about(one: "DeliverySummary") -> str:
    if one.state == "behind":
        return "an earlier event of the call comes first"
    parts = [one.log[-1].outcome] if one.log else []
    if one.next_try is not None and one.log:
        parts.append(f"next try {moment(one.next_try)}")
    if one.log and one.log[-1].answer and one.state != "delivered":
        parts.append(one.log[-1].answer[:80])
    return ", ".join(parts)
