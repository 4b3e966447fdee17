"""What waits and runs of a reader's calls."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database, Reader
from db.core.rows import read
from db.core.tables import jobs, teams
from db.queue.live_jobs import LIVE_STATES, WAITING, in_states


@dataclass(frozen=True, slots=True)
class TeamQueue:
    """The live jobs of one team."""

    team_id: UUID
    team: str
    fetching: int  # recordings that are fetched or awaited
    queued: int
    running: int
    later: int  # of fetching and queued: to be tried later, after a failure
    audio_seconds: float  # of those whose length is known
    oldest: datetime | None  # since when the one waiting longest waits


async def team_queues(database: Database, reader: Reader) -> list[TeamQueue]:
    """By team's name; a team with nothing to do is there with zeros."""
    count = sa.func.count()
    waits = jobs.c.state.in_(WAITING)
    query = (
        sa.select(
            teams.c.id.label("team_id"),
            teams.c.name.label("team"),
            *(count.filter(jobs.c.state == state).label(state) for state in LIVE_STATES),
            count.filter(waits, jobs.c.not_before > sa.func.now()).label("later"),
            sa.func.coalesce(sa.func.sum(jobs.c.audio_seconds), 0.0).label("audio_seconds"),
            sa.func.min(jobs.c.queued_at).filter(waits).label("oldest"),
        )
        .select_from(teams.outerjoin(jobs, sa.and_(jobs.c.team_id == teams.c.id, in_states())))
        .where(teams.c.workspace_id == reader.workspace_id)
        .group_by(teams.c.id, teams.c.name)
        .order_by(teams.c.name)
    )
    return [read(TeamQueue, row) for row in await database.rows(reader, query, snapshot=True)]
