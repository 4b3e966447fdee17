"""What a call's turn cost in the end: claims charge seconds of audio beforehand, from what is known of the call then.

A call of a minute may hold its place for half an hour (a damaged file, engines that time out, attempt after attempt).
Its Conductor says afterwards what it held, and its lane pays the difference, or gets it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.database import EVERY_WORKSPACE, Database


@dataclass(frozen=True, slots=True)
class ChargedTurn:
    """What a claim charged a lane for a job. `paid`: seconds of audio; None: those of a usual call."""

    team_id: UUID
    live: bool
    paid: float | None


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """A turn, and the seconds for which its job held the place of one call (shared between running calls)."""

    turn: ChargedTurn
    worked_seconds: float


_SETTLE = sa.text(
    "SELECT settle_turns(CAST(:teams AS uuid[]), CAST(:lives AS boolean[]), CAST(:paid AS float8[]),"
    " CAST(:worked AS float8[]))"
)


async def settle(connection: AsyncConnection, helds: Sequence[HeldTurn]) -> None:
    """Charge lanes the difference between what their jobs held and what their turns had cost.

    In the transaction that ends what was held, as its last statement: so it is charged once, whatever dies.
    """
    if helds:
        values = {
            "teams": [held.turn.team_id for held in helds],
            "lives": [held.turn.live for held in helds],
            "paid": [held.turn.paid for held in helds],
            "worked": [held.worked_seconds for held in helds],
        }
        await connection.execute(_SETTLE, values)


async def settle_lost(database: Database, helds: Sequence[HeldTurn]) -> None:
    """Charge for jobs that their holder lost, which ended in another's transaction."""
    if helds:
        async with database.transaction(EVERY_WORKSPACE) as connection:
            await settle(connection, helds)
