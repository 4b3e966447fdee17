import email.utils
import time
from datetime import UTC

import httpx

MAX_RETRY_AFTER = 24 * 3600.0


def retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds that Retry-After (a number or an HTTP date) asks to wait, capped at a day; None without one.

    A date is compared with the server's own `Date`, or with the local clock if there is none.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        seconds = float(value)
    else:
        until, now = _moment(value), _moment(headers.get("date", ""))
        if until is None:
            return None
        seconds = until - (time.time() if now is None else now)
    return min(max(0.0, seconds), MAX_RETRY_AFTER)


def _moment(value: str) -> float | None:
    """Return seconds since the epoch; a date without a time zone is UTC."""
    try:
        date = email.utils.parsedate_to_datetime(value)
        return date.replace(tzinfo=date.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
