"""Carries out erasures. Each step is one transaction that may be repeated: after a crash, all steps are.

Calls are erased one by one. A pass over the calls is repeated, so that it finds those that arrived in the meantime.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database
from db.core.tables import api_keys, calls, contacts, workspaces
from db.records import erase, erasures, forget_member, ledger
from db.records.corrected_columns import calls_of_contact
from db.records.erasures import ErasureKind, ErasureLease, Target
from db.workspace import removal
from db.workspace.admin_log import Changing, NotInDirectory, changing
from pipeline.domain.voices import VoicePolicy

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
            ended = await erase.without_deadlock(partial(_end, database, lease, on_hold))
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
                await erase.erase_call(database, lease.workspace_id, call_id, policy, lease.by, lease, lease.in_ledger)
            except erase.CallHeld:
                on_hold.add(call_id)
            except erase.CallNotFound:  # it was erased and is not remembered, or moved to another team
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
        await change.note(
            "erased", target.kind, target.id or "", detail=erase.counts_text(total), team_id=target.team_id
        )
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
