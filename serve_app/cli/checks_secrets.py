"""The check of `switchboard doctor` on stored secrets: whether they are sealed."""

from collections.abc import Iterator
from typing import Any

from serve_app.cli.checks import Check, good, warn


def sealing(settings: Any) -> Iterator[Check]:
    """Without a key, whoever reads the database or its backups reads the secrets of servers and webhooks."""
    count = len(settings.secrets_keys)
    if count:
        yield good("secrets", f"sealed by the first of {count} key{'s' if count > 1 else ''}")
    else:
        yield warn(
            "secrets",
            "stored unsealed: credentials of recording servers, secrets of webhooks",
            "Set SWITCHBOARD_SECRETS_KEYS='[\"...\"]' on every node; `openssl rand -base64 32` makes a key.",
        )
