"""How much sound waits for which stage, how fast stages are, and how many replicas there are to do it.

A call is counted once for each engine that still has to hear it: a queued one with what its sender declared, one that
was heard with what it really has. What is being fetched is work for Conductors alone: a server that hands recordings
out slowly, or never, starts no engine. What is to be tried later counts nowhere but in `later`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import columns, read
from db.core.tables import engines, jobs, paces, teams, workspaces
from db.queue.live_jobs import WAITING, in_states

USUAL_SECONDS = 240.0  # of a call of unknown length, before any call was heard
MEMORY = 50.0  # finished calls after which earlier ones count half


@dataclass(frozen=True, slots=True)
class Group:
    """Live jobs that have the same left to do. `channels`: 1 mixed, 2 separated, None: not heard yet."""

    running: bool
    kind: str  # process or analyze
    live: bool
    channels: int | None
    recognized: bool
    voice_done: bool
    calls: int
    audio_seconds: float  # of those whose length is known
    unknown: int  # calls of unknown length among them
    team_id: UUID | None = None  # only where teams were asked for
    fetching: bool = False  # their recordings are not here yet


@dataclass(frozen=True, slots=True)
class MeasuredRtfx:
    """Weighted sums over finished work, from which the real-time factor follows; older work has less weight."""

    stage: str  # a stage of `pipeline.process`, or "call": a whole call in its Conductor
    channels: int  # 1 mixed, 2 separated
    calls: float
    audio_seconds: float
    worked_seconds: float  # of one replica


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a scaling policy saw and asked for last."""

    name: str
    replicas: int
    wanted: int
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Backlog:
    """All that is known of the queue at one moment."""

    groups: tuple[Group, ...]
    later: int  # calls to be tried later
    paces: tuple[MeasuredRtfx, ...]
    engines: tuple[ReplicaState, ...]

    @property
    def usual_seconds(self) -> float:
        """Seconds of a call of unknown length: the mean of those that were heard."""
        heard = [pace for pace in self.paces if pace.stage == "call"]
        calls = sum(pace.calls for pace in heard)
        return sum(pace.audio_seconds for pace in heard) / calls if calls else USUAL_SECONDS

    @property
    def mixed_share(self) -> float:
        """How much of the sound that has not been heard yet is mixed, 0..1: as much as of what was; 1 if none was."""
        heard = {pace.channels: pace.audio_seconds for pace in self.paces if pace.stage == "call"}
        total = sum(heard.values())
        return heard.get(1, 0.0) / total if total else 1.0

    def seconds(self, group: Group) -> float:
        """Seconds of audio of a group, calls of unknown length counted as usual ones."""
        return group.audio_seconds + group.unknown * self.usual_seconds


@dataclass(frozen=True, slots=True)
class Lane:
    """What one team has in the queue, live or not."""

    team_id: UUID
    team: str
    workspace: str
    live: bool
    share: float  # the team's priority times its workspace's
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a job stands in its lane. Calls of unknown length count as usual ones."""

    team_id: UUID
    live: bool
    running: bool
    audio_seconds: float  # of the call itself
    before: float  # seconds of audio that wait in the same lane before it; 0 while it is running


_WHAT = ("kind", "live", "channels", "recognized", "voice_done")


def _groups(*more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Reads the live jobs only, by their partial indexes, and no other table."""
    running: sa.ColumnElement[bool] = sa.literal_column("(state = 'running')").label("running")
    fetching: sa.ColumnElement[bool] = sa.literal_column("(state = 'fetching')").label("fetching")
    columns = [running, fetching, *(jobs.c[name] for name in _WHAT), *more]
    due: sa.ColumnElement[bool] = sa.literal_column("(state = 'running' OR not_before <= now())").label("due")
    return (
        sa.select(
            due,
            *columns,
            sa.func.count().label("calls"),
            sa.func.coalesce(sa.func.sum(jobs.c.audio_seconds), 0.0).label("audio_seconds"),
            sa.func.count().filter(jobs.c.audio_seconds.is_(None)).label("unknown"),
        )
        .where(in_states())
        .group_by(due, *columns)
    )


async def backlog(database: Database) -> Backlog:
    """The queue of all workspaces, as the scaling policies want it every few seconds."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        groups, later = _due((await connection.execute(_groups())).all())
        return Backlog(groups, later, await _paces(connection), await _engines(connection))


_DUE = "(state = 'running' OR not_before <= now())"
_UNHEARD = "state IN ('queued', 'running') AND kind = 'process'"
_AGES = {
    "fetch": "state = 'fetching'",
    "Conductor": "state = 'queued'",
    "Transcriber": f"{_UNHEARD} AND NOT recognized",
    "Diarizer": f"{_UNHEARD} AND NOT voice_done AND channels IS DISTINCT FROM 2",
}


async def ages(database: Database) -> dict[str, float]:
    """For how many seconds the job waiting longest has waited: for its recording ("fetch"), for its turn ("Conductor"),
    and, since it had both, for an engine; 0 where none waits. What is to be tried later does not wait."""
    oldest = ", ".join(
        f"coalesce(extract(epoch FROM now() - min(queued_at) FILTER (WHERE {which})), 0)::float"
        for which in _AGES.values()
    )
    query = sa.text(f"SELECT {oldest} FROM jobs WHERE {in_states()} AND {_DUE}")  # noqa: S608 (of constants)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return dict(zip(_AGES, (await connection.execute(query)).one(), strict=True))


async def lanes(database: Database) -> tuple[Backlog, tuple[Lane, ...]]:
    """The same with each team's part of it; lanes by workspace, team, live first."""
    async with database.transaction(EVERY_WORKSPACE, snapshot=True) as connection:
        groups, later = _due((await connection.execute(_groups(jobs.c.team_id))).all())
        whole = Backlog(groups, later, await _paces(connection), await _engines(connection))
        names = await connection.execute(
            sa.select(
                teams.c.id,
                teams.c.name,
                workspaces.c.name.label("workspace"),
                (teams.c.priority * workspaces.c.priority).label("share"),
            )
            .join(workspaces, workspaces.c.id == teams.c.workspace_id)
            .where(teams.c.id.in_({group.team_id for group in groups}))
        )
        found = [
            Lane(row.id, row.name, row.workspace, live, row.share, mine)
            for row in names
            for live in (True, False)
            if (mine := tuple(group for group in groups if (group.team_id, group.live) == (row.id, live)))
        ]
    return whole, tuple(sorted(found, key=lambda lane: (lane.workspace, lane.team, str(lane.team_id), not lane.live)))


async def full_workspaces(database: Database, limit: int) -> frozenset[UUID]:
    """The workspaces of which `limit` calls or more wait, for their recording or their turn, or are worked on."""
    by_team = (
        sa.select(jobs.c.team_id, sa.func.count().label("calls")).where(in_states()).group_by(jobs.c.team_id).subquery()
    )
    query = (
        sa.select(teams.c.workspace_id)
        .join(by_team, by_team.c.team_id == teams.c.id)
        .group_by(teams.c.workspace_id)
        .having(sa.func.sum(by_team.c.calls) >= limit)
    )
    async with database.transaction(EVERY_WORKSPACE) as connection:
        return frozenset((await connection.execute(query)).scalars())


async def place(database: Database, job_id: UUID) -> QueuePlace | None:
    """Where a job stands; None where it waits for no engine: it has ended, or is to be tried later."""
    mine, other = jobs.alias("mine"), jobs.alias("other")
    usual = sa.select(
        sa.func.coalesce(
            sa.func.sum(paces.c.audio_seconds) / sa.func.nullif(sa.func.sum(paces.c.calls), 0), USUAL_SECONDS
        )
    ).where(paces.c.stage == "call")
    before = (
        sa.select(sa.func.coalesce(sa.func.sum(sa.func.coalesce(other.c.audio_seconds, usual.scalar_subquery())), 0.0))
        .select_from(other)
        .where(
            other.c.live == mine.c.live,
            other.c.team_id == mine.c.team_id,
            mine.c.state.in_(["fetching", "queued"]),
            in_states(WAITING, "other"),
            sa.tuple_(other.c.not_before, other.c.created_at) < sa.tuple_(mine.c.not_before, mine.c.created_at),
        )
        .scalar_subquery()
    )
    length = sa.func.coalesce(mine.c.audio_seconds, usual.scalar_subquery())
    running = (mine.c.state == "running").label("running")
    query = sa.select(
        mine.c.team_id, mine.c.live, running, length.label("audio_seconds"), before.label("before")
    ).where(
        mine.c.id == job_id,
        sa.literal_column(
            "(mine.state = 'running' OR mine.state IN ('fetching', 'queued') AND mine.not_before <= now())"
        ),
    )
    async with database.transaction(EVERY_WORKSPACE) as connection:
        row = (await connection.execute(query)).one_or_none()
        return None if row is None else read(QueuePlace, row)


async def record_rtfx(database: Database, measured: Iterable[MeasuredRtfx]) -> None:
    """Add measured work to the stored sums; several Conductors may do so at once.

    The older sums of a stage fade by the same factor for all channels, so they also show the mix of calls.
    """
    sums_of = {(pace.stage, pace.channels): pace for pace in measured}
    done: dict[str, float] = {}  # calls by stage
    for pace in sums_of.values():
        done[pace.stage] = done.get(pace.stage, 0.0) + pace.calls
    if not done:
        return
    kinds = sorted(sums_of.keys() | {(stage, channels) for stage in done for channels in (1, 2)})
    rows = [sums_of.get(kind, MeasuredRtfx(*kind, 0.0, 0.0, 0.0)) for kind in kinds]  # sorted, to avoid deadlocks
    new = insert(paces).values([columns(pace) for pace in rows])
    fade = sa.func.power(0.5, sa.case(done, value=new.excluded.stage) / MEMORY)
    sums = ("calls", "audio_seconds", "worked_seconds")
    added = {name: paces.c[name] * fade + new.excluded[name] for name in sums}
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(
            new.on_conflict_do_update(index_elements=["stage", "channels"], set_=added | {"updated_at": sa.func.now()})
        )


async def note_replicas(database: Database, name: str, replicas: int, wanted: int) -> None:
    """What a scaling policy sees and asks for."""
    values: Mapping[str, Any] = {"replicas": replicas, "wanted": wanted, "seen_at": sa.func.now()}
    new = insert(engines).values(name=name, **values)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=values))


def _due(rows: Iterable[Any]) -> tuple[tuple[Group, ...], int]:
    found = list(rows)
    return tuple(read(Group, row) for row in found if row.due), sum(row.calls for row in found if not row.due)


async def _paces(connection: AsyncConnection) -> tuple[MeasuredRtfx, ...]:
    rows = await connection.execute(sa.select(paces).order_by(paces.c.stage, paces.c.channels))
    return tuple(read(MeasuredRtfx, row) for row in rows)


async def _engines(connection: AsyncConnection) -> tuple[ReplicaState, ...]:
    rows = await connection.execute(sa.select(engines).order_by(engines.c.name))
    return tuple(read(ReplicaState, row) for row in rows)
