"""Read models of calls: plain frozen dataclasses. Recording addresses have no signatures."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.off_loop import STORED_WORD, off_loop
from db.core.rows import filter_by, read
from db.core.tables import (
    PRESENT,
    call_contacts,
    calls,
    contacts,
    corrections,
    findings,
    jobs,
    legal_holds,
    recordings,
    submissions,
    task_marks,
    tasks,
    transcripts,
    unredacted_recordings,
)
from db.queue import originals
from db.records import corrections as edits
from db.records.corrected_columns import contact_ids, member_name
from db.records.corrections import CallEdit, EditedCall, reversion_warnings
from db.records.job_views import JOB_FIELDS, Failure, JobSummary, failure_of, is_waiting, jobs_of
from db.records.redactions import IS_HELD
from db.records.stored_transcripts import CONTENT, parsed
from db.records.workspace_answers import WorkspaceAnswers, parse_answers
from db.secrets import call_keys
from db.secrets.recording_urls import shown
from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.call import CallState
from pipeline.domain.edits import corrected_finding, corrected_task
from pipeline.domain.insight import Action, Contact, Evidence, Finding, Task
from pipeline.domain.redaction import CallRedaction
from pipeline.domain.scorecards import ScorecardResult
from pipeline.domain.speech import PENDING, Layout, Recording, Transcript


@dataclass(frozen=True, slots=True)
class CallSummary:
    """One row of a list of calls."""

    call_id: UUID
    workspace_id: UUID
    team_id: UUID
    user_id: UUID | None
    from_number: str
    to_number: str
    start_time: datetime
    outgoing: bool | None
    duration: float | None  # seconds of the recording, once it is transcribed
    declared_duration: int | None  # seconds, as submitted
    state: CallState
    stage: str | None  # of the live job
    attempts: int  # of the latest job
    next_try: datetime | None  # while its job waits
    failure: Failure | None
    language: str | None
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
    last_error: Failure | None = None  # of the last attempt of a live job


@dataclass(frozen=True, slots=True)
class CallMoment:
    """An event of a call: "submitted", "process queued", "completed", ... `about` is a job's id, if any."""

    at: datetime
    what: str
    about: UUID | None = None


@dataclass(frozen=True, slots=True)
class CallTask(Task):
    """A task of a call. `task_id` is stable when another analysis finds the task again."""

    task_id: UUID | None = None
    done_at: datetime | None = None
    done_by: str | None = None


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The record of a call. Results of a recording are included only while it is the call's present recording.

    Either with users' corrections, listed in `edits`, or as the machine produced it, without edits.
    """

    call: CallSummary
    job_id: UUID | None
    from_e164: str | None
    to_e164: str | None
    recording_url: str | None  # without signature; `?...` replaces parts that may give access
    recording_url2: str | None
    layout: Layout | None
    transcript: Transcript | None
    findings: tuple[Finding, ...]
    tasks: tuple[CallTask, ...]
    contacts: tuple[Contact, ...]
    recordings: tuple[Recording, ...]
    warnings: tuple[str, ...]
    submissions: int
    jobs: tuple[JobSummary, ...]
    timeline: tuple[CallMoment, ...]
    agent_user_id: UUID | None = None  # the member, by a user, the sender or the call
    actions: tuple[Action, ...] = ()  # what was done in the call
    swapped: bool = False  # the parties, by a user
    edits: tuple[CallEdit, ...] = ()  # in the order of their creation, including undone ones
    answers: tuple[QuestionAnswer, ...] = ()  # to the workspace's questions
    trackers: tuple[TrackerResult, ...] = ()
    scorecards: tuple[ScorecardResult, ...] = ()  # scores of the answers
    request_ids: tuple[str, ...] = ()  # of its submissions, for the log
    recordings_expired: bool = False  # deleted by retention
    content_expired: bool = False  # transcript, findings and corrections, deleted by retention
    legal_holds: tuple[str, ...] = ()  # reasons of those that cover the call
    redaction: CallRedaction | None = None  # what is hidden; None: no policy applied


async def show_call(database: Database, call_id: UUID | str, workspace_id: UUID | None = None) -> CallRecord | None:
    """Return the record of a call, or None. Without a workspace, of the latest call with this id.

    Raises ValueError if `call_id` is no UUID.
    """
    query = filter_by(_SUMMARY.add_columns(*_RECORD_COLUMNS), calls.c.workspace_id, workspace_id)
    query = query.where(calls.c.call_id == UUID(str(call_id)))
    async with database.transaction(workspace_id or EVERY_WORKSPACE, snapshot=True) as connection:
        row = (await connection.execute(query.order_by(calls.c.id.desc()).limit(1))).one_or_none()
        return None if row is None else await _record(connection, row)


async def call_ids_from(database: Database, beginning: str, workspace_id: UUID | None) -> list[UUID]:
    """Return up to two ids of calls that begin with these hexadecimal digits, with or without dashes."""
    digits = beginning.replace("-", "")
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    query = sa.select(calls.c.call_id).distinct().where(calls.c.call_id.between(first, last))
    query = filter_by(query, calls.c.workspace_id, workspace_id).order_by(calls.c.call_id).limit(2)
    return list(await database.column(workspace_id or EVERY_WORKSPACE, query))


async def read_call(connection: AsyncConnection, call_id: UUID, machine: bool = False) -> CallRecord | None:
    """Return the record of a call in the transaction's scope, or None. `machine`: without users' corrections."""
    row = (
        await connection.execute(_SUMMARY.add_columns(*_RECORD_COLUMNS).where(calls.c.call_id == call_id))
    ).one_or_none()
    return None if row is None else await _record(connection, row, machine)


async def read_unredacted(connection: AsyncConnection, call_id: UUID, machine: bool = False) -> CallRecord | None:
    """Return the record of a call with the words and recordings that its policy has sealed. Raises `SecretSealed`."""
    record = await read_call(connection, call_id, machine)
    if record is None or record.transcript is None:
        return record
    call_pk: int = (await connection.execute(sa.select(calls.c.id).where(calls.c.call_id == call_id))).scalar_one()
    words = originals.restored(record.transcript, await originals.load(connection, call_pk))
    sealed = await _recordings(connection, record.job_id, unredacted_recordings)
    by_channel = {recording.channel: recording for recording in (*record.recordings, *sealed)}
    files = tuple(by_channel[channel] for channel in sorted(by_channel))
    return replace(record, transcript=words, recordings=files)


async def summaries(connection: AsyncConnection, call_pks: Sequence[int]) -> list[CallSummary]:
    """Return calls by their row ids, in that order; those outside the transaction's scope are left out."""
    rows = {row.id: row for row in await connection.execute(_SUMMARY.where(calls.c.id.in_(call_pks)))}
    return [_summary(rows[call_pk]) for call_pk in call_pks if call_pk in rows]


_latest_job = (
    sa.select(*JOB_FIELDS)
    .where(jobs.c.call_pk == calls.c.id)
    .order_by(jobs.c.created_at.desc(), jobs.c.id)
    .limit(1)
    .lateral("latest_job")
)
_SUMMARY = (
    sa.select(
        *(
            calls.c[field.name]
            for field in fields(CallSummary)
            if field.name in {*calls.c.keys()} - {"user_id", "duration"}
        ),
        sa.case((corrections.c.agent_set, corrections.c.user_id), else_=calls.c.user_id).label("user_id"),
        calls.c.user_id.label("sent_user_id"),
        *(calls.c[name] for name in ("id", "failure_code", "failure_message", "failure_retryable", "job_id")),
        _latest_job.c.stage,
        _latest_job.c.attempts,
        _latest_job.c.not_before,
        _latest_job.c.lease_until,
        _latest_job.c.state.label("job_state"),
        *(_latest_job.c[name] for name in ("error_code", "error_message", "error_retryable")),
        transcripts.c.language,
        transcripts.c.duration,
        calls.c.duration.label("declared_duration"),
    )
    .select_from(calls)
    .outerjoin(_latest_job, sa.true())
    .outerjoin(transcripts, PRESENT)
    .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
)
_RECORD_COLUMNS = (
    *(calls.c[name] for name in ("from_e164", "to_e164", "recording_identity", "recording_identity2")),
    *(calls.c[name] for name in ("warnings", "analysis_warnings", "analyzed_at", "failed_at")),
    (calls.c.recordings_expired == calls.c.job_id).is_(sa.true()).label("recordings_expired"),
    (calls.c.content_expired == calls.c.job_id).is_(sa.true()).label("content_expired"),
    sa.exists(
        sa.select(1).where(legal_holds.c.workspace_id == calls.c.workspace_id, legal_holds.c.released_at.is_(None))
    ).label("has_legal_holds"),
    CONTENT,
)

_EVIDENCE = TypeAdapter(Evidence)
_ACTION = TypeAdapter(Action)


async def _record(connection: AsyncConnection, row: Any, machine: bool = False) -> CallRecord:
    keys = call_keys.of(connection)
    words = len(row.content or "") // STORED_WORD
    machine_transcript = await off_loop(words, lambda: parsed(keys.open_text(row.content)))
    has_transcript = machine_transcript is not None  # findings of a recording that has been replaced are not shown
    edited = await edits.load(connection, row.id, machine_transcript)
    transcript = machine_transcript if machine else edited.transcript
    summary = _summary(row)
    all_jobs = await jobs_of(connection, row.id)
    bodies = await _submissions(connection, row.id)
    submitted = [CallMoment(at, "submitted", about) for at, about, _, _ in bodies]
    call_findings = await _findings(connection, row, None if machine else edited) if has_transcript else ()
    answers = _answers(call_findings, None if machine else edited)
    return CallRecord(
        call=replace(summary, user_id=row.sent_user_id) if machine else summary,
        job_id=row.job_id,
        from_e164=row.from_e164,
        to_e164=row.to_e164,
        recording_url=row.recording_identity and shown(row.recording_identity),
        recording_url2=row.recording_identity2 and shown(row.recording_identity2),
        layout=transcript.layout if transcript else None,
        transcript=transcript,
        findings=call_findings,
        tasks=await _tasks(connection, row.id, None if machine else edited) if has_transcript else (),
        actions=_actions(call_findings),
        contacts=await _contacts(connection, row.id, machine) if has_transcript or edited.contact_set else (),
        recordings=await _recordings(connection, row.job_id),
        warnings=(*row.warnings, *row.analysis_warnings, *reversion_warnings((at, body) for at, _, body, _ in bodies)),
        submissions=len(submitted),
        jobs=all_jobs,
        timeline=_timeline(row, submitted, all_jobs),
        agent_user_id=edited.machine_agent if machine else edited.agent,
        swapped=edited.swapped and not machine,
        edits=() if machine else edited.edits,
        answers=answers.answers,
        trackers=answers.trackers,
        scorecards=answers.scorecards,
        request_ids=tuple(request for *_, request in bodies if request),
        recordings_expired=row.recordings_expired,
        content_expired=row.content_expired and not has_transcript,  # a run may have been promoted since
        legal_holds=await _hold_reasons(connection, row.id) if row.has_legal_holds else (),
        redaction=transcript.redaction if transcript else None,
    )


async def _hold_reasons(connection: AsyncConnection, call_pk: int) -> tuple[str, ...]:
    """Return the reasons of the holds on a call. As a column of the record, they took most of its query's planning."""
    query = sa.text(
        "SELECT h.reason FROM calls c CROSS JOIN LATERAL holds_on(c) h WHERE c.id = :call ORDER BY h.set_at, h.id"
    )
    return tuple(await connection.scalars(query, {"call": call_pk}))


def _answers(call_findings: Sequence[Finding], edited: EditedCall | None) -> WorkspaceAnswers:
    answers = parse_answers(next((finding.value for finding in call_findings if finding.step == "questions"), {}))
    return answers if edited is None else answers.with_overrides(edited.overrides)


def _actions(call_findings: Sequence[Finding]) -> tuple[Action, ...]:
    """Return the actions of the findings, as far as they are valid: any engine may have produced them."""
    stated = next((finding.value.get("actions") for finding in call_findings if finding.step == "actions"), None)
    actions = []
    for item in stated if isinstance(stated, list) else ():
        with suppress(ValidationError):
            actions.append(_ACTION.validate_python(item))
    return tuple(actions)


async def _submissions(connection: AsyncConnection, call_pk: int) -> Sequence[Any]:
    """Return time, job, body and request id of each submission, the earliest first."""
    columns = (submissions.c.received_at, submissions.c.job_id, submissions.c.body, submissions.c.request_id)
    query = sa.select(*columns).where(submissions.c.call_pk == call_pk).order_by(submissions.c.id)
    return (await connection.execute(query)).all()


async def _findings(connection: AsyncConnection, call: Any, edited: EditedCall | None) -> tuple[Finding, ...]:
    rows = await connection.execute(
        sa.select(findings).where(findings.c.call_pk == call.id).order_by(findings.c.position)
    )
    call_findings = [read(Finding, row, evidence=tuple(map(_EVIDENCE.validate_python, row.evidence))) for row in rows]
    if edited is None:
        return tuple(call_findings)
    if edited.agent_set and not any(finding.step == "agent" for finding in call_findings):
        call_findings.append(Finding("agent", 1, {}))
    name = await member_name(connection, call.workspace_id, edited.user_id)
    return tuple(corrected_finding(finding, edited.fields, name) for finding in call_findings)


async def _tasks(connection: AsyncConnection, call_pk: int, edited: EditedCall | None) -> tuple[CallTask, ...]:
    task_id = sa.func.task_id(tasks.c.call_pk, tasks.c.title, tasks.c.evidence, type_=sa.Uuid())
    marked = sa.and_(task_marks.c.call_pk == tasks.c.call_pk, task_marks.c.task_id == task_id)
    query: sa.Select[Any] = sa.select(*tasks.c, task_id.label("task_id"), task_marks.c.done_at, task_marks.c.done_by)
    rows = await connection.execute(
        query.outerjoin(task_marks, marked).where(tasks.c.call_pk == call_pk).order_by(tasks.c.position)
    )
    call_tasks = [read(CallTask, row, evidence=_EVIDENCE.validate_python(row.evidence)) for row in rows]
    if edited is None:
        return tuple(replace(task, done_at=None, done_by=None) for task in call_tasks)
    return tuple(corrected_task(task, edited.fields) for task in call_tasks)


async def _contacts(connection: AsyncConnection, call_pk: int, machine: bool) -> tuple[Contact, ...]:
    linked = sa.select(call_contacts.c.contact_id).where(call_contacts.c.call_pk == call_pk)
    rows = await connection.execute(
        sa.select(contacts)
        .where(contacts.c.id.in_(linked if machine else contact_ids(call_pk)))
        .order_by(contacts.c.name)
    )
    return tuple(read(Contact, row, contact_id=str(row.id)) for row in rows)


async def _recordings(
    connection: AsyncConnection, job_id: UUID | None, table: sa.Table = recordings
) -> tuple[Recording, ...]:
    """Return a job's recordings; without the key of their call if it cannot be opened."""
    query = sa.select(table, call_keys.with_key(table.c.call_pk).label("with_key"))
    query = query.where(table.c.job_id == job_id).order_by(table.c.channel)
    if table is recordings:  # nothing plays a file before its sound is redacted
        query = query.where(sa.func.coalesce(recordings.c.redaction, "").not_in(PENDING))
        query = query.where(~sa.exists(sa.select(1).where(calls.c.id == recordings.c.call_pk, IS_HELD)))
    rows = await connection.execute(query)
    return tuple(read(Recording, row, key=call_keys.of(connection).key_of_row(row)) for row in rows)


def _timeline(row: sa.Row[Any], submitted: list[CallMoment], all_jobs: Sequence[JobSummary]) -> tuple[CallMoment, ...]:
    events = list(submitted)
    for job in all_jobs:
        events.append(CallMoment(job.created_at, f"{job.kind} queued", job.job_id))
        if job.started_at:
            events.append(CallMoment(job.started_at, f"{job.kind} claimed", job.job_id))
        if job.finished_at:
            events.append(CallMoment(job.finished_at, f"{job.kind} {job.state}", job.job_id))
    for what in ("completed", "failed"):
        if (at := row._mapping[f"{what}_at"]) is not None:
            events.append(CallMoment(at, what, row.job_id))
    return tuple(sorted(events, key=lambda event: event.at))


def _summary(row: Any) -> CallSummary:
    return read(
        CallSummary,
        row,
        state=CallState(row.state),
        attempts=row.attempts or 0,
        next_try=row.not_before if is_waiting(row.job_state, row.lease_until) else None,
        failure=failure_of(row.failure_code, row.failure_message, row.failure_retryable),
        last_error=failure_of(row.error_code, row.error_message, row.error_retryable)
        if row.job_state in ("fetching", "queued", "running")
        else None,
    )
