"""What runs made of calls, for readers: beside the calls' records, page by page."""

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
from db.core.tables import (
    call_search,
    calls,
    corrections,
    edits,
    findings,
    gold_calls,
    members,
    run_calls,
    transcripts,
)
from db.records import corrections as corrected
from pipeline.domain.insight import Evidence, Finding
from pipeline.domain.speech import Transcript

PAGE = 100  # calls in one transaction of a reader

_TRANSCRIPT = TypeAdapter(Transcript)
_FINDINGS = TypeAdapter(tuple[Finding, ...])
_EVIDENCE = TypeAdapter(tuple[Evidence, ...])


@dataclass(frozen=True, slots=True)
class RunCall:
    """A call of a run: how far it is, and what it took."""

    call_id: UUID
    state: str  # waiting, running, done, failed, canceled
    engine: str | None
    digest: str | None  # SHA-256 of transcript and findings
    audio_seconds: float | None
    seconds: dict[str, float] | None  # of work, by stage; stages that are not there were recalled
    error_code: str | None
    error_message: str | None
    started_at: datetime | None
    finished_at: datetime | None
    promoted: bool  # its record is this run's


@dataclass(frozen=True, slots=True)
class Compared:
    """A call with what a run says, and what the service's record, or another run, says.

    `live`: what the machine heard, without what people corrected; None where it is of another recording now.
    `live_findings`, `live_seconds`: its findings, and the work on it where it is another run. `corrected`: whether
    people corrected the call.
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
    """What a run made of one call."""

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
    """The calls of a run, in the order of their work. Raises `reading.InvalidCursor`."""
    wanted = (str(run_id), state)
    place = Place.decode(cursor, wanted, str)
    query = _CALLS.where(run_calls.c.run_id == run_id).order_by(run_calls.c.call_pk).limit(limit + 1)
    if state is not None:
        query = query.where(run_calls.c.state == state)
    if place is not None:
        query = query.where(run_calls.c.call_pk > place.row)
    rows = await database.rows(scope, query)
    more = Place("", rows[limit - 1].call_pk).encode(wanted) if len(rows) > limit else None
    return Page(tuple(read(RunCall, row) for row in rows[:limit]), more)


async def show(database: Database, scope: Scope, run_id: UUID, call_id: UUID) -> RunResult | None:
    """What a run made of one call; None where the call is not of the run."""
    query = _CALLS.add_columns(*(run_calls.c[name] for name in ("transcript", "findings", "warnings")))
    async with database.transaction(scope) as connection:
        row = (await connection.execute(query.where(run_calls.c.run_id == run_id, calls.c.call_id == call_id))).first()
    if row is None:
        return None
    said = None if row.transcript is None else _TRANSCRIPT.validate_python(row.transcript)
    found = _FINDINGS.validate_python(row.findings or ())
    return RunResult(read(RunCall, row), said, found, tuple(row.warnings or ()))


async def count_compared(
    database: Database, scope: Scope, run_id: UUID, other_id: UUID | None = None, set_id: UUID | None = None
) -> int:
    """How many calls `compared` yields."""
    query = sa.select(sa.func.count()).select_from(run_calls).where(*_which(run_id, other_id, set_id))
    async with database.transaction(scope) as connection:
        return int(await connection.scalar(query) or 0)


async def compared(
    database: Database,
    scope: Scope,
    run_id: UUID,
    other_id: UUID | None = None,
    set_id: UUID | None = None,
    most: int | None = None,
) -> AsyncIterator[Compared]:
    """Each call of a run that is done, in the order of their work; `PAGE` in a transaction.

    Beside its record, or what another run made of it (`other_id`; calls that are done in both). `set_id`: calls of a
    gold set. `most`: the first ones.
    """
    query = _COMPARED.where(*_which(run_id, other_id, set_id)).order_by(run_calls.c.call_pk)
    last, left = 0, most
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        async with database.transaction(scope, snapshot=True) as connection:
            some = query.where(run_calls.c.call_pk > last).limit(size)
            rows = (await connection.execute(some, {"other": other_id})).all()
            records = await _findings(connection, [row.call_pk for row in rows])
        for one in await asyncio.to_thread(_built, rows, records, other_id is not None):
            yield one
        if len(rows) < size:
            return
        last, left = rows[-1].call_pk, None if left is None else left - size


def _which(run_id: UUID, other_id: UUID | None, set_id: UUID | None) -> list[sa.ColumnElement[bool]]:
    wanted = [run_calls.c.run_id == run_id, run_calls.c.state == "done"]
    if other_id is not None:
        same = sa.and_(_OTHER.c.call_pk == run_calls.c.call_pk, _OTHER.c.run_id == other_id, _OTHER.c.state == "done")
        wanted.append(sa.exists(sa.select(1).where(same).correlate(run_calls)))
    if set_id is not None:
        known = sa.and_(gold_calls.c.call_pk == run_calls.c.call_pk, gold_calls.c.set_id == set_id)
        wanted.append(sa.exists(sa.select(1).where(known).correlate(run_calls)))
    return wanted


def _built(rows: Sequence[sa.Row[Any]], records: dict[int, tuple[Finding, ...]], runs: bool) -> list[Compared]:
    """Much JSON: not for the event loop."""
    made = []
    for row in rows:
        live, steps = row.live, records.get(row.call_pk, ())
        seconds: dict[str, float] = {}
        if runs:
            live = row.other_transcript if row.other_job == row.job_id else None
            steps, seconds = _FINDINGS.validate_python(row.other_findings or ()), row.other_seconds or {}
        elif row.former is not None:  # promoted: what is compared with is what it replaced
            live, steps = row.former["transcript"]["content"], _FINDINGS.validate_python(row.former["findings"])
        one = read(
            Compared,
            row,
            live=None if live is None else _TRANSCRIPT.validate_python(live),
            live_findings=() if live is None else steps,
            live_seconds=seconds,
            run=_TRANSCRIPT.validate_python(row.transcript),
            run_findings=_FINDINGS.validate_python(row.findings),
            run_warnings=tuple(row.warnings),
        )
        made.append(one)
    return made


async def _findings(connection: AsyncConnection, call_pks: list[int]) -> dict[int, tuple[Finding, ...]]:
    query = (
        sa.select(findings).where(findings.c.call_pk.in_(call_pks)).order_by(findings.c.call_pk, findings.c.position)
    )
    found: dict[int, tuple[Finding, ...]] = {}
    for row in await connection.execute(query):
        one = read(Finding, row, evidence=_EVIDENCE.validate_python(row.evidence))
        found[row.call_pk] = (*found.get(row.call_pk, ()), one)
    return found


_SHOWN = ("state", "engine", "digest", "audio_seconds", "seconds", "error_code", "error_message")
_CALLS: sa.Select[Any] = sa.select(
    run_calls.c.call_pk,
    calls.c.call_id,
    *(run_calls.c[name] for name in _SHOWN),
    *(run_calls.c[name] for name in ("started_at", "finished_at")),
    run_calls.c.former.is_not(None).label("promoted"),
).join(calls, calls.c.id == run_calls.c.call_pk)

_CURRENT = sa.and_(transcripts.c.call_pk == run_calls.c.call_pk, transcripts.c.job_id == run_calls.c.job_id)
_OTHER = run_calls.alias("other")
_COMPARED: sa.Select[Any] = (
    sa.select(
        run_calls.c.call_pk,
        *(calls.c[name] for name in ("call_id", "start_time")),
        members.c.name.label("agent"),
        sa.exists(sa.select(1).where(edits.c.call_pk == calls.c.id, edits.c.undone_at.is_(None))).label("corrected"),
        transcripts.c.content.label("live"),
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
    .outerjoin(members, sa.and_(members.c.workspace_id == calls.c.workspace_id, members.c.user_id == corrected.AGENT))
)
