import asyncio
from collections.abc import Iterator
from typing import Any

from serve_app.cli.doctor.check import Check, good, warn
from serve_app.data_folder import KEY_FILE


def sealing(settings: Any) -> Iterator[Check]:
    """Check that secrets are sealed.

    Otherwise the database and its backups expose secrets of servers and webhooks, and signed recording URLs.
    """
    count = len(settings.secrets_keys)
    if not count and settings.database_url is None:
        yield good("secrets", f"sealed by the key in {settings.data_dir / KEY_FILE}: a dump is unusable without it")
    elif count:
        yield good("secrets", f"sealed by the first of {count} key{'s' if count > 1 else ''}")
    else:
        yield warn(
            "secrets",
            "stored unsealed: signed recording URLs, credentials of recording servers, secrets of webhooks",
            "Set SWITCHBOARD_SECRETS_KEYS on every node; `openssl rand -base64 32` makes a key.",
        )


def recording_urls(settings: Any) -> Iterator[Check]:
    """Check for URLs that were stored before the first key was set; `calls reseal` seals them."""
    from db.server import migrate
    from serve_app.cli.ui.database import running_embedded

    url = settings.database_url or running_embedded(settings)
    if url is None or not migrate.is_current(url):
        return  # another check reports it
    sealer = settings.url_sealer()
    if not sealer.seals:
        return
    if asyncio.run(_has_stale(url, sealer)):
        yield warn(
            "recording URLs",
            "some are stored unsealed, or sealed with another than the first key",
            "Run `switchboard calls reseal`; keep the other keys until it is done.",
        )
    else:
        yield good("recording URLs", "all sealed with the first key")


async def _has_stale(url: str, sealer: Any) -> bool:
    from db.core.database import Database
    from db.secrets import rotate

    async with await Database.open(url, pool_size=1) as database:
        return await rotate.has_stale(database, sealer)
