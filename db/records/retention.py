"""Retention: periods in days by workspace and team, and the deletion of what is due, in batches.

A period begins with the first submission of a call. What is due follows from the rows that are stored, so a batch that
is rolled back is found again. Calls that are being processed, and calls on legal hold, stay.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.tables import retention_passes, retention_periods, teams
from db.queue.jobs import VOICES
from db.records import erase, ledger
from db.records.erase import CallHeld, CallNotFound, release_voices
from db.workspace.admin_log import Actor, changing
from db.workspace.directory import NoSuchTeam
from db.workspace.removal import ERASURE
from pipeline.domain.voices import VoicePolicy

MAX_DAYS = 36_500
BATCH_SECONDS = 60.0  # limit of a transaction
LEASE_SECONDS = 600.0  # for the erasure of the calls of a batch


class RetentionKind(StrEnum):
    """What has a retention period. `CALLS`: erasure of the whole call."""

    RECORDINGS = "recordings"
    TRANSCRIPTS = "transcripts"  # with findings, corrections and everything else that quotes the talk
    VOICEPRINTS = "voiceprints"
    SUBMISSIONS = "submissions"
    EVENTS = "events"
    ACCESS_LOG = "access_log"
    CALLS = "calls"


class PeriodRefused(ValueError):
    """A team has no such period."""


@dataclass(frozen=True, slots=True)
class RetentionPeriod:
    """Days after which content is deleted. `team_id`: None for teams without a period of this kind."""

    kind: RetentionKind
    team_id: UUID | None
    days: int


@dataclass(frozen=True, slots=True)
class DueContent:
    """Calls that a period applies to: how many are due now, and on hold instead; the oldest; when the next is due."""

    kind: RetentionKind
    team_id: UUID | None
    days: int
    due: int
    on_hold: int
    oldest: datetime | None
    next_due: datetime | None


@dataclass(frozen=True, slots=True)
class _Content:
    """A kind: whether call `c` has any of it, in SQL, and what follows DELETE FROM each table for the calls `:ids`."""

    stored: str
    deletions: Mapping[str, str]
    after: tuple[str, ...] = ()  # statements for the calls `:ids`


# As in the sweep of old events: an endpoint that is disabled gets nothing.
_UNSENT = """EXISTS (
    SELECT FROM webhook_deliveries d JOIN webhook_endpoints w ON w.id = d.endpoint_id
    WHERE d.event_id = e.id AND d.state IN ('waiting', 'behind', 'sending') AND w.disabled_at IS NULL
)"""
_OLD_EVENTS = f"e.call_pk = p.id AND e.at < now() - make_interval(days => p.days) AND NOT {_UNSENT}"
_OLD_READS = """r.call_id = c.call_id AND r.workspace_id = c.workspace_id
    AND r.hour < now() - make_interval(days => p.days)"""
_DUE = "unnest(CAST(:ids AS bigint[]), CAST(:days AS integer[])) AS p (id, days)"
_MARK = "UPDATE calls SET updated_at = now(), {} WHERE id = ANY (:ids)"
_WORDS = (
    *("task_marks", "tasks", "edits", "corrections", "findings", "transcripts", "stage_results", "call_search"),
    *("call_outcomes", "passages_due", "call_passages", "gold_calls", "run_calls", "calibration_calls"),
    "unredacted_words",
)


def _any_of(*tables: str) -> str:
    return " OR ".join(f"EXISTS (SELECT FROM {table} WHERE {table}.call_pk = c.id)" for table in tables)


def _of_calls(*tables: str, condition: str = "true") -> dict[str, str]:
    return dict.fromkeys(tables, f"WHERE call_pk = ANY (:ids) AND {condition}")


_VOICE_STAGE = f"stage IN ({', '.join(repr(str(stage)) for stage in VOICES)})"
_CONTENT: Mapping[RetentionKind, _Content] = {
    RetentionKind.RECORDINGS: _Content(
        _any_of("recordings", "unredacted_recordings", "waveforms"),
        _of_calls("recordings", "unredacted_recordings", "waveforms"),
        (_MARK.format("recordings_expired = job_id"),),
    ),
    RetentionKind.TRANSCRIPTS: _Content(
        "c.state = 'completed' AND c.content_expired IS DISTINCT FROM c.job_id OR "
        + _any_of("transcripts", "stage_results", "run_calls", "gold_calls", "unredacted_words"),
        _of_calls(*_WORDS)
        | {"events": f"e WHERE call_pk = ANY (:ids) AND num_nonnulls(record, transcript) > 0 AND NOT {_UNSENT}"},
        (_MARK.format("content_expired = job_id, raised = '{}'"), "SELECT index_numbers(CAST(:ids AS bigint[]))"),
    ),
    RetentionKind.VOICEPRINTS: _Content(
        f"{_any_of('voiceprints')} OR EXISTS (SELECT FROM stage_results WHERE call_pk = c.id AND {_VOICE_STAGE})",
        _of_calls("voiceprints", "voiceprint_events") | _of_calls("stage_results", condition=_VOICE_STAGE),
    ),
    RetentionKind.SUBMISSIONS: _Content(_any_of("submissions"), _of_calls("submissions")),
    RetentionKind.EVENTS: _Content(
        f"EXISTS (SELECT FROM events e WHERE {_OLD_EVENTS})", {"events": f"e USING {_DUE} WHERE {_OLD_EVENTS}"}
    ),
    RetentionKind.ACCESS_LOG: _Content(
        f"EXISTS (SELECT FROM reads r WHERE {_OLD_READS})",
        {},  # see access_log.sweep: hours that are chained are deleted as a whole
    ),
    RetentionKind.CALLS: _Content("true", {}),
}

# The period of each call: its team's, else its workspace's.
_PERIODS = """
    calls c LEFT JOIN retention_periods own ON own.team_id = c.team_id AND own.kind = :kind
    LEFT JOIN retention_periods common
        ON common.workspace_id = c.workspace_id AND common.team_id IS NULL AND common.kind = :kind
    CROSS JOIN LATERAL (
        SELECT c.id, own.team_id, coalesce(own.days, common.days) AS days
    ) AS p
"""
_AT_REST = """c.state <> 'transcribing'
    AND NOT EXISTS (
        SELECT FROM jobs j WHERE j.call_pk = c.id AND j.state IN ('fetching', 'queued', 'running')
    )
    AND NOT EXISTS (SELECT FROM run_calls x WHERE x.call_pk = c.id AND x.state IN ('waiting', 'running'))
"""
_IS_DUE = "c.created_at < now() - make_interval(days => p.days)"

_NEXT_WINDOW = sa.text("""
    SELECT max(id) AS last, coalesce(min(created_at) < now() - make_interval(days => :days), false) AS has_old
    FROM (SELECT id, created_at FROM calls WHERE id > :reached ORDER BY id LIMIT :window) AS calls
""")
_FIND = {
    kind: sa.text(f"""
        SELECT c.id, c.workspace_id, c.call_id, p.days, call_digest(c.workspace_id, c.call_id) AS digest FROM {_PERIODS}
        WHERE c.id > :reached AND c.id <= :last AND {_IS_DUE} AND {_AT_REST} AND ({content.stored})
            AND NOT is_on_hold(c)
        ORDER BY c.id LIMIT :batch FOR NO KEY UPDATE OF c SKIP LOCKED
    """)  # noqa: S608 (of constants)
    for kind, content in _CONTENT.items()
}
_STATUS = {
    kind: sa.text(f"""
        SELECT count(*) FILTER (WHERE due AND NOT on_hold), count(*) FILTER (WHERE due AND on_hold),
            min(created_at), min(due_at) FILTER (WHERE NOT due)
        FROM (
            SELECT c.created_at, c.created_at + make_interval(days => p.days) AS due_at, {_IS_DUE} AS due,
                CASE WHEN {_IS_DUE} THEN is_on_hold(c) END AS on_hold
            FROM {_PERIODS} WHERE c.workspace_id = :workspace AND p.team_id IS NOT DISTINCT FROM CAST(:team AS uuid)
                AND {_AT_REST} AND ({content.stored})
        ) AS stored
    """)  # noqa: S608 (of constants)
    for kind, content in _CONTENT.items()
}


async def set_period(
    database: Database,
    workspace_id: UUID,
    kind: RetentionKind,
    days: int | None,
    team_id: UUID | None = None,
    by: Actor | None = None,
) -> None:
    """Set the period of a workspace or team, up to `MAX_DAYS`.

    None removes it: a team then has that of its workspace. Raises `NoSuchTeam`, `PeriodRefused`, errors of `changing`.
    """
    of_scope = sa.and_(
        retention_periods.c.workspace_id == workspace_id,
        retention_periods.c.kind == kind,
        retention_periods.c.team_id.is_not_distinct_from(team_id),
    )
    if kind is RetentionKind.ACCESS_LOG and team_id is not None:
        raise PeriodRefused("the access log has one period for the workspace")
    async with changing(database, workspace_id, by) as change:
        is_team = sa.and_(teams.c.workspace_id == workspace_id, teams.c.id == team_id)
        if team_id is not None and not await change.run(sa.select(teams.c.id).where(is_team)):
            raise NoSuchTeam(f"no team {team_id}")
        await change.run(sa.delete(retention_periods).where(of_scope))
        if days is not None:
            values = {"workspace_id": workspace_id, "team_id": team_id, "kind": kind, "days": days}
            await change.run(sa.insert(retention_periods).values(values))
        shown = "no period" if days is None else f"{days} days"
        await change.note("changed", "retention", team_id or workspace_id, kind, shown, team_id)


async def list_periods(database: Database, workspace_id: UUID) -> list[RetentionPeriod]:
    """Return the periods of a workspace and its teams; what has none is stored without limit."""
    query = sa.select(retention_periods).where(retention_periods.c.workspace_id == workspace_id)
    rows = await database.rows(workspace_id, query.order_by("kind", sa.nulls_first(retention_periods.c.team_id)))
    return [RetentionPeriod(RetentionKind(row.kind), row.team_id, row.days) for row in rows]


async def is_unlimited(database: Database) -> bool:
    """Return whether a workspace has a period neither for recordings nor for calls."""
    query = sa.text("""
        SELECT FROM workspaces w WHERE NOT EXISTS (
            SELECT FROM retention_periods p WHERE p.workspace_id = w.id AND p.kind IN ('recordings', 'calls')
        ) LIMIT 1
    """)
    return bool(await database.rows(EVERY_WORKSPACE, query))


async def status(database: Database, workspace_id: UUID) -> list[DueContent]:
    """Return what each period of a workspace applies to. Counts all its calls, which takes a while."""
    result = []
    for period in await list_periods(database, workspace_id):
        values = {"kind": period.kind, "workspace": workspace_id, "team": period.team_id}
        row = await database.first(workspace_id, _STATUS[period.kind], values)
        result.append(DueContent(period.kind, period.team_id, period.days, *row))
    return result


_BEGIN = sa.text(
    "INSERT INTO retention_passes (kind) SELECT DISTINCT kind FROM retention_periods WHERE kind <> 'access_log'"
    " ON CONFLICT DO NOTHING"
)

# A Conductor that is killed leaves no lock.
_CLAIM = sa.text("""
    SELECT t.kind, t.reached, periods.days
    FROM retention_passes t JOIN (SELECT kind, min(days) AS days FROM retention_periods GROUP BY kind) AS periods
        ON periods.kind = t.kind
    WHERE t.next_try <= now()
    ORDER BY t.next_try LIMIT 1 FOR UPDATE OF t SKIP LOCKED
""")


async def expire(
    database: Database, policy: VoicePolicy, batch: int, window: int, pause: float, poll: float
) -> int | None:
    """Delete what is due of up to `batch` of the next `window` calls; return of how many.

    None: no kind is due, or other processes work on it. The kind is due again after `pause` seconds, or after `poll` if
    all calls have been searched. `policy` computes the profiles of members without the deleted voices.
    """
    async with database.transaction(EVERY_WORKSPACE, seconds=BATCH_SECONDS) as connection:
        await connection.execute(_BEGIN)
        claimed = (await connection.execute(_CLAIM)).one_or_none()
        if claimed is None:
            return None
        kind = RetentionKind(claimed.kind)
        due, reached = await _find(connection, kind, claimed, batch, window)
        is_done = reached is None
        if kind is not RetentionKind.CALLS or is_done or not due:
            await _delete(connection, kind, due, policy)
            await _note_pass(connection, kind, reached or 0, poll if is_done else pause)
            return len(due)
        await _note_pass(connection, kind, claimed.reached, LEASE_SECONDS)
    erased = [call for call in due if await _erase(database, call, policy)]
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await _note_pass(connection, kind, reached or 0, pause)
    return len(erased)


async def _find(
    connection: AsyncConnection, kind: RetentionKind, claimed: sa.Row[Any], batch: int, window: int
) -> tuple[Sequence[sa.Row[Any]], int | None]:
    """Lock and return due calls, and the last call that has been searched; None: no later one can be due."""
    values = {"reached": claimed.reached, "days": claimed.days, "window": window}
    next_calls = (await connection.execute(_NEXT_WINDOW, values)).one()
    if not next_calls.has_old:
        return [], None
    values = {"kind": kind, "reached": claimed.reached, "last": next_calls.last, "batch": batch}
    due = (await connection.execute(_FIND[kind], values)).all()
    return due, due[-1].id if len(due) == batch else next_calls.last


async def _delete(
    connection: AsyncConnection, kind: RetentionKind, due: Sequence[sa.Row[Any]], policy: VoicePolicy
) -> None:
    """Delete the content of calls, with an entry in the ledger of each workspace."""
    by_workspace = defaultdict[UUID, list[sa.Row[Any]]](list)
    for call in due:
        by_workspace[call.workspace_id].append(call)
    await connection.execute(ERASURE)
    counts: dict[UUID, dict[str, int]] = {}
    for workspace_id, of_workspace in sorted(by_workspace.items()):
        values = {"ids": [call.id for call in of_workspace], "days": [call.days for call in of_workspace]}
        if kind is RetentionKind.VOICEPRINTS:
            await release_voices(connection, workspace_id, values["ids"], policy)
        counts[workspace_id] = {
            table: (await connection.execute(sa.text(f"DELETE FROM {table} {rest}"), values)).rowcount  # noqa: S608
            for table, rest in _CONTENT[kind].deletions.items()
        }
        for statement in _CONTENT[kind].after:
            await connection.execute(sa.text(statement), values)
    for workspace_id, deleted in counts.items():
        present = {table: count for table, count in deleted.items() if count}
        digests = [bytes(call.digest) for call in by_workspace[workspace_id]]
        author = ledger.RETENTION.name
        await ledger.append(connection, workspace_id, "retention", author, present, digests, what=kind)


async def _erase(database: Database, call: sa.Row[Any], policy: VoicePolicy) -> bool:
    try:
        await erase.erase_call(database, call.workspace_id, call.call_id, policy, ledger.RETENTION)
    except (CallHeld, CallNotFound):  # since it was searched
        return False
    return True


async def _note_pass(connection: AsyncConnection, kind: RetentionKind, reached: int, seconds: float) -> None:
    later = sa.func.clock_timestamp() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    change = sa.update(retention_passes).where(retention_passes.c.kind == kind)
    await connection.execute(change.values(reached=reached, next_try=later))
