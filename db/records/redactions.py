"""What redaction leaves in the database: sealed originals, redacted recordings, and nothing of a record before it.

All of it is written in the transaction that completes the call.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.rows import dump_json
from db.core.tables import calls, recordings, transcripts, unredacted_recordings, waveforms
from db.queue.jobs import Lease
from db.workspace import redaction_policies
from pipeline.domain.redaction import CallRedaction, NamedPolicy, RedactionMode, RedactionState
from pipeline.domain.speech import Recording, RedactedRecording

# What a record has left in other tables. Users' corrections quote its words.
QUOTES = (
    "DELETE FROM edits WHERE call_pk = :call AND kind <> 'tag'",
    "DELETE FROM corrections WHERE call_pk = :call",
    "DELETE FROM task_marks WHERE call_pk = :call",
    "DELETE FROM gold_calls WHERE call_pk = :call",
    "DELETE FROM run_calls WHERE call_pk = :call",
    "DELETE FROM calibration_calls WHERE call_pk = :call",
    "DELETE FROM call_passages WHERE call_pk = :call",
    "DELETE FROM stage_results WHERE call_pk = :call AND stage IN ('speakers', 'answers')",
    "UPDATE events SET record = NULL, transcript = NULL WHERE call_pk = :call",
    """DELETE FROM contacts k WHERE k.source = 'call'
        AND EXISTS (SELECT FROM call_contacts l WHERE l.contact_id = k.id AND l.call_pk = :call)
        AND NOT EXISTS (SELECT FROM call_contacts l WHERE l.contact_id = k.id AND l.call_pk <> :call)""",
)
# Words that were not redacted, or less.
_REPLACED = "DELETE FROM stage_results WHERE call_pk = :call AND stage = 'redaction' AND job_id <> :job"
# What no policy lets stay: words as recognized, and files of recordings that were replaced.
_NEVER_KEPT = (
    "DELETE FROM stage_results WHERE call_pk = :call AND stage = 'asr'",
    "DELETE FROM recordings WHERE call_pk = :call AND job_id <> (SELECT job_id FROM calls WHERE id = :call)",
    "DELETE FROM unredacted_recordings WHERE call_pk = :call AND job_id <> (SELECT job_id FROM calls WHERE id = :call)",
)
_ORIGINALS = (
    "DELETE FROM unredacted_words WHERE call_pk = :call",
    "DELETE FROM unredacted_recordings WHERE call_pk = :call",
)
_REKEY = sa.text("""
    UPDATE stage_results SET content_key = replace(content_key, :before, :after)
    WHERE call_pk = :call AND strpos(content_key, :before) > 0
""")


async def policy_of(connection: AsyncConnection, lease: Lease) -> NamedPolicy | None:
    """Return the policy that a job applies: its own, or that of the call's team; None if nothing is hidden."""
    effective = redaction_policies.effective
    return lease.redaction or await effective(connection, lease.workspace_id, lease.call.team_id)


def digest(policy: NamedPolicy) -> str:
    """Return the digest of a policy by which the transcripts that it redacted are recognized."""
    return sha256(dump_json(replace(policy, version=0)).encode()).hexdigest()[:32]


async def begin(connection: AsyncConnection, lease: Lease, redaction: CallRedaction | None) -> None:
    """Delete what the call's previous record has left if it shows what is hidden now.

    Before the record is written: contacts that it created are linked again.
    """
    if redaction is None or redaction.state is not RedactionState.FOUND:
        return
    query = sa.select(transcripts.c.redaction).where(transcripts.c.call_pk == lease.call_pk)
    previous = (await connection.execute(query)).first()
    if previous is None or previous.redaction == digest(redaction.policy):
        return
    await run(connection, lease, (*QUOTES, _REPLACED))


async def settle(
    connection: AsyncConnection,
    lease: Lease,
    redaction: CallRedaction | None,
    redacted: Sequence[RedactedRecording] | None,
) -> None:
    """Replace recordings by redacted ones, and delete what the policy does not let stay.

    After the record is written.
    """
    if redaction is not None:
        await run(connection, lease, _NEVER_KEPT)
        written = sa.update(transcripts).where(transcripts.c.call_pk == lease.call_pk)
        await connection.execute(written.values(redaction=digest(redaction.policy)))
    if redacted is not None:
        await _replace_recordings(connection, lease, redacted)
    if redaction is not None and redaction.policy.mode is RedactionMode.REDACTED_ONLY:
        await run(connection, lease, _ORIGINALS)


async def run(connection: AsyncConnection, lease: Lease, statements: Sequence[str]) -> None:
    """Execute statements with the call as `:call` and the job as `:job`."""
    for statement in statements:
        names = {"call": lease.call_pk, "job": lease.job.job_id}
        await connection.execute(sa.text(statement), {name: names[name] for name in names if f":{name}" in statement})


async def _replace_recordings(connection: AsyncConnection, lease: Lease, redacted: Sequence[RedactedRecording]) -> None:
    """Replace the rows of recordings; deleting one queues its file, and results of its content belong to the new."""
    job = sa.select(calls.c.job_id).where(calls.c.id == lease.call_pk).scalar_subquery()
    rows = await connection.execute(sa.select(recordings).where(recordings.c.job_id == job))
    stored = {row.channel: row for row in rows}
    for item in redacted:
        recording, row = item.recording, stored[item.recording.channel]
        is_row = sa.and_(recordings.c.job_id == row.job_id, recordings.c.channel == row.channel)
        if recording.uri != row.uri:
            if item.original is not None:
                await _keep_original(connection, row, item.original)
            values = dict(row._mapping) | {"uri": recording.uri, "sha256": recording.sha256}
            values |= {"size_bytes": recording.size_bytes, "media_type": recording.media_type}
            await connection.execute(sa.delete(recordings).where(is_row))
            await connection.execute(sa.insert(recordings).values(values))
            rekey: dict[str, Any] = {"call": lease.call_pk, "before": row.sha256, "after": recording.sha256}
            await connection.execute(_REKEY, rekey)
            await connection.execute(sa.delete(waveforms).where(waveforms.c.call_pk == lease.call_pk))
        await connection.execute(sa.update(recordings).where(is_row).values(redaction=recording.redaction))


async def _keep_original(connection: AsyncConnection, row: sa.Row[Any], original: Recording) -> None:
    values = {name: row._mapping[name] for name in ("job_id", "channel", "call_pk", "media_type", "fetched_at")}
    values |= {name: getattr(original, name) for name in ("uri", "sha256", "size_bytes")}
    await connection.execute(insert(unredacted_recordings).values(values).on_conflict_do_nothing())
