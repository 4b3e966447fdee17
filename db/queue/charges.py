"""What a call's turn cost in the end: claims charge seconds of audio beforehand, from what is known of the call then.

A call of a minute may hold its place for half an hour (a damaged file, engines that time out, attempt after attempt).
Its Conductor says afterwards what it held, and its lane pays the difference, or gets it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database


@dataclass(frozen=True, slots=True)
class ChargedTurn:
    """What a claim charged a lane for a job. `paid`: seconds of audio; None: those of a usual call.

    `settled_in`: the transactions that were to charge the difference; where the answer to a commit was lost, the server
    knows which of them did.
    """

    team_id: UUID
    live: bool
    paid: float | None
    settled_in: list[str] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """A turn, and the seconds for which its job held the place of one call (shared between running calls)."""

    turn: ChargedTurn
    worked_seconds: float


_SETTLE = sa.text(
    "SELECT settle_turns(CAST(:teams AS uuid[]), CAST(:lives AS boolean[]), CAST(:paid AS float8[]),"
    " CAST(:worked AS float8[])), CAST(pg_current_xact_id() AS text) AS transaction"
)
_OUTCOMES = sa.text(
    "SELECT CAST(one AS text) AS transaction, CASE WHEN one < pg_snapshot_xmax(pg_current_snapshot())"
    " THEN pg_xact_status(one) ELSE 'in progress' END AS outcome FROM unnest(CAST(:transactions AS xid8[])) AS one"
)


async def settle(connection: AsyncConnection, helds: Sequence[HeldTurn]) -> list[HeldTurn]:
    """Charge lanes the difference between what their jobs held and what their turns had cost.

    In the transaction that ends what was held, as its last statement: so it is charged once, whatever dies. Returns
    those that an earlier transaction may still charge, because the server has not noticed that nobody waits for it.
    """
    if not any(held.turn.settled_in for held in helds):
        await _charge(connection, helds)
        return []
    tried = sorted({one for held in helds for one in held.turn.settled_in})
    outcomes = {row.transaction: row.outcome for row in await connection.execute(_OUTCOMES, {"transactions": tried})}
    due, unknown = [], []
    for held in helds:
        found = {outcomes[one] for one in held.turn.settled_in}
        if "in progress" in found:
            unknown.append(held)
        elif found <= {"aborted"}:  # otherwise it has been charged, or was so long ago that nobody knows
            due.append(held)
    await _charge(connection, due)
    return unknown


async def settle_lost(database: Database, helds: Sequence[HeldTurn]) -> list[HeldTurn]:
    """Charge for jobs that their holder lost, which ended in another's transaction; return what `settle` does."""
    if not helds:
        return []
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return await settle(connection, helds)


async def _charge(connection: AsyncConnection, helds: Sequence[HeldTurn]) -> None:
    if not helds:
        return
    values = {
        "teams": [held.turn.team_id for held in helds],
        "lives": [held.turn.live for held in helds],
        "paid": [held.turn.paid for held in helds],
        "worked": [held.worked_seconds for held in helds],
    }
    transaction = (await connection.execute(_SETTLE, values)).one().transaction
    for held in helds:
        held.turn.settled_in.append(transaction)
