"""Erases a call: everything that the database stores of it, in one transaction; `file_deletions` has its files then.

Rows that refer to the call are deleted with its row (ON DELETE CASCADE). The ids of the call remain in the access log,
the log of changes and the event `call.deleted`; a digest of them in `erased_calls`.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.tables import calls, erased_calls, metadata, voiceprints
from db.records import erasures, ledger
from db.records.erasures import ErasureLease
from db.voices import profiles
from db.workspace import access_log, legal_holds
from db.workspace.admin_log import Actor, Changing, changing
from db.workspace.legal_holds import OnHold
from db.workspace.removal import ERASURE
from pipeline.domain.voices import VoicePolicy

T = TypeVar("T")
MAX_TRIES = 3  # when PostgreSQL ends one of two transactions that wait for each other
COUNTED = (
    *("submissions", "jobs", "recordings", "stage_results", "transcripts", "findings", "tasks", "edits"),
    *("voiceprints", "events", "call_passages", "gold_calls", "run_calls", "calibration_calls"),
)
"""The tables of the counts of `Erased`."""


class CallNotFound(LookupError):
    """The call does not exist, or is of another team, and its erasure is not remembered."""


class CallHeld(OnHold):
    """The call is on legal hold."""


@dataclass(frozen=True, slots=True)
class Erased:
    """Rows deleted with a call, by table. `before`: the call had been erased before."""

    counts: Mapping[str, int] = field(default_factory=dict)
    before: bool = False


async def erase_call(
    database: Database,
    workspace_id: UUID,
    call_id: UUID,
    policy: VoicePolicy,
    by: Actor | None = None,
    lease: ErasureLease | None = None,
    in_ledger: bool = True,
) -> Erased:
    """Erase a call and log it; workers lose its jobs. Idempotent while the erasure is remembered.

    `policy` computes the member's voice profile without this call; `by`: see `changing`; `lease`: of the erasure that
    counts the call; `in_ledger`: False repeats an erasure in a restored database: without an entry in the ledger, and
    in spite of holds. Raises `CallNotFound`, `CallHeld`, `ErasureLost`, and what `changing` raises.
    """

    async def attempt() -> Erased:
        async with changing(database, workspace_id, by) as change:
            return await _erase(change, call_id, policy, lease, in_ledger)

    return await without_deadlock(attempt)


async def without_deadlock(transaction: Callable[[], Awaitable[T]]) -> T:
    """Run a transaction, again if PostgreSQL ended it because it and another one waited for each other."""
    for attempt in range(1, MAX_TRIES + 1):
        try:
            return await transaction()
        except OperationalError as error:
            if attempt == MAX_TRIES or not isinstance(error.orig, psycopg.errors.DeadlockDetected):
                raise
    raise AssertionError


async def erased_among(database: Database, call_ids: Sequence[UUID]) -> set[UUID]:
    """Return the calls that a workspace erased and that none has, and those whose recordings expired."""
    rows = await database.column(EVERY_WORKSPACE, _ERASED_AMONG, {"calls": list(call_ids)})
    return set(rows)


async def forget_erased(database: Database, days: float) -> int:
    """Delete what is remembered of erasures for longer than `days`; return how many."""
    is_old = erased_calls.c.erased_at < sa.func.now() - sa.func.make_interval(0, 0, 0, 0, 0, 0, days * 86_400.0)
    return await database.change(EVERY_WORKSPACE, sa.delete(erased_calls).where(is_old))


_ERASED_AMONG = sa.text("""
    SELECT DISTINCT given.call_id FROM unnest(CAST(:calls AS uuid[])) AS given (call_id) CROSS JOIN workspaces w
    JOIN erased_calls e ON e.workspace_id = w.id AND e.digest = call_digest(w.id, given.call_id)
    WHERE NOT EXISTS (SELECT FROM calls c WHERE c.call_id = given.call_id)
    UNION SELECT call_id FROM calls WHERE call_id = ANY (CAST(:calls AS uuid[])) AND recordings_expired = job_id
""")

# In the order of every other writer, and what the writers of these tables lock before they refer to the call's row:
# so none of them waits for the deletion while the deletion waits for it.
_LOCKS = (
    "SELECT id FROM jobs WHERE call_pk = :call ORDER BY id FOR NO KEY UPDATE",
    "SELECT run_id FROM run_calls WHERE call_pk = :call ORDER BY run_id FOR NO KEY UPDATE",
    "SELECT call_pk FROM passages_due WHERE call_pk = :call FOR NO KEY UPDATE",
    "SELECT id FROM webhook_deliveries WHERE event_id = ANY (ARRAY(SELECT id FROM events WHERE call_pk = :call))"
    " ORDER BY id FOR NO KEY UPDATE",
)

_REMEMBER = sa.text("""
    INSERT INTO erased_calls (workspace_id, digest, team_id)
    SELECT workspace_id, call_digest(workspace_id, call_id), team_id FROM calls WHERE id = :call RETURNING digest
""")

# Contacts that exist because of this call alone.
_DELETE_CONTACTS = sa.text("""
    DELETE FROM contacts k WHERE k.source = 'call'
        AND EXISTS (SELECT FROM call_contacts l WHERE l.contact_id = k.id AND l.call_pk = :call)
        AND NOT EXISTS (SELECT FROM call_contacts l WHERE l.contact_id = k.id AND l.call_pk <> :call)
        AND NOT EXISTS (SELECT FROM corrections e WHERE e.contact_id = k.id AND e.call_pk <> :call)
""")

# Who read the call when remains, without the details of requests.
_THIN_READS = sa.text("""
    WITH detailed AS (
        DELETE FROM reads WHERE workspace_id = :workspace AND call_id = :call RETURNING *
    )
    INSERT INTO reads (workspace_id, call_id, hour, key_id, what, first_at, last_at, count, operator)
    SELECT workspace_id, call_id, hour, key_id, what, min(first_at), max(last_at), sum(count), min(operator)
    FROM detailed GROUP BY workspace_id, call_id, hour, key_id, what
""")


async def _erase(
    change: Changing, call_id: UUID, policy: VoicePolicy, lease: ErasureLease | None, in_ledger: bool
) -> Erased:
    connection, workspace_id = change.connection, change.workspace_id
    is_call = sa.and_(calls.c.workspace_id == workspace_id, calls.c.call_id == call_id)
    query = sa.select(calls.c.id, calls.c.team_id).where(is_call).with_for_update(key_share=True)
    row = (await connection.execute(query)).one_or_none()
    if row is None or change.by.team_id not in (None, row.team_id):
        await _require_erased(change, call_id)
        return Erased(before=True)
    if in_ledger and (reason := await legal_holds.reason_of(connection, row.id)) is not None:
        raise CallHeld(f"Call {call_id} is on legal hold: {reason}")
    for lock in _LOCKS:
        await connection.execute(sa.text(lock), {"call": row.id})
    counts = await _counts(connection, row.id)
    await release_voices(connection, workspace_id, [row.id], policy)
    digest = (await connection.execute(_REMEMBER, {"call": row.id})).scalar_one()
    await connection.execute(sa.text("SELECT note_erasure(c) FROM calls c WHERE c.id = :call"), {"call": row.id})
    await connection.execute(_DELETE_CONTACTS, {"call": row.id})
    await connection.execute(ERASURE)
    await connection.execute(sa.delete(calls).where(calls.c.id == row.id))
    await connection.execute(_THIN_READS, {"workspace": workspace_id, "call": call_id})
    who = (change.by.key_id or change.by.session_id, change.by.name)
    await access_log.note_change(connection, workspace_id, call_id, "erasure", *who)
    await change.note("erased", "call", call_id, detail=counts_text(counts), team_id=row.team_id)
    if lease is not None:
        await erasures.count(connection, lease, {"calls": 1, "recordings": counts.get("recordings", 0)})
    if in_ledger:
        erasure_id = None if lease is None else lease.erasure_id
        await ledger.append(connection, workspace_id, "call", ledger.who(change.by), counts, [digest], erasure_id)
    return Erased(counts)


async def _require_erased(change: Changing, call_id: UUID) -> None:
    is_erased = sa.and_(
        erased_calls.c.workspace_id == change.workspace_id,
        erased_calls.c.digest == sa.func.call_digest(change.workspace_id, call_id),
    )
    team = await change.connection.scalar(sa.select(erased_calls.c.team_id).where(is_erased))
    if team is None or change.by.team_id not in (None, team):
        raise CallNotFound(f"no call {call_id}")


async def _counts(connection: AsyncConnection, call_pk: int) -> dict[str, int]:
    columns = (
        sa.select(sa.func.count())
        .select_from(metadata.tables[name])
        .where(metadata.tables[name].c.call_pk == call_pk)
        .scalar_subquery()
        .label(name)
        for name in COUNTED
    )
    row = (await connection.execute(sa.select(*columns))).one()
    return {name: count for name, count in row._mapping.items() if count}


async def release_voices(
    connection: AsyncConnection, workspace_id: UUID, call_pks: Sequence[int], policy: VoicePolicy
) -> None:
    """Compute the profiles that the calls' voices belong to without them."""
    await profiles.hold(connection, workspace_id)
    of_calls = voiceprints.c.call_pk.in_(call_pks)
    members = defaultdict[str, list[UUID | None]](list)
    for voice in await connection.execute(sa.select(voiceprints.c.user_id, voiceprints.c.model).where(of_calls)):
        members[voice.model].append(voice.user_id)
    released = {"user_id": None, "named_by": None, "removed_at": sa.func.now()}
    await connection.execute(sa.update(voiceprints).where(of_calls).values(released))
    for model, user_ids in members.items():
        await profiles.refresh(connection, workspace_id, model, user_ids, policy)


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts of rows as text: submissions: 2, jobs: 1."""
    return ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts.items())
