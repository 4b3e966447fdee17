"""Secrets and signatures of Standard Webhooks 1.0: HMAC-SHA256 over id, time and body, in base64 behind `v1,`.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
NEW_BYTES = 32
MIN_BYTES, MAX_BYTES = 24, 64  # of the standard


def new_secret() -> str:
    """Return a secret in the form for receivers: `whsec_` and the base64 of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(NEW_BYTES)).decode("ascii")


def key(secret: str) -> bytes:
    """Return the bytes of a secret, 24 to 64. Raises ValueError for anything else, without the secret."""
    try:
        raw = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not secret.startswith(PREFIX) or not MIN_BYTES <= len(raw) <= MAX_BYTES:
        raise ValueError(f"a secret must be {PREFIX} and the base64 of {MIN_BYTES} to {MAX_BYTES} bytes")
    return raw


def sign(keys: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature per secret, in their order, separated by spaces.

    `timestamp` is in seconds since the epoch; `message_id` contains no full stop, which separates the signed parts.
    """
    content = f"{message_id}.{timestamp}.".encode("ascii") + body
    return " ".join(_signature(key(secret), content) for secret in keys)


def _signature(raw: bytes, content: bytes) -> str:
    return "v1," + base64.b64encode(hmac.new(raw, content, hashlib.sha256).digest()).decode("ascii")
