"""What a call's turn cost in the end: claims charge seconds of audio beforehand, from what is known of the call then.

A call of a minute may hold its place for half an hour (a damaged file, engines that time out, attempt after attempt).
Whoever conducted it says afterwards what it held, and its lane pays the difference, or gets it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from db.database import EVERY_WORKSPACE, Database


@dataclass(frozen=True, slots=True)
class Turn:
    """What a claim charged a lane for a job. `paid`: seconds of audio; None: those of a usual call."""

    team_id: UUID
    live: bool
    paid: float | None


@dataclass(frozen=True, slots=True)
class Held:
    """A turn, and the seconds for which its job held the place of one call (shared between calls at work at once)."""

    turn: Turn
    worked_seconds: float


# What was held is worth the audio that other calls get done in that time; before any was done nobody can say. As with
# claims, a lane that is alone pays nothing: it would pay for it when somebody comes who never waited. Never below where
# the last turn began, so that nothing is saved up. What is at work is found by leases of the last minute, as a snapshot
# may keep entries of all earlier ones. A claim that moves `turns` to its next generation in this moment forgets it.
_SETTLE = sa.text("""
    WITH usual AS (
        SELECT sum(audio_seconds) / nullif(sum(worked_seconds), 0) AS pace,
            sum(audio_seconds) / nullif(sum(calls), 0) AS call
        FROM paces WHERE stage = 'call'
    ), owed AS (
        SELECT h.team_id, h.live,
            sum(h.worked * u.pace - greatest(coalesce(h.paid, u.call), 5)) / max(m.priority * w.priority) AS seconds
        FROM unnest(
            CAST(:teams AS uuid[]), CAST(:lives AS boolean[]), CAST(:paid AS float8[]), CAST(:worked AS float8[])
        ) AS h (team_id, live, paid, worked)
        JOIN teams m ON m.id = h.team_id JOIN workspaces w ON w.id = m.workspace_id CROSS JOIN usual u
        GROUP BY h.team_id, h.live
    ), lanes AS (
        SELECT t.generation, t.team_id, t.live, o.seconds
        FROM turns t JOIN owed o ON o.team_id = t.team_id AND o.live = t.live
        WHERE t.generation = (SELECT max(generation) FROM turns) AND (
            EXISTS (
                SELECT FROM jobs j
                WHERE j.state = 'running' AND j.lease_until > now() - interval '1 minute'
                    AND j.live = t.live AND j.team_id <> t.team_id
            )
            OR EXISTS (
                SELECT FROM teams other, LATERAL (
                    SELECT FROM jobs j
                    WHERE j.state = 'queued' AND j.live = t.live AND j.team_id = other.id AND j.not_before <= now()
                    LIMIT 1
                ) AS waits
                WHERE other.id <> t.team_id
            )
        )
        ORDER BY t.live, t.team_id FOR NO KEY UPDATE OF t
    )
    UPDATE turns t SET ended = greatest(t.began, t.ended + lanes.seconds)
    FROM lanes
    WHERE (t.generation, t.team_id, t.live) = (lanes.generation, lanes.team_id, lanes.live)
        AND lanes.seconds IS NOT NULL
""")


async def settle(database: Database, helds: Sequence[Held]) -> None:
    """Charge lanes the difference between what their jobs held and what their turns had cost."""
    if not helds:
        return
    values = {
        "teams": [held.turn.team_id for held in helds],
        "lives": [held.turn.live for held in helds],
        "paid": [held.turn.paid for held in helds],
        "worked": [held.worked_seconds for held in helds],
    }
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(_SETTLE, values)
