"""`switchboard webhooks disable|enable|rotate-secret|test`: an endpoint in trouble, and one that is looked after."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.cli.ui.errors import FAILED
from serve_app.cli.ui.output import Json, counted, err, fields, moment, out, print_json, say
from serve_app.cli.webhooks.common import Id, change, find, poster, run, settings, show_secret

if TYPE_CHECKING:
    from db.core.database import Database


def register(app: typer.Typer) -> None:
    """Put the commands of this file into `app`."""
    app.command()(disable)
    app.command()(enable)
    app.command("rotate-secret")(rotate_secret)
    app.command()(test)
    app.command()(reseal)


def disable(
    endpoint: Id,
    reason: Annotated[str, typer.Option(help="Shown in `webhooks list`.")] = "Disabled by hand.",
    json_: Json = False,
) -> None:
    """Disable an endpoint. Its events are kept until it is enabled, within the retention time.

    Example:

      switchboard webhooks disable ID --reason "The CRM moves this weekend."
    """
    from db.events import endpoints as webhooks

    disabled = change(endpoint, lambda database, one: webhooks.disable(database, one, reason))
    say(f"Disabled {disabled.endpoint_id}.", disabled, json_)


def enable(
    endpoint: Id,
    pass_over: Annotated[
        bool, typer.Option("--pass-over", help="Do not send the events kept meanwhile; `webhooks replay` still can.")
    ] = False,
    json_: Json = False,
) -> None:
    """Send again, oldest first. Deliveries that failed before need `webhooks replay`.

    Example:

      switchboard webhooks enable 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """
    from db.events import endpoints as webhooks

    enabled = change(endpoint, lambda database, one: webhooks.enable(database, one, pass_over))
    say(f"Enabled {enabled.endpoint_id}.", enabled, json_)


def rotate_secret(
    endpoint: Id,
    overlap_hours: Annotated[
        float, typer.Option(min=0, help="How long the current secret stays valid beside the new one; 0: not at all.")
    ] = 24.0,
    json_: Json = False,
) -> None:
    """Make a new signing secret and show it, once. Until the overlap ends every event carries both signatures.

    Example:

      switchboard webhooks rotate-secret ID --overlap-hours 72
    """
    from db.events import endpoints as webhooks
    from serve_app.webhooks import signing

    secret, overlap = signing.new_secret(), overlap_hours * 3600
    rotated = change(
        endpoint, lambda database, one: webhooks.rotate(database, one, settings().sealer().seal(secret), overlap)
    )
    if json_:
        print_json({"endpoint": rotated, "secret": secret})
        return
    show_secret(secret)
    until = f"until {moment(rotated.previous_until)}" if rotated.previous_until else "no more"
    out().print(f"The secret before it signs {until}.")


def test(endpoint: Id, json_: Json = False) -> None:
    """Send a signed event of type webhook.test now and show what came back; a disabled endpoint gets it too.

    Example:

      switchboard webhooks test 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """

    async def work(database: "Database") -> Any:
        from db.events import endpoints as webhooks
        from serve_app.webhooks import payload

        one = await find(database, endpoint)
        sealer = settings().sealer()
        secrets = [sealer.open(sealed) for sealed in await webhooks.sealed_secrets(database, one)]
        clock = await database.clock()
        event = payload.trial_event(one.endpoint_id, clock.now())
        body = payload.body(event, (), 1 << 20)
        answer = await poster().post(one.url, payload.message_id(event.event_id), body, secrets, clock)
        return payload.message_id(event.event_id), answer.attempt

    message_id, attempt = run(work)
    taken = attempt.status is not None and 200 <= attempt.status < 300
    if json_:
        print_json({"webhook_id": message_id, "taken": taken} | fields(attempt))
    else:
        told = "taken" if taken else "not taken"
        out().print(f"{message_id}: {told}, {attempt.outcome}, {attempt.seconds:.2f} s", markup=False)
        if attempt.answer:
            out().print(f"  {attempt.answer}", markup=False)
    if not taken:
        raise typer.Exit(FAILED)


def reseal(json_: Json = False) -> None:
    """Seal the secrets of all endpoints with the first of SWITCHBOARD_SECRETS_KEYS, including those stored unsealed.

    Example:

      SWITCHBOARD_SECRETS_KEYS=NEW,OLD switchboard webhooks reseal
    """
    from db.events import endpoints as webhooks

    changed_ones: int = run(lambda database: webhooks.reseal(database, settings().sealer()), writes=True)
    sealer = settings().sealer()
    told = f"{counted(changed_ones, 'secret')} sealed with the current key."
    say(told, {"resealed": changed_ones, "sealed": sealer.seals}, json_)
    if not sealer.seals:
        err().print("SWITCHBOARD_SECRETS_KEYS is not set: secrets are kept unsealed.")
