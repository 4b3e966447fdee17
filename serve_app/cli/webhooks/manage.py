from typing import TYPE_CHECKING, Annotated

import typer

from db.events import endpoints as webhooks
from serve_app.cli.ui.output import counted, fields, moment
from serve_app.cli.ui.resource import Result
from serve_app.cli.webhooks.common import Id, app, find, poster, require_endpoint, secret_lines
from serve_app.settings import Settings
from serve_app.webhooks import payload, signing

if TYPE_CHECKING:
    from db.core.database import Database


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
        await webhooks.rotate(database, match, Settings().sealer().seal(secret), overlap_hours * 3600)
    )
    until = f"signs until {moment(rotated.previous_until)}" if rotated.previous_until else "has ended"
    return Result({"endpoint": rotated, "secret": secret}, (*secret_lines(secret), f"The previous secret {until}."))


@app.reads()
async def test(database: "Database", endpoint: Id) -> Result:
    """Send a signed event of type webhook.test now and show the response; also to a disabled endpoint."""
    match, sealer = await find(database, endpoint), Settings().sealer()
    secrets = [sealer.open(sealed) for sealed in await webhooks.sealed_secrets(database, match)]
    clock = await database.clock()
    event = payload.trial_event(match.endpoint_id, clock.now())
    message_id, body = payload.message_id(event.event_id), payload.body(event, (), 1 << 20)
    attempt = (await poster().post(match.url, message_id, body, secrets, clock)).attempt
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
async def reseal(database: "Database") -> Result:
    """Seal the secrets of all endpoints with the first of SWITCHBOARD_SECRETS_KEYS, including those stored unsealed.

    Example:

      SWITCHBOARD_SECRETS_KEYS=NEW,OLD switchboard webhooks reseal
    """
    sealer = Settings().sealer()
    count = await webhooks.reseal(database, sealer)
    return Result(
        {"resealed": count, "sealed": sealer.seals},
        f"{counted(count, 'secret')} sealed with the current key.",
        warnings=() if sealer.seals else ("SWITCHBOARD_SECRETS_KEYS is not set: secrets are stored unsealed.",),
    )
