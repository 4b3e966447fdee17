"""Calls that their policy of redaction holds back, since it could not be applied to the record that they had.

Nothing shows or plays such a call, and what quotes it is deleted. The results of its stages are sealed by the call's
key and its recordings stay, so that a retry completes the call again. Its row in `transcripts` belongs to the failed
job.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.tables import calls, jobs, stage_results, transcripts
from db.queue import jobs as queue
from db.queue.charges import UsedSlot
from db.queue.jobs import Lease
from db.records import redactions
from db.secrets import call_keys
from pipeline.errors import CallError

_RECORD = (
    "DELETE FROM findings WHERE call_pk = :call",
    "DELETE FROM tasks WHERE call_pk = :call",
    "DELETE FROM call_search WHERE call_pk = :call",
    "DELETE FROM call_outcomes WHERE call_pk = :call",
    "DELETE FROM passages_due WHERE call_pk = :call",
    *redactions.QUOTES,
    "DELETE FROM call_contacts WHERE call_pk = :call",
    "UPDATE transcripts SET content = '{}', redaction = NULL, job_id = :job WHERE call_pk = :call",
)

IS_HELD = sa.and_(
    calls.c.state == "failed",
    sa.exists(sa.select(1).where(jobs.c.id == calls.c.job_id, jobs.c.state == "done")).correlate(calls),
)
"""Whether a call is held back: it has failed, though its recording was processed."""


async def fail(database: Database, lease: Lease, error: CallError, used: Sequence[UsedSlot] = ()) -> None:
    """Fail a job as `jobs.fail`, and hold its call back if a policy says so that its record is not redacted by."""
    async with database.transaction(lease.workspace_id) as connection:
        has_failed = await queue.fail_within(connection, lease, error, used)
        if has_failed and lease.job.kind == "analyze" and await _is_due(connection, lease):
            await _hold_back(connection, lease, error)


async def _is_due(connection: AsyncConnection, lease: Lease) -> bool:
    policy = await redactions.policy_of(connection, lease)
    if policy is None or not policy.hold:
        return False
    is_other = transcripts.c.redaction.is_distinct_from(redactions.digest(policy))
    query = sa.select(1).where(transcripts.c.call_pk == lease.call_pk, is_other)
    return await connection.scalar(query) is not None


async def _hold_back(connection: AsyncConnection, lease: Lease, error: CallError) -> None:
    await redactions.run(connection, lease, _RECORD)
    await _seal_results(connection, lease)
    ended = dict.fromkeys(("completed_at", "analyzed_at")) | {"raised": [], "analysis_warnings": []}
    values = queue.failure(error) | ended | {"updated_at": sa.func.now()}
    await connection.execute(sa.update(calls).where(calls.c.id == lease.call_pk).values(values))


async def _seal_results(connection: AsyncConnection, lease: Lease) -> None:
    key = await call_keys.key_for_writing(connection, lease.call_pk, lease.workspace_id, force=True)
    assert key is not None
    is_open = sa.func.jsonb_typeof(stage_results.c.result) != "string"
    query = sa.select(stage_results).where(stage_results.c.call_pk == lease.call_pk, is_open)
    for row in (await connection.execute(query)).all():
        is_row = sa.and_(stage_results.c.call_pk == row.call_pk, stage_results.c.stage == row.stage)
        is_row &= stage_results.c.content_key == row.content_key
        sealed = call_keys.seal(key, row.result)
        await connection.execute(sa.update(stage_results).where(is_row).values(result=sealed))
