"""Pages of lists, with cursors that stay valid while rows are added.

A list is sorted by a key that does not change while it is read, then by the row's id. A cursor holds the key and id of
the last returned row, so rows added before or after it shift nothing.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

T = TypeVar("T")

MAX_PAGE_ROWS = 200  # rows on a page
CHUNK = 500  # candidates per query: few enough that PostgreSQL looks up each of them by its id
MAX_CANDIDATES = 3_000  # per page, which then ends: at a million calls each costs up to 0.15 ms


class InvalidCursor(ValueError):
    """The cursor does not belong to this list with these filters."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a list. `next`: the cursor of the next page, or None.

    A page may hold fewer rows than requested, even none, and have a `next`.
    """

    items: tuple[T, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A row's place in a list: its sort key and its id."""

    key: str
    row: int | str

    def encode(self, filters: object) -> str:
        """Return the cursor of the rows after this place. `filters`: the list and its filters, always the same."""
        text = json.dumps([self.key, self.row, _mark(filters)], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def decode(
        cls, cursor: str | None, filters: object, check: Callable[[str], Any] = str, ids: type[int] | type[str] = int
    ) -> "Place | None":
        """Return the place that a cursor encodes; None for None.

        `check` parses the key and may raise ValueError; `ids`: the type of row ids. Raises `InvalidCursor`.
        """
        if cursor is None:
            return None
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            key, row, mark = json.loads(base64.b64decode(padded.encode(), altchars=b"-_", validate=True))
            check(key)
            if not isinstance(key, str) or type(row) is not ids or not _is_id(row):
                raise ValueError("not a place in the list")
        except (ValueError, TypeError, binascii.Error, RecursionError) as error:
            raise InvalidCursor("not a cursor") from error
        if mark != _mark(filters):
            raise InvalidCursor("a cursor of another list, or of other filters")
        return cls(key, row)

    @property
    def at(self) -> datetime:
        """The key of a list that is sorted by time."""
        return datetime.fromisoformat(self.key)


Candidates = Callable[[Place | None, int], Awaitable[list[Place]]]
Matching = Callable[[list[int]], Awaitable[set[int]]]


async def gather(
    candidates: Candidates, matching: Matching, place: Place | None, limit: int
) -> tuple[list[int], Place | None]:
    """Return the row ids of a page and the place after which the next page begins; None: there are no more rows.

    `candidates(place, count)` walks an index: up to `count` rows after a place, in the list's order. `matching` returns
    which of them satisfy all other conditions. In one statement, PostgreSQL would find and sort all of them.
    """
    matches: list[Place] = []
    chunk, examined = limit + 1, 0  # enough without other conditions
    while examined < MAX_CANDIDATES:
        rows = await candidates(place, chunk)
        matching_ids = await matching([int(row.row) for row in rows]) if rows else set()
        matches += [row for row in rows if row.row in matching_ids]
        if len(matches) > limit:
            return [int(row.row) for row in matches[:limit]], matches[limit - 1]
        if len(rows) < chunk:
            return [int(row.row) for row in matches], None
        place = rows[-1]
        examined += len(rows)
        chunk = CHUNK
    return [int(row.row) for row in matches], place


def aware(text: str) -> datetime:
    """Parse an ISO 8601 time with an offset. Raises ValueError."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("the time has no offset")
    return at


def _is_id(row: object) -> bool:
    return (type(row) is int and 0 <= row < 2**63) or (isinstance(row, str) and str(UUID(row)) == row)


def _mark(filters: object) -> str:
    return hashlib.sha256(repr(filters).encode()).hexdigest()[:12]
