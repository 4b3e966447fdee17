"""How much audio waits for which stage, how fast stages are, and how many replicas process it.

A call counts once for each engine that still has to process it: a queued call with the duration its sender declared, a
decoded one with the actual duration. Jobs that are being fetched are work for Conductors alone: a server that delivers
recordings slowly, or never, starts no engine. Jobs to be retried later count only in `later`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.core.rows import columns, read
from db.core.tables import engines, jobs, paces, teams, workspaces

USUAL_SECONDS = 240.0  # assumed for a call of unknown length, before any call was processed
RTFX_HALF_LIFE = 50.0  # finished calls after which earlier ones count half


LiveState = Literal["fetching", "queued", "running"]
LIVE_STATES: tuple[LiveState, ...] = ("fetching", "queued", "running")
WAITING: tuple[LiveState, ...] = ("fetching", "queued")

# PostgreSQL uses a partial index where a condition implies its predicate. `state IN ('fetching', 'queued', 'running')`
# implies none of them, so the query would read every job ever stored. The predicates joined by OR use each index.
_PREDICATES: dict[LiveState, tuple[str, ...]] = {
    "fetching": (
        "{0}state = 'fetching' AND {0}lease_until IS NULL",
        "{0}state = 'fetching' AND {0}lease_until IS NOT NULL",
    ),
    "queued": ("{0}state = 'queued'",),
    "running": ("{0}state = 'running'",),
}


@dataclass(frozen=True, slots=True)
class Group:
    """Live jobs with the same remaining work. `channels`: 1 mixed, 2 separated, None: not decoded yet."""

    running: bool
    kind: str  # process or analyze
    live: bool
    channels: int | None
    recognized: bool
    voice_done: bool
    calls: int
    audio_seconds: float  # of those whose length is known
    unknown: int  # calls of unknown length among them
    team_id: UUID | None = None  # set by `lanes` only
    fetching: bool = False  # their recordings are not stored yet


@dataclass(frozen=True, slots=True)
class MeasuredRtfx:
    """Weighted sums over finished work that give the real-time factor; older work weighs less."""

    stage: str  # a stage of `pipeline.process`, or "call": a whole call in its Conductor
    channels: int  # 1 mixed, 2 separated
    calls: float
    audio_seconds: float
    worked_seconds: float  # of one replica


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Replicas that a scaling policy last saw and requested."""

    name: str
    replicas: int
    wanted: int  # language: ok
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Backlog:
    """The queue at one moment."""

    groups: tuple[Group, ...]
    later: int  # calls to be retried later
    paces: tuple[MeasuredRtfx, ...]
    engines: tuple[ReplicaState, ...]

    @property
    def usual_seconds(self) -> float:
        """Assumed seconds of a call of unknown length: the mean over processed calls."""
        transcribed = [pace for pace in self.paces if pace.stage == "call"]
        calls = sum(pace.calls for pace in transcribed)
        return sum(pace.audio_seconds for pace in transcribed) / calls if calls else USUAL_SECONDS

    @property
    def mixed_share(self) -> float:
        """Expected share of mixed audio among calls not decoded yet: that among processed calls; 1 without any."""
        seconds_by_channels = {pace.channels: pace.audio_seconds for pace in self.paces if pace.stage == "call"}
        total = sum(seconds_by_channels.values())
        return seconds_by_channels.get(1, 0.0) / total if total else 1.0

    def seconds(self, group: Group) -> float:
        """Return the seconds of audio of a group; a call of unknown length counts `usual_seconds`."""
        return group.audio_seconds + group.unknown * self.usual_seconds


@dataclass(frozen=True, slots=True)
class Lane:
    """One team's jobs in the queue, live or not."""

    team_id: UUID
    team: str
    workspace: str
    live: bool
    share: float  # the team's priority times its workspace's
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A job's place in its lane. A call of unknown length counts `usual_seconds`."""

    team_id: UUID
    live: bool
    running: bool
    audio_seconds: float  # of the call itself
    before: float  # seconds of audio queued in the same lane before it; 0 while it is running


@dataclass(frozen=True, slots=True)
class TeamQueue:
    """The live jobs of one team."""

    team_id: UUID
    team: str
    fetching: int  # recordings that are being fetched or wait for it
    queued: int
    running: int
    later: int  # of fetching and queued: to be retried later, after a failure
    audio_seconds: float  # of those whose length is known
    oldest: datetime | None  # when the longest waiting job was queued


def in_states(states: tuple[LiveState, ...] = LIVE_STATES, table: str = "jobs") -> sa.ColumnElement[bool]:
    """Return the condition that a job of `table` (its name or alias) is in one of the states."""
    predicates = [predicate.format(f"{table}.") for state in states for predicate in _PREDICATES[state]]
    return sa.literal_column(f"({' OR '.join(predicates)})", sa.Boolean)


_WORK_COLUMNS = ("kind", "live", "channels", "recognized", "voice_done")


def _groups(*extra: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Read the live jobs only, by their partial indexes, and no other table."""
    running: sa.ColumnElement[bool] = sa.literal_column("(state = 'running')").label("running")
    fetching: sa.ColumnElement[bool] = sa.literal_column("(state = 'fetching')").label("fetching")
    columns = [running, fetching, *(jobs.c[name] for name in _WORK_COLUMNS), *extra]
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
    """Return the queue of all workspaces, as the scaling policies read it every few seconds."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        groups, later = _due((await connection.execute(_groups())).all())
        return Backlog(groups, later, await _paces(connection), await _engines(connection))


_DUE = "(state = 'running' OR not_before <= now())"
_TO_PROCESS = "state IN ('queued', 'running') AND kind = 'process'"
_AGES = {
    "fetch": "state = 'fetching'",
    "Conductor": "state = 'queued'",
    "Transcriber": f"{_TO_PROCESS} AND NOT recognized",
    "Diarizer": f"{_TO_PROCESS} AND NOT voice_done AND channels IS DISTINCT FROM 2",
}


async def ages(database: Database) -> dict[str, float]:
    """Return the age in seconds of the oldest waiting job, 0 without one: for its recording ("fetch"), for its turn
    ("Conductor"), and from then on for each engine. A job to be retried later does not count.
    """
    oldest = ", ".join(
        f"coalesce(extract(epoch FROM now() - min(queued_at) FILTER (WHERE {condition})), 0)::float"
        for condition in _AGES.values()
    )
    query = sa.text(f"SELECT {oldest} FROM jobs WHERE {in_states()} AND {_DUE}")  # noqa: S608 (of constants)
    return dict(zip(_AGES, await database.first(EVERY_WORKSPACE, query), strict=True))


async def lanes(database: Database) -> tuple[Backlog, tuple[Lane, ...]]:
    """Return `backlog` and each team's part of it; lanes sorted by workspace, team, live first."""
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
        lanes_of_teams = [
            Lane(row.id, row.name, row.workspace, live, row.share, team_groups)
            for row in names
            for live in (True, False)
            if (team_groups := tuple(group for group in groups if (group.team_id, group.live) == (row.id, live)))
        ]
    return whole, tuple(
        sorted(lanes_of_teams, key=lambda lane: (lane.workspace, lane.team, str(lane.team_id), not lane.live))
    )


async def full_workspaces(database: Database, limit: int) -> frozenset[UUID]:
    """Return the workspaces with `limit` or more calls that are fetched, queued or running."""
    by_team = (
        sa.select(jobs.c.team_id, sa.func.count().label("calls")).where(in_states()).group_by(jobs.c.team_id).subquery()
    )
    query = (
        sa.select(teams.c.workspace_id)
        .join(by_team, by_team.c.team_id == teams.c.id)
        .group_by(teams.c.workspace_id)
        .having(sa.func.sum(by_team.c.calls) >= limit)
    )
    return frozenset(await database.column(EVERY_WORKSPACE, query))


async def need_recordings(database: Database, call_ids: Sequence[UUID]) -> set[UUID]:
    """Return the calls, of any workspace, that are processed now or failed in the last day: they may be retried."""
    return set(await database.column(EVERY_WORKSPACE, _NEED_RECORDINGS, {"calls": list(call_ids)}))


_NEED_RECORDINGS = sa.text("""
    SELECT call_id FROM calls c WHERE call_id = ANY (CAST(:calls AS uuid[])) AND (
        (state = 'failed' AND failed_at > now() - interval '1 day')
        OR EXISTS (SELECT FROM jobs j WHERE j.call_pk = c.id AND j.state IN ('fetching', 'queued', 'running')))
""")


async def place(database: Database, job_id: UUID) -> QueuePlace | None:
    """Return a job's place; None for a job that waits for no engine: it has ended, or is to be retried later."""
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
    row = await database.first(EVERY_WORKSPACE, query)
    return None if row is None else read(QueuePlace, row)


async def record_rtfx(database: Database, measured: Iterable[MeasuredRtfx]) -> None:
    """Add measured work to the stored sums; several Conductors may do so at once.

    The older sums of a stage decay by the same factor for all channels, so they also show the mix of calls.
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
    fade = sa.func.power(0.5, sa.case(done, value=new.excluded.stage) / RTFX_HALF_LIFE)
    sums = ("calls", "audio_seconds", "worked_seconds")
    added = {name: paces.c[name] * fade + new.excluded[name] for name in sums}
    updated = added | {"updated_at": sa.func.now()}
    await database.change(
        EVERY_WORKSPACE, new.on_conflict_do_update(index_elements=["stage", "channels"], set_=updated)
    )


async def note_replicas(database: Database, name: str, replicas: int, requested: int) -> None:
    """Store how many replicas of a deployment run and how many Serve wants."""
    values: Mapping[str, Any] = {"replicas": replicas, "wanted": requested, "seen_at": sa.func.now()}
    new = insert(engines).values(name=name, **values)
    await database.change(EVERY_WORKSPACE, new.on_conflict_do_update(index_elements=["name"], set_=values))


def _due(rows: Iterable[Any]) -> tuple[tuple[Group, ...], int]:
    all_rows = list(rows)
    return tuple(read(Group, row) for row in all_rows if row.due), sum(row.calls for row in all_rows if not row.due)


async def _paces(connection: AsyncConnection) -> tuple[MeasuredRtfx, ...]:
    rows = await connection.execute(sa.select(paces).order_by(paces.c.stage, paces.c.channels))
    return tuple(read(MeasuredRtfx, row) for row in rows)


async def _engines(connection: AsyncConnection) -> tuple[ReplicaState, ...]:
    rows = await connection.execute(sa.select(engines).order_by(engines.c.name))
    return tuple(read(ReplicaState, row) for row in rows)


async def team_queues(database: Database, reader: Reader) -> list[TeamQueue]:
    """Return the queue of each team of the reader's workspace by name; a team without jobs is listed with zeros."""
    count = sa.func.count()
    waits = jobs.c.state.in_(WAITING)
    query = (
        sa.select(
            teams.c.id.label("team_id"),
            teams.c.name.label("team"),
            *(count.filter(jobs.c.state == state).label(state) for state in LIVE_STATES),
            count.filter(waits, jobs.c.not_before > sa.func.now()).label("later"),
            sa.func.coalesce(sa.func.sum(jobs.c.audio_seconds), 0.0).label("audio_seconds"),
            sa.func.min(jobs.c.queued_at).filter(waits).label("oldest"),
        )
        .select_from(teams.outerjoin(jobs, sa.and_(jobs.c.team_id == teams.c.id, in_states())))
        .where(teams.c.workspace_id == reader.workspace_id)
        .group_by(teams.c.id, teams.c.name)
        .order_by(teams.c.name)
    )
    return [read(TeamQueue, row) for row in await database.rows(reader, query, snapshot=True)]
