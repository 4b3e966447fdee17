"""Pages of lists: cursors that stay where they are while rows are added, and what a page is.

A list is sorted by a key that does not change while it is read, with the row's id behind it. A cursor is the key and id
of the last row that was given, so what is added before it or after it moves nothing.
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

MOST = 200  # rows on a page
CHUNK = 500  # candidates at once: few enough that PostgreSQL looks each of them up by its id
MOST_CANDIDATES = 3_000  # for one page, which ends where they end: at a million calls each costs up to 0.15 ms


class InvalidCursor(ValueError):
    """The cursor is not one of this list with these filters."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a list. `next`: the cursor of the page behind them; None: there is none.

    A page may hold fewer rows than were asked for, even none, and have a `next`.
    """

    items: tuple[T, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A row's place in a list: the key it is sorted by, and its id."""

    key: str
    row: int | str

    def encode(self, of: object) -> str:
        """The cursor of the rows behind this place. `of`: the list and its filters, which must be the same ones."""
        text = json.dumps([self.key, self.row, _mark(of)], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def decode(
        cls, cursor: str | None, of: object, check: Callable[[str], Any] = str, ids: type[int] | type[str] = int
    ) -> "Place | None":
        """The place that a cursor names; None for none. `check` reads the key and may raise ValueError; `ids`: of rows,
        numbers or UUIDs.

        Raises `InvalidCursor`.
        """
        if cursor is None:
            return None
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            key, row, mark = json.loads(base64.b64decode(padded.encode(), altchars=b"-_", validate=True))
            check(key)
            if not isinstance(key, str) or type(row) is not ids or not _is_id(row):
                raise ValueError("not a place")
        except (ValueError, TypeError, binascii.Error, RecursionError) as error:
            raise InvalidCursor("not a cursor") from error
        if mark != _mark(of):
            raise InvalidCursor("a cursor of another list, or of other filters")
        return cls(key, row)

    @property
    def at(self) -> datetime:
        """The key of a list that is sorted by time."""
        return datetime.fromisoformat(self.key)


Candidates = Callable[[Place | None, int], Awaitable[list[Place]]]
Kept = Callable[[list[int]], Awaitable[set[int]]]


async def gather(candidates: Candidates, kept: Kept, place: Place | None, limit: int) -> tuple[list[int], Place | None]:
    """Rows' ids of a page, and the place that the next one begins behind; None: there is nothing more.

    `candidates(place, count)` walks an index: at most `count` rows behind a place, in the list's order. `kept` says for
    which of them everything else holds. Left to one statement, PostgreSQL would look for all rows of which that holds
    before it sorts them.
    """
    found: list[Place] = []
    chunk, looked_at = limit + 1, 0  # enough where nothing else was asked for
    while looked_at < MOST_CANDIDATES:
        rows = await candidates(place, chunk)
        good = await kept([int(row.row) for row in rows]) if rows else set()
        found += [row for row in rows if row.row in good]
        if len(found) > limit:
            return [int(row.row) for row in found[:limit]], found[limit - 1]
        if len(rows) < chunk:
            return [int(row.row) for row in found], None
        place = rows[-1]
        looked_at += len(rows)
        chunk = CHUNK
    return [int(row.row) for row in found], place


def aware(text: str) -> datetime:
    """A moment in ISO 8601 with its offset. Raises ValueError."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time without its offset")
    return at


def _is_id(row: object) -> bool:
    return (type(row) is int and 0 <= row < 2**63) or (isinstance(row, str) and str(UUID(row)) == row)


def _mark(of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:12]
