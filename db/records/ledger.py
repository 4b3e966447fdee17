"""The ledger of erasures: append-only, a chain of hashes for each workspace.

`verify_chain` detects a changed, missing or added entry, except that the last ones were cut off.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import columns, read
from db.core.tables import erasure_ledger, erasure_ledger_copies
from db.workspace.admin_log import Actor

OPERATOR = "operator"
RETENTION = Actor("retention")  # the author of what it deletes


class BrokenLedger(Exception):
    """The entries are not one chain; the message names the flaw."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One erasure; `schema/tables.sql` documents the fields."""

    workspace_id: UUID
    sequence: int
    at: datetime
    kind: str
    what: str
    who: str
    erasure_id: UUID | None
    counts: Mapping[str, int]
    digests: Sequence[bytes]
    previous: bytes
    hash: bytes = b""

    def content(self) -> dict[str, Any]:
        """Return the entry as JSON has it."""
        erasure_id = self.erasure_id and str(self.erasure_id)
        texts = {"workspace_id": str(self.workspace_id), "at": self.at.astimezone(UTC).isoformat()}
        hexadecimal = {"previous": self.previous.hex(), "hash": self.hash.hex()}
        digests = [digest.hex() for digest in self.digests]
        return asdict(self) | texts | hexadecimal | {"erasure_id": erasure_id, "digests": digests}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Self:
        """Return the entry of `content`. Raises `BrokenLedger`."""
        try:
            converted = {
                "workspace_id": UUID(content["workspace_id"]),
                "sequence": int(content["sequence"]),
                "at": datetime.fromisoformat(content["at"]).astimezone(UTC),
                "erasure_id": content["erasure_id"] and UUID(content["erasure_id"]),
                "counts": {str(name): int(count) for name, count in content["counts"].items()},
                "digests": [bytes.fromhex(digest) for digest in content["digests"]],
                "previous": bytes.fromhex(content["previous"]),
                "hash": bytes.fromhex(content["hash"]),
            }
            return cls(**{**content, **converted})
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BrokenLedger(f"An entry cannot be read ({type(error).__name__}).") from error

    def with_hash(self) -> Self:
        """Return the entry with the hash of its other fields, including that of the entry before."""
        content = self.content()
        del content["hash"]
        body = json.dumps(content, sort_keys=True).encode()
        return replace(self, hash=hashlib.sha256(body).digest())


async def append(
    connection: AsyncConnection,
    workspace_id: UUID,
    kind: str,
    who: str,
    counts: Mapping[str, int],
    digests: Sequence[bytes],
    erasure_id: UUID | None = None,
    what: str = "",
) -> None:
    """Add an entry in the transaction of the erasure, as its last statement: its lock lasts until the commit."""
    await _lock(connection, workspace_id)
    last = await head(connection, workspace_id)
    at = (await connection.execute(sa.select(sa.func.now()))).scalar_one()
    entry = Entry(
        workspace_id=workspace_id,
        sequence=last.sequence + 1 if last else 1,
        at=at,
        kind=kind,
        what=what,
        who=who,
        erasure_id=erasure_id,
        counts=dict(counts),
        digests=list(digests),
        previous=last.hash if last else b"",
    )
    await insert(connection, entry.with_hash())


async def insert(connection: AsyncConnection, entry: Entry) -> None:
    """Add an entry of the same ledger that another database has."""
    await connection.execute(sa.insert(erasure_ledger).values(columns(entry)))


async def head(connection: AsyncConnection, workspace_id: UUID) -> Entry | None:
    """Return the last entry of a workspace."""
    query = sa.select(erasure_ledger).where(erasure_ledger.c.workspace_id == workspace_id)
    row = (await connection.execute(query.order_by(erasure_ledger.c.sequence.desc()).limit(1))).one_or_none()
    return None if row is None else read(Entry, row)


async def entries(connection: AsyncConnection, workspace_id: UUID) -> list[Entry]:
    """Return the entries of a workspace in their order."""
    query = sa.select(erasure_ledger).where(erasure_ledger.c.workspace_id == workspace_id)
    return [read(Entry, row) for row in await connection.execute(query.order_by(erasure_ledger.c.sequence))]


def who(by: Actor) -> str:
    """Return an author as the ledger has it: without a name."""
    return RETENTION.name if by is RETENTION else str(by.key_id or OPERATOR)


def verify_chain(chain: Sequence[Entry]) -> None:
    """Check all entries of one workspace, in their order. Raises `BrokenLedger`."""
    previous = b""
    for number, entry in enumerate(chain, 1):
        if entry.workspace_id != chain[0].workspace_id or entry.sequence != number:
            raise BrokenLedger(f"Entry {number} of workspace {chain[0].workspace_id} is missing.")
        if entry.previous != previous or entry.with_hash().hash != entry.hash:
            raise BrokenLedger(f"Entry {number} of workspace {entry.workspace_id} has changed.")
        previous = entry.hash


# The first of each workspace, so that copies never lack an entry between two others.
_NEXT = sa.text("""
    SELECT e.* FROM erasure_ledger e JOIN (
        SELECT workspace_id, min(sequence) AS sequence FROM erasure_ledger_copies GROUP BY workspace_id
    ) AS next USING (workspace_id, sequence)
""")

_QUEUE = sa.text("""
    INSERT INTO erasure_ledger_copies (workspace_id, sequence) SELECT workspace_id, sequence FROM erasure_ledger
    ON CONFLICT DO NOTHING
""")


async def next_copies(database: Database) -> list[Entry]:
    """Return the next entry of each workspace that is not in the storage."""
    return [read(Entry, row) for row in await database.rows(EVERY_WORKSPACE, _NEXT)]


async def copied(database: Database, entry: Entry) -> None:
    """Record that an entry is in the storage."""
    of = erasure_ledger_copies.c
    is_copied = sa.and_(of.workspace_id == entry.workspace_id, of.sequence == entry.sequence)
    await database.change(EVERY_WORKSPACE, sa.delete(erasure_ledger_copies).where(is_copied))


async def queue_copies(database: Database) -> None:
    """Make the copies of all entries due, as in another storage."""
    await database.change(EVERY_WORKSPACE, _QUEUE)


async def _lock(connection: AsyncConnection, workspace_id: UUID) -> None:
    name = sa.func.hashtextextended(f"erasure ledger {workspace_id}", 0)
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(name)))
