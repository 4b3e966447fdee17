"""Erases a member: the entry in the directory, the voice profile and voiceprints, and the name in records.

Calls are kept, with what was said in them, also names. The records contain the member's name next to the id.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.tables import (
    admin_changes,
    calls,
    events,
    findings,
    jobs,
    members,
    run_calls,
    voice_centroids,
    voiceprint_events,
    voiceprints,
)
from db.queue import stage_results
from db.records import erasures
from db.records.erasures import ErasureLease
from db.voices import profiles
from db.workspace.admin_log import Changing, changing
from db.workspace.removal import ERASURE
from pipeline.domain.voices import VoicePolicy

WAIT_SECONDS = 1.0  # between two looks at jobs that have loaded the member's name
NAMELESS = "rep"  # the party's label

StoredFinding = Mapping[str, Any]  # a finding, as stored


async def forget(database: Database, lease: ErasureLease, policy: VoicePolicy) -> None:
    """Erase a member, except for the end of the erasure. Raises `ErasureLost`."""
    await erasures.without_deadlock(partial(_remove, database, lease, policy))
    since = (await database.clock()).at
    await _forget_in_calls(database, lease)
    while await _running(database, lease.workspace_id, since):  # their results will have the name
        await erasures.renew(database, lease)
        await asyncio.sleep(WAIT_SECONDS)
    await _forget_in_calls(database, lease)


async def _remove(database: Database, lease: ErasureLease, policy: VoicePolicy) -> None:
    """Delete the member and the voice profile. Voiceprints are released first: other profiles follow from them."""
    home, user_id = lease.workspace_id, lease.target.id
    async with changing(database, home, lease.by) as change:
        await profiles.hold(change.connection, home)
        await change.run(ERASURE)
        of_member = sa.and_(voiceprints.c.workspace_id == home, voiceprints.c.user_id == user_id)
        released = {"user_id": None, "named_by": None, "removed_at": sa.func.now()}
        columns = (voiceprints.c.call_pk, voiceprints.c.model)
        prints = await change.run(sa.update(voiceprints).where(of_member).values(released).returning(*columns))
        for model in sorted({row.model for row in prints}):
            await profiles.refresh(change.connection, home, model, [user_id], policy)
        await _delete_voices(change.connection, [row.call_pk for row in prints])
        is_member = (members.c.workspace_id == home, members.c.user_id == user_id)
        removed = await change.run(sa.delete(members).where(*is_member).returning(members.c.user_id))
        of_profile = (voice_centroids.c.workspace_id == home, voice_centroids.c.user_id == user_id)
        await change.run(sa.delete(voice_centroids).where(*of_profile))
        of_log = (admin_changes.c.kind == "member", admin_changes.c.object_id == str(user_id))
        await change.run(sa.update(admin_changes).where(admin_changes.c.workspace_id == home, *of_log).values(name=""))
        await erasures.count(change.connection, lease, {"members": len(removed), "voiceprints": len(prints)})


async def _forget_in_calls(database: Database, lease: ErasureLease) -> None:
    async for page in erasures.call_pages(database, lease.workspace_id, lease.target):
        await erasures.renew(database, lease)
        for call_id in page:
            await erasures.without_deadlock(partial(_forget_in_call, database, lease, call_id))


async def _forget_in_call(database: Database, lease: ErasureLease, call_id: UUID) -> None:
    """Remove name and voice from a call and what was computed from it."""
    async with changing(database, lease.workspace_id, lease.by) as change:
        is_call = (calls.c.workspace_id == lease.workspace_id, calls.c.call_id == call_id)
        rows = await change.run(sa.select(calls.c.id, calls.c.user_id).where(*is_call).with_for_update(key_share=True))
        if not rows:
            return
        await change.run(ERASURE)
        call_pk, user_id = rows[0].id, str(lease.target.id)
        changes = [await clear(change, call_pk, user_id) for clear in (_in_findings, _in_runs, _in_events)]
        if changes[0] or rows[0].user_id == lease.target.id:  # the voice of the agent is the member's
            await profiles.hold(change.connection, lease.workspace_id)
            unassigned = sa.select(voiceprints.c.call_pk).where(voiceprints.c.call_pk == call_pk)
            prints = await change.run(unassigned.where(voiceprints.c.user_id.is_(None)))
            await _delete_voices(change.connection, [row.call_pk for row in prints])
            await stage_results.drop_voiceprints(change.connection, call_pk)
        await change.run(sa.select(sa.func.index_words(call_pk)))
        if any(changes):
            now = sa.func.greatest(sa.func.clock_timestamp(), calls.c.updated_at + sa.text("interval '1 us'"))
            await change.run(sa.update(calls).where(calls.c.id == call_pk).values(updated_at=now))
        await erasures.count(change.connection, lease, {"records": int(any(changes))})


async def _delete_voices(connection: AsyncConnection, call_pks: Sequence[int]) -> None:
    for table in (voiceprint_events, voiceprints):
        await connection.execute(sa.delete(table).where(table.c.call_pk.in_(call_pks)))


async def _in_findings(change: Changing, call_pk: int, user_id: str) -> bool:
    of_call = findings.c.call_pk == call_pk
    columns = (findings.c.step, findings.c.version, findings.c.value, findings.c.evidence)
    rows = [dict(row._mapping) for row in await change.run(sa.select(*columns).where(of_call))]
    cleared = nameless(rows, user_id)
    for before, after in zip(rows, cleared, strict=True):
        if before != after:
            is_row = (of_call, findings.c.step == after["step"], findings.c.version == after["version"])
            values = {"value": after["value"], "evidence": after["evidence"]}
            await change.run(sa.update(findings).where(*is_row).values(values))
    return rows != cleared


async def _in_runs(change: Changing, call_pk: int, user_id: str) -> bool:
    columns = (run_calls.c.run_id, run_calls.c.findings, run_calls.c.former)
    query = sa.select(*columns).where(run_calls.c.call_pk == call_pk).order_by(run_calls.c.run_id).with_for_update()
    changed = False
    for row in await change.run(query):
        values: dict[str, Any] = {}
        if row.findings:
            values["findings"] = nameless(row.findings, user_id)
        if row.former:
            values["former"] = {**row.former, "findings": nameless(row.former["findings"], user_id)}
        if any(row._mapping[name] != value for name, value in values.items()):
            is_row = (run_calls.c.call_pk == call_pk, run_calls.c.run_id == row.run_id)
            await change.run(sa.update(run_calls).where(*is_row).values(values))
            changed = True
    return changed


async def _in_events(change: Changing, call_pk: int, user_id: str) -> bool:
    of_member = events.c.record["agent"]["userId"].astext == user_id
    query = sa.select(events.c.id, events.c.record).where(events.c.call_pk == call_pk, of_member)
    changed = False
    for row in await change.run(query.order_by(events.c.id).with_for_update()):
        agent = row.record["agent"]
        summary = _without(row.record.get("summary"), agent.get("name"))
        cleared = {**row.record, "agent": {**agent, "name": None, "spokenName": None}, "summary": summary}
        if cleared != row.record:
            await change.run(sa.update(events).where(events.c.id == row.id).values(record=cleared))
            changed = True
    return changed


def nameless(stored: Sequence[StoredFinding], user_id: str) -> list[StoredFinding]:
    """Return the findings of a call without the name of its agent, if that is the member.

    The summary names the speaker of its sentences; the name is replaced by the party's label.
    """
    agent = next((finding["value"] for finding in stored if finding["step"] == "agent"), None)
    if not isinstance(agent, dict) or agent.get("user_id") != user_id:
        return list(stored)
    cleared = {**agent, "name": None, "spoken_name": None}
    changes: dict[str, Callable[[StoredFinding], dict[str, Any]]] = {
        "agent": lambda finding: {"value": cleared, "evidence": []},
        "summary": lambda finding: {"value": _without(finding["value"], agent.get("name"))},
    }
    return [
        {**finding, **changes[finding["step"]](finding)} if finding["step"] in changes else finding
        for finding in stored
    ]


def _without(value: Any, name: str | None) -> Any:
    """Return a value of a summary without a name; a name of one word may be a common word, except as a speaker's."""
    if not name:
        return value
    if isinstance(value, dict):
        return {key: part if key == "quote" else _without(part, name) for key, part in value.items()}
    if isinstance(value, list):
        return [_without(part, name) for part in value]
    if not isinstance(value, str):
        return value
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w){'' if ' ' in name else '(?=:)'}", NAMELESS, value)


async def _running(database: Database, workspace_id: UUID, since: datetime) -> bool:
    """Return whether work goes on that was claimed before the member was removed; expired leases do not count."""
    job = sa.select(1).select_from(jobs.join(calls, calls.c.id == jobs.c.call_pk))
    job = job.where(calls.c.workspace_id == workspace_id, jobs.c.state == "running", jobs.c.started_at <= since)
    run = sa.select(1).where(run_calls.c.workspace_id == workspace_id, run_calls.c.state == "running")
    run = run.where(run_calls.c.started_at <= since, run_calls.c.not_before > sa.func.now())
    query = sa.select(sa.or_(sa.exists(job.where(jobs.c.lease_until > sa.func.now())), sa.exists(run)))
    return bool((await database.column(workspace_id, query))[0])
