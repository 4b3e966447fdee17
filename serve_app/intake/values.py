"""Strict parsers of values, without coercion.

A parser returns the domain value or raises a `PydanticCustomError` whose message completes the sentence "<field> ..."
and contains no sent value.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic_core import PydanticCustomError

Moment = datetime  # aware, in UTC

MAX_NUMBER = 256  # characters of `from` and `to`
MAX_URL = 8192  # characters; signed addresses with session tokens reach 3000
MAX_DURATION = 2_147_483_647  # seconds

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_TIME = re.compile(
    r"""(?: \d{4}-\d\d-\d\d T \d\d:\d\d (?: :\d\d (?:[.,]\d{1,30})? )?      # extended form
          | \d{8} T \d{4} (?: \d\d (?:[.,]\d{1,30})? )? )                   # basic form
        (?: Z | [+-] (?:[01]\d|2[0-3]) (?: :?[0-5]\d )? )?                  # offset""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_FORBIDDEN_IN_URL = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
# One day of margin at both ends, so that the time can be shown in any time zone.
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)


def _wrong(kind: str, sentence: str) -> PydanticCustomError:
    return PydanticCustomError(kind, sentence)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong("string", "must be a string")
    return value


def read_uuid(value: Any) -> UUID:
    """Parse a hyphenated UUID in any case."""
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise _wrong("uuid", "must be a UUID in its hyphenated form")
    return UUID(value)


def read_number(value: Any) -> str:
    """Parse a number as the telephony system writes it: digits, a SIP URI, "anonymous"."""
    if not 1 <= len(_text(value)) <= MAX_NUMBER:
        raise _wrong("number", f"must have 1 to {MAX_NUMBER} characters")
    return str(value)


def read_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong("boolean", "must be true or false")
    return value


def read_duration(value: Any) -> int:
    """Parse whole seconds; `60.0` and `"60"` are rejected."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_DURATION:
        raise _wrong("seconds", f"must be an integer from 0 to {MAX_DURATION}")
    return value


def read_start_time(value: Any) -> Moment:
    """Parse an ISO 8601 date and time, at least to the minute, and return it in UTC. No offset means UTC."""
    text = _text(value)
    if not _TIME.fullmatch(text):
        raise _wrong("time", "must be an ISO 8601 date and time such as 2026-11-20T09:30:00Z")
    try:
        moment = datetime.fromisoformat(text.upper())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _wrong("time", "is not an existing time") from None
    if not _EARLIEST <= moment < _LATEST + timedelta(days=1):
        raise _wrong("time", "is out of range")
    return moment


def read_url(value: Any) -> str:
    """Parse an absolute http or https URL with a host. Whether it may be fetched is checked at the fetch."""
    text = _text(value)
    if len(text) > MAX_URL:
        raise _wrong("url", f"must have at most {MAX_URL} characters")
    if _FORBIDDEN_IN_URL.search(text):
        raise _wrong("url", "must not contain spaces, control characters or backslashes")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        usable = False
    if not usable:
        raise _wrong("url", "must be an absolute http or https URL with a host")
    return text
