from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.rows import read
from db.core.tables import calls, stage_results, transcripts

PRODUCER_LENGTH = 32  # characters of a producer, at the end of the key of its result


@dataclass(frozen=True, slots=True)
class StageDone:
    """A finished stage of a job. A later job that reuses the result leaves it unchanged."""

    job_id: UUID
    stage: str
    recorded_at: datetime
    worked_seconds: float | None  # of replicas; None: not measured


async def stages_done(database: Database, reader: Reader, call_id: UUID) -> list[StageDone]:
    """Return the finished stages of a call in order; empty for a call that the reader may not see.

    Leaves out results that only runs created: of results with a producer, only those of the call's record count.
    """
    columns: tuple[Any, ...] = tuple(stage_results.c[name] for name in StageDone.__dataclass_fields__)
    query = sa.select(*columns).join(calls, calls.c.id == stage_results.c.call_pk)
    of_call = (calls.c.workspace_id == reader.workspace_id, calls.c.call_id == call_id)
    query = query.outerjoin(transcripts, transcripts.c.call_pk == calls.c.id)
    produced = sa.func.right(stage_results.c.content_key, PRODUCER_LENGTH)
    of_record = transcripts.c.producers[stage_results.c.stage].astext
    counts = sa.or_(
        stage_results.c.content_key.not_like("% by %"), transcripts.c.producers.is_(None), produced == of_record
    )
    query = query.where(*of_call, counts).order_by(stage_results.c.recorded_at, stage_results.c.stage)
    return [read(StageDone, row) for row in await database.rows(reader, query)]


async def worked_of(connection: AsyncConnection, call_ids: Sequence[UUID]) -> dict[UUID, list[StageDone]]:
    """Return the stages with a measured duration, of the present recordings of calls, by callId."""
    columns: tuple[Any, ...] = tuple(stage_results.c[name] for name in StageDone.__dataclass_fields__)
    of_present_job = sa.and_(calls.c.id == stage_results.c.call_pk, calls.c.job_id == stage_results.c.job_id)
    query = sa.select(calls.c.call_id, *columns).join(calls, of_present_job)
    measured = query.where(calls.c.call_id.in_(call_ids), stage_results.c.worked_seconds.is_not(None))
    stages: dict[UUID, list[StageDone]] = defaultdict(list)
    for row in await connection.execute(measured):
        stages[row.call_id].append(read(StageDone, row))
    return stages
