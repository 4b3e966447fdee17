"""Promotes a run's results to the calls' records, and rolls them back, each in one transaction.

The former record is stored with the run as it was, and restored exactly. Users' edits apply to the present transcript.
Voice profiles use live results only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.tables import calls, run_calls, transcripts
from db.experiments import runs
from db.records import corrections, event_record, write
from db.workspace.admin_log import Actor, changing
from pipeline.domain.call import CallState
from pipeline.domain.insight import Finding
from pipeline.domain.speech import Transcript

SECONDS = 240.0  # for the largest run: writing a call takes 10 to 15 ms under other load
FAILED = "the run has no result of it"
REPLACED = "it has another recording now"
CHANGED = "its data changed since the run analyzed it"

_TRANSCRIPT = TypeAdapter(Transcript)
_FINDINGS = TypeAdapter(tuple[Finding, ...])

# The stored record of a call, to be restored without reformatting numbers and times.
_KEEP_FORMER = sa.text("""
    UPDATE run_calls SET promoted_at = now(), former = (
        SELECT jsonb_build_object(
            'transcript', to_jsonb(t),
            'findings', (SELECT coalesce(jsonb_agg(to_jsonb(f) ORDER BY f.position), '[]')
                FROM findings f WHERE f.call_pk = t.call_pk),
            'tasks', (SELECT coalesce(jsonb_agg(to_jsonb(k) ORDER BY k.position), '[]')
                FROM tasks k WHERE k.call_pk = t.call_pk),
            'contacts', (SELECT coalesce(jsonb_agg(l.contact_id), '[]')
                FROM call_contacts l WHERE l.call_pk = t.call_pk),
            'warnings', to_jsonb(c.warnings), 'analysis_warnings', to_jsonb(c.analysis_warnings),
            'promoted_run', c.promoted_run
        ) FROM transcripts t JOIN calls c ON c.id = t.call_pk WHERE t.call_pk = :call
    ) WHERE run_id = :run AND call_pk = :call
""")
_RESTORE = tuple(
    sa.text(statement)
    for statement in (
        "DELETE FROM transcripts WHERE call_pk = :call",
        "DELETE FROM findings WHERE call_pk = :call",
        "DELETE FROM tasks WHERE call_pk = :call",
        "DELETE FROM call_contacts WHERE call_pk = :call",
        "INSERT INTO transcripts SELECT (jsonb_populate_record(CAST(NULL AS transcripts), r.former -> 'transcript')).*"
        " FROM run_calls r WHERE r.run_id = :run AND r.call_pk = :call",
        "INSERT INTO findings SELECT (jsonb_populate_recordset(CAST(NULL AS findings), r.former -> 'findings')).*"
        " FROM run_calls r WHERE r.run_id = :run AND r.call_pk = :call",
        "INSERT INTO tasks SELECT (jsonb_populate_recordset(CAST(NULL AS tasks), r.former -> 'tasks')).*"
        " FROM run_calls r WHERE r.run_id = :run AND r.call_pk = :call",
        "INSERT INTO call_contacts SELECT :call, k.id FROM contacts k, run_calls r"
        " WHERE r.run_id = :run AND r.call_pk = :call AND to_jsonb(k.id) <@ (r.former -> 'contacts')",
    )
)
_RESTORE_CALL = sa.text("""
    UPDATE calls SET (warnings, analysis_warnings, promoted_run) = (
        SELECT ARRAY(SELECT jsonb_array_elements_text(r.former -> 'warnings')),
            ARRAY(SELECT jsonb_array_elements_text(r.former -> 'analysis_warnings')),
            CAST(r.former ->> 'promoted_run' AS uuid)
        FROM run_calls r WHERE r.run_id = :run AND r.call_pk = :call
    ), promoted_at = clock_timestamp(), updated_at = now(), raised = raised_trackers(:call) WHERE id = :call
""")
_STOP_ANALYSIS = sa.text("""
    UPDATE jobs SET state = 'superseded', finished_at = now(), lease_until = NULL
    WHERE call_pk = :call AND kind = 'analyze' AND state IN ('queued', 'running') RETURNING id
""")
_ANALYZE = sa.text("INSERT INTO jobs (call_pk, kind) VALUES (:call, 'analyze')")
_INDEX = sa.text("SELECT index_call(:call)")


@dataclass(frozen=True, slots=True)
class PromotionResult:
    """Result of a promotion or its rollback. `skipped`: by callId, why a call did not change."""

    run: runs.Run
    calls: int
    skipped: Mapping[UUID, str] = field(default_factory=dict)


async def promote(database: Database, workspace_id: UUID, run_id: UUID, by: Actor | None = None) -> PromotionResult:
    """Make a run's results the records of its calls, except calls that changed since.

    Raises `runs.NoSuchRun`, and `runs.RunRefused` for a run that has not ended, is promoted, or has nothing to promote.
    """
    async with changing(database, workspace_id, by, seconds=SECONDS) as change:
        run = await runs.hold(change.connection, run_id)
        if run.state == "running":
            raise runs.RunRefused(f"The run {run.name!r} has not ended: {run.waiting + run.running} calls remain.")
        if run.promoted_at is not None:
            raise runs.RunRefused(f"The run {run.name!r} is already promoted.")
        skipped: dict[UUID, str] = {}
        rows = await _locked(change.connection, run_id)
        for row in rows:
            if reason := _not_to_promote(row):
                skipped[row.call_id] = reason
            else:
                await _promote(change.connection, row)
        if len(skipped) == len(rows):
            reasons = ", ".join(sorted(set(skipped.values()))) or "none of its calls is still stored"
            raise runs.RunRefused(f"Nothing of the run {run.name!r} can be promoted: {reasons}.")
        await runs.note_promotion(change.connection, run_id, change.by.name)
        await change.note("promoted", "run", run_id, run.name, f"{len(rows) - len(skipped)} calls")
        return PromotionResult(await runs.hold(change.connection, run_id), len(rows) - len(skipped), skipped)


async def roll_back(database: Database, workspace_id: UUID, run_id: UUID, by: Actor | None = None) -> PromotionResult:
    """Restore the records that a promotion replaced, except of calls that got another recording since.

    Raises `runs.NoSuchRun`, and `runs.RunRefused` for a run that is not promoted, or that another run replaced.
    """
    async with changing(database, workspace_id, by, seconds=SECONDS) as change:
        run = await runs.hold(change.connection, run_id)
        if run.promoted_at is None:
            raise runs.RunRefused(f"The run {run.name!r} is not promoted.")
        skipped: dict[UUID, str] = {}
        rows = [row for row in await _locked(change.connection, run_id) if row.is_promoted]
        replaced_again = [row for row in rows if row.of_run not in (None, run_id)]
        if replaced_again:
            raise runs.RunRefused(
                f"Another run was promoted over {run.name!r} in {len(replaced_again)} calls: roll that one back first."
            )
        for row in rows:
            if _is_replaced(row):
                skipped[row.call_id] = REPLACED
            else:
                await _roll_back(change.connection, row)
        update = sa.update(run_calls).where(run_calls.c.run_id == run_id).values(former=sa.null(), promoted_at=None)
        await change.run(update)
        await runs.note_promotion(change.connection, run_id, None)
        await change.note("rolled back", "run", run_id, run.name, f"{len(rows) - len(skipped)} calls")
        return PromotionResult(await runs.hold(change.connection, run_id), len(rows) - len(skipped), skipped)


async def _locked(connection: AsyncConnection, run_id: UUID) -> Sequence[sa.Row[Any]]:
    call_pks = sa.select(run_calls.c.call_pk).where(run_calls.c.run_id == run_id)
    await connection.execute(
        sa.select(calls.c.id).where(calls.c.id.in_(call_pks)).order_by(calls.c.id).with_for_update(key_share=True)
    )
    query: sa.Select[Any] = (
        sa.select(
            calls.c.id.label("call_pk"),
            *(calls.c[name] for name in ("workspace_id", "call_id", "job_id", "state")),
            calls.c.metadata_version.label("version"),
            calls.c.promoted_run.label("of_run"),
            transcripts.c.written_at,
            run_calls.c.run_id,
            *(run_calls.c[name].label(f"run_{name}") for name in ("state", "job_id", "metadata_version")),
            run_calls.c.former.is_not(None).label("is_promoted"),
            run_calls.c.promoted_at.label("written_by_run_at"),
        )
        .join(run_calls, run_calls.c.call_pk == calls.c.id)
        .outerjoin(transcripts, transcripts.c.call_pk == calls.c.id)
        .where(run_calls.c.run_id == run_id)
        .order_by(calls.c.id)
    )
    rows: Sequence[sa.Row[Any]] = (await connection.execute(query)).all()
    return rows


def _is_replaced(row: sa.Row[Any]) -> bool:
    """Return whether the record is, or will be, of another recording than the run's."""
    return bool(row.state != CallState.COMPLETED or row.job_id != row.run_job_id or row.written_at is None)


def _not_to_promote(row: sa.Row[Any]) -> str | None:
    if row.run_state != "done":
        return FAILED
    if _is_replaced(row):
        return REPLACED
    return CHANGED if row.version != row.run_metadata_version else None


async def _promote(connection: AsyncConnection, row: sa.Row[Any]) -> None:
    keys = {"run": row.run_id, "call": row.call_pk}
    await connection.execute(_KEEP_FORMER, keys)
    analyzing = (await connection.execute(_STOP_ANALYSIS, keys)).all()
    columns = [run_calls.c[name] for name in ("transcript", "findings", "warnings", "producers")]
    of_call = sa.and_(run_calls.c.run_id == row.run_id, run_calls.c.call_pk == row.call_pk)
    run_call = (await connection.execute(sa.select(*columns).where(of_call))).one()
    owner = write.Owner(row.call_pk, row.workspace_id)
    transcript = _TRANSCRIPT.validate_python(run_call.transcript)
    await write.write_transcript(connection, owner, row.job_id, transcript, run_call.producers)
    notes = await write.write_findings(connection, owner, _FINDINGS.validate_python(run_call.findings))
    await corrections.follow(connection, row.call_pk, reindex=False)
    values = {"warnings": run_call.warnings, "analysis_warnings": notes, "promoted_run": row.run_id}
    promotion = {"promoted_at": sa.func.clock_timestamp(), "updated_at": sa.func.now()}
    promotion["raised"] = sa.func.raised_trackers(calls.c.id)
    await connection.execute(sa.update(calls).where(calls.c.id == row.call_pk).values(**values, **promotion))
    await event_record.write_records(connection, row.call_pk, row.call_id)
    await connection.execute(_INDEX, keys)
    if analyzing:
        await connection.execute(_ANALYZE, keys)


async def _roll_back(connection: AsyncConnection, row: sa.Row[Any]) -> None:
    """Restore the record; a call that was analyzed again since gets its former transcript and a new analysis."""
    keys = {"run": row.run_id, "call": row.call_pk}
    analyzing = (await connection.execute(_STOP_ANALYSIS, keys)).all()
    for statement in _RESTORE:
        await connection.execute(statement, keys)
    await write.give_talk(connection, row.call_pk, await corrections.machine_transcript(connection, row.call_pk))
    await corrections.follow(connection, row.call_pk, reindex=False)
    await connection.execute(_RESTORE_CALL, keys)
    await event_record.write_records(connection, row.call_pk, row.call_id)
    await connection.execute(_INDEX, keys)
    if analyzing or row.written_at != row.written_by_run_at:
        await connection.execute(_ANALYZE, keys)
