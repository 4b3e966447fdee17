"""Stored results of the stages of a job, so that a resumed job skips the finished ones.

A result belongs to its input content and to its producer (`pipeline.steps.provenance`): another job of the same call,
or a run, with the same bytes and the same producer uses it too. Fetched recordings belong to the job.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.rows import columns, read
from db.core.tables import calls, recordings, stage_results, transcripts
from db.queue import jobs, originals
from db.queue.jobs import Lease
from db.secrets import call_keys
from pipeline.domain.call import Call
from pipeline.domain.speech import BY_VOICE, Pending, Recording, Transcript
from pipeline.domain.stage import Stage

log = logging.getLogger(__name__)

NO_PRODUCERS: Mapping[Stage, str] = MappingProxyType({})  # no producer information
_FETCHED = (Stage.FETCH, Stage.LEG)  # stored in `recordings`, not in `stage_results`
_ELSEWHERE = (*_FETCHED, Stage.ORIGINALS)
_ADAPTERS = {
    stage: TypeAdapter[Any](stage.result) for stage in Stage if stage.result is not None and stage not in _ELSEWHERE
}

_DELETED = "memory://deleted-recordings/"  # of files in no store
_VOICES = (Stage.DIARIZATION, Stage.RECLUSTERING)
_DROPPED = sa.text("'{}'::jsonb")  # instead of a voiceprint; no stage has such a result
_RESULT = call_keys.readable(stage_results.c.result, stage_results.c.call_pk).label("result")

# The record's speakers have the labels of the reclustering, if there is one; the labels of the diarization differ.
_KEEP_VOICES = sa.text("""
    UPDATE stage_results SET result = jsonb_set(result, '{voiceprints}', coalesce((
        SELECT jsonb_object_agg(voice.key, voice.value) FROM jsonb_each(result -> 'voiceprints') AS voice
        WHERE voice.key = ANY (CAST(:members AS text[])) AND (stage = 'reclustering' OR NOT EXISTS (
            SELECT FROM stage_results AS later
            WHERE later.call_pk = :call AND later.content_key = ANY (CAST(:keys AS text[]))
                AND later.stage = 'reclustering'
        ))
    ), '{}'))
    WHERE call_pk = :call AND content_key = ANY (CAST(:keys AS text[])) AND stage IN ('diarization', 'reclustering')
        AND result -> 'voiceprints' <> '{}'
""")


def content_key(fetched: Sequence[Recording], call: Call, swapped: bool, producer: str = "") -> str:
    """Return the key of a result: the channel and sha256 of each recording, the number of files and the producer.

    One file differs if it is a leg whose counterpart is missing rather than the whole call. `swapped`: the channels are
    exchanged. `producer`: what produced the result.
    """
    files = 2 if call.recording_url2 else 1
    return " ".join(
        [
            f"of {files}",
            *(["swapped"] if swapped else []),
            *(f"{r.channel}:{r.sha256}" for r in sorted(fetched, key=lambda r: r.channel)),
            *([f"by {producer}"] if producer else []),
        ]
    )


async def load(database: Database, lease: Lease, producers: Mapping[Stage, str] = NO_PRODUCERS) -> dict[Stage, Any]:
    """Return the stored result of each stage by its producer; only `LEG` before the recordings are fetched.

    For a stage without a producer: the result stored without one. `LEG` is recorded for one recording at a time and
    loaded as a tuple of all; `FETCH` is recorded when no more are expected. Load again after recording `FETCH`: another
    job of the call may have processed the same content. A result in a form of another version that cannot be parsed
    counts as missing: the stage runs again.
    """
    async with database.transaction(lease.workspace_id) as connection:
        legs, settled = await _legs(connection, lease)
        call_key = await call_keys.find_key(connection, lease.call_pk) if legs else None
        legs = tuple(replace(leg, key=call_key) for leg in legs)
        if not legs or not settled:
            return {Stage.LEG: legs} if legs else {}
        keys = [
            sa.and_(stage_results.c.stage == stage, stage_results.c.content_key == _key(legs, lease, stage, producers))
            for stage in _ADAPTERS
        ]
        rows = await connection.execute(
            sa.select(stage_results.c.stage, _RESULT).where(
                stage_results.c.call_pk == lease.call_pk, stage_results.c.result != _DROPPED, sa.or_(*keys)
            )
        )
        stored = {row.stage: call_keys.of(connection).open(row.result) for row in rows}
    results: dict[Stage, Any] = {Stage.FETCH: legs, Stage.LEG: legs}
    for stage in _ADAPTERS.keys() & stored:
        try:
            results[stage] = _ADAPTERS[stage].validate_python(stored[stage])
        except ValidationError as error:
            log.warning(
                "call %s: stored result of %s has another form: %d errors",
                lease.call.call_id,
                stage,
                error.error_count(),
            )
    return results


async def of_record(database: Database, lease: Lease) -> Mapping[Stage, str]:
    """Return the producers of the call's record by stage; empty if the call has no transcript."""
    query = sa.select(transcripts.c.producers).where(transcripts.c.call_pk == lease.call_pk)
    producers = next(iter(await database.column(lease.workspace_id, query)), None)
    return {} if producers is None else {stage: producers[stage] for stage in Stage if stage in producers}


async def record(
    database: Database, lease: Lease, stage: Stage, result: Any, worked_seconds: float | None = None, producer: str = ""
) -> None:
    """Store the result of `stage`; replaces an earlier one. `worked_seconds`: replica time it took.

    A job that gets further than before did not crash its worker: its crashes no longer count.

    Raises LeaseLost, and ValueError for a stage without a result or one recorded before `FETCH`.
    """
    if stage.result is None:
        raise ValueError(f"stage {stage.value!r} has no result to store")
    async with database.transaction(lease.workspace_id) as connection:
        progress = _progress(stage, result)
        if lease.job.crashes and not await _is_recorded(connection, lease, stage, result, producer):
            progress["crashes"] = 0
        if progress:
            await jobs.change(connection, lease, **progress)
        else:
            await jobs.hold(connection, lease)
        if stage is Stage.LEG:
            await _record_leg(connection, lease, result)
            return
        if stage is Stage.FETCH:
            await _record_fetched(connection, lease, result)
            return
        if stage is Stage.ORIGINALS:
            await originals.keep(connection, lease, result)
            return
        await keep(connection, lease, stage, result, producer, worked_seconds)


async def keep(
    connection: AsyncConnection,
    lease: Lease,
    stage: Stage,
    result: Any,
    producer: str,
    worked_seconds: float | None = None,
) -> None:
    """Store a result as `record` does, in a transaction that holds the call. Raises ValueError before `FETCH`."""
    fetched, settled = await _legs(connection, lease)
    if not fetched or not settled:
        raise ValueError(f"stage {stage.value!r} recorded before 'fetch'")
    stored = await call_keys.sealed(connection, lease.call_pk, lease.workspace_id, result)
    values = {"job_id": lease.job.job_id, "result": stored, "recorded_at": sa.func.now()}
    values["worked_seconds"] = worked_seconds
    key = content_key(fetched, lease.call, lease.channels_swapped, producer)
    await connection.execute(
        insert(stage_results)
        .values(call_pk=lease.call_pk, content_key=key, stage=stage, **values)
        .on_conflict_do_update(index_elements=["call_pk", "content_key", "stage"], set_=values)
    )


async def drop_voices(
    connection: AsyncConnection, lease: Lease, call: Call, transcript: Transcript, producers: Mapping[Stage, str]
) -> None:
    """Delete voices that no member's profile may use, in the transaction that completes the call.

    The agent's voices stay: of separated channels by the channel, in a mixed recording only a voice that matched a
    member's profile. Results of other recordings of the call are deleted, and computed again if one of them returns.
    """
    fetched, _ = await _legs(connection, lease)
    of_call, content = stage_results.c.call_pk == lease.call_pk, content_key(fetched, call, lease.channels_swapped)
    of_other_content = sa.and_(
        stage_results.c.content_key != content, ~stage_results.c.content_key.startswith(f"{content} by ")
    )
    await connection.execute(
        sa.delete(stage_results).where(of_call, stage_results.c.stage.in_(jobs.VOICES), of_other_content)
    )
    await _delete_customer_voices(connection, lease, content, transcript, producers)


async def drop_voiceprints(connection: AsyncConnection, call_pk: int) -> None:
    """Delete all voices of a call; they are computed again when they are needed. The time that they took stays."""
    of_call = stage_results.c.call_pk == call_pk
    of_voiceprint = stage_results.c.stage == Stage.VOICEPRINT
    await connection.execute(sa.update(stage_results).where(of_call, of_voiceprint).values(result=_DROPPED))
    with_voices = stage_results.c.stage.in_((Stage.DIARIZATION, Stage.RECLUSTERING))
    without = sa.func.jsonb_set(stage_results.c.result, sa.text("'{voiceprints}'"), sa.text("'{}'"))
    await connection.execute(sa.update(stage_results).where(of_call, with_voices).values(result=without))


async def thin_voices(
    connection: AsyncConnection, lease: Lease, transcript: Transcript, producers: Mapping[Stage, str]
) -> None:
    """Delete voices as `drop_voices`, but only of a run's results; other results of the call stay."""
    fetched, _ = await _legs(connection, lease)
    content = content_key(fetched, lease.call, lease.channels_swapped)
    await _delete_customer_voices(connection, lease, content, transcript, producers)


async def _delete_customer_voices(
    connection: AsyncConnection, lease: Lease, content: str, transcript: Transcript, producers: Mapping[Stage, str]
) -> None:
    keys = [content, *(f"{content} by {producer}" for producer in producers.values())]
    members = [speaker.label for speaker in transcript.speakers if speaker.role_reason == BY_VOICE]
    await connection.execute(_KEEP_VOICES, {"call": lease.call_pk, "keys": keys, "members": members})
    await _delete_sealed_voices(connection, lease.call_pk, keys, members)


async def _delete_sealed_voices(
    connection: AsyncConnection, call_pk: int, content_keys: Sequence[str], members: Sequence[str]
) -> None:
    """Do as `_KEEP_VOICES` in sealed results."""
    of_content = sa.and_(stage_results.c.call_pk == call_pk, stage_results.c.content_key.in_(content_keys))
    query = sa.select(stage_results.c.stage, stage_results.c.result.label("stored"), _RESULT)
    is_sealed = sa.func.jsonb_typeof(stage_results.c.result) == "string"
    rows = await connection.execute(query.where(of_content, is_sealed, stage_results.c.stage.in_(_VOICES)))
    is_later = sa.exists(sa.select(1).where(of_content, stage_results.c.stage == Stage.RECLUSTERING))
    opener = call_keys.of(connection)
    for row in rows.all():
        result = opener.open(row.result)
        has_labels = row.stage == Stage.RECLUSTERING or not await connection.scalar(sa.select(is_later))
        remaining = {label: voice for label, voice in result["voiceprints"].items() if has_labels and label in members}
        if remaining != result["voiceprints"]:
            sealed = opener.sealed_again(row.result, result | {"voiceprints": remaining})
            change = sa.update(stage_results).where(of_content, stage_results.c.result == sa.cast(row.stored, JSONB))
            await connection.execute(change.values(result=sealed))


async def drop_unreadable(database: Database, lease: Lease) -> None:
    """Delete the job's recordings that only an earlier process could open, before they are fetched again.

    Raises LeaseLost.
    """
    async with database.transaction(lease.workspace_id) as connection:
        await jobs.hold(connection, lease)
        is_lost = sa.and_(recordings.c.job_id == lease.job.job_id, recordings.c.redaction == Pending.IN_MEMORY)
        await connection.execute(sa.delete(recordings).where(is_lost))


def _key(fetched: Sequence[Recording], lease: Lease, stage: Stage, producers: Mapping[Stage, str]) -> str:
    return content_key(fetched, lease.call, lease.channels_swapped, producers.get(stage, ""))


def _progress(stage: Stage, result: Any) -> dict[str, Any]:
    """Return the columns by which the queue counts the remaining work (`db.queue.backlog`)."""
    if stage is Stage.AUDIO:
        return {"audio_seconds": result.duration, "channels": 2 if result.layout.kind.separated else 1}
    if stage in (Stage.RECOGNITION, Stage.REDACTION):
        return {"recognized": True}
    return {"voice_done": True} if stage in (Stage.DIARIZATION, Stage.VOICEPRINT) else {}


async def _is_recorded(connection: AsyncConnection, lease: Lease, stage: Stage, result: Any, producer: str) -> bool:
    """Return whether an earlier attempt got as far as this stage of this content."""
    fetched, _ = await _legs(connection, lease)
    if stage in _FETCHED:
        channels = {result.channel} if stage is Stage.LEG else {recording.channel for recording in result}
        return channels <= {recording.channel for recording in fetched}
    row = await connection.execute(
        sa.select(stage_results.c.stage).where(
            stage_results.c.call_pk == lease.call_pk,
            stage_results.c.content_key == content_key(fetched, lease.call, lease.channels_swapped, producer),
            stage_results.c.stage == stage,
        )
    )
    return row.first() is not None


async def _legs(connection: AsyncConnection, lease: Lease) -> tuple[tuple[Recording, ...], bool]:
    """Return the recordings of the call's process job and whether they are complete."""
    job: UUID | sa.ScalarSelect[Any] = lease.job.job_id
    if lease.job.kind == "analyze":
        job = sa.select(calls.c.job_id).where(calls.c.id == lease.call_pk).scalar_subquery()
    result = await connection.execute(
        sa.select(recordings).where(recordings.c.job_id == job).order_by(recordings.c.channel)
    )
    rows = result.all()
    if not rows and lease.job.kind == "analyze":
        return await _expired(connection, lease), True
    return tuple(read(Recording, row) for row in rows), all(row.settled for row in rows)


async def _expired(connection: AsyncConnection, lease: Lease) -> tuple[Recording, ...]:
    """Return the recordings that retention has deleted, as the latest results are of: their words are still analyzed.

    They are in no store. Empty unless retention has deleted the recordings.
    """
    is_expired = sa.exists(
        sa.select(1).where(calls.c.id == lease.call_pk, calls.c.recordings_expired == calls.c.job_id)
    )
    query = sa.select(stage_results.c.content_key).where(stage_results.c.call_pk == lease.call_pk, is_expired)
    latest = await connection.scalar(query.order_by(stage_results.c.recorded_at.desc()).limit(1))
    files = (part.partition(":") for part in (latest or "").partition(" by ")[0].split() if ":" in part)
    return tuple(Recording(int(channel), f"{_DELETED}{sha256}", sha256, 0) for channel, _, sha256 in files)


async def _record_leg(connection: AsyncConnection, lease: Lease, leg: Recording) -> None:
    """Store one recording; replacing a lost recording keeps its `settled`."""
    _only_of_process(lease)
    values = _stored_columns(leg)
    other_file = sa.and_(recordings.c.channel == leg.channel, recordings.c.uri != leg.uri)
    await connection.execute(sa.delete(recordings).where(recordings.c.job_id == lease.job.job_id, other_file))
    new = insert(recordings).values(**values, job_id=lease.job.job_id, call_pk=lease.call_pk, settled=False)
    await connection.execute(
        new.on_conflict_do_update(index_elements=["job_id", "channel"], set_={**values, "fetched_at": sa.func.now()})
    )


def _stored_columns(recording: Recording) -> dict[str, Any]:
    """Return the columns of a recording: all but the key of its call."""
    return {name: value for name, value in columns(recording).items() if name != "key"}


def _only_of_process(lease: Lease) -> None:
    if lease.job.kind != "process":
        raise ValueError("only a process job fetches")


async def _record_fetched(connection: AsyncConnection, lease: Lease, fetched: Sequence[Recording]) -> None:
    """Replace the rows of the job's recordings; deleting one queues its file, so that rows of the same file stay."""
    _only_of_process(lease)
    files = [(recording.channel, recording.uri) for recording in fetched]
    is_other = sa.tuple_(recordings.c.channel, recordings.c.uri).not_in(files)
    await connection.execute(sa.delete(recordings).where(recordings.c.job_id == lease.job.job_id, is_other))
    for recording in fetched:
        values = _stored_columns(recording)
        new = insert(recordings).values(**values, job_id=lease.job.job_id, call_pk=lease.call_pk)
        changed = {**values, "settled": True, "fetched_at": sa.func.now()}
        await connection.execute(new.on_conflict_do_update(index_elements=["job_id", "channel"], set_=changed))


PRODUCER_LENGTH = 32  # characters of a producer, at the end of the key of its result


@dataclass(frozen=True, slots=True)
class StageDone:
    """A finished stage of a job. A later job that reuses the result leaves it unchanged."""

    job_id: UUID
    stage: str
    recorded_at: datetime
    worked_seconds: float | None  # of replicas; None: not measured


async def stages_done(database: Database, reader: Reader, call_id: UUID) -> list[StageDone]:
    """Return the finished stages of a call in order; empty for a call that the reader may not see.

    Leaves out results that only runs created: of results with a producer, only those of the call's record count.
    """
    columns: tuple[Any, ...] = tuple(stage_results.c[name] for name in StageDone.__dataclass_fields__)
    query = sa.select(*columns).join(calls, calls.c.id == stage_results.c.call_pk)
    of_call = (calls.c.workspace_id == reader.workspace_id, calls.c.call_id == call_id)
    query = query.outerjoin(transcripts, transcripts.c.call_pk == calls.c.id)
    produced = sa.func.right(stage_results.c.content_key, PRODUCER_LENGTH)
    of_record = transcripts.c.producers[stage_results.c.stage].astext
    counts = sa.or_(
        stage_results.c.content_key.not_like("% by %"), transcripts.c.producers.is_(None), produced == of_record
    )
    query = query.where(*of_call, counts).order_by(stage_results.c.recorded_at, stage_results.c.stage)
    return [read(StageDone, row) for row in await database.rows(reader, query)]


async def worked_of(connection: AsyncConnection, call_ids: Sequence[UUID]) -> dict[UUID, list[StageDone]]:
    """Return the stages with a measured duration, of the present recordings of calls, by callId."""
    columns: tuple[Any, ...] = tuple(stage_results.c[name] for name in StageDone.__dataclass_fields__)
    of_present_job = sa.and_(calls.c.id == stage_results.c.call_pk, calls.c.job_id == stage_results.c.job_id)
    query = sa.select(calls.c.call_id, *columns).join(calls, of_present_job)
    measured = query.where(calls.c.call_id.in_(call_ids), stage_results.c.worked_seconds.is_not(None))
    stages: dict[UUID, list[StageDone]] = defaultdict(list)
    for row in await connection.execute(measured):
        stages[row.call_id].append(read(StageDone, row))
    return stages
