"""Which submission led to what: its request is in the logs, and its trace goes on."""

from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa

from db.core.database import Database
from db.core.tables import submissions


def brought(
    column: str, call_pk: sa.ColumnElement[int], job_id: sa.ColumnElement[UUID], otherwise: Literal["first", "latest"]
) -> sa.ScalarSelect[Any]:
    """A column of the first submission of a call that was answered with `job_id`; where there is none, `otherwise`."""
    its_job = submissions.c.job_id == job_id
    sign = 1 if otherwise == "first" else -1
    return (
        sa.select(submissions.c[column])
        .where(submissions.c.call_pk == call_pk)
        .order_by(its_job.is_(True).desc(), submissions.c.id * sa.case((its_job, 1), else_=sign))
        .limit(1)
        .scalar_subquery()
    )


async def traces(database: Database, workspace_id: UUID, call_pk: int) -> list[str]:
    """The traceparents of a call's submissions, as far as they have one."""
    query = sa.select(submissions.c.traceparent).where(
        submissions.c.call_pk == call_pk, submissions.c.traceparent.is_not(None)
    )
    async with database.transaction(workspace_id) as connection:
        return list((await connection.execute(query.order_by(submissions.c.id))).scalars())
