"""A receiver in the workspace's network needs an entry of `switchboard workspaces hosts`, and no restart."""

import asyncio

from db.events import endpoints
from db.workspace import settings
from serve_app.conductor.webhooks import WebhookDispatcher
from serve_app.webhooks import signing
from serve_app.webhooks.options import WebhookOptions
from tests.integration.serve_app.webhooks.test_delivery import SEALER
from tests.postgres import World
from tests.receiver import receiving
from tests.tuned import tuned


async def test_events_reach_a_host_of_the_workspace_and_of_no_other(world: World) -> None:
    options = tuned(WebhookOptions, retry_seconds=(0.1,) * 50, poll_seconds=0.1)
    async with receiving() as receiver:
        secret = signing.new_secret()
        await endpoints.add(world.database, world.workspace_id, receiver.url, SEALER.seal(secret))
        await world.submit()
        dispatcher = WebhookDispatcher(world.database, options, SEALER)
        await dispatcher.start()
        try:
            for _ in range(200):
                (delivery,) = await endpoints.list_deliveries(world.database, world.workspace_id)
                if delivery.log:
                    break
                await asyncio.sleep(0.05)
            assert "workspaces hosts" in delivery.log[-1].outcome
            assert receiver.connections == 0
            await settings.set_allowed_hosts(world.database, world.workspace_id, [f"127.0.0.1:{receiver.port}"])
            await receiver.until(1, timeout=30)
        finally:
            await dispatcher.stop(2.0)
