"""Erasures of a person, a team or a workspace: their rows, leases, and the calls that they match.

`erasing` carries them out.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.core.pages import Page, Place, aware
from db.core.rows import from_now, has_number, read
from db.core.tables import (
    calls,
    contacts,
    corrections,
    erasures,
    events,
    findings,
    members,
    run_calls,
    voiceprints,
    workspaces,
)
from db.records.corrected_columns import calls_of_contact, contact_ids
from db.workspace import directory, legal_holds
from db.workspace.admin_log import Actor, Changing, changing
from pipeline.domain.telephone import e164

T = TypeVar("T")
MAX_TRIES = 3  # when PostgreSQL ends one of two transactions that wait for each other
LEASE_SECONDS = 60.0  # of the process that works on an erasure; each call renews it
BATCH = 1_000  # calls that one query searches


class ErasureKind(StrEnum):
    """The kind of a target."""

    CALL = "call"
    NUMBER = "number"
    CONTACT = "contact"
    MEMBER = "member"
    TEAM = "team"
    WORKSPACE = "workspace"


class NoSuchTarget(LookupError):
    """The workspace has no such call, contact, member or team, or its reader may not see it."""


class ErasureLost(Exception):
    """Another process works on the erasure now; this one must stop."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is erased. `number`: the number, or the contact's. `team_id`: only calls of this team."""

    kind: ErasureKind
    id: UUID | None = None  # of the call, contact, member, team or workspace
    number: str | None = None
    team_id: UUID | None = None

    def digest(self, workspace_id: UUID) -> bytes:
        """Return what remains of the target: of an id as call_digest, of a number as slow to guess as a password."""
        if self.id is not None:
            return digest_of(workspace_id, self.id)
        return hashlib.scrypt((self.number or "").encode(), salt=workspace_id.bytes, n=2**14, r=8, p=1, dklen=32)


@dataclass(frozen=True, slots=True)
class Erasure:
    """An erasure. `matched`: objects by kind, at its creation; `counts`: those that were erased.

    `counts["held"]`: calls that a legal hold keeps.
    """

    erasure_id: UUID
    kind: str
    state: str  # running, done
    matched: Mapping[str, int]
    counts: Mapping[str, int]
    key_id: UUID | None  # of its author; None: an operator
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class ErasureLease:
    """The right of one process to work on an erasure; `run` is the fencing number.

    `in_ledger`: False repeats, in a restored database, what the ledger has already.
    """

    erasure_id: UUID
    workspace_id: UUID
    target: Target
    by: Actor
    run: int
    in_ledger: bool = True


def digest_of(workspace_id: UUID, id_: UUID) -> bytes:
    """Return what identifies an object after its erasure, as call_digest (schema/functions) does."""
    return hashlib.sha256(workspace_id.bytes + id_.bytes).digest()


async def resolve(database: Database, reader: Reader, target: Target) -> Target:
    """Return the target with its number, limited to the reader's team. Raises `NoSuchTarget`.

    A number is read as the workspace's submissions are; text that is no number stays as it is.
    """
    number, exists, id_ = target.number, True, target.id or UUID(int=0)
    match target.kind:
        case ErasureKind.NUMBER:
            number = e164(target.number or "", await _country(database, reader.workspace_id)) or target.number
        case ErasureKind.CONTACT:
            contact = await directory.find_contact(database, reader, id_)
            number, exists = (contact.phone if contact else None), contact is not None
        case ErasureKind.MEMBER:
            exists = await directory.find_member(database, reader, id_) is not None
        case ErasureKind.TEAM:
            exists = await directory.find_team(database, reader, id_) is not None
        case ErasureKind.CALL:
            exists = bool(await database.rows(reader, sa.select(calls.c.id).where(calls.c.call_id == id_)))
    if not exists:
        raise NoSuchTarget(f"no {target.kind} {target.id}")
    return replace(target, number=number, team_id=reader.team_id)


async def matches(database: Database, workspace_id: UUID, target: Target) -> dict[str, int]:
    """Count what an erasure of the target would erase now: calls, or a member's records; contacts with a number."""
    matching = sum([len(page) async for page in call_pages(database, workspace_id, target)])
    counts = {"records" if target.kind is ErasureKind.MEMBER else "calls": matching}
    if target.kind is ErasureKind.NUMBER and target.team_id is None:
        query = sa.select(sa.func.count()).where(contacts.c.phone == target.number)
        counts["contacts"] = (await database.column(workspace_id, query))[0]
    elif target.kind not in (ErasureKind.CALL, ErasureKind.NUMBER) and target.team_id is None:
        counts[f"{target.kind}s"] = 1
    return counts


async def create(database: Database, workspace_id: UUID, target: Target, by: Actor | None = None) -> Erasure:
    """Store an erasure of a target from `resolve`. Raises `OnHold`, and what `changing` raises."""
    matched = await matches(database, workspace_id, target)
    async with changing(database, workspace_id, by) as change:
        await _require_free(change, target)
        values = {
            "workspace_id": workspace_id,
            "team_id": target.team_id,
            "kind": target.kind,
            "target": target.id,
            "number": target.number,
            "who": change.by.name,
            "key_id": change.by.key_id,
            "matched": matched,
        }
        (row,) = await change.run(sa.insert(erasures).values(values).returning(erasures))
        await change.note("created", "erasure", row.id, detail=target.kind, team_id=target.team_id)
    return _erasure(row)


async def _require_free(change: Changing, target: Target) -> None:
    """Raise `OnHold` if a legal hold keeps the target itself; single calls on hold are left by the erasure."""
    match target.kind:
        case ErasureKind.CONTACT if target.id is not None:
            await legal_holds.require_free_contact(change, target.id)
        case ErasureKind.TEAM:
            await legal_holds.require_free_calls(change.connection, change.workspace_id, target.id)
        case ErasureKind.WORKSPACE:
            await legal_holds.require_free_calls(change.connection, change.workspace_id)


async def find(database: Database, reader: Reader, erasure_id: UUID) -> Erasure | None:
    """Return an erasure, if the reader may see it; that of a workspace is deleted with the workspace."""
    row = await database.first(reader, sa.select(erasures).where(erasures.c.id == erasure_id))
    return row and _erasure(row)


async def list_erasures(
    database: Database, reader: Reader, cursor: str | None = None, limit: int = 50
) -> Page[Erasure]:
    """Return erasures, the latest first. Raises `pages.InvalidCursor`."""
    filters = ("erasures", reader.workspace_id)
    place = Place.decode(cursor, filters, aware, ids=str)
    query = sa.select(erasures).where(erasures.c.workspace_id == reader.workspace_id)
    if place is not None:
        position = sa.tuple_(erasures.c.created_at, erasures.c.id)
        query = query.where(position < sa.tuple_(sa.literal(place.at), sa.literal(UUID(str(place.row)))))
    query = query.order_by(erasures.c.created_at.desc(), erasures.c.id.desc()).limit(limit + 1)
    rows = await database.rows(reader, query)
    last = rows[limit - 1] if len(rows) > limit else None
    next_cursor = last and Place(last.created_at.isoformat(), str(last.id)).encode(filters)
    return Page(tuple(_erasure(row) for row in rows[:limit]), next_cursor or None)


async def claim(database: Database, erasure_id: UUID | None = None) -> ErasureLease | None:
    """Claim a running erasure that no process works on, the oldest first, or this one; None if there is none."""
    is_due = sa.and_(erasures.c.state == "running", erasures.c.lease_until <= sa.func.now())
    due = sa.select(erasures.c.id).where(is_due).order_by(erasures.c.created_at).limit(1)
    if erasure_id is not None:
        due = due.where(erasures.c.id == erasure_id)
    free = due.with_for_update(skip_locked=True).cte("free")
    values = {"run": erasures.c.run + 1, "lease_until": from_now(LEASE_SECONDS)}
    claimed = sa.update(erasures).where(erasures.c.id == free.c.id).values(values).returning(erasures)
    row = await database.first(EVERY_WORKSPACE, claimed)
    if row is None:
        return None
    target = Target(ErasureKind(row.kind), row.target, row.number, row.team_id)
    author = Actor(row.who, row.key_id, row.team_id, is_authorized=True)
    return ErasureLease(row.id, row.workspace_id, target, author, row.run)


async def renew(database: Database, lease: ErasureLease) -> None:
    """Extend a lease. Raises `ErasureLost`."""
    async with database.transaction(lease.workspace_id) as connection:
        await count(connection, lease, {})


async def count(connection: AsyncConnection, lease: ErasureLease, counts: Mapping[str, int], **values: Any) -> None:
    """Add what the transaction erases, and extend the lease. Raises `ErasureLost`, which undoes the transaction."""
    is_ours = sa.and_(erasures.c.id == lease.erasure_id, erasures.c.run == lease.run, erasures.c.state == "running")
    query = sa.select(erasures.c.counts).where(is_ours).with_for_update()
    before = (await connection.execute(query)).scalar_one_or_none()
    if before is None:
        raise ErasureLost(f"erasure {lease.erasure_id}")
    total = before | {name: before.get(name, 0) + more for name, more in counts.items() if more}
    values = {"counts": total, "lease_until": from_now(LEASE_SECONDS), **values}
    await connection.execute(sa.update(erasures).where(is_ours).values(values))


async def finish(connection: AsyncConnection, lease: ErasureLease, counts: Mapping[str, int]) -> Mapping[str, int]:
    """End an erasure and forget its target; return all counts. Raises `ErasureLost`."""
    ended = {"state": "done", "finished_at": sa.func.now(), "target": None, "number": None}
    digest = lease.target.digest(lease.workspace_id)
    await count(connection, lease, counts, **ended, digest=digest)
    total = await connection.scalar(sa.select(erasures.c.counts).where(erasures.c.id == lease.erasure_id))
    return dict(total or {})


async def without_deadlock(transaction: Callable[[], Awaitable[T]]) -> T:
    """Run a transaction, again if PostgreSQL ended it because it and another one waited for each other."""
    for attempt in range(1, MAX_TRIES + 1):
        try:
            return await transaction()
        except OperationalError as error:
            if attempt == MAX_TRIES or not isinstance(error.orig, psycopg.errors.DeadlockDetected):
                raise
    raise AssertionError


async def is_erased_member(connection: AsyncConnection, workspace_id: UUID, user_id: UUID | None) -> bool:
    """Return whether a member was erased and not added again: the voice must not be stored."""
    if user_id is None:
        return False
    is_target = sa.or_(erasures.c.digest == sa.func.call_digest(workspace_id, user_id), erasures.c.target == user_id)
    erased = sa.select(1).where(erasures.c.workspace_id == workspace_id, erasures.c.kind == "member", is_target)
    present = sa.select(1).where(members.c.workspace_id == workspace_id, members.c.user_id == user_id)
    return bool(await connection.scalar(sa.select(sa.and_(sa.exists(erased), ~sa.exists(present)))))


async def call_pages(database: Database, workspace_id: UUID, target: Target) -> AsyncIterator[list[UUID]]:
    """Yield the callIds of the target's calls, those with a member's name for a member; a page may be empty.

    Each query searches `BATCH` calls, however few of them match.
    """
    country = await _country(database, workspace_id)
    certain, by_number = _conditions(target)
    searched = [calls.c.workspace_id == workspace_id]
    searched += [] if target.team_id is None else [calls.c.team_id == target.team_id]
    searched += [certain] if target.kind in (ErasureKind.CALL, ErasureKind.TEAM) else []
    columns = [calls.c[name] for name in ("call_id", "from_number", "to_number", "from_e164", "to_e164")]
    is_match = sa.or_(certain, sa.and_(by_number, _may_have_number(target.number)))
    query = sa.select(*columns, certain.label("is_certain")).where(*searched, is_match).order_by(calls.c.id)
    ids, after = sa.select(calls.c.id).where(*searched).order_by(calls.c.id).limit(BATCH), 0
    while batch := await database.column(workspace_id, ids.where(calls.c.id > after)):
        rows = await database.rows(workspace_id, query.where(calls.c.id.between(batch[0], batch[-1])))
        after = batch[-1]
        yield [row.call_id for row in rows if row.is_certain or target.number in _numbers(row, country)]


def _may_have_number(number: str | None) -> sa.ColumnElement[bool]:
    """Return the condition for calls of a number, and for those with a number that was not read at the time."""
    not_read = sa.or_(calls.c.from_e164.is_(None), calls.c.to_e164.is_(None))
    return sa.false() if number is None else sa.or_(has_number(number), not_read)


def _numbers(row: sa.Row[Any], country: str | None) -> set[str | None]:
    """Return the numbers of a call; national ones also if the country of the workspace was set after the call."""
    submitted = (row.from_number, row.to_number)
    return {row.from_e164, row.to_e164, *submitted, *(e164(number, country) for number in submitted)}


def _conditions(target: Target) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """Return the conditions for calls that match, and for those that match if they have the target's number."""
    match target.kind:
        case ErasureKind.CALL:
            return calls.c.call_id == target.id, sa.false()
        case ErasureKind.NUMBER:
            return sa.false(), sa.true()
        case ErasureKind.CONTACT:
            of_anyone = sa.select(1).where(contacts.c.id.in_(contact_ids(calls.c.id))).correlate(calls)
            return calls.c.id.in_(calls_of_contact(target.id)), ~sa.exists(of_anyone)
        case ErasureKind.MEMBER:
            return _has_member(target.id), sa.false()
        case ErasureKind.TEAM:
            return calls.c.team_id == target.id, sa.false()
    return sa.true(), sa.false()


def _has_member(user_id: UUID | None) -> sa.ColumnElement[bool]:
    """Return the condition for calls that may contain the name or voice of a member."""
    text, agent = f"%{user_id}%", findings.c.value["user_id"].astext
    places = (
        sa.and_(findings.c.call_pk == calls.c.id, findings.c.step == "agent", agent == str(user_id)),
        sa.and_(corrections.c.call_pk == calls.c.id, corrections.c.user_id == user_id),
        sa.and_(voiceprints.c.call_pk == calls.c.id, voiceprints.c.user_id == user_id),
        sa.and_(events.c.call_pk == calls.c.id, sa.cast(events.c.record, sa.Text).like(text)),
        sa.and_(run_calls.c.call_pk == calls.c.id, sa.cast(run_calls.c.findings, sa.Text).like(text)),
        sa.and_(run_calls.c.call_pk == calls.c.id, sa.cast(run_calls.c.former, sa.Text).like(text)),
    )
    stored = (sa.exists(sa.select(1).where(place).correlate(calls)) for place in places)
    return sa.or_(calls.c.user_id == user_id, *stored)


async def _country(database: Database, workspace_id: UUID) -> str | None:
    query = sa.select(workspaces.c.default_country).where(workspaces.c.id == workspace_id)
    return next(iter(await database.column(workspace_id, query)), None)


def _erasure(row: sa.Row[Any]) -> Erasure:
    return read(Erasure, row, erasure_id=row.id)
