"""Chain of hashes over the access log of a workspace: an entry for each hour with rows, sealed `GRACE` after its end.

The hash leaves out what an erasure removes: formats, channels and request ids. Before rows expire, an entry says so.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database, Scope
from db.core.rows import columns, read
from db.core.tables import read_seals

GRACE = timedelta(minutes=10)  # longer than any transaction of the service takes
MAX_HOURS = 24  # sealed in one transaction
HOUR, RETENTION = "hour", "retention"

# The first unsealed hour with rows of each workspace, or of one.
_DUE = sa.text("""
    SELECT w.id, due.hour, date_trunc('hour', now() - CAST(:grace AS interval), 'UTC') AS closed
    FROM workspaces w CROSS JOIN LATERAL (
        SELECT r.hour FROM reads r
        WHERE r.workspace_id = w.id AND r.hour < date_trunc('hour', now() - CAST(:grace AS interval), 'UTC')
            AND r.hour > coalesce((
                SELECT max(hour) FROM read_seals s WHERE s.workspace_id = w.id AND s.kind = 'hour'), '-infinity')
            AND r.hour >= coalesce((
                SELECT max(hour) FROM read_seals s WHERE s.workspace_id = w.id AND s.kind = 'retention'), '-infinity')
        ORDER BY r.hour LIMIT 1
    ) AS due
    WHERE w.id = coalesce(CAST(:workspace AS uuid), w.id)
""")

# One line for all rows of a call, a key and a part in an hour: an erasure merges them.
_DIGESTS = sa.text("""
    SELECT hour, count(*) AS rows,
        sha256(convert_to(string_agg(line, E'\\n' ORDER BY call_id, key_id, what COLLATE "C"), 'UTF8')) AS digest
    FROM (
        SELECT hour, call_id, key_id, what, jsonb_build_array(
            call_id, key_id, what, min(first_at) AT TIME ZONE 'UTC', max(last_at) AT TIME ZONE 'UTC', sum(count),
            min(operator))::text AS line
        FROM reads WHERE workspace_id = :workspace AND hour >= :since AND hour < :until
        GROUP BY hour, call_id, key_id, what
    ) AS lines
    GROUP BY hour ORDER BY hour
""")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the chain; `schema/tables.sql` documents the fields."""

    workspace_id: UUID
    sequence: int
    at: datetime
    kind: str
    hour: datetime
    rows: int
    digest: bytes
    previous: bytes
    hash: bytes = b""

    def with_hash(self) -> Self:
        """Return the entry with the hash of its other fields, as JSON with sorted names."""
        times = {"at": self.at.astimezone(UTC).isoformat(), "hour": self.hour.astimezone(UTC).isoformat()}
        numbers = {"sequence": self.sequence, "rows": self.rows}
        texts = {"workspace_id": str(self.workspace_id), "kind": self.kind}
        hexadecimal = {"digest": self.digest.hex(), "previous": self.previous.hex()}
        body = json.dumps(times | numbers | texts | hexadecimal, sort_keys=True).encode()
        return replace(self, hash=hashlib.sha256(body).digest())


@dataclass(frozen=True, slots=True)
class Verified:
    """The state of a chain. `hour`: the first that does not hold, and `problem`: why; None: the chain holds."""

    entries: int
    rows: int  # sealed, of hours that retention has not deleted
    sealed_until: datetime | None  # end of the last sealed hour
    head: str | None  # hash of the last entry, hexadecimal
    hour: datetime | None = None
    problem: str | None = None


async def seal(database: Database) -> int:
    """Seal past hours of each workspace, the earliest first, up to `MAX_HOURS` of each; return how many.

    Several processes may do so at once.
    """
    sealed = 0
    for due in await database.rows(EVERY_WORKSPACE, _DUE, {"grace": GRACE, "workspace": None}):
        async with database.transaction(due.id) as connection:
            await _lock(connection, due.id)
            values = {"grace": GRACE, "workspace": due.id}
            for row in (await connection.execute(_DUE, values)).all():  # not if it was sealed in the meantime
                until = min(row.hour + timedelta(hours=MAX_HOURS), row.closed)
                for hour in await _digests(connection, due.id, row.hour, until):
                    await _append(connection, due.id, HOUR, hour.hour, hour.rows, hour.digest)
                    sealed += 1
    return sealed


async def retain(connection: AsyncConnection, workspace_id: UUID, kept_from: datetime) -> None:
    """Note in the transaction that deletes them that rows of hours before `kept_from` are deleted."""
    await _lock(connection, workspace_id)
    chain = read_seals.c
    noted = sa.select(1).where(
        chain.workspace_id == workspace_id, chain.kind == RETENTION, chain.hour >= sa.literal(kept_from)
    )
    if await connection.scalar(noted.limit(1)) is None:
        await _append(connection, workspace_id, RETENTION, kept_from, 0, b"")


async def verify(database: Database, scope: Scope, workspace_id: UUID, contains: str | None = None) -> Verified:
    """Check the chain and the rows of its hours. `contains`: a former head that the chain must still contain."""
    async with database.transaction(scope, snapshot=True) as connection:
        query = sa.select(read_seals).where(read_seals.c.workspace_id == workspace_id)
        rows = await connection.execute(query.order_by(read_seals.c.sequence))
        entries = [read(Entry, row) for row in rows]
        kept_from = max((entry.hour for entry in entries if entry.kind == RETENTION), default=_MIN)
        hours = [entry.hour for entry in entries if entry.kind == HOUR]
        until = max(hours) + timedelta(hours=1) if hours else None
        stored = await _digests(connection, workspace_id, kept_from, until) if until else ()
    digests = {row.hour: (row.rows, row.digest) for row in stored}
    flaws = [*_broken_links(entries), *_changed_hours(entries, kept_from, digests)]
    if contains is not None and all(entry.hash.hex() != contains for entry in entries):
        flaws.append((entries[-1].hour if entries else _MIN, "the chain does not contain the given hash"))
    hour, problem = min(flaws, default=(None, None))
    head = entries[-1].hash.hex() if entries else None
    return Verified(len(entries), sum(count for count, _ in digests.values()), until, head, hour, problem)


_MIN = datetime.min.replace(tzinfo=UTC)


def _broken_links(entries: Sequence[Entry]) -> list[tuple[datetime, str]]:
    """Return the first entry that does not follow from the one before."""
    previous = b""
    for number, entry in enumerate(entries, 1):
        if entry.sequence != number:
            return [(entry.hour, f"entry {number} of the chain is missing")]
        if entry.previous != previous or entry.with_hash().hash != entry.hash:
            return [(entry.hour, f"entry {number} of the chain has changed")]
        previous = entry.hash
    return []


def _changed_hours(
    entries: Sequence[Entry], kept_from: datetime, digests: Mapping[datetime, tuple[int, bytes]]
) -> list[tuple[datetime, str]]:
    sealed = {entry.hour: (entry.rows, entry.digest) for entry in entries if entry.kind == HOUR}
    expected = {hour: content for hour, content in sealed.items() if hour >= kept_from}
    changed = (hour for hour in expected | dict(digests) if expected.get(hour) != digests.get(hour))
    return [(hour, "its rows have changed") for hour in changed]


async def _digests(connection: AsyncConnection, workspace_id: UUID, since: datetime, until: datetime) -> Sequence[Any]:
    values = {"workspace": workspace_id, "since": since, "until": until}
    return (await connection.execute(_DIGESTS, values)).all()


async def _append(
    connection: AsyncConnection, workspace_id: UUID, kind: str, hour: datetime, rows: int, digest: bytes
) -> None:
    chain = read_seals.c
    query = sa.select(chain.sequence, chain.hash).where(chain.workspace_id == workspace_id)
    last = (await connection.execute(query.order_by(chain.sequence.desc()).limit(1))).one_or_none()
    at = (await connection.execute(sa.select(sa.func.now()))).scalar_one()
    sequence, previous = (last.sequence + 1, last.hash) if last else (1, b"")
    entry = Entry(workspace_id, sequence, at, kind, hour, rows, digest, previous)
    await connection.execute(sa.insert(read_seals).values(columns(entry.with_hash())))


async def _lock(connection: AsyncConnection, workspace_id: UUID) -> None:
    name = sa.func.hashtextextended(f"access log {workspace_id}", 0)
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(name)))
