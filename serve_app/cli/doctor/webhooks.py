"""Check of `switchboard doctor`: endpoints that are disabled or far behind."""

import asyncio
from collections.abc import Iterator
from typing import Any

from serve_app.cli.doctor.check import Check, good, warn
from serve_app.cli.ui.output import counted

BEHIND_SECONDS = 900.0  # beyond the attempts that a restart of the receiver costs


def endpoints(settings: Any) -> Iterator[Check]:
    """One line for each endpoint that needs somebody; none where there are no endpoints."""
    from db.server import migrate
    from serve_app.cli.ui.database import running_embedded

    url = settings.database_url or running_embedded(settings)
    if url is None or not migrate.is_current(url):
        return  # the check of the database says so
    found = asyncio.run(_load(url))
    troubled = [check for endpoint, standing in found for check in _trouble(endpoint, standing)]
    if found and not troubled:
        yield good("webhooks", f"{counted(len(found), 'endpoint')} enabled, all deliver")
    if found and not settings.sealer().seals:
        yield warn(
            "webhooks",
            "their secrets are stored unsealed",
            "Set SWITCHBOARD_SECRETS_KEYS (`openssl rand -base64 32` makes a key), then `switchboard webhooks reseal`.",
        )
    yield from troubled


async def _load(url: str) -> Any:
    from db.core.database import Database
    from db.events import deliveries
    from db.events import endpoints as webhooks

    async with await Database.open(url, pool_size=1) as database:
        standings = await deliveries.standings(database)
        found = await webhooks.list_endpoints(database)
    return [(one, standings.get(one.endpoint_id, deliveries.EndpointProgress())) for one in found]


def _trouble(endpoint: Any, standing: Any) -> Iterator[Check]:
    if endpoint.disabled_at is not None:
        yield warn(
            "webhooks",
            f"{endpoint.url} is disabled, {counted(standing.unsent, 'event')} kept: {endpoint.disabled_reason}",
            f"Fix the receiver, then `switchboard webhooks enable {endpoint.endpoint_id}`.",
        )
    elif standing.oldest_seconds is not None and standing.oldest_seconds > BEHIND_SECONDS:
        hours = standing.oldest_seconds / 3600
        last = f": {endpoint.last_failure}" if endpoint.last_failure else ""
        yield warn(
            "webhooks",
            f"{endpoint.url} is {hours:.1f} h behind, {counted(standing.unsent, 'event')} unsent{last}",
            f"`switchboard webhooks test {endpoint.endpoint_id}` shows what it answers; without a Conductor nothing "
            "is sent.",
        )
