"""Charges a lane (a team's live calls, or its backfill) for the time that its jobs really take.

A claim charges the seconds of audio that the job declares. A call of one minute may still use its slot for half an
hour: a damaged file, engines that time out, repeated attempts. At the end its Conductor reports the actual time, and
the lane pays the difference or gets it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database


@dataclass(frozen=True, slots=True)
class ChargedSlot:
    """The charge of a claim to a lane. `paid`: seconds of audio; None: those of a usual call.

    `settled_in`: each transaction that tried to charge the difference. If the response to its commit was lost, the
    server can still report whether it committed.
    """

    team_id: UUID
    live: bool
    paid: float | None
    settled_in: list[str] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class UsedSlot:
    """A charged slot, and the seconds for which its job used it (shared between running calls)."""

    slot: ChargedSlot
    worked_seconds: float


_SETTLE = sa.text(
    "SELECT settle_turns(CAST(:teams AS uuid[]), CAST(:lives AS boolean[]), CAST(:paid AS float8[]),"
    " CAST(:worked AS float8[])), CAST(pg_current_xact_id() AS text) AS transaction"
)
_OUTCOMES = sa.text(
    "SELECT CAST(xid AS text) AS transaction, CASE WHEN xid < pg_snapshot_xmax(pg_current_snapshot())"
    " THEN pg_xact_status(xid) ELSE 'in progress' END AS outcome FROM unnest(CAST(:transactions AS xid8[])) AS xid"
)


async def settle(connection: AsyncConnection, slots: Sequence[UsedSlot]) -> list[UsedSlot]:
    """Charge lanes the difference between the time their jobs took and the time already charged.

    Runs as the last statement of the transaction that ends the jobs, so that it is charged once, whatever crashes.
    Returns the slots to settle later: an earlier transaction with their charge is still open on the server.
    """
    if not any(used.slot.settled_in for used in slots):
        await _charge(connection, slots)
        return []
    transactions = sorted({transaction for used in slots for transaction in used.slot.settled_in})
    outcomes = {
        row.transaction: row.outcome for row in await connection.execute(_OUTCOMES, {"transactions": transactions})
    }
    uncharged, undecided = [], []
    for used in slots:
        earlier = {outcomes[transaction] for transaction in used.slot.settled_in}
        if "in progress" in earlier:
            undecided.append(used)
        elif earlier <= {"aborted"}:  # otherwise it is charged, or too old for the server to report
            uncharged.append(used)
    await _charge(connection, uncharged)
    return undecided


async def settle_lost(database: Database, slots: Sequence[UsedSlot]) -> list[UsedSlot]:
    """Charge for jobs that their holder lost and that ended in another transaction; return what `settle` returns."""
    if not slots:
        return []
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return await settle(connection, slots)


async def _charge(connection: AsyncConnection, slots: Sequence[UsedSlot]) -> None:
    if not slots:
        return
    values = {
        "teams": [used.slot.team_id for used in slots],
        "lives": [used.slot.live for used in slots],
        "paid": [used.slot.paid for used in slots],
        "worked": [used.worked_seconds for used in slots],
    }
    transaction = (await connection.execute(_SETTLE, values)).one().transaction
    for used in slots:
        used.slot.settled_in.append(transaction)
