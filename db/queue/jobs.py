"""The queue: leases with fencing on a table. `README.md` describes the protocol.

A worker claims jobs for a time and renews. If it dies, its lease expires and another worker claims the job. The claim
increments `run`, so every write of the former holder matches no row and raises `LeaseLost`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Clock, Database
from db.core.rows import CALL_COLUMNS, from_now, to_call
from db.core.tables import calls, jobs, recordings, stage_results, submissions
from db.queue.charges import ChargedSlot, UsedSlot, settle
from pipeline.domain.call import Call, Job
from pipeline.domain.redaction import NamedPolicy
from pipeline.domain.speech import PENDING
from pipeline.domain.stage import Stage
from pipeline.domain.vocabulary import CallWarning
from pipeline.errors import CallError, LeaseLost, RecordingError
from pipeline.record_texts import warning_text

WAKE_CHANNEL = "switchboard_jobs"
DELAY_EVENT_AFTER_SECONDS = 60.0  # of a wait; shorter ones are usual while a PBX still writes
_POLICY = TypeAdapter(NamedPolicy)
VOICES = (Stage.DIARIZATION, Stage.RECLUSTERING, Stage.VOICEPRINT)  # stages whose results hold voiceprints


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a job while `job.run` is the newest, with the call as it was when the job was claimed.

    `fetching`: the lease covers only fetching the recordings, and `job.run` counts the fetches. `warnings`: of the last
    fetch. `slot`: what the claim charged the lane; None if nothing.
    """

    job: Job
    call: Call
    workspace_id: UUID
    call_pk: int
    metadata_version: int
    clock: Clock
    fetching: bool = False
    warnings: tuple[str, ...] = ()
    slot: ChargedSlot | None = None
    channels_swapped: bool = False  # by the setting of its key or team when its recording was submitted
    request_id: str | None = None  # of the submission that led to the job
    trace: str | None = None  # its traceparent
    queued_at: datetime | None = None  # before the claim
    redaction: NamedPolicy | None = None  # the policy of this job in place of that of the call's team


# A lease that expires while the server is down does not mean that its holder is dead: it could not renew. After a start
# of the server, and after an outage seen by the claimer (`take_over` false), holders have the time of a lease to renew
# first. A job without a worker was abandoned because its holder is dead.
_CLAIM = sa.text(
    "SELECT claim_jobs(:worker, :count, :ttl, :quarantine_after, :suspects, :take_over, :quarantine, :backfill,"
    " :guests)"
)

_CLAIM_FETCHES = sa.text("SELECT claim_fetches(:worker, :count, :ttl, :take_over, :per_workspace, :per_host, true)")

QUARANTINE = "quarantined"  # the stage of a claimed suspect that waits until no other call runs
NO_QUARANTINE = 2**31 - 1

_RENEW = sa.text("""
    UPDATE jobs SET lease_until = now() + make_interval(secs => :ttl)
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:calls AS bigint[]), CAST(:runs AS integer[]), CAST(:fetching AS boolean[])
    ) AS lease (id, call_pk, run, fetching)
    WHERE jobs.id = lease.id AND jobs.call_pk = lease.call_pk AND CASE
        WHEN lease.fetching THEN jobs.fetch_run = lease.run AND jobs.state = 'fetching'
        ELSE jobs.run = lease.run AND jobs.state = 'running'
    END
    RETURNING jobs.id
""")


def origin_of_job(
    column: str, call_pk: sa.ColumnElement[int], job_id: sa.ColumnElement[UUID], otherwise: Literal["first", "latest"]
) -> sa.ScalarSelect[Any]:
    """Return a column of the first submission whose response was `job_id`; else of the `otherwise` submission."""
    its_job = submissions.c.job_id == job_id
    sign = 1 if otherwise == "first" else -1
    return (
        sa.select(submissions.c[column])
        .where(submissions.c.call_pk == call_pk)
        .order_by(its_job.is_(True).desc(), submissions.c.id * sa.case((its_job, 1), else_=sign))
        .limit(1)
        .scalar_subquery()
    )


_ORIGIN = tuple(
    origin_of_job(column, calls.c.id, jobs.c.id, otherwise="latest").label(column)
    for column in ("request_id", "traceparent")
)
_OF_LEASE = ("workspace_id", "metadata_version", "channels_swapped")

_LEASED = sa.text("(jobs.state = 'running' OR jobs.state = 'fetching' AND jobs.lease_until IS NOT NULL)")


async def claim(
    database: Database,
    worker: str,
    count: int,
    ttl: float,
    quarantine_after: int = NO_QUARANTINE,
    suspects: bool = False,
    take_over: bool = True,
    backfill: float = 0.1,
    guests: int = 0,
) -> list[Lease]:
    """Claim up to `count` jobs for `ttl` seconds: live calls first, teams by turns, each team's longest due first.

    Up to `guests` more jobs are of workspaces without running calls, one each.

    Calls that are not live keep the share `backfill` (above 0, below 1) of the audio while live ones wait. Teams' turns
    are by seconds of audio and priority: `schema/functions/3_queue.sql` has the rule. A job whose lease expired counts
    a crash. Several workers may claim at once; no job goes to two of them.

    Jobs with `quarantine_after` crashes or more may be what crashes their worker: `suspects` claims only those, in the
    stage `QUARANTINE`, in which a crash of the worker does not count against them. With `take_over` False no lease that
    merely expired is taken over: the caller has just reconnected, as their holders may have.
    """
    values = {"worker": worker, "count": count, "ttl": ttl, "quarantine_after": quarantine_after}
    values |= {"suspects": suspects, "take_over": take_over, "quarantine": QUARANTINE}
    values |= {"backfill": backfill, "guests": guests}
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return await _leases(connection, await connection.execute(_CLAIM, values))


async def claim_fetches(
    database: Database, worker: str, count: int, ttl: float, per_workspace: int, per_host: int, take_over: bool = True
) -> list[Lease]:
    """Claim up to `count` jobs whose recordings are to be fetched, for `ttl` seconds, all `Lease.fetching`.

    The workspace with the fewest fetches comes first. None holds more than `per_workspace` at once, more than it has
    room left, or more than `per_host` of one host: `schema/functions/4_fetches.sql`. See `claim` for `take_over`.
    """
    values = {"worker": worker, "count": count, "ttl": ttl, "take_over": take_over}
    values |= {"per_workspace": per_workspace, "per_host": per_host}
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return await _leases(connection, await connection.execute(_CLAIM_FETCHES, values))


async def _leases(connection: AsyncConnection, claimed: sa.CursorResult[Any]) -> list[Lease]:
    ids = list(claimed.scalars())
    if not ids:
        return []
    rows = await connection.execute(
        sa.select(jobs, *CALL_COLUMNS, *(calls.c[name] for name in _OF_LEASE), *_ORIGIN)
        .join(calls, calls.c.id == jobs.c.call_pk)
        .where(jobs.c.id.in_(ids))
        .order_by(jobs.c.not_before, jobs.c.created_at)
    )
    return [_lease(row) for row in rows]


async def renew(database: Database, leases: Sequence[Lease], ttl: float) -> set[UUID]:
    """Extend `leases` to `ttl` seconds from now and return the job ids of those that are lost."""
    if not leases:
        return set()
    values: dict[str, Any] = {"ids": [lease.job.job_id for lease in leases], "ttl": ttl}
    values |= {"calls": [lease.call_pk for lease in leases], "runs": [lease.job.run for lease in leases]}
    values["fetching"] = [lease.fetching for lease in leases]
    return {lease.job.job_id for lease in leases} - set(await database.column(EVERY_WORKSPACE, _RENEW, values))


async def workers(database: Database) -> list[str]:
    """Return the names of workers that hold jobs, as passed to `claim` and `claim_fetches`.

    Leases that expired more than a minute ago are left out. Those can be claimed anyway, and reading all of them would
    scan every earlier version that a snapshot retains.
    """
    recent = jobs.c.lease_until > sa.func.now() - sa.text("interval '1 minute'")
    query = sa.select(jobs.c.worker).distinct().where(_LEASED, jobs.c.worker.is_not(None), recent)
    return await database.column(EVERY_WORKSPACE, query)


async def abandon(database: Database, workers: Sequence[str]) -> None:
    """End the leases of dead `workers`: their jobs can be claimed at once, each with one more crash."""
    if not workers:
        return
    is_leased = sa.and_(_LEASED, jobs.c.worker.in_(workers))
    ended = {"lease_until": sa.func.now(), "worker": None}
    await database.change(EVERY_WORKSPACE, sa.update(jobs).where(is_leased).values(ended))


async def stage(database: Database, lease: Lease, stage: str) -> None:
    """Store the stage that the work is in, for display. Raises LeaseLost."""
    async with database.transaction(lease.workspace_id) as connection:
        await change(connection, lease, stage=stage)


async def retry(
    database: Database,
    lease: Lease,
    error: CallError,
    delay: float,
    counts_as_failure: bool,
    used: Sequence[UsedSlot] = (),
) -> None:
    """Requeue a job for `delay` seconds, with the reason; charge the `used` slots. Raises LeaseLost.

    If the recording got a newer address in the meantime, the job does not wait: the error concerns the old address. The
    first wait of `DELAY_EVENT_AFTER_SECONDS` or more raises an event.
    """
    async with database.transaction(lease.workspace_id) as connection:
        row = await lock(connection, lease)
        pause = 0 if _has_newer_address(row, lease, error) else delay
        await change(
            connection,
            lease,
            **_waiting(lease, pause),
            **_reason(error),
            failures=jobs.c.failures + (1 if counts_as_failure else 0),
        )
        if pause >= DELAY_EVENT_AFTER_SECONDS and lease.job.kind == "process":
            await _note_delay(connection, lease)
        await settle(connection, used)


async def _note_delay(connection: AsyncConnection, lease: Lease) -> None:
    is_new_job = calls.c.delayed_job.is_distinct_from(lease.job.job_id)
    await connection.execute(
        sa.update(calls).where(calls.c.id == lease.call_pk, is_new_job).values(delayed_job=lease.job.job_id)
    )


async def release(database: Database, leases: Sequence[Lease], used: Sequence[UsedSlot] = ()) -> list[UsedSlot]:
    """Requeue jobs at once and count nothing: the worker is stopping. Leases already lost are skipped.

    Charges the `used` slots; returns what `settle` returns.
    """
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for lease in sorted(leases, key=lambda lease: lease.job.job_id):
            await connection.execute(sa.update(jobs).where(_held(lease)).values(**_waiting(lease, 0)))
        return await settle(connection, used)


async def fetched(database: Database, lease: Lease, warnings: Sequence[str] = ()) -> None:
    """Queue a job whose recordings are stored. Raises LeaseLost."""
    async with database.transaction(lease.workspace_id) as connection:
        await lock(connection, lease)
        later = _waiting(lease, 0) | {"state": "queued", "fetch_warnings": list(warnings)}
        await change(connection, lease, **later, attempts=jobs.c.attempts - 1)  # fetching was part of this attempt


async def fetch_again(database: Database, lease: Lease, used: Sequence[UsedSlot] = ()) -> None:
    """Return a job whose recordings are missing in the store to fetching; charge the `used` slots. Raises LeaseLost."""
    async with database.transaction(lease.workspace_id) as connection:
        await lock(connection, lease)
        later = _waiting(lease, 0) | {"state": "fetching"}
        await change(connection, lease, **later, attempts=jobs.c.attempts - 1)
        await settle(connection, used)


async def fail(database: Database, lease: Lease, error: CallError, used: Sequence[UsedSlot] = ()) -> None:
    """Fail the job and charge the `used` slots. Raises LeaseLost.

    If the recording got a newer address in the meantime, the job is requeued instead. A failed process job sets its
    call to `failed`, with the error's code, message and whether a retry could help. A call whose analysis fails stays
    completed, keeps its findings and gets a warning; if its metadata changed again in the meantime, the analysis is
    requeued instead.
    """
    async with database.transaction(lease.workspace_id) as connection:
        await fail_within(connection, lease, error, used)


async def fail_within(
    connection: AsyncConnection, lease: Lease, error: CallError, used: Sequence[UsedSlot] = ()
) -> bool:
    """Do as `fail` in a transaction; return whether the job has failed, and was not requeued."""
    row = await lock(connection, lease)
    again: dict[str, Any] | None = None
    if _has_newer_address(row, lease, error):
        again = {}
    elif lease.job.kind == "analyze" and row.metadata_version != lease.metadata_version:
        again = {"failures": 0}
    if again is None:
        await _fail(connection, lease, error)
    else:
        await change(connection, lease, **_waiting(lease, 0), **_reason(error), **again)
    await settle(connection, used)
    return again is None


async def _fail(connection: AsyncConnection, lease: Lease, error: CallError) -> None:
    await change(connection, lease, **_ended("failed"), **_reason(error))
    await _drop_voices(connection, lease)
    pending = sa.and_(recordings.c.job_id == lease.job.job_id, recordings.c.redaction.in_(PENDING))
    await connection.execute(sa.delete(recordings).where(pending))  # a retry fetches them again
    if lease.job.kind == "analyze":
        warning = warning_text(CallWarning.REANALYSIS_FAILED, problem=error.message)
        changes: dict[str, Any] = {"analysis_warnings": [warning]}
    else:
        changes = failure(error)
    await connection.execute(
        sa.update(calls).where(calls.c.id == lease.call_pk).values(**changes, updated_at=sa.func.now())
    )


def failure(error: CallError) -> dict[str, Any]:
    """Return the columns of a call that has failed."""
    reason = {f"failure_{name.removeprefix('error_')}": value for name, value in _reason(error).items()}
    return {"state": "failed", "failed_at": sa.func.now(), **reason}


async def _drop_voices(connection: AsyncConnection, lease: Lease) -> None:
    """Delete the voice results of failed work: nothing will use them, and another job creates them again.

    An "analyze" job does not touch those that the call's record uses.
    """
    voice_results = sa.and_(stage_results.c.call_pk == lease.call_pk, stage_results.c.stage.in_(VOICES))
    if lease.job.kind == "analyze":
        voice_results &= stage_results.c.job_id == lease.job.job_id
    await connection.execute(sa.delete(stage_results).where(voice_results))


def wakes(database: Database) -> AsyncIterator[None]:
    """Yield as `Database.wakes`, each time work is queued."""
    return database.wakes(WAKE_CHANNEL)


# For the other writers of this package, which lock the call, then the job, to avoid deadlocks.


async def lock(connection: AsyncConnection, lease: Lease) -> sa.Row[Any]:
    """Lock the call and then the job for this transaction; return the call's row. Raises LeaseLost."""
    columns = (*CALL_COLUMNS, calls.c.metadata_version, calls.c.job_id, calls.c.from_e164, calls.c.to_e164)
    rows = await connection.execute(
        sa.select(*columns).where(calls.c.id == lease.call_pk).with_for_update(key_share=True)
    )
    row = rows.one_or_none()
    if row is None:  # erased
        raise lost(lease)
    await hold(connection, lease)
    return row


async def hold(connection: AsyncConnection, lease: Lease) -> None:
    """Lock the job for this transaction. Raises LeaseLost."""
    query = sa.select(jobs.c.id).where(_held(lease)).with_for_update(key_share=True)
    if await connection.scalar(query) is None:
        raise lost(lease)


async def change(connection: AsyncConnection, lease: Lease, **values: Any) -> None:
    """Change the job's row. Raises LeaseLost."""
    result = await connection.execute(sa.update(jobs).where(_held(lease)).values(**values))
    if result.rowcount != 1:
        raise lost(lease)


async def finish(connection: AsyncConnection, lease: Lease) -> None:
    """Mark the job done, in the transaction that writes its results. Raises LeaseLost."""
    await change(connection, lease, **_ended("done"), error_code=None, error_message=None, error_retryable=None)


def lost(lease: Lease) -> LeaseLost:
    return LeaseLost().with_facts(job_id=str(lease.job.job_id), run=lease.job.run)


def _held(lease: Lease) -> sa.ColumnElement[bool]:
    run, state = (jobs.c.fetch_run, "fetching") if lease.fetching else (jobs.c.run, "running")
    return sa.and_(jobs.c.id == lease.job.job_id, run == lease.job.run, jobs.c.state == state)


def _has_newer_address(row: sa.Row[Any], lease: Lease, error: CallError) -> bool:
    """Return whether `error` is about an address of the recording that was replaced after the lease was loaded."""
    now = to_call(row)
    tried = (lease.call.recording_url, lease.call.recording_url2)
    return isinstance(error, RecordingError) and (now.recording_url, now.recording_url2) != tried


def _waiting(lease: Lease, delay: float) -> dict[str, Any]:
    state = "fetching" if lease.fetching else "queued"
    due = {"queued_at": sa.func.now(), "not_before": from_now(delay)}
    return {"state": state, "lease_until": None, "worker": None, **due}


def _ended(state: str) -> dict[str, Any]:
    return {"state": state, "finished_at": sa.func.now(), "lease_until": None, "stage": None}


def _reason(error: CallError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": error.message, "error_retryable": error.retryable}


def _lease(row: sa.Row[Any]) -> Lease:
    fetching = row.state == "fetching"
    job = Job(
        job_id=row.id,
        kind=row.kind,
        run=row.fetch_run if fetching else row.run,
        attempts=row.attempts,
        failures=row.failures,
        crashes=row.crashes,
        created_at=row.created_at,
        tried_since=row.tried_since,
        started_at=row.started_at,
    )
    warnings = tuple(row.fetch_warnings)
    first = row.kind == "process" and row.run == 1
    slot = None if fetching else ChargedSlot(row.team_id, row.live, row.audio_seconds if first else 0.0)
    clock = Clock(row.started_at)  # the moment of the claim
    call = (to_call(row), row.workspace_id, row.call_pk, row.metadata_version)
    origin = (row.request_id, row.traceparent)
    redaction = None if row.redaction is None else _POLICY.validate_python(row.redaction)
    return Lease(job, *call, clock, fetching, warnings, slot, row.channels_swapped, *origin, row.queued_at, redaction)


async def traces(database: Database, workspace_id: UUID, call_pk: int) -> list[str]:
    query = sa.select(submissions.c.traceparent).where(
        submissions.c.call_pk == call_pk, submissions.c.traceparent.is_not(None)
    )
    return await database.column(workspace_id, query.order_by(submissions.c.id))
