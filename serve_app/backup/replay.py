"""Erases in a restored database what was erased after its backup, as the ledger of erasures lists it.

An entry is added to the restored ledger when what it lists is erased: so an interrupted replay resumes, and a call that
was submitted again after its erasure, before the backup, remains.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database
from db.core.tables import contacts, members, teams, workspaces
from db.records import erase, file_deletions, ledger
from db.records.erase import CallNotFound
from db.records.erasures import ErasureKind, Target
from db.records.ledger import BrokenLedger, Entry
from db.workspace.admin_log import NotInDirectory
from pipeline.domain.voices import VoicePolicy
from serve_app.backup.ledger_copies import Chains
from serve_app.backup.progress import BackupProgress


@dataclass(frozen=True, slots=True)
class Replayed:
    """Entries that the restored database lacked, and what was erased again, by name: calls, teams.

    `unused`: SHA-256 of recordings that no call has any more.
    """

    entries: int
    erased: Mapping[str, int]
    unused: Set[str]


@dataclass(frozen=True, slots=True)
class Restoration:
    """A restored database. `calls`: those whose digest the ledger has."""

    database: Database
    policy: VoicePolicy
    calls: Mapping[bytes, UUID]


def replay(
    url: str, chains: Chains | None, policy: VoicePolicy, recordings: Sequence[str], progress: BackupProgress
) -> Replayed:
    """Erase again what the entries list that the database lacks, and add these; may be run again.

    `chains`: None erases nothing. `recordings`: SHA-256 of those that may be unused then. Raises `BrokenLedger` if the
    database has another chain.
    """
    return asyncio.run(_replay(url, chains, policy, recordings, progress))


async def _replay(
    url: str, chains: Chains | None, policy: VoicePolicy, recordings: Sequence[str], progress: BackupProgress
) -> Replayed:
    async with await Database.open(url, pool_size=2, answer_seconds=None) as database:
        missing: dict[UUID, Sequence[Entry]] = {}
        for workspace_id, chain in (chains or {}).items():
            missing[workspace_id] = await _missing(database, workspace_id, chain)
        total, done = sum(map(len, missing.values())), 0
        erased: Counter[str] = Counter()
        for workspace_id, chain in missing.items():
            restoration = Restoration(database, policy, await _calls_of(database, workspace_id, chain))
            for entry in chain:
                progress.report("erasing", done, total)
                progress.remaining()
                erased.update(await _erased_again(restoration, entry))
                async with database.transaction(workspace_id) as connection:
                    await ledger.insert(connection, entry)
                done += 1
        await ledger.queue_copies(database)
        unused = await file_deletions.unused(database, recordings)
        return Replayed(total, {name: count for name, count in erased.items() if count}, unused)


async def _missing(database: Database, workspace_id: UUID, chain: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries after those of the database, which may have more. Raises `BrokenLedger`."""
    async with database.transaction(workspace_id) as connection:
        restored = await ledger.entries(connection, workspace_id)
    common = min(len(restored), len(chain))
    if common and restored[common - 1].hash != chain[common - 1].hash:
        raise BrokenLedger(f"Entry {common} of workspace {workspace_id} is not the one of the backup.")
    return chain[common:]


_CALLS = sa.text("""
    SELECT digest, call_id FROM calls JOIN unnest(CAST(:digests AS bytea[])) AS given (digest)
        ON digest = call_digest(workspace_id, call_id)
    WHERE workspace_id = :workspace
""")

IDS = {ErasureKind.MEMBER: members.c.user_id, ErasureKind.TEAM: teams.c.id, ErasureKind.WORKSPACE: workspaces.c.id}


async def _calls_of(database: Database, workspace_id: UUID, chain: Sequence[Entry]) -> dict[bytes, UUID]:
    digests = list({digest for entry in chain for digest in entry.digests})
    rows = await database.rows(workspace_id, _CALLS, {"workspace": workspace_id, "digests": digests})
    return {row.digest: row.call_id for row in rows}


async def _erased_again(restoration: Restoration, entry: Entry) -> Mapping[str, int]:
    if entry.kind not in REPLAYS:
        raise BrokenLedger(f"Entry {entry.sequence} of workspace {entry.workspace_id} is of a newer version.")
    return await REPLAYS[entry.kind](restoration, entry)


async def _erase_calls(restoration: Restoration, entry: Entry) -> Mapping[str, int]:
    erased = 0
    for call_id in filter(None, map(restoration.calls.get, entry.digests)):
        with contextlib.suppress(CallNotFound, NotInDirectory):  # it was erased with its team or workspace
            again = await erase.erase_call(
                restoration.database, entry.workspace_id, call_id, restoration.policy, in_ledger=False
            )
            erased += not again.before
    return {"calls": erased}


async def _forget_contacts(restoration: Restoration, entry: Entry) -> Mapping[str, int]:
    """Erase the calls that the entry has, though each has its own entry, and delete the contacts."""
    erased = await _erase_calls(restoration, entry)
    ids = await _with_digest(restoration.database, entry, contacts.c.id)
    if not ids:  # also if the workspace is gone
        return erased
    return {**erased, "contacts": await erase.forget_contacts(restoration.database, entry.workspace_id, ids)}


async def _erase_target(restoration: Restoration, entry: Entry) -> Mapping[str, int]:
    kind = ErasureKind(entry.kind)
    ids = await _with_digest(restoration.database, entry, IDS[kind])
    for id_ in ids:
        await erase.repeat(restoration.database, entry.workspace_id, Target(kind, id_), restoration.policy)
    return {f"{kind}s": len(ids)}


async def _with_digest(database: Database, entry: Entry, column: sa.Column[UUID]) -> list[UUID]:
    digest = sa.func.call_digest(entry.workspace_id, column)
    return list(await database.column(entry.workspace_id, sa.select(column).where(digest.in_(entry.digests))))


async def _leave(_: Restoration, __: Entry) -> Mapping[str, int]:
    """Leave it to the retention of the restored database."""
    return {}


REPLAYS: Mapping[str, Callable[[Restoration, Entry], Awaitable[Mapping[str, int]]]] = {
    "call": _erase_calls,
    "contact": _forget_contacts,
    "number": _forget_contacts,
    **dict.fromkeys(IDS, _erase_target),
    "retention": _leave,
}
"""What erases again, by the kind of an entry."""
