from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.rows import read
from db.core.tables import (
    PRESENT,
    call_outcomes,
    call_search,
    calls,
    corrections,
    findings,
    members,
    tasks,
    teams,
    transcripts,
)
from db.records.corrected_columns import AGENT


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
    talk_ratio: float | None  # mean agent talk share, 0..1; None: no call has one
    tasks: int = 0
    tasks_done: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)  # calls by known outcome


def by_weeks(
    reader: Reader, zone: str, weeks: int
) -> tuple[list[sa.ColumnElement[bool]], sa.ColumnElement[Any], sa.ColumnElement[Any]]:
    """Return a reader's calls, the start of the last `weeks` weeks up to the latest call, and the Monday of a call."""
    of_reader = [calls.c.workspace_id == reader.workspace_id]
    if reader.team_id is not None:
        of_reader.append(calls.c.team_id == reader.team_id)
    latest = sa.select(sa.func.max(calls.c.start_time)).where(*of_reader).correlate(None).scalar_subquery()
    last = sa.func.date_trunc("week", sa.func.timezone(zone, latest))
    since = sa.func.timezone(zone, last - timedelta(weeks=weeks - 1))
    return of_reader, since, sa.cast(sa.func.date_trunc("week", sa.func.timezone(zone, calls.c.start_time)), sa.Date)


async def team_weeks(database: Database, reader: Reader, zone: str, weeks: int = 12) -> list[TeamWeek]:
    """Return the figures by week and team, the earliest first; weeks without calls are left out.

    `zone`: IANA time zone that weeks begin in. `weeks`: their number up to that of the latest call.
    """
    of_reader, since, week = by_weeks(reader, zone, weeks)

    def by_week(query: Any, *dimensions: sa.ColumnElement[Any]) -> Any:
        """Return the figures of `query`, a query of calls, by team, week and `dimensions`."""
        query = query.add_columns(calls.c.team_id, week.label("week"), *dimensions)
        places = range(len(query.selected_columns) - len(dimensions) - 1, len(query.selected_columns) + 1)
        return query.where(*of_reader, calls.c.start_time >= since).group_by(
            *(sa.literal_column(str(at)) for at in places)
        )

    async with database.transaction(reader, snapshot=True) as connection:
        rows = list(await connection.execute(by_week(_CALLS)))
        outcomes: dict[tuple[UUID, date], dict[str, int]] = {}
        for row in await connection.execute(by_week(_OUTCOMES, _OUTCOME.label("outcome"))):
            outcomes.setdefault((row.team_id, row.week), {})[row.outcome] = row.calls
        due = {(row.team_id, row.week): row for row in await connection.execute(by_week(_TASKS))}
    return [
        read(TeamWeek, row, outcomes=outcomes.get(place, {}), **_tasks_of(due.get(place)))
        for row in sorted(rows, key=lambda row: (row.week, row.team_id))
        for place in [(row.team_id, row.week)]
    ]


def _tasks_of(row: sa.Row[Any] | None) -> dict[str, int]:
    return {"tasks": row.tasks, "tasks_done": row.tasks_done} if row is not None else {}


_tone, _PARTIES = call_search.c.tone, findings.c.value["parties"]
_OF_REP = sa.case((corrections.c.swapped, _PARTIES["customer"]), else_=_PARTIES["rep"])
_CALLS = (
    sa.select(
        sa.func.count().label("calls"),
        sa.func.count().filter(calls.c.state == "failed").label("failed"),
        *(sa.func.count().filter(_tone == name).label(name) for name in ("positive", "neutral", "negative")),
        sa.func.avg(sa.cast(_OF_REP["talk_ratio"].astext, sa.Double())).label("talk_ratio"),
    )
    .select_from(calls)
    .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
    .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
    .outerjoin(findings, sa.and_(findings.c.call_pk == calls.c.id, findings.c.step == "statistics"))
)
_OUTCOME = findings.c.value["outcome"].astext
_OUTCOMES = (
    sa.select(sa.func.count().label("calls"))
    .select_from(calls)
    .join(findings, sa.and_(findings.c.call_pk == calls.c.id, findings.c.step == "summary", _OUTCOME.is_not(None)))
    .join(transcripts, PRESENT)
)
_TASKS = (
    sa.select(sa.func.count().label("tasks"), sa.func.count().filter(tasks.c.done).label("tasks_done"))
    .select_from(calls)
    .join(tasks, tasks.c.call_pk == calls.c.id)
    .join(transcripts, PRESENT)
)


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
