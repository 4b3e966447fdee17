"""When each stage of a call's work was done, and what work it was: for people who wonder what took so long."""

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

PRODUCER = 32  # characters of a producer, at the end of the key of what it made


@dataclass(frozen=True, slots=True)
class StageDone:
    """A stage that a job has finished. A later job that finds its result there leaves it as it was."""

    job_id: UUID
    stage: str
    recorded_at: datetime
    worked_seconds: float | None  # of replicas; None: not measured


async def stages_done(database: Database, reader: Reader, call_id: UUID) -> list[StageDone]:
    """The stages of a call in the order in which they were done; empty for a call that the reader may not see.

    What only runs made is not among them: of results that say what produced them, those count that the record rests on.
    """
    columns: tuple[Any, ...] = tuple(stage_results.c[name] for name in StageDone.__dataclass_fields__)
    query = sa.select(*columns).join(calls, calls.c.id == stage_results.c.call_pk)
    mine = (calls.c.workspace_id == reader.workspace_id, calls.c.call_id == call_id)
    query = query.outerjoin(transcripts, transcripts.c.call_pk == calls.c.id)
    produced = sa.func.right(stage_results.c.content_key, PRODUCER)
    of_record = transcripts.c.producers[stage_results.c.stage].astext
    counts = sa.or_(
        stage_results.c.content_key.not_like("% by %"), transcripts.c.producers.is_(None), produced == of_record
    )
    query = query.where(*mine, counts).order_by(stage_results.c.recorded_at, stage_results.c.stage)
    return [read(StageDone, row) for row in await database.rows(reader, query)]


async def worked_of(connection: AsyncConnection, call_ids: Sequence[UUID]) -> dict[UUID, list[StageDone]]:
    """The stages of which it was measured how long they took, of the present recordings of calls, by callId."""
    columns: tuple[Any, ...] = tuple(stage_results.c[name] for name in StageDone.__dataclass_fields__)
    mine = sa.and_(calls.c.id == stage_results.c.call_pk, calls.c.job_id == stage_results.c.job_id)
    query = sa.select(calls.c.call_id, *columns).join(calls, mine)
    measured = query.where(calls.c.call_id.in_(call_ids), stage_results.c.worked_seconds.is_not(None))
    found: dict[UUID, list[StageDone]] = defaultdict(list)
    for row in await connection.execute(measured):
        found[row.call_id].append(read(StageDone, row))
    return found
