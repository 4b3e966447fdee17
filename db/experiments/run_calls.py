"""The calls of runs: claimed under leases with fencing, after all jobs of the queue; each result is stored once.

`claims` is the fencing number, which each write matches: a worker that lost a call writes nothing.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Clock, Database
from db.core.rows import CALL_COLUMNS, dump_json, from_now, to_call
from db.core.tables import calls, run_calls, runs
from db.queue import stage_results
from db.queue.jobs import Lease
from db.records.complete import matched_member
from db.workspace import consents
from pipeline.domain.call import Job
from pipeline.domain.insight import Finding
from pipeline.domain.speech import Transcript
from pipeline.domain.stage import Stage
from pipeline.errors import CallError, LeaseLost

MAX_CLAIMS = 5  # of a call, before a retryable failure is final
RETRY_SECONDS = 2.0  # the first wait of a failed call; it doubles

# A run waits for every due job: users wait for those calls.
_NOTHING_DUE = sa.text("NOT EXISTS (SELECT FROM jobs WHERE state = 'queued' AND not_before <= now())")
_IS_BUSY = sa.text("""
    SELECT EXISTS (SELECT FROM jobs WHERE state = 'queued' AND not_before <= now())
        OR EXISTS (SELECT FROM jobs WHERE state = 'running' AND lease_until > now())
""")


@dataclass(frozen=True, slots=True)
class RunLease:
    """The right to process a call of a run while `claims` is the newest. `lease` has the call and its process job."""

    run_id: UUID
    claims: int
    settings: dict[str, dict[str, Any]]
    configuration: dict[str, Any] | None
    lease: Lease

    @property
    def key(self) -> tuple[UUID, int]:
        return self.run_id, self.lease.call_pk


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run's result of a call. `seconds`: processing time by stage; `producers`: of the stage results used."""

    transcript: Transcript
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    producers: Mapping[Stage, str]
    seconds: Mapping[str, float]

    @property
    def digest(self) -> str:
        """SHA-256 of transcript and findings: equal for equal inputs and configuration."""
        return digest_of(self.transcript, self.findings)


def digest_of(transcript: Transcript | None, findings: Sequence[Finding]) -> str:
    """Return the SHA-256 of a transcript and findings in canonical JSON, equal before and after storing."""
    plain = json.loads(dump_json([transcript, list(findings)]))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


async def jobs_at_work(database: Database) -> bool:
    """Return whether a job of the queue is due or running."""
    (busy,) = await database.column(EVERY_WORKSPACE, _IS_BUSY)
    return bool(busy)


async def claim(database: Database, worker: str, count: int, ttl: float) -> list[RunLease]:
    """Claim up to `count` calls of runs for `ttl` seconds, the oldest run first; none while a job is due."""
    due = (
        sa.select(run_calls.c.run_id, run_calls.c.call_pk)
        .join(runs, runs.c.id == run_calls.c.run_id)
        .where(run_calls.c.state.in_(("waiting", "running")), run_calls.c.not_before <= sa.func.now(), _NOTHING_DUE)
        .order_by(runs.c.made_at, runs.c.id, run_calls.c.call_pk)
        .limit(count)
        .with_for_update(of=run_calls, skip_locked=True)
        .cte("due")
    )
    claimed = (
        sa.update(run_calls)
        .where(run_calls.c.run_id == due.c.run_id, run_calls.c.call_pk == due.c.call_pk)
        .values(
            state="running",
            worker=worker,
            claims=run_calls.c.claims + 1,
            not_before=from_now(ttl),
            started_at=sa.func.clock_timestamp(),
        )
        .returning(run_calls.c.run_id, run_calls.c.call_pk)
    )
    async with database.transaction(EVERY_WORKSPACE) as connection:
        keys = [tuple(row) for row in await connection.execute(claimed)]
        if not keys:
            return []
        of_keys = sa.tuple_(run_calls.c.run_id, run_calls.c.call_pk).in_(keys)
        return [_lease(row) for row in await connection.execute(_CLAIMED.where(of_keys))]


_CLAIMED: sa.Select[Any] = (
    sa.select(
        run_calls,
        *(runs.c[name] for name in ("settings", "configuration", "made_at")),
        *CALL_COLUMNS,
        calls.c.channels_swapped,
        calls.c.metadata_version.label("version"),
    )
    .join(runs, runs.c.id == run_calls.c.run_id)
    .join(calls, calls.c.id == run_calls.c.call_pk)
    .order_by(runs.c.made_at, run_calls.c.call_pk)
)


def _lease(row: sa.Row[Any]) -> RunLease:
    moments = {"created_at": row.made_at, "tried_since": row.started_at, "started_at": row.started_at}
    job = Job(job_id=row.job_id, kind="run", run=row.claims, attempts=row.claims, failures=0, crashes=0, **moments)
    call = (to_call(row), row.workspace_id, row.call_pk, row.version)
    lease = Lease(job, *call, Clock(row.started_at), channels_swapped=row.channels_swapped)
    return RunLease(row.run_id, row.claims, row.settings, row.configuration, lease)


async def renew(database: Database, leases: Sequence[RunLease], ttl: float) -> set[tuple[UUID, int]]:
    """Extend `leases` to `ttl` seconds from now. Return the keys of expired leases."""
    expired = set()
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for lease in sorted(leases, key=lambda lease: lease.key):
            result = await connection.execute(
                sa.update(run_calls).where(_is_held(lease)).values(not_before=from_now(ttl))
            )
            if not result.rowcount:
                expired.add(lease.key)
    return expired


async def workers(database: Database) -> list[str]:
    """Return the workers that hold calls of runs."""
    query = sa.select(run_calls.c.worker).distinct().where(run_calls.c.state == "running")
    return [name for name in await database.column(EVERY_WORKSPACE, query) if name]


async def abandon(database: Database, workers: Sequence[str]) -> None:
    """End the leases of dead workers."""
    if not workers:
        return
    of_dead = sa.and_(run_calls.c.state == "running", run_calls.c.worker.in_(workers))
    ended = {"not_before": sa.func.now(), "worker": None}
    await database.change(EVERY_WORKSPACE, sa.update(run_calls).where(of_dead).values(ended))


async def release(database: Database, leases: Sequence[RunLease]) -> None:
    """Return claimed calls at once, as if they had not been claimed."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for lease in sorted(leases, key=lambda lease: lease.key):
            values = {"state": "waiting", "not_before": sa.func.now(), "worker": None, "claims": run_calls.c.claims}
            await connection.execute(sa.update(run_calls).where(_is_held(lease)).values(values))


async def record(database: Database, lease: RunLease, stage: Stage, result: Any, producer: str) -> None:
    """Store a stage's result for this run and for other work with the same producer. Raises LeaseLost."""
    async with database.transaction(lease.lease.workspace_id) as connection:
        await _hold(connection, lease)
        await stage_results.keep(connection, lease.lease, stage, result, producer)


async def complete(database: Database, lease: RunLease, outcome: RunOutcome) -> None:
    """Store a call's result once; the run ends with its last call. Raises LeaseLost."""
    values: dict[str, Any] = {
        "state": "done",
        "finished_at": sa.func.clock_timestamp(),
        "worker": None,
        "error_code": None,
        "error_message": None,
        "metadata_version": lease.lease.metadata_version,
        "engine": outcome.transcript.engine,
        "digest": outcome.digest,
        "audio_seconds": outcome.transcript.duration,
        "seconds": {name: round(seconds, 3) for name, seconds in outcome.seconds.items()},
        "producers": {str(stage): producer for stage, producer in outcome.producers.items()},
        "transcript": outcome.transcript,
        "findings": list(outcome.findings),
        "warnings": list(outcome.warnings),
    }
    async with database.transaction(lease.lease.workspace_id) as connection:
        await _hold(connection, lease)
        await connection.execute(sa.update(run_calls).where(_is_held(lease)).values(values))
        await stage_results.thin_voices(connection, lease.lease, outcome.transcript, outcome.producers)
        agent = lease.lease.call.user_id or matched_member(outcome.transcript)
        if not await consents.allows(connection, lease.lease.workspace_id, agent):
            await stage_results.drop_voiceprints(connection, lease.lease.call_pk)
        await _end(connection, lease.run_id)


async def fail(database: Database, lease: RunLease, error: CallError) -> bool:
    """Requeue a call with a delay, or fail it if a retry cannot help; return whether it failed. Raises LeaseLost."""
    final = not error.retryable or lease.claims >= MAX_CLAIMS
    values: dict[str, Any] = {"worker": None, "error_code": error.code, "error_message": error.message}
    if final:
        values |= {"state": "failed", "finished_at": sa.func.clock_timestamp()}
    else:
        values |= {"state": "waiting", "not_before": from_now(RETRY_SECONDS * 2**lease.claims)}
    async with database.transaction(lease.lease.workspace_id) as connection:
        await _hold(connection, lease)
        await connection.execute(sa.update(run_calls).where(_is_held(lease)).values(values))
        if final:
            await _end(connection, lease.run_id)
    return final


async def _end(connection: AsyncConnection, run_id: UUID) -> None:
    """Complete the run if no call of it is open. The lock orders two last calls."""
    await connection.execute(sa.select(runs.c.id).where(runs.c.id == run_id).with_for_update(key_share=True))
    has_open_calls = sa.exists().where(run_calls.c.run_id == run_id, run_calls.c.state.in_(("waiting", "running")))
    update = sa.update(runs).where(runs.c.id == run_id, runs.c.state == "running", ~has_open_calls)
    await connection.execute(update.values(state="completed", finished_at=sa.func.clock_timestamp()))


async def end_emptied(database: Database) -> None:
    """Complete runs whose remaining calls were erased."""
    has_open_calls = sa.exists().where(run_calls.c.run_id == runs.c.id, run_calls.c.state.in_(("waiting", "running")))
    update = sa.update(runs).where(runs.c.state == "running", ~has_open_calls)
    await database.change(EVERY_WORKSPACE, update.values(state="completed", finished_at=sa.func.clock_timestamp()))


async def _hold(connection: AsyncConnection, lease: RunLease) -> None:
    if await connection.scalar(sa.select(run_calls.c.call_pk).where(_is_held(lease)).with_for_update()) is None:
        raise LeaseLost().with_facts(job_id=str(lease.lease.job.job_id), run=lease.claims)


def _is_held(lease: RunLease) -> sa.ColumnElement[bool]:
    of_call = sa.and_(run_calls.c.run_id == lease.run_id, run_calls.c.call_pk == lease.lease.call_pk)
    return sa.and_(of_call, run_calls.c.claims == lease.claims, run_calls.c.state == "running")
