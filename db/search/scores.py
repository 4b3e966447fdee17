from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.rows import read
from db.core.tables import PRESENT, call_outcomes, call_search, calls, corrections, members, teams, transcripts
from db.records.corrected_columns import AGENT
from db.search.trends import by_weeks

By = Literal["team", "member"]
FAILED = ("failed", "auto-failed")
_PASSED = {"passed": True, "failed": False, "auto-failed": False}


@dataclass(frozen=True, slots=True)
class ScorecardScore:
    """A call's score by a scorecard, 0..100. `passed`: None without a pass mark."""

    key: str
    score: float
    passed: bool | None
    auto_failed: bool


@dataclass(frozen=True, slots=True)
class ScoreWeek:
    """The scores of a team's or member's calls that started in one week. `score`: their mean, 0..100."""

    key: str  # of the scorecard
    week: date  # its Monday
    team_id: UUID | None  # of figures by team
    user_id: UUID | None  # of figures by member; None: unknown agent
    name: str | None  # the team's, or the member's
    calls: int  # with a score
    score: float
    passed: int
    failed: int  # including auto-failed
    auto_failed: int


async def scores(connection: AsyncConnection, call_pks: Sequence[int]) -> dict[int, tuple[ScorecardScore, ...]]:
    """Return the scores of calls, by the row's id."""
    query = sa.select(call_outcomes).where(call_outcomes.c.call_pk.in_(call_pks), call_outcomes.c.score.is_not(None))
    scores_by_call: dict[int, tuple[ScorecardScore, ...]] = {}
    for row in await connection.execute(query.order_by(call_outcomes.c.call_pk, call_outcomes.c.key)):
        score = ScorecardScore(row.key, row.score, _PASSED.get(row.outcome), row.outcome == "auto-failed")
        scores_by_call[row.call_pk] = (*scores_by_call.get(row.call_pk, ()), score)
    return scores_by_call


_FIGURES = (
    sa.func.count().label("calls"),
    sa.func.round(sa.cast(sa.func.avg(call_outcomes.c.score), sa.Numeric()), 1).label("score"),
    sa.func.count().filter(call_outcomes.c.outcome == "passed").label("passed"),
    sa.func.count().filter(call_outcomes.c.outcome.in_(FAILED)).label("failed"),
    sa.func.count().filter(call_outcomes.c.outcome == "auto-failed").label("auto_failed"),
)


async def score_weeks(
    database: Database, reader: Reader, zone: str, weeks: int = 12, by: By = "team", key: str | None = None
) -> list[ScoreWeek]:
    """Return scores by scorecard, week, and team or member, the earliest week first; weeks without scores are left out.

    `zone`: IANA time zone of the weeks. `weeks`: their number up to that of the latest call. `key`: of one scorecard.
    """
    of_reader, since, week = by_weeks(reader, zone, weeks)
    of_key = [] if key is None else [call_outcomes.c.key == key]
    team, user = (calls.c.team_id, sa.null()) if by == "team" else (sa.null(), AGENT)
    figures = (
        sa.select(
            call_outcomes.c.key,
            week.label("week"),
            sa.cast(team, sa.Uuid()).label("team_id"),
            sa.cast(user, sa.Uuid()).label("user_id"),
            *_FIGURES,
        )
        .select_from(calls)
        .join(call_outcomes, call_outcomes.c.call_pk == calls.c.id)
        .join(transcripts, PRESENT)
        .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
        .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
        .where(
            *of_reader, call_outcomes.c.workspace_id == reader.workspace_id, call_outcomes.c.score.is_not(None), *of_key
        )
        .where(calls.c.start_time >= since)
        .group_by(*(sa.literal_column(str(at)) for at in range(1, 5)))
        .subquery()
    )
    query: sa.Select[Any] = (
        sa.select(figures, sa.func.coalesce(teams.c.name, members.c.name).label("name"))
        .outerjoin(teams, teams.c.id == figures.c.team_id)
        .outerjoin(
            members, sa.and_(members.c.workspace_id == reader.workspace_id, members.c.user_id == figures.c.user_id)
        )
        .order_by(figures.c.key, figures.c.week, sa.text("name"), figures.c.team_id, figures.c.user_id)
    )
    return [read(ScoreWeek, row, score=float(row.score)) for row in await database.rows(reader, query, snapshot=True)]
