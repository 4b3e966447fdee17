"""Calls by team and week: how many, in what tone, and how much of the talk was ours."""

from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

import sqlalchemy as sa

from db.database import Database, Reader
from db.rows import read
from db.tables import call_search, calls, corrections, findings


@dataclass(frozen=True, slots=True)
class TeamWeek:
    """The calls of one team that started in one week."""

    team_id: UUID
    week: date  # its Monday
    calls: int
    failed: int
    positive: int
    neutral: int
    negative: int
    talk_ratio: float | None  # mean share of the talk that was the rep's, 0..1; None: it is known of no call


async def team_weeks(database: Database, reader: Reader, zone: str, weeks: int = 12) -> list[TeamWeek]:
    """By week and team, the earliest first; weeks without calls are left out.

    `zone`: IANA, in which weeks begin. `weeks`: up to that of the latest call.
    """
    week = sa.func.date_trunc("week", sa.func.timezone(zone, calls.c.start_time))
    mine = [calls.c.workspace_id == reader.workspace_id]
    if reader.team_id is not None:
        mine.append(calls.c.team_id == reader.team_id)
    latest = sa.select(sa.func.max(calls.c.start_time)).where(*mine).correlate(None).scalar_subquery()
    last = sa.func.date_trunc("week", sa.func.timezone(zone, latest))
    since = sa.func.timezone(zone, last - timedelta(weeks=weeks - 1))
    tone = call_search.c.tone
    parties = findings.c.value["parties"]
    of_rep = sa.case((corrections.c.swapped, parties["customer"]), else_=parties["rep"])
    ratio: sa.ColumnElement[float] = sa.cast(of_rep["talk_ratio"].astext, sa.Double())
    query = (
        sa.select(
            calls.c.team_id,
            sa.cast(week, sa.Date).label("week"),
            sa.func.count().label("calls"),
            sa.func.count().filter(calls.c.state == "failed").label("failed"),
            *(sa.func.count().filter(tone == name).label(name) for name in ("positive", "neutral", "negative")),
            sa.func.avg(ratio).label("talk_ratio"),
        )
        .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
        .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
        .outerjoin(findings, sa.and_(findings.c.call_pk == calls.c.id, findings.c.step == "statistics"))
        .where(*mine, calls.c.start_time >= since)
        .group_by(calls.c.team_id, sa.literal_column("2"))
        .order_by(sa.literal_column("2"), calls.c.team_id)
    )
    async with database.transaction(reader, snapshot=True) as connection:
        return [read(TeamWeek, row) for row in await connection.execute(query)]
