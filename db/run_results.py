"""What runs made of calls, for readers: beside the calls' records, page by page."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from db import edits as corrected
from db.database import Database, Scope
from db.reading import Page, Place
from db.rows import read
from db.tables import call_search, calls, corrections, edits, findings, members, run_calls, transcripts
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
    """A call with what the service's record says and what the run says.

    `live`: what the machine heard, without what people corrected; None where the record is of another recording now.
    `live_findings`: those of the record. `corrected`: whether people corrected the call.
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
    async with database.transaction(scope) as connection:
        rows = (await connection.execute(query)).all()
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


async def compared(database: Database, scope: Scope, run_id: UUID) -> AsyncIterator[Compared]:
    """Each call of a run that is done, beside its record, in the order of their work; `PAGE` in a transaction."""
    last = 0
    while True:
        async with database.transaction(scope, snapshot=True) as connection:
            some = await _compared(connection, run_id, last)
        for _, one in some:
            yield one
        if len(some) < PAGE:
            return
        last = some[-1][0]


async def _compared(connection: AsyncConnection, run_id: UUID, behind: int) -> list[tuple[int, Compared]]:
    mine = sa.and_(run_calls.c.run_id == run_id, run_calls.c.state == "done", run_calls.c.call_pk > behind)
    rows = (await connection.execute(_COMPARED.where(mine).order_by(run_calls.c.call_pk).limit(PAGE))).all()
    records = await _findings(connection, [row.call_pk for row in rows])
    made = []
    for row in rows:
        live, steps = row.live, records.get(row.call_pk, ())
        if row.former is not None:  # promoted: what is compared with is what it replaced
            live, steps = row.former["transcript"]["content"], _FINDINGS.validate_python(row.former["findings"])
        one = read(
            Compared,
            row,
            live=None if live is None else _TRANSCRIPT.validate_python(live),
            live_findings=() if live is None else steps,
            run=_TRANSCRIPT.validate_python(row.transcript),
            run_findings=_FINDINGS.validate_python(row.findings),
            run_warnings=tuple(row.warnings),
        )
        made.append((row.call_pk, one))
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
_COMPARED: sa.Select[Any] = (
    sa.select(
        run_calls.c.call_pk,
        *(calls.c[name] for name in ("call_id", "start_time")),
        members.c.name.label("agent"),
        sa.exists(sa.select(1).where(edits.c.call_pk == calls.c.id, edits.c.undone_at.is_(None))).label("corrected"),
        transcripts.c.content.label("live"),
        *(run_calls.c[name] for name in ("transcript", "findings", "warnings", "former", "engine", "digest")),
        *(run_calls.c[name] for name in ("audio_seconds", "seconds")),
    )
    .join(calls, calls.c.id == run_calls.c.call_pk)
    .outerjoin(transcripts, _CURRENT)
    .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
    .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
    .outerjoin(members, sa.and_(members.c.workspace_id == calls.c.workspace_id, members.c.user_id == corrected.AGENT))
)
