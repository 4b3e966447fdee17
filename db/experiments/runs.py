"""Runs: a configuration applied to a set of calls without changing their records. `run_calls.py` has their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Scope
from db.core.rows import read
from db.core.tables import calls, gold_calls, run_calls, runs
from db.workspace.admin_log import Actor, changing

MAX_CALLS = 2_000  # of a run: its promotion is one transaction
ELIGIBLE_STATES = ("completed",)  # of calls


@dataclass(frozen=True, slots=True)
class Run:
    """A run and its progress.

    `settings`: by group, those that differ from the live ones. `configuration`: all settings, with engines, checkpoints
    and code, once it has started; `digest` is its digest.
    """

    run_id: UUID
    name: str
    state: str  # running, completed, canceled
    settings: dict[str, dict[str, Any]]
    configuration: dict[str, Any] | None
    digest: str | None
    calls: int  # at its creation
    waiting: int
    running: int
    done: int
    failed: int
    promoted: int  # calls whose record is this run's
    audio_seconds: float  # of the calls that are done
    worked_seconds: float  # on them
    made_at: datetime
    made_by: str
    started_at: datetime | None
    finished_at: datetime | None
    promoted_at: datetime | None
    promoted_by: str | None

    @property
    def is_waiting(self) -> bool:
        """Whether no call has started."""
        return self.state == "running" and not (self.done or self.failed or self.running)

    @property
    def changes(self) -> list[str]:
        """Settings that differ from the live ones: "asr.model=whisper-tiny.en"."""
        return [f"{group}.{name}={value}" for group, values in self.settings.items() for name, value in values.items()]

    def seconds_left(self, now: datetime) -> float | None:
        """Return the expected remaining seconds; None before the first call ends, and after the last."""
        ended = self.done + self.failed
        if self.state != "running" or not ended or self.started_at is None:
            return None
        return (now - self.started_at).total_seconds() / ended * (self.waiting + self.running)


class NoSuchRun(LookupError):
    """No run has this name or id."""


class RunRefused(ValueError):
    """The state of the run does not allow this; the message says why and what to do."""


class RunNameTaken(RunRefused):
    """Another run has this name."""


async def create(
    database: Database,
    workspace_id: UUID,
    name: str,
    settings: dict[str, dict[str, Any]],
    call_ids: Sequence[UUID],
    by: Actor | None = None,
    run_id: UUID | None = None,
) -> tuple[Run, list[UUID]]:
    """Create a run of the completed calls; return it and the calls left out.

    `run_id`: the same in a repeated request, which then creates nothing. No other workspace may have it.

    Raises `RunRefused` for no calls or too many, and for a name that another run has.
    """
    if len(call_ids) > MAX_CALLS:
        raise RunRefused(f"A run has max. {MAX_CALLS} calls, not {len(call_ids)}. Create several runs.")
    async with changing(database, workspace_id, by) as change:
        for existing in await change.run(_QUERY.where(sa.or_(runs.c.name == name, runs.c.id == run_id))):
            if existing.run_id == run_id and (existing.name, existing.settings) == (name, settings):
                return read(Run, existing), []
            raise RunNameTaken(f"A run named {name!r} exists. Choose another name, or delete it.")
        rows = await change.run(
            sa.select(calls.c.id, calls.c.call_id, calls.c.job_id)
            .where(calls.c.workspace_id == workspace_id, calls.c.call_id.in_(call_ids))
            .where(calls.c.state.in_(ELIGIBLE_STATES), calls.c.job_id.is_not(None))
            .order_by(calls.c.id)
        )
        if not rows:
            raise RunRefused("None of the calls is completed: a run needs calls with a record.")
        new_id = run_id or uuid4()
        values = {"id": new_id, "workspace_id": workspace_id, "name": name, "settings": settings, "calls": len(rows)}
        await change.run(sa.insert(runs).values(**values, made_by=change.by.name))
        shared = {"run_id": new_id, "workspace_id": workspace_id}
        calls_of_run = [shared | {"call_pk": row.id, "job_id": row.job_id} for row in rows]
        await change.connection.execute(sa.insert(run_calls), calls_of_run)
        await change.note("created", "run", new_id, name, f"{len(rows)} calls")
        included = {row.call_id for row in rows}
        left_out = [call_id for call_id in call_ids if call_id not in included]
        return await _one(change.connection, runs.c.id == new_id), left_out


async def list_runs(database: Database, scope: Scope) -> list[Run]:
    """Return all runs that the scope may see, the latest first."""
    rows = await database.rows(scope, _QUERY.order_by(runs.c.made_at.desc(), runs.c.id))
    return [read(Run, row) for row in rows]


async def find(database: Database, scope: Scope, name_or_id: str | UUID) -> Run:
    """Return a run by its name or id. Raises `NoSuchRun`."""
    async with database.transaction(scope) as connection:
        return await _one(connection, _named(name_or_id))


async def cancel(database: Database, workspace_id: UUID, run_id: UUID, by: Actor | None = None) -> Run:
    """Cancel a run; finished calls stay. Raises `NoSuchRun`, `RunRefused` if it has ended."""
    async with changing(database, workspace_id, by) as change:
        run = await hold(change.connection, run_id)
        if run.state != "running":
            raise RunRefused(f"The run {run.name!r} is already {run.state}.")
        open_calls = sa.update(run_calls).where(
            run_calls.c.run_id == run_id, run_calls.c.state.in_(("waiting", "running"))
        )
        await change.run(open_calls.values(state="canceled", finished_at=sa.func.now()))
        ended = {"state": "canceled", "finished_at": sa.func.now()}
        await change.run(sa.update(runs).where(runs.c.id == run_id).values(**ended))
        await change.note("changed", "run", run_id, run.name, "canceled")
        return await _one(change.connection, runs.c.id == run_id)


async def delete(database: Database, workspace_id: UUID, run_id: UUID, by: Actor | None = None) -> Run:
    """Delete a run with its results, and stage results that nothing else uses. Calls stay.

    Raises `NoSuchRun`, and `RunRefused` while the record of a call is this run's.
    """
    async with changing(database, workspace_id, by) as change:
        run = await hold(change.connection, run_id)
        if run.promoted:
            raise RunRefused(
                f"{run.promoted} calls have the record of run {run.name!r}: roll it back first, or keep it."
            )
        await change.connection.execute(_DROP_RESULTS, {"run": run_id})
        await change.run(sa.delete(runs).where(runs.c.id == run_id))
        await change.note("removed", "run", run_id, run.name)
        return run


async def hold(connection: AsyncConnection, run_id: UUID) -> Run:
    """Lock a run for this transaction. Raises `NoSuchRun`."""
    await connection.execute(sa.select(runs.c.id).where(runs.c.id == run_id).with_for_update())
    return await _one(connection, runs.c.id == run_id)


async def begin(
    database: Database, workspace_id: UUID, run_id: UUID, configuration: Any, digest: str
) -> dict[str, Any]:
    """Store the configuration of a run at its first start; return the stored one."""
    first = sa.update(runs).where(runs.c.id == run_id, runs.c.configuration.is_(None))
    async with database.transaction(workspace_id) as connection:
        await connection.execute(first.values(configuration=configuration, digest=digest, started_at=sa.func.now()))
        stored = await connection.scalar(sa.select(runs.c.configuration).where(runs.c.id == run_id))
        return dict(stored or {})


async def note_promotion(connection: AsyncConnection, run_id: UUID, who: str | None) -> None:
    """Store by whom a run was promoted; None: it no longer is."""
    at = sa.func.clock_timestamp() if who else None
    await connection.execute(sa.update(runs).where(runs.c.id == run_id).values(promoted_at=at, promoted_by=who))


async def calls_of_gold_set(database: Database, scope: Scope, set_id: UUID) -> list[UUID]:
    """Return the stored calls of a version of a gold set."""
    query = sa.select(calls.c.call_id).join(gold_calls, gold_calls.c.call_pk == calls.c.id)
    return await database.column(scope, query.where(gold_calls.c.set_id == set_id))


async def _one(connection: AsyncConnection, *conditions: sa.ColumnElement[bool]) -> Run:
    row = (await connection.execute(_QUERY.where(*conditions))).one_or_none()
    if row is None:
        raise NoSuchRun
    return read(Run, row)


def _named(name_or_id: str | UUID) -> sa.ColumnElement[bool]:
    try:
        return sa.or_(runs.c.id == UUID(str(name_or_id)), runs.c.name == str(name_or_id))
    except ValueError:
        return runs.c.name == str(name_or_id)


def _count(*conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    query = sa.select(sa.func.count()).where(run_calls.c.run_id == runs.c.id, *conditions)
    return query.correlate(runs).scalar_subquery()


def _sum(column: Any) -> sa.ScalarSelect[float]:
    query = sa.select(sa.func.coalesce(sa.func.sum(column), 0.0)).where(run_calls.c.run_id == runs.c.id)
    return query.where(run_calls.c.state == "done").correlate(runs).scalar_subquery()


_WORKED = sa.text("(SELECT coalesce(sum(value::double precision), 0) FROM jsonb_each_text(run_calls.seconds))")
_QUERY = sa.select(
    runs,
    runs.c.id.label("run_id"),
    *(_count(run_calls.c.state == state).label(state) for state in ("waiting", "running", "done", "failed")),
    _count(run_calls.c.former.is_not(None)).label("promoted"),
    _sum(run_calls.c.audio_seconds).label("audio_seconds"),
    _sum(sa.literal_column(_WORKED.text, sa.Double())).label("worked_seconds"),
)

# Stage results of a run's calls that neither their record nor another run uses.
_DROP_RESULTS = sa.text("""
    DELETE FROM stage_results AS s USING run_calls AS r, jsonb_each_text(r.producers) AS used (stage, producer)
    WHERE r.run_id = :run AND s.call_pk = r.call_pk AND s.stage = used.stage
        AND right(s.content_key, 36) = ' by ' || used.producer
        AND NOT EXISTS (SELECT FROM transcripts t
            WHERE t.call_pk = s.call_pk AND t.producers ->> s.stage = used.producer)
        AND NOT EXISTS (SELECT FROM run_calls o WHERE o.call_pk = s.call_pk AND o.run_id <> r.run_id
            AND o.producers ->> s.stage = used.producer)
""")
