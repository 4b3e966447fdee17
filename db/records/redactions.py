"""What redaction leaves in the database, and which stored calls are due for it.

Sealed originals and redacted recordings are written in the transaction that completes the call; nothing remains of a
record before it.

A call is due while its transcript is of no policy, or of another one than applies to it now, or while it is held back.
So an interrupted pass resumes, and a pass that is repeated finds nothing. The jobs have the priority of backfill.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.rows import dump_json
from db.core.tables import (
    PRESENT,
    calls,
    jobs,
    recordings,
    stage_results,
    teams,
    transcripts,
    unredacted_recordings,
    waveforms,
)
from db.queue import jobs as queue
from db.queue.charges import UsedSlot
from db.queue.jobs import Lease
from db.secrets import call_keys
from db.workspace import redaction_policies
from pipeline.domain.redaction import CallRedaction, NamedPolicy, RedactionMode, RedactionState
from pipeline.domain.speech import Recording, RedactedRecording
from pipeline.errors import CallError

# What a record has left in other tables. Users' corrections quote its words.
QUOTES = (
    "DELETE FROM edits WHERE call_pk = :call AND kind <> 'tag'",
    "DELETE FROM corrections WHERE call_pk = :call",
    "DELETE FROM task_marks WHERE call_pk = :call",
    "DELETE FROM gold_calls WHERE call_pk = :call",
    "DELETE FROM run_calls WHERE call_pk = :call",
    "DELETE FROM calibration_calls WHERE call_pk = :call",
    "DELETE FROM call_passages WHERE call_pk = :call",
    "DELETE FROM stage_results WHERE call_pk = :call AND stage IN ('speakers', 'answers')",
    "UPDATE events SET record = NULL, transcript = NULL WHERE call_pk = :call",
    """DELETE FROM contacts k WHERE k.source = 'call'
        AND EXISTS (SELECT FROM call_contacts l WHERE l.contact_id = k.id AND l.call_pk = :call)
        AND NOT EXISTS (SELECT FROM call_contacts l WHERE l.contact_id = k.id AND l.call_pk <> :call)""",
)
# Words that were not redacted, or less.
_REPLACED = "DELETE FROM stage_results WHERE call_pk = :call AND stage = 'redaction' AND job_id <> :job"
# What no policy lets stay: words as recognized, and files of recordings that were replaced.
_NEVER_KEPT = (
    "DELETE FROM stage_results WHERE call_pk = :call AND stage = 'asr'",
    "DELETE FROM recordings WHERE call_pk = :call AND job_id <> (SELECT job_id FROM calls WHERE id = :call)",
    "DELETE FROM unredacted_recordings WHERE call_pk = :call AND job_id <> (SELECT job_id FROM calls WHERE id = :call)",
)
_ORIGINALS = (
    "DELETE FROM unredacted_words WHERE call_pk = :call",
    "DELETE FROM unredacted_recordings WHERE call_pk = :call",
)
_REKEY = sa.text("""
    UPDATE stage_results SET content_key = replace(content_key, :before, :after)
    WHERE call_pk = :call AND strpos(content_key, :before) > 0
""")


async def policy_of(connection: AsyncConnection, lease: Lease) -> NamedPolicy | None:
    """Return the policy that a job applies: its own, or that of the call's team; None if nothing is hidden."""
    effective = redaction_policies.effective
    return lease.redaction or await effective(connection, lease.workspace_id, lease.call.team_id)


def digest(policy: NamedPolicy) -> str:
    """Return the digest of a policy by which the transcripts that it redacted are recognized."""
    return sha256(dump_json(replace(policy, version=0)).encode()).hexdigest()[:32]


async def begin(connection: AsyncConnection, lease: Lease, redaction: CallRedaction | None) -> None:
    """Delete what the call's previous record has left if it shows what is hidden now.

    Before the record is written: contacts that it created are linked again.
    """
    if redaction is None or redaction.state is not RedactionState.FOUND:
        return
    query = sa.select(transcripts.c.redaction).where(transcripts.c.call_pk == lease.call_pk)
    previous = (await connection.execute(query)).first()
    if previous is None or previous.redaction == digest(redaction.policy):
        return
    await run(connection, lease, (*QUOTES, _REPLACED))


async def settle(
    connection: AsyncConnection,
    lease: Lease,
    redaction: CallRedaction | None,
    redacted: Sequence[RedactedRecording] | None,
) -> None:
    """Replace recordings by redacted ones, and delete what the policy does not let stay.

    After the record is written.
    """
    if redaction is not None:
        await run(connection, lease, _NEVER_KEPT)
        written = sa.update(transcripts).where(transcripts.c.call_pk == lease.call_pk)
        await connection.execute(written.values(redaction=digest(redaction.policy)))
    if redacted is not None:
        await _replace_recordings(connection, lease, redacted)
    if redaction is not None and redaction.policy.mode is RedactionMode.REDACTED_ONLY:
        await run(connection, lease, _ORIGINALS)


async def run(connection: AsyncConnection, lease: Lease, statements: Sequence[str]) -> None:
    """Execute statements with the call as `:call` and the job as `:job`."""
    for statement in statements:
        names = {"call": lease.call_pk, "job": lease.job.job_id}
        await connection.execute(sa.text(statement), {name: names[name] for name in names if f":{name}" in statement})


async def _replace_recordings(connection: AsyncConnection, lease: Lease, redacted: Sequence[RedactedRecording]) -> None:
    """Replace the rows of recordings; deleting one queues its file, and results of its content belong to the new."""
    job = sa.select(calls.c.job_id).where(calls.c.id == lease.call_pk).scalar_subquery()
    rows = await connection.execute(sa.select(recordings).where(recordings.c.job_id == job))
    stored = {row.channel: row for row in rows}
    for item in redacted:
        recording, row = item.recording, stored[item.recording.channel]
        is_row = sa.and_(recordings.c.job_id == row.job_id, recordings.c.channel == row.channel)
        if recording.uri != row.uri:
            if item.original is not None:
                await _keep_original(connection, row, item.original)
            values = dict(row._mapping) | {"uri": recording.uri, "sha256": recording.sha256}
            values |= {"size_bytes": recording.size_bytes, "media_type": recording.media_type}
            await connection.execute(sa.delete(recordings).where(is_row))
            await connection.execute(sa.insert(recordings).values(values))
            rekey: dict[str, Any] = {"call": lease.call_pk, "before": row.sha256, "after": recording.sha256}
            await connection.execute(_REKEY, rekey)
            await connection.execute(sa.delete(waveforms).where(waveforms.c.call_pk == lease.call_pk))
        await connection.execute(sa.update(recordings).where(is_row).values(redaction=recording.redaction))


async def _keep_original(connection: AsyncConnection, row: sa.Row[Any], original: Recording) -> None:
    values = {name: row._mapping[name] for name in ("job_id", "channel", "call_pk", "media_type", "fetched_at")}
    values |= {name: getattr(original, name) for name in ("uri", "sha256", "size_bytes")}
    await connection.execute(insert(unredacted_recordings).values(values).on_conflict_do_nothing())


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


IS_HELD = sa.and_(
    calls.c.state == "failed",
    sa.exists(sa.select(1).where(jobs.c.id == calls.c.job_id, jobs.c.state == "done")).correlate(calls),
)
"""Whether a call is held back: it has failed, though its recording was processed."""
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


_RECORD = (
    "DELETE FROM findings WHERE call_pk = :call",
    "DELETE FROM tasks WHERE call_pk = :call",
    "DELETE FROM call_search WHERE call_pk = :call",
    "DELETE FROM call_outcomes WHERE call_pk = :call",
    "DELETE FROM passages_due WHERE call_pk = :call",
    *QUOTES,
    "DELETE FROM call_contacts WHERE call_pk = :call",
    "UPDATE transcripts SET content = '{}', redaction = NULL, job_id = :job WHERE call_pk = :call",
)


async def fail(database: Database, lease: Lease, error: CallError, used: Sequence[UsedSlot] = ()) -> None:
    """Fail a job as `jobs.fail`, and hold its call back if a policy says so that its record is not redacted by.

    Nothing shows or plays such a call, and what quotes it is deleted. The results of its stages are sealed by the
    call's key and its recordings stay, so that a retry completes the call again. Its row in `transcripts` belongs to
    the failed job.
    """
    async with database.transaction(lease.workspace_id) as connection:
        has_failed = await queue.fail_within(connection, lease, error, used)
        if has_failed and lease.job.kind == "analyze" and await _is_due(connection, lease):
            await _hold_back(connection, lease, error)


async def _is_due(connection: AsyncConnection, lease: Lease) -> bool:
    policy = await policy_of(connection, lease)
    if policy is None or not policy.hold:
        return False
    is_other = transcripts.c.redaction.is_distinct_from(digest(policy))
    query = sa.select(1).where(transcripts.c.call_pk == lease.call_pk, is_other)
    return await connection.scalar(query) is not None


async def _hold_back(connection: AsyncConnection, lease: Lease, error: CallError) -> None:
    await run(connection, lease, _RECORD)
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
