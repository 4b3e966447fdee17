"""How long an HTTP server asks its clients to stay away."""

import email.utils
import time
from datetime import UTC

import httpx

LONGEST_RETRY_AFTER = 24 * 3600.0


def retry_after(headers: httpx.Headers) -> float | None:
    """Seconds to wait as Retry-After says (seconds or an HTTP date), at most a day; None if it says nothing.

    A date is the server's, so it is compared with the server's own `Date`; with our clock only if there is none.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        seconds = float(value)
    else:
        until, now = _moment(value), _moment(headers.get("date", ""))
        if until is None:
            return None
        seconds = until - (time.time() if now is None else now)
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER)


def _moment(value: str) -> float | None:
    """Seconds since the epoch; a date without a time zone is UTC."""
    try:
        found = email.utils.parsedate_to_datetime(value)
        return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
