"""Work that waits for its next try: listed, and tried at once on an operator's word."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from db.database import EVERY_WORKSPACE, Database
from db.tables import calls, jobs, workspaces


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job whose last try failed, with why, and when the next one is due."""

    job_id: UUID
    call_id: UUID
    workspace: str
    kind: str  # "process" or "analyze"
    code: str
    message: str
    attempts: int
    next_try: datetime


_WAITS = sa.and_(
    sa.or_(jobs.c.state == "queued", sa.and_(jobs.c.state == "fetching", jobs.c.lease_until.is_(None))),
    jobs.c.not_before > sa.func.now(),
)


async def waiting(
    database: Database,
    workspace_id: UUID | None = None,
    code: str | None = None,
    since: datetime | None = None,
    ids: Sequence[UUID] | None = None,
) -> list[WaitingJob]:
    """Waiting work, the next to be tried first: for the reason `code`, since `since`, of `ids` (of jobs or calls)."""
    query = (
        sa.select(
            *(jobs.c[name] for name in ("id", "kind", "error_code", "error_message", "attempts", "not_before")),
            calls.c.call_id,
            workspaces.c.name,
        )
        .join(calls, calls.c.id == jobs.c.call_pk)
        .join(workspaces, workspaces.c.id == calls.c.workspace_id)
        .where(_WAITS)
        .order_by(jobs.c.not_before, jobs.c.id)
    )
    if workspace_id is not None:
        query = query.where(calls.c.workspace_id == workspace_id)
    if code is not None:
        query = query.where(jobs.c.error_code == code)
    if since is not None:
        query = query.where(jobs.c.queued_at >= since)
    if ids is not None:
        query = query.where(sa.or_(jobs.c.id.in_(ids), calls.c.call_id.in_(ids)))
    async with database.transaction(workspace_id or EVERY_WORKSPACE) as connection:
        return [_waiting(row) for row in await connection.execute(query)]


async def try_now(database: Database, job_id: UUID) -> bool:
    """Make the next try of a waiting job due now; False where it no longer waits."""
    due = sa.update(jobs).where(jobs.c.id == job_id, _WAITS).values(not_before=sa.func.now())
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return (await connection.execute(due)).rowcount == 1


def _waiting(row: Any) -> WaitingJob:
    return WaitingJob(
        row.id,
        row.call_id,
        row.name,
        row.kind,
        row.error_code or "",
        row.error_message or "",
        row.attempts,
        row.not_before,
    )
