from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import filter_by, read
from db.core.tables import calls, jobs
from pipeline.domain.speech import FOR_OPERATORS

JOB_FIELDS = (
    jobs.c.id.label("job_id"),
    *(jobs.c[name] for name in ("kind", "state", "stage", "worker", "attempts", "failures", "crashes")),
    *(jobs.c[name] for name in ("created_at", "queued_at", "started_at", "not_before", "lease_until", "finished_at")),
    *(jobs.c[name] for name in ("error_code", "error_message", "error_retryable")),
)
_JOBS = sa.select(calls.c.call_id, *JOB_FIELDS).join(calls, calls.c.id == jobs.c.call_pk)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call or a job failed: code and message of its `CallError`, and whether a retry could help."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job for operators."""

    job_id: UUID
    call_id: UUID
    kind: str
    state: str  # queued, running, done, failed, superseded
    stage: str | None
    worker: Annotated[str | None, FOR_OPERATORS]
    attempts: int
    failures: int
    crashes: int
    created_at: datetime
    started_at: datetime | None  # last claimed
    queued_since: datetime | None  # while queued
    next_try: datetime | None  # while queued
    finished_at: datetime | None
    error: Failure | None  # the last one


async def list_jobs(
    database: Database, workspace_id: UUID | None = None, state: str | None = None, limit: int = 50
) -> list[JobSummary]:
    """Return jobs, the latest first."""
    query = filter_by(_JOBS, calls.c.workspace_id, workspace_id)
    query = query.order_by(jobs.c.created_at.desc(), jobs.c.id).limit(limit)
    if state is not None:
        query = query.where(jobs.c.state == state)
    return [_job(row) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)]


async def show_job(database: Database, job_id: UUID) -> JobSummary | None:
    async with database.transaction(EVERY_WORKSPACE) as connection:
        row = (await connection.execute(_JOBS.where(jobs.c.id == job_id))).one_or_none()
        return None if row is None else _job(row)


def is_waiting(state: str | None, lease_until: datetime | None) -> bool:
    return state == "queued" or (state == "fetching" and lease_until is None)


def failure_of(code: str | None, message: str | None, retryable: bool | None) -> Failure | None:
    return None if code is None else Failure(code, message or "", bool(retryable))


async def jobs_of(connection: AsyncConnection, call_pk: int) -> tuple[JobSummary, ...]:
    of_call = _JOBS.where(jobs.c.call_pk == call_pk).order_by(jobs.c.created_at, jobs.c.id)
    return tuple(map(_job, await connection.execute(of_call)))


def _job(row: sa.Row[Any]) -> JobSummary:
    waits = is_waiting(row.state, row.lease_until)
    return read(
        JobSummary,
        row,
        queued_since=row.queued_at if waits else None,
        next_try=row.not_before if waits else None,
        error=failure_of(row.error_code, row.error_message, row.error_retryable),
    )
