"""The queue: leases with fencing on a table. `README.md` tells the protocol.

A worker claims jobs for a time and renews. If it dies, its lease runs out and another worker claims the job; `run` has
grown by then, and every write of the former holder finds no row of its own and raises `LeaseLost`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.clock import Clock
from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import CALL_COLUMNS, from_now, to_call
from db.core.tables import calls, jobs, stage_results
from db.queue.charges import ChargedSlot, UsedSlot, settle
from db.queue.origins import brought
from pipeline.domain.call import Call, Job
from pipeline.domain.stage import Stage
from pipeline.errors import CallError, LeaseLost, RecordingError

WAKE_CHANNEL = "switchboard_jobs"
TOLD_FROM = 60.0  # seconds of a wait that is an event (call.delayed): shorter ones are usual while a PBX still writes
VOICES = (Stage.DIARIZATION, Stage.RECLUSTERING, Stage.VOICEPRINT)  # stages that leave voiceprints behind


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a job while `job.run` is the newest, with the call as it was when the job was claimed.

    `fetching`: to fetch its recordings, no more; `job.run` counts the fetches then. `warnings`: of the last fetch.
    `slot`: what its lane was charged for it; None where nothing was.
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
    channels_swapped: bool = False  # by a setting of its key or team, as its recording was submitted
    request_id: str | None = None  # of the submission that led to the job
    trace: str | None = None  # its traceparent
    queued_at: datetime | None = None  # since when the job had waited when it was claimed


# A lease that runs out while the server is down says nothing about its holder, who could not renew it: after a start of
# the server, and after an outage that the claimer itself has seen (`take_over` false), holders have the time of a lease
# to renew first. A job without a worker was abandoned by somebody who knows that its holder is dead.
_CLAIM = sa.text(
    "SELECT claim_jobs(:worker, :count, :ttl, :quarantine_after, :suspects, :take_over, :quarantine, :backfill,"
    " :guests)"
)

_CLAIM_FETCHES = sa.text("SELECT claim_fetches(:worker, :count, :ttl, :take_over, :per_workspace, :per_host, true)")

QUARANTINE = "quarantined"  # the stage of a suspect that is claimed and waits until no other call runs
NO_QUARANTINE = 2**31 - 1

_RENEW = sa.text("""
    UPDATE jobs SET lease_until = now() + make_interval(secs => :ttl)
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:calls AS bigint[]), CAST(:runs AS integer[]), CAST(:fetching AS boolean[])
    ) AS held (id, call_pk, run, fetching)
    WHERE jobs.id = held.id AND jobs.call_pk = held.call_pk AND CASE
        WHEN held.fetching THEN jobs.fetch_run = held.run AND jobs.state = 'fetching'
        ELSE jobs.run = held.run AND jobs.state = 'running'
    END
    RETURNING jobs.id
""")

_BROUGHT = tuple(
    brought(column, calls.c.id, jobs.c.id, otherwise="latest").label(column) for column in ("request_id", "traceparent")
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
    """Claim at most `count` jobs for `ttl` seconds: live calls first, teams by turns, each team's longest due first.

    At most `guests` more are calls of workspaces of which none was being worked on, one of each.

    Calls that are not live keep the share `backfill` (above 0, below 1) of the audio while live ones wait. Teams' turns
    are by seconds of audio and priority: `schema/functions/3_queue.sql` has the rule. A job whose lease ran out
    counts a crash. Several workers may claim at once; no job goes to two of them.

    Jobs with `quarantine_after` crashes or more may be what kills their worker: `suspects` claims only those, in the
    stage `QUARANTINE`, in which the death of their worker is not counted against them. With `take_over` False no
    lease that merely ran out is taken over: the caller has just found the server again, as their holders may have.
    """
    values = {"worker": worker, "count": count, "ttl": ttl, "quarantine_after": quarantine_after}
    values |= {
        "suspects": suspects,
        "take_over": take_over,
        "quarantine": QUARANTINE,
        "backfill": backfill,
        "guests": guests,
    }
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return await _leases(connection, await connection.execute(_CLAIM, values))


async def claim_fetches(
    database: Database,
    worker: str,
    count: int,
    ttl: float,
    per_workspace: int,
    per_host: int,
    take_over: bool = True,
) -> list[Lease]:
    """Claim at most `count` jobs whose recordings are to be fetched, for `ttl` seconds, all `Lease.fetching`.

    The workspace that fetches least comes first; none holds more than `per_workspace` at once, nor more than there is
    room left, nor more than `per_host` of one host: `schema/functions/4_fetches.sql`. See `claim` for `take_over`.
    """
    values = {"worker": worker, "count": count, "ttl": ttl, "take_over": take_over}
    values |= {"per_workspace": per_workspace, "per_host": per_host}
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return await _leases(connection, await connection.execute(_CLAIM_FETCHES, values))


async def _leases(connection: AsyncConnection, taken: sa.CursorResult[Any]) -> list[Lease]:
    ids = list(taken.scalars())
    if not ids:
        return []
    rows = await connection.execute(
        sa.select(jobs, *CALL_COLUMNS, *(calls.c[name] for name in _OF_LEASE), *_BROUGHT)
        .join(calls, calls.c.id == jobs.c.call_pk)
        .where(jobs.c.id.in_(ids))
        .order_by(jobs.c.not_before, jobs.c.created_at)
    )
    return [_lease(row) for row in rows]


async def renew(database: Database, leases: Sequence[Lease], ttl: float) -> set[UUID]:
    """Hold `leases` for `ttl` seconds from now; returns the ids of those jobs that are lost."""
    if not leases:
        return set()
    held: dict[str, Any] = {"ids": [lease.job.job_id for lease in leases], "ttl": ttl}
    held |= {"calls": [lease.call_pk for lease in leases], "runs": [lease.job.run for lease in leases]}
    held["fetching"] = [lease.fetching for lease in leases]
    async with database.transaction(EVERY_WORKSPACE) as connection:
        kept = set((await connection.execute(_RENEW, held)).scalars())
    return {lease.job.job_id for lease in leases} - kept


async def workers(database: Database) -> list[str]:
    """Who holds jobs, by the names given to `claim` and `claim_fetches`; not of leases that ran out a minute ago and
    before.

    Those can be claimed as they are, and a look at all of them would pass whatever a snapshot keeps of earlier ones.
    """
    recent = jobs.c.lease_until > sa.func.now() - sa.text("interval '1 minute'")
    query = sa.select(jobs.c.worker).distinct().where(_LEASED, jobs.c.worker.is_not(None), recent)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return list((await connection.execute(query)).scalars())


async def abandon(database: Database, workers: Sequence[str]) -> None:
    """End the leases of `workers`, known to be dead: their jobs can be claimed at once, each counting a crash."""
    if not workers:
        return
    held = sa.and_(_LEASED, jobs.c.worker.in_(workers))
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.update(jobs).where(held).values(lease_until=sa.func.now(), worker=None))


async def stage(database: Database, lease: Lease, stage: str) -> None:
    """Note where the work stands, for people. Raises LeaseLost."""
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
    """Back to the queue for `delay` seconds, with the reason; charge what was `used`. Raises LeaseLost.

    Where the recording got a newer address meanwhile, what the old one answered is no reason to wait. The first wait of
    `TOLD_FROM` or more is an event.
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
        if pause >= TOLD_FROM and lease.job.kind == "process":
            await _note_delay(connection, lease)
        await settle(connection, used)


async def _note_delay(connection: AsyncConnection, lease: Lease) -> None:
    not_told = calls.c.delayed_job.is_distinct_from(lease.job.job_id)
    await connection.execute(
        sa.update(calls).where(calls.c.id == lease.call_pk, not_told).values(delayed_job=lease.job.job_id)
    )


async def release(database: Database, leases: Sequence[Lease], used: Sequence[UsedSlot] = ()) -> list[UsedSlot]:
    """Back to the queue at once, nothing counted: the worker is leaving. Leases already lost are passed over.

    What was `used` is charged; returns what `settle` does.
    """
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for lease in sorted(leases, key=lambda lease: lease.job.job_id):
            await connection.execute(sa.update(jobs).where(_held(lease)).values(**_waiting(lease, 0)))
        return await settle(connection, used)


async def fetched(database: Database, lease: Lease, warnings: Sequence[str] = ()) -> None:
    """The recordings are stored: the job waits for its turn to be worked on. Raises LeaseLost."""
    async with database.transaction(lease.workspace_id) as connection:
        await lock(connection, lease)
        later = _waiting(lease, 0) | {"state": "queued", "fetch_warnings": list(warnings)}
        await change(connection, lease, **later, attempts=jobs.c.attempts - 1)  # fetching was part of this attempt


async def fetch_again(database: Database, lease: Lease, used: Sequence[UsedSlot] = ()) -> None:
    """The recordings are not in the store: back to those that are fetched; charge what was `used`. Raises LeaseLost."""
    async with database.transaction(lease.workspace_id) as connection:
        await lock(connection, lease)
        later = _waiting(lease, 0) | {"state": "fetching"}
        await change(connection, lease, **later, attempts=jobs.c.attempts - 1)
        await settle(connection, used)


async def fail(database: Database, lease: Lease, error: CallError, used: Sequence[UsedSlot] = ()) -> None:
    """Fail the job and charge what was `used`. Raises LeaseLost.

    Not yet, though, where the recording got a newer address meanwhile: then the job is queued again instead.
    A process job takes its call to `failed`, with the error's code, sentence and whether a retry could help. A call
    whose analysis fails stays completed, keeps its findings and gets a warning; if its metadata changed once more in
    the meantime, the analysis is queued again instead.
    """
    async with database.transaction(lease.workspace_id) as connection:
        row = await lock(connection, lease)
        if _has_newer_address(row, lease, error):
            await change(connection, lease, **_waiting(lease, 0), **_reason(error))
        elif lease.job.kind == "analyze" and row.metadata_version != lease.metadata_version:
            await change(connection, lease, **_waiting(lease, 0), **_reason(error), failures=0)
        else:
            await _fail(connection, lease, error)
        await settle(connection, used)


async def _fail(connection: AsyncConnection, lease: Lease, error: CallError) -> None:
    await change(connection, lease, **_ended("failed"), **_reason(error))
    await _drop_voices(connection, lease)
    if lease.job.kind == "analyze":
        warning = f"The analysis after a change of the call's data failed, its findings are older: {error.message}"
        changes: dict[str, Any] = {"analysis_warnings": [warning]}
    else:
        changes = {"state": "failed", "failed_at": sa.func.now()}
        changes |= {f"failure_{name.removeprefix('error_')}": value for name, value in _reason(error).items()}
    await connection.execute(
        sa.update(calls).where(calls.c.id == lease.call_pk).values(**changes, updated_at=sa.func.now())
    )


async def _drop_voices(connection: AsyncConnection, lease: Lease) -> None:
    """Drop what failed work left of voices: nobody will use it, and another job makes it again.

    An "analyze" job leaves alone what the call's record rests on.
    """
    left = sa.and_(stage_results.c.call_pk == lease.call_pk, stage_results.c.stage.in_(VOICES))
    if lease.job.kind == "analyze":
        left &= stage_results.c.job_id == lease.job.job_id
    await connection.execute(sa.delete(stage_results).where(left))


def wakes(database: Database) -> AsyncIterator[None]:
    """As `Database.wakes`, each time work is queued."""
    return database.wakes(WAKE_CHANNEL)


# For the other writers of this package: they keep the order call, then job, so that nobody waits in a circle.


async def lock(connection: AsyncConnection, lease: Lease) -> sa.Row[Any]:
    """Lock the call and then the job for this transaction; the call's row. Raises LeaseLost."""
    columns = (*CALL_COLUMNS, calls.c.metadata_version, calls.c.job_id, calls.c.from_e164, calls.c.to_e164)
    found = await connection.execute(
        sa.select(*columns).where(calls.c.id == lease.call_pk).with_for_update(key_share=True)
    )
    row = found.one_or_none()
    if row is None:  # erased
        raise lost(lease)
    await hold(connection, lease)
    return row


async def hold(connection: AsyncConnection, lease: Lease) -> None:
    """Lock the job for this transaction. Raises LeaseLost."""
    if (
        await connection.execute(sa.select(jobs.c.id).where(_held(lease)).with_for_update(key_share=True))
    ).first() is None:
        raise lost(lease)


async def change(connection: AsyncConnection, lease: Lease, **values: Any) -> None:
    """Change the job's row. Raises LeaseLost."""
    done = await connection.execute(sa.update(jobs).where(_held(lease)).values(**values))
    if done.rowcount != 1:
        raise lost(lease)


async def finish(connection: AsyncConnection, lease: Lease) -> None:
    """The job is done, in the transaction that writes its results. Raises LeaseLost."""
    await change(connection, lease, **_ended("done"), error_code=None, error_message=None, error_retryable=None)


def lost(lease: Lease) -> LeaseLost:
    return LeaseLost().with_facts(job_id=str(lease.job.job_id), run=lease.job.run)


def _held(lease: Lease) -> sa.ColumnElement[bool]:
    run, state = (jobs.c.fetch_run, "fetching") if lease.fetching else (jobs.c.run, "running")
    return sa.and_(jobs.c.id == lease.job.job_id, run == lease.job.run, jobs.c.state == state)


def _has_newer_address(row: sa.Row[Any], lease: Lease, error: CallError) -> bool:
    """Whether `error` is about an address of the recording that was replaced after the lease had been loaded."""
    now = to_call(row)
    tried = (lease.call.recording_url, lease.call.recording_url2)
    return isinstance(error, RecordingError) and (now.recording_url, now.recording_url2) != tried


def _waiting(lease: Lease, delay: float) -> dict[str, Any]:
    """In the queue that the lease was claimed from."""
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
    led_to_it = (row.request_id, row.traceparent)
    return Lease(job, *call, clock, fetching, warnings, slot, row.channels_swapped, *led_to_it, row.queued_at)
