"""Jobs that failed or wait for their next attempt: listing and retrying them.

Failed work is retried by a new job, as a resubmitted recording would be. Only current failures are listed: a call whose
failed job was followed by another job has no failed work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import filter_by, read
from db.core.tables import calls, jobs, workspaces


@dataclass(frozen=True, slots=True)
class _Job:
    """`kind`: "process" (the call failed, or waits) or "analyze" (it has its record, or a policy holds it back)."""

    job_id: UUID
    call_id: UUID
    workspace: str
    kind: str
    code: str
    message: str
    attempts: int


@dataclass(frozen=True, slots=True)
class FailedJob(_Job):
    """A failed job without another automatic attempt."""

    failures: int
    crashes: int
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class WaitingJob(_Job):
    """A job whose last attempt failed, with the reason and the time of the next attempt."""

    next_try: datetime


@dataclass(frozen=True, slots=True)
class Retried:
    """Result of retrying a failed job. `new_job_id` None: the failure was no longer current, so nothing started."""

    job_id: UUID
    call_id: UUID
    new_job_id: UUID | None


_later = jobs.alias("later")
_FAILED = sa.and_(
    jobs.c.state == "failed",
    sa.or_(
        sa.and_(jobs.c.kind == "process", calls.c.job_id == jobs.c.id, calls.c.state == "failed"),
        sa.and_(
            jobs.c.kind == "analyze",
            calls.c.state.in_(("completed", "failed")),  # failed: held back
            ~sa.exists().where(_later.c.call_pk == jobs.c.call_pk, _later.c.created_at > jobs.c.created_at),
        ),
    ),
)
_WAITS = sa.and_(
    sa.or_(jobs.c.state == "queued", sa.and_(jobs.c.state == "fetching", jobs.c.lease_until.is_(None))),
    jobs.c.not_before > sa.func.now(),
)
_JOBS = (
    sa.select(
        *(jobs.c[name] for name in ("kind", "attempts", "failures", "crashes", "call_pk")),
        jobs.c.id.label("job_id"),
        sa.func.coalesce(jobs.c.error_code, "").label("code"),
        sa.func.coalesce(jobs.c.error_message, "").label("message"),
        jobs.c.finished_at.label("failed_at"),
        jobs.c.not_before.label("next_try"),
        calls.c.call_id,
        workspaces.c.name.label("workspace"),
    )
    .join(calls, calls.c.id == jobs.c.call_pk)
    .join(workspaces, workspaces.c.id == calls.c.workspace_id)
)


async def failed(
    database: Database,
    workspace_id: UUID | None = None,
    code: str | None = None,
    since: datetime | None = None,
    ids: Sequence[UUID] | None = None,
    limit: int | None = None,
) -> list[FailedJob]:
    """Return failed jobs, the latest first: with the code, failed since `since`, of `ids` (of jobs or calls)."""
    query = _JOBS.where(_FAILED).order_by(jobs.c.finished_at.desc(), jobs.c.id).limit(limit)
    if since is not None:
        query = query.where(jobs.c.finished_at >= since)
    return [read(FailedJob, row) for row in await _matching(database, query, workspace_id, code, ids)]


async def waiting(
    database: Database,
    workspace_id: UUID | None = None,
    code: str | None = None,
    since: datetime | None = None,
    ids: Sequence[UUID] | None = None,
) -> list[WaitingJob]:
    """Return waiting jobs, the next due first: with the code, since `since`, of `ids` (of jobs or calls)."""
    query = _JOBS.where(_WAITS).order_by(jobs.c.not_before, jobs.c.id)
    if since is not None:
        query = query.where(jobs.c.queued_at >= since)
    return [read(WaitingJob, row) for row in await _matching(database, query, workspace_id, code, ids)]


async def try_now(database: Database, job_id: UUID) -> bool:
    """Make the next attempt of a waiting job due now; return False if it no longer waits."""
    due = sa.update(jobs).where(jobs.c.id == job_id, _WAITS).values(not_before=sa.func.now())
    return await database.change(EVERY_WORKSPACE, due) == 1


async def retry(database: Database, job_id: UUID, workspace_id: UUID | None = None) -> Retried | None:
    """Retry a failed job with a new job; return None if there is no such job.

    Runs in one transaction, which checks again whether the failure is current, so it overwrites no later submission.
    """
    async with database.transaction(workspace_id or EVERY_WORKSPACE) as connection:
        rows = await connection.execute(
            sa.select(calls.c.id, calls.c.call_id)
            .where(calls.c.id == sa.select(jobs.c.call_pk).where(jobs.c.id == job_id).scalar_subquery())
            .with_for_update(key_share=True)
        )
        call = rows.one_or_none()
        if call is None:
            return None
        row = (await connection.execute(_JOBS.where(_FAILED, jobs.c.id == job_id))).one_or_none()
        if row is None:
            return Retried(job_id, call.call_id, None)
        return Retried(job_id, call.call_id, await _begin(connection, row))


async def _begin(connection: AsyncConnection, row: Any) -> UUID:
    policy = sa.select(jobs.c.redaction).where(jobs.c.id == row.job_id).scalar_subquery()
    values = {"call_pk": row.call_pk, "kind": row.kind, "redaction": policy}
    inserted = await connection.execute(sa.insert(jobs).values(**values).returning(jobs.c.id))
    new_job: UUID = inserted.scalar_one()
    if row.kind == "process":
        cleared = dict.fromkeys(("failure_code", "failure_message", "failure_retryable", "failed_at"))
        changes: dict[str, Any] = {"state": "transcribing", "job_id": new_job, "warnings": []} | cleared
    else:
        changes = {"analysis_warnings": []}
    changes["updated_at"] = sa.func.now()
    await connection.execute(sa.update(calls).where(calls.c.id == row.call_pk).values(**changes))
    return new_job


async def _matching(
    database: Database, query: sa.Select[Any], workspace_id: UUID | None, code: str | None, ids: Sequence[UUID] | None
) -> Sequence[sa.Row[Any]]:
    query = filter_by(query, calls.c.workspace_id, workspace_id)
    if code is not None:
        query = query.where(jobs.c.error_code == code)
    if ids is not None:
        query = query.where(sa.or_(jobs.c.id.in_(ids), calls.c.call_id.in_(ids)))
    return await database.rows(workspace_id or EVERY_WORKSPACE, query)
