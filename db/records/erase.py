"""Erases a call, or all calls of a person, a team or a workspace; `file_deletions` has their files then.

A call is erased in one transaction. Rows that refer to it are deleted with its row (ON DELETE CASCADE). The ids of the
call remain in the access log, the log of changes and the event `call.deleted`; a digest of them in `erased_calls`.

Each step of an erasure is one transaction that may be repeated: after a crash, all steps are. A pass over the calls is
repeated, so that it finds those that arrived in the meantime.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.tables import api_keys, calls, contacts, erased_calls, metadata, voiceprints, workspaces
from db.records import erasures, forget_member, ledger
from db.records.corrected_columns import calls_of_contact
from db.records.erasures import ErasureKind, ErasureLease, Target
from db.voices import profiles
from db.workspace import access_log, legal_holds, removal
from db.workspace.admin_log import Actor, Changing, NotInDirectory, changing
from db.workspace.legal_holds import OnHold
from db.workspace.removal import ERASURE
from pipeline.domain.voices import VoicePolicy

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

    return await erasures.without_deadlock(attempt)


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


PASSES = 2
Ended = tuple[Mapping[str, int], Sequence[UUID]]  # what the last step erased, and the ids for the ledger
KEYS = {ErasureKind.TEAM: api_keys.c.team_id, ErasureKind.WORKSPACE: api_keys.c.workspace_id}


async def work(database: Database, lease: ErasureLease, policy: VoicePolicy) -> None:
    """Carry out an erasure to its end. Raises `ErasureLost`.

    `policy` computes voice profiles without what is erased.
    """
    target, ended = lease.target, False
    try:
        if target.kind is ErasureKind.MEMBER:
            await forget_member.forget(database, lease, policy)
        elif target.kind in KEYS:  # first, so that no more calls are submitted
            async with changing(database, lease.workspace_id, lease.by) as change:
                await removal.delete_keys(change, KEYS[target.kind] == target.id)
        while not ended:
            on_hold: set[UUID] = set()
            for _ in range(PASSES if target.kind is not ErasureKind.MEMBER else 0):
                await _erase_calls(database, lease, policy, on_hold)
            ended = await erasures.without_deadlock(partial(_end, database, lease, on_hold))
    except NotInDirectory:  # another process deleted the workspace
        raise erasures.ErasureLost(f"erasure {lease.erasure_id}") from None


async def repeat(database: Database, workspace_id: UUID, target: Target, policy: VoicePolicy) -> None:
    """Erase a member, team or workspace again in a restored database, without an entry in the ledger."""
    erasure = await erasures.create(database, workspace_id, target)
    lease = await erasures.claim(database, erasure.erasure_id)
    if lease is not None:
        await work(database, replace(lease, in_ledger=False), policy)


async def forget_contacts(database: Database, workspace_id: UUID, ids: Sequence[UUID]) -> int:
    """Delete contacts whose calls have been erased; of those with other calls, only the number. Return how many."""
    async with changing(database, workspace_id) as change:
        return sum(map(len, await _forget_contacts(change, contacts.c.id.in_(ids))))


async def _erase_calls(database: Database, lease: ErasureLease, policy: VoicePolicy, on_hold: set[UUID]) -> None:
    async for page in erasures.call_pages(database, lease.workspace_id, lease.target):
        await erasures.renew(database, lease)
        for call_id in page:
            try:
                await erase_call(database, lease.workspace_id, call_id, policy, lease.by, lease, lease.in_ledger)
            except CallHeld:
                on_hold.add(call_id)
            except CallNotFound:  # it was erased and is not remembered, or moved to another team
                continue


async def _end(database: Database, lease: ErasureLease, on_hold: set[UUID]) -> bool:
    """Erase the target itself and end the erasure; False: more calls have arrived."""
    target = lease.target
    async with changing(database, lease.workspace_id, lease.by) as change:
        step = _LAST_STEPS.get(target.kind, _nothing)
        result = await step(change, lease, on_hold)
        if result is None:
            return False
        counts, ids = result
        total = await erasures.finish(change.connection, lease, {**counts, "held": len(on_hold)})
        await change.note("erased", target.kind, target.id or "", detail=counts_text(total), team_id=target.team_id)
        if lease.in_ledger and target.kind is not ErasureKind.CALL:  # which has its entry
            digests = [erasures.digest_of(change.workspace_id, id_) for id_ in ids]
            author = ledger.who(change.by)
            await ledger.append(
                change.connection, change.workspace_id, target.kind, author, total, digests, lease.erasure_id
            )
        if counts.get("workspaces"):
            await change.run(sa.delete(workspaces).where(workspaces.c.id == target.id))
    return True


async def _nothing(change: Changing, lease: ErasureLease, on_hold: set[UUID]) -> Ended | None:
    target = lease.target
    return {}, [target.id] if target.kind is ErasureKind.MEMBER and target.id else []


async def _contact(change: Changing, lease: ErasureLease, on_hold: set[UUID]) -> Ended | None:
    """Delete the contact, which the key of a team may not."""
    if lease.target.team_id is not None or on_hold:
        return {}, []
    deleted = await change.run(sa.delete(contacts).where(contacts.c.id == lease.target.id).returning(contacts.c.id))
    ids = [lease.target.id] if lease.target.id else []
    await _clear_contacts(change, deleted)
    return {"contacts": len(deleted)}, ids


async def _number(change: Changing, lease: ErasureLease, on_hold: set[UUID]) -> Ended | None:
    """Delete contacts with the number that have no other calls; of the others, only the number."""
    target = lease.target
    if target.team_id is not None or on_hold:
        return {}, []
    deleted, others = await _forget_contacts(change, contacts.c.phone == target.number)
    await change.connection.execute(_CLEAR_NUMBERS, {"workspace": change.workspace_id, "number": target.number})
    return {"contacts": len(deleted), "numbers": len(others)}, [row.id for row in (*deleted, *others)]


async def _forget_contacts(
    change: Changing, condition: sa.ColumnElement[bool]
) -> tuple[Sequence[sa.Row[Any]], Sequence[sa.Row[Any]]]:
    """Delete contacts without calls, and the number of the others; return the ids of both."""
    has_calls = sa.exists(sa.select(1).select_from(calls).where(calls.c.id.in_(calls_of_contact(contacts.c.id))))
    unused = sa.and_(condition, ~has_calls.correlate(contacts))
    deleted = await change.run(sa.delete(contacts).where(unused).returning(contacts.c.id))
    changes = {"phone": None, "updated_at": sa.func.now()}
    others = await change.run(sa.update(contacts).where(condition).values(changes).returning(contacts.c.id))
    await _clear_contacts(change, deleted)
    for contact in others:
        await change.run(sa.select(sa.func.index_words(calls.c.id)).where(calls.c.id.in_(calls_of_contact(contact.id))))
    return deleted, others


async def _clear_contacts(change: Changing, deleted: Sequence[sa.Row[Any]]) -> None:
    ids = [str(row.id) for row in deleted]
    await change.connection.execute(_CLEAR_CONTACTS, {"workspace": change.workspace_id, "ids": ids})


# A user may have assigned the call to another contact; its events show the machine's.
_CLEAR_CONTACTS = sa.text("""
    UPDATE events SET record = jsonb_set(record, '{contact}', 'null')
    WHERE workspace_id = :workspace AND record #>> '{contact,contactId}' = ANY (:ids)
""")
_CLEAR_NUMBERS = sa.text("""
    UPDATE events SET record = jsonb_set(record, '{contact,phone}', 'null')
    WHERE workspace_id = :workspace AND record #>> '{contact,phone}' = :number
""")


async def _team(change: Changing, lease: ErasureLease, on_hold: set[UUID]) -> Ended | None:
    """Delete the team, unless a hold keeps calls of it."""
    team_id = lease.target.id
    assert team_id is not None
    exists = await removal.lock_team(change, team_id)
    if await _others(change, calls.c.team_id == team_id, on_hold):
        return None
    if not exists or on_hold:
        return {}, [team_id]
    await removal.delete_team(change, team_id)
    return {"teams": 1}, [team_id]


async def _workspace(change: Changing, lease: ErasureLease, on_hold: set[UUID]) -> Ended | None:
    """Prepare the deletion of the workspace, unless a hold keeps calls of it."""
    home = change.workspace_id
    # A submission that is being stored refers to the workspace; this waits for it.
    await change.run(sa.select(workspaces.c.id).where(workspaces.c.id == home).with_for_update())
    if await _others(change, calls.c.workspace_id == home, on_hold):
        return None
    return ({} if on_hold else {"workspaces": 1}), [home]


async def _others(change: Changing, condition: sa.ColumnElement[bool], on_hold: set[UUID]) -> bool:
    rows = await change.run(sa.select(calls.c.call_id).where(condition).limit(len(on_hold) + 1))
    return any(row.call_id not in on_hold for row in rows)


_LAST_STEPS: Mapping[ErasureKind, Callable[[Changing, ErasureLease, set[UUID]], Awaitable[Ended | None]]] = {
    ErasureKind.CONTACT: _contact,
    ErasureKind.NUMBER: _number,
    ErasureKind.TEAM: _team,
    ErasureKind.WORKSPACE: _workspace,
}
