from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.rows import to_call
from db.core.tables import calls
from db.queue import jobs, stage_results
from db.queue.charges import UsedSlot, settle
from db.queue.jobs import Lease
from db.records import corrections, erasures, event_record, redactions, write
from db.voices import voiceprints
from pipeline.domain.call import Call
from pipeline.domain.insight import Finding
from pipeline.domain.speech import BY_VOICE, RedactedRecording, Transcript, Voiceprint
from pipeline.domain.stage import Stage
from pipeline.domain.voices import VoicePolicy


async def complete(
    database: Database,
    lease: Lease,
    transcript: Transcript,
    findings: Sequence[Finding],
    voiceprint: Voiceprint | None,
    warnings: Sequence[str] = (),
    voices: VoicePolicy | None = None,
    used: Sequence[UsedSlot] = (),
    producers: Mapping[Stage, str] = stage_results.NO_PRODUCERS,
    analysis_warnings: Sequence[str] = (),
    redacted: Sequence[RedactedRecording] | None = None,
) -> Call | None:
    """Write the record of a call, finish its job and charge the `used` slots. Raises LeaseLost.

    Returns None if it is done. If a submission changed the call's data since the lease was loaded, it writes nothing
    and returns the present call: run the analysis again and call with it as the lease's `call`.

    `voiceprint` is the agent's, stored under the call's `user_id`; `voices` decides how profiles use it (None: not).
    `producers`: of the stage results in the record. `analysis_warnings`: of this analysis. `redacted`: recordings.
    """
    async with database.transaction(lease.workspace_id) as connection:
        row = await jobs.lock(connection, lease)
        call = to_call(row)
        if row.metadata_version != lease.metadata_version and _metadata(call) != _metadata(lease.call):
            return call
        process_job = row.job_id or lease.job.job_id
        await redactions.begin(connection, lease, transcript.redaction)
        await write.write_transcript(connection, lease, process_job, transcript, producers)
        notes = await write.write_findings(connection, lease, findings)
        await _keep_voice(connection, lease, call, transcript, voiceprint, voices, producers)
        await redactions.settle(connection, lease, transcript.redaction, redacted)
        await corrections.follow(connection, lease.call_pk, reindex=False)
        await jobs.finish(connection, lease)
        values = _completed(lease, [*warnings, *notes], analysis_warnings)
        await connection.execute(sa.update(calls).where(calls.c.id == lease.call_pk).values(values))
        await event_record.write_records(connection, lease.call_pk, lease.call.call_id)
        await voiceprints.follow(connection, lease)
        await settle(connection, used)
    return None


async def _keep_voice(
    connection: AsyncConnection,
    lease: Lease,
    call: Call,
    transcript: Transcript,
    voiceprint: Voiceprint | None,
    voices: VoicePolicy | None,
    producers: Mapping[Stage, str],
) -> None:
    """Store the agent's voiceprint, unless the member was erased or does not consent, and delete all other voices.

    Without a voiceprint, an "analyze" job keeps an earlier one; a "process" job removes it: its recording may differ.
    """
    is_erased = await erasures.is_erased_member(connection, lease.workspace_id, call.user_id)
    new = None if is_erased else voiceprint
    may_stay = await voiceprints.keep(connection, lease, call.user_id, new, voices, matched_member(transcript))
    await stage_results.drop_voices(connection, lease, call, transcript, producers)
    if is_erased or not may_stay:
        await stage_results.drop_voiceprints(connection, lease.call_pk)


def matched_member(transcript: Transcript) -> UUID | None:
    """Return the member whose voice profile identified a speaker."""
    matched = (speaker.user_id for speaker in transcript.speakers if speaker.role_reason == BY_VOICE)
    return next((UUID(user_id) for user_id in matched if user_id), None)


def _metadata(call: Call) -> Call:
    """Return the input of an analysis: all but the addresses, which may have been signed again."""
    return replace(call, recording_url=None, recording_url2=None)


def _completed(lease: Lease, warnings: list[str], analysis_warnings: Sequence[str]) -> dict[str, Any]:
    now = sa.func.now()
    values: dict[str, Any] = {"analyzed_at": now, "updated_at": now, "raised": sa.func.raised_trackers(calls.c.id)}
    values |= dict.fromkeys(("failure_code", "failure_message", "failure_retryable", "failed_at"))
    if lease.job.kind == "analyze":  # warnings about the recording stay
        completed_at = sa.func.coalesce(calls.c.completed_at, now)  # null: the call was held back
        analyzed: dict[str, Any] = {"state": "completed", "completed_at": completed_at}
        return values | analyzed | {"analysis_warnings": [*warnings, *analysis_warnings]}
    completed = {"state": "completed", "completed_at": now, "promoted_run": None}
    return values | completed | {"warnings": warnings, "analysis_warnings": list(analysis_warnings)}
