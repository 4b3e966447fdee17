"""The checks of `switchboard doctor` on stored secrets: whether they are sealed."""

import asyncio
from collections.abc import Iterator
from typing import Any

from serve_app.cli.doctor.check import Check, good, warn
from serve_app.service.data_folder import KEY_FILE


def sealing(settings: Any) -> Iterator[Check]:
    """Without a key, anyone who reads the database or its backups reads the secrets of servers and webhooks, and the
    signatures of recording URLs."""
    count = len(settings.secrets_keys)
    if not count and settings.database_url is None:
        yield good("secrets", f"sealed by the key in {settings.data_dir / KEY_FILE}: a dump needs it to be of use")
    elif count:
        yield good("secrets", f"sealed by the first of {count} key{'s' if count > 1 else ''}")
    else:
        yield warn(
            "secrets",
            "stored unsealed: signed recording URLs, credentials of recording servers, secrets of webhooks",
            "Set SWITCHBOARD_SECRETS_KEYS on every node; `openssl rand -base64 32` makes a key.",
        )


def recording_urls(settings: Any) -> Iterator[Check]:
    """Those of before a key was set, or put first, are as they were until somebody seals them."""
    from db.server import migrate
    from serve_app.cli.ui.database import running_embedded

    url = settings.database_url or running_embedded(settings)
    if url is None or not migrate.is_current(url):
        return  # other checks say so
    sealer = settings.url_sealer()
    if not sealer.seals:
        return
    if asyncio.run(_has_stale(url, sealer)):
        yield warn(
            "recording URLs",
            "some are stored unsealed, or sealed with another than the first key",
            "`switchboard calls reseal` seals them; keep the other keys until it has.",
        )
    else:
        yield good("recording URLs", "all sealed with the first key")


async def _has_stale(url: str, sealer: Any) -> bool:
    from db.core.database import Database
    from db.secrets import rotate

    async with await Database.open(url, pool_size=1) as database:
        return await rotate.has_stale(database, sealer)
