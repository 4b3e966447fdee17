"""Redaction of stored calls: which calls are due, and the jobs that redact them.

A call is due while its transcript is of no policy, or of another one than applies to it now, or while it is held back.
So an interrupted pass resumes, and a pass that is repeated finds nothing. The jobs have the priority of backfill.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database
from db.core.rows import dump_json
from db.core.tables import PRESENT, calls, jobs, teams, transcripts
from db.records.held_back import IS_HELD
from db.records.redactions import digest
from db.workspace import redaction_policies
from pipeline.domain.redaction import NamedPolicy

BATCH = 200  # calls queued in one transaction


@dataclass(frozen=True, slots=True)
class LateFilter:
    """Which stored calls are redacted: all that started since, of a team, or the given ones.

    `policy`: by which; None: by that of each team, so that calls of teams without one stay.
    """

    since: datetime | None = None
    team_id: UUID | None = None
    call_ids: tuple[UUID, ...] = ()
    policy: NamedPolicy | None = None


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """Completed calls of a team under its policy: `redacted` by it, and `due`, which it does not apply to yet."""

    team_id: UUID
    policy: str
    redacted: int
    due: int


async def status(database: Database, workspace_id: UUID) -> list[PolicyStatus]:
    """Count the calls of each team with a policy."""
    lines = []
    for team_id, policy in (await policies(database, workspace_id)).items():
        is_done = transcripts.c.redaction == digest(policy)
        query = sa.select(
            sa.func.count().filter(is_done), sa.func.count().filter(sa.func.coalesce(~is_done, sa.true()))
        )
        row = await database.first(workspace_id, query.select_from(_STORED).where(calls.c.team_id == team_id))
        lines.append(PolicyStatus(team_id, policy.name, *row))
    return lines


async def policies(
    database: Database, workspace_id: UUID, policy: NamedPolicy | None = None
) -> dict[UUID, NamedPolicy]:
    """Return the policy of each team whose calls are redacted; `policy`: in place of theirs."""
    query = sa.select(teams.c.id).where(teams.c.workspace_id == workspace_id).order_by(teams.c.name)
    async with database.transaction(workspace_id) as connection:
        by_team = {}
        for team_id in (await connection.execute(query)).scalars().all():
            of_team = policy or await redaction_policies.effective(connection, workspace_id, team_id)
            if of_team is not None:
                by_team[team_id] = of_team
        return by_team


_STORED = calls.join(transcripts, sa.and_(transcripts.c.call_pk == calls.c.id, sa.or_(PRESENT, IS_HELD)))


def _due(filter_: LateFilter, by_team: dict[UUID, NamedPolicy]) -> sa.ColumnElement[bool]:
    """Return the condition for calls that their policy does not apply to yet."""
    is_other = [
        sa.and_(calls.c.team_id == team_id, transcripts.c.redaction.is_distinct_from(digest(policy)))
        for team_id, policy in by_team.items()
        if filter_.team_id in (None, team_id)
    ]
    conditions = [sa.or_(calls.c.state == "completed", IS_HELD), sa.or_(sa.false(), *is_other)]
    conditions += [calls.c.start_time >= filter_.since] if filter_.since else []
    conditions += [calls.c.call_id.in_(filter_.call_ids)] if filter_.call_ids else []
    return sa.and_(*conditions)


async def count_due(database: Database, workspace_id: UUID, filter_: LateFilter) -> int:
    condition = _due(filter_, await policies(database, workspace_id, filter_.policy))
    row = await database.first(workspace_id, sa.select(sa.func.count()).select_from(_STORED).where(condition))
    return int(row[0])


async def queue_due(database: Database, workspace_id: UUID, filter_: LateFilter, after: int = 0) -> Sequence[int]:
    """Queue an analysis of up to `BATCH` due calls with ids above `after`; return those ids.

    A call that is being analyzed gets no second job: its analysis applies the policy, or the next pass does. A waiting
    analysis gets the policy of the filter, if it has one.
    """
    policy = None if filter_.policy is None else dump_json(filter_.policy)
    condition = _due(filter_, await policies(database, workspace_id, filter_.policy))
    query = sa.select(calls.c.id, calls.c.team_id).select_from(_STORED).where(condition, calls.c.id > after)
    async with database.transaction(workspace_id) as connection:
        rows = (await connection.execute(query.order_by(calls.c.id).limit(BATCH))).all()
        for row in rows:
            await connection.execute(_QUEUE, {"call": row.id, "policy": policy})
    return [row.id for row in rows]


# As `submit_call` queues an analysis, but never live.
_QUEUE = sa.text("""
    INSERT INTO jobs (call_pk, kind, state, live, team_id, audio_seconds, redaction)
    SELECT id, 'analyze', 'queued', false, team_id, declared_seconds(duration), CAST(:policy AS jsonb)
    FROM calls WHERE id = :call
    ON CONFLICT (call_pk, kind) WHERE state IN ('queued', 'running')
    DO UPDATE SET redaction = coalesce(excluded.redaction, jobs.redaction) WHERE jobs.state = 'queued'
""")


@dataclass(frozen=True, slots=True)
class LateProgress:
    """Calls of a pass: still waiting, and failed."""

    waiting: int
    failed: int


async def progress(database: Database, workspace_id: UUID, call_pks: Sequence[int]) -> LateProgress:
    """Return what became of queued calls."""
    latest = (
        sa.select(jobs.c.state)
        .where(jobs.c.call_pk == calls.c.id, jobs.c.kind == "analyze")
        .order_by(jobs.c.created_at.desc(), jobs.c.id)
        .limit(1)
        .scalar_subquery()
    )
    states: list[Any] = await database.column(workspace_id, sa.select(latest).where(calls.c.id.in_(call_pks)))
    return LateProgress(sum(state in ("queued", "running") for state in states), states.count("failed"))
