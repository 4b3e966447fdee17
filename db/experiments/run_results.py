import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Scope
from db.core.pages import Page, Place
from db.core.rows import read
from db.core.tables import call_search, calls, corrections, edits, findings, gold_calls, members, run_calls, transcripts
from db.records.corrected_columns import AGENT
from db.secrets import call_keys
from db.secrets.call_keys import CallKeys
from pipeline.domain.insight import Evidence, Finding
from pipeline.domain.speech import Transcript

PAGE = 100  # calls in one transaction of a reader

_TRANSCRIPT = TypeAdapter(Transcript)
_FINDINGS = TypeAdapter(tuple[Finding, ...])
_EVIDENCE = TypeAdapter(tuple[Evidence, ...])


@dataclass(frozen=True, slots=True)
class RunCall:
    """A call of a run with its state and cost."""

    call_id: UUID
    state: str  # waiting, running, done, failed, canceled
    engine: str | None
    digest: str | None  # SHA-256 of transcript and findings
    audio_seconds: float | None
    seconds: dict[str, float] | None  # of work, by stage; missing stages were recalled
    error_code: str | None
    error_message: str | None
    started_at: datetime | None
    finished_at: datetime | None
    promoted: bool  # its record is this run's


@dataclass(frozen=True, slots=True)
class Compared:
    """A call with a run's result and the live record, or another run's result.

    `live`: the machine's transcript without users' corrections; None if it is of another recording now.
    `live_findings`, `live_seconds`: its findings, and processing time if it is another run. `corrected`: whether users
    corrected the call.
    """

    call_id: UUID
    agent: str | None  # the member's name
    start_time: datetime
    corrected: bool
    live: Transcript | None
    live_findings: tuple[Finding, ...]
    run: Transcript
    run_findings: tuple[Finding, ...]
    run_warnings: tuple[str, ...]
    engine: str
    digest: str
    audio_seconds: float
    seconds: dict[str, float]  # of work, by stage
    live_seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run's result of one call."""

    call: RunCall
    transcript: Transcript | None
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]


async def list_calls(
    database: Database,
    scope: Scope,
    run_id: UUID,
    state: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[RunCall]:
    """Return the calls of a run in processing order. Raises `pages.InvalidCursor`."""
    filters = (str(run_id), state)
    place = Place.decode(cursor, filters, str)
    query = _CALLS.where(run_calls.c.run_id == run_id).order_by(run_calls.c.call_pk).limit(limit + 1)
    if state is not None:
        query = query.where(run_calls.c.state == state)
    if place is not None:
        query = query.where(run_calls.c.call_pk > place.row)
    rows = await database.rows(scope, query)
    next_cursor = Place("", rows[limit - 1].call_pk).encode(filters) if len(rows) > limit else None
    return Page(tuple(read(RunCall, row) for row in rows[:limit]), next_cursor)


async def show(database: Database, scope: Scope, run_id: UUID, call_id: UUID) -> RunResult | None:
    """Return a run's result of one call; None if the call is not of the run."""
    query = _CALLS.add_columns(*(run_calls.c[name] for name in ("transcript", "findings", "warnings")))
    row = await database.first(scope, query.where(run_calls.c.run_id == run_id, calls.c.call_id == call_id))
    if row is None:
        return None
    transcript = None if row.transcript is None else _TRANSCRIPT.validate_python(row.transcript)
    run_findings = _FINDINGS.validate_python(row.findings or ())
    return RunResult(read(RunCall, row), transcript, run_findings, tuple(row.warnings or ()))


async def count_compared(
    database: Database, scope: Scope, run_id: UUID, other_id: UUID | None = None, set_id: UUID | None = None
) -> int:
    """Return how many calls `compared` yields."""
    query = sa.select(sa.func.count()).select_from(run_calls).where(*_conditions(run_id, other_id, set_id))
    (count,) = await database.column(scope, query)
    return int(count)


async def compared(
    database: Database,
    scope: Scope,
    run_id: UUID,
    other_id: UUID | None = None,
    set_id: UUID | None = None,
    limit: int | None = None,
) -> AsyncIterator[Compared]:
    """Yield each finished call of a run in processing order, with its record; `PAGE` in a transaction.

    `other_id`: another run, on calls finished in both. `set_id`: only calls of a gold set. `limit`: the first calls.
    """
    query = _COMPARED.where(*_conditions(run_id, other_id, set_id)).order_by(run_calls.c.call_pk)
    last, remaining, keys = 0, limit, call_keys.of(database)
    while remaining is None or remaining > 0:
        size = PAGE if remaining is None else min(PAGE, remaining)
        async with database.transaction(scope, snapshot=True) as connection:
            page = query.where(run_calls.c.call_pk > last).limit(size)
            rows = (await connection.execute(page, {"other": other_id})).all()
            records = await _findings(connection, [row.call_pk for row in rows])
        for comparison in await asyncio.to_thread(_comparisons, rows, records, other_id is not None, keys):
            yield comparison
        if len(rows) < size:
            return
        last, remaining = rows[-1].call_pk, None if remaining is None else remaining - size


def _conditions(run_id: UUID, other_id: UUID | None, set_id: UUID | None) -> list[sa.ColumnElement[bool]]:
    conditions = [run_calls.c.run_id == run_id, run_calls.c.state == "done"]
    if other_id is not None:
        in_other_run = sa.and_(
            _OTHER.c.call_pk == run_calls.c.call_pk, _OTHER.c.run_id == other_id, _OTHER.c.state == "done"
        )
        conditions.append(sa.exists(sa.select(1).where(in_other_run).correlate(run_calls)))
    if set_id is not None:
        in_gold_set = sa.and_(gold_calls.c.call_pk == run_calls.c.call_pk, gold_calls.c.set_id == set_id)
        conditions.append(sa.exists(sa.select(1).where(in_gold_set).correlate(run_calls)))
    return conditions


def _comparisons(
    rows: Sequence[sa.Row[Any]], records: dict[int, tuple[Finding, ...]], runs: bool, keys: CallKeys
) -> list[Compared]:
    """Parse the rows; runs in a thread, since it is much JSON."""
    comparisons = []
    for row in rows:
        live, steps = keys.open(row.live), records.get(row.call_pk, ())
        seconds: dict[str, float] = {}
        if runs:
            live = row.other_transcript if row.other_job == row.job_id else None
            steps, seconds = _FINDINGS.validate_python(row.other_findings or ()), row.other_seconds or {}
        elif row.former is not None:  # promoted: compare with the record that it replaced
            live, steps = keys.open(row.former_transcript), _FINDINGS.validate_python(row.former["findings"])
        comparison = read(
            Compared,
            row,
            live=None if live is None else _TRANSCRIPT.validate_python(live),
            live_findings=() if live is None else steps,
            live_seconds=seconds,
            run=_TRANSCRIPT.validate_python(row.transcript),
            run_findings=_FINDINGS.validate_python(row.findings),
            run_warnings=tuple(row.warnings),
        )
        comparisons.append(comparison)
    return comparisons


async def _findings(connection: AsyncConnection, call_pks: list[int]) -> dict[int, tuple[Finding, ...]]:
    query = (
        sa.select(findings).where(findings.c.call_pk.in_(call_pks)).order_by(findings.c.call_pk, findings.c.position)
    )
    findings_by_call: dict[int, tuple[Finding, ...]] = {}
    for row in await connection.execute(query):
        finding = read(Finding, row, evidence=_EVIDENCE.validate_python(row.evidence))
        findings_by_call[row.call_pk] = (*findings_by_call.get(row.call_pk, ()), finding)
    return findings_by_call


_COLUMNS = ("state", "engine", "digest", "audio_seconds", "seconds", "error_code", "error_message")
_CALLS: sa.Select[Any] = sa.select(
    run_calls.c.call_pk,
    calls.c.call_id,
    *(run_calls.c[name] for name in _COLUMNS),
    *(run_calls.c[name] for name in ("started_at", "finished_at")),
    run_calls.c.former.is_not(None).label("promoted"),
).join(calls, calls.c.id == run_calls.c.call_pk)

_CURRENT = sa.and_(transcripts.c.call_pk == run_calls.c.call_pk, transcripts.c.job_id == run_calls.c.job_id)
_OTHER = run_calls.alias("other")
_FORMER = run_calls.c.former["transcript"]["content"]
_COMPARED: sa.Select[Any] = (
    sa.select(
        run_calls.c.call_pk,
        *(calls.c[name] for name in ("call_id", "start_time")),
        members.c.name.label("agent"),
        sa.exists(sa.select(1).where(edits.c.call_pk == calls.c.id, edits.c.undone_at.is_(None))).label("corrected"),
        call_keys.readable(transcripts.c.content, transcripts.c.call_pk).label("live"),
        call_keys.readable(_FORMER, run_calls.c.call_pk).label("former_transcript"),
        *(run_calls.c[name] for name in ("transcript", "findings", "warnings", "former", "engine", "digest")),
        *(run_calls.c[name] for name in ("audio_seconds", "seconds", "job_id")),
        *(_OTHER.c[name].label(f"other_{name}") for name in ("transcript", "findings", "seconds")),
        _OTHER.c.job_id.label("other_job"),
    )
    .join(calls, calls.c.id == run_calls.c.call_pk)
    .outerjoin(transcripts, _CURRENT)
    .outerjoin(
        _OTHER,
        sa.and_(
            _OTHER.c.call_pk == run_calls.c.call_pk,
            _OTHER.c.run_id == sa.bindparam("other", type_=_OTHER.c.run_id.type),
        ),
    )
    .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
    .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
    .outerjoin(members, sa.and_(members.c.workspace_id == calls.c.workspace_id, members.c.user_id == AGENT))
)
