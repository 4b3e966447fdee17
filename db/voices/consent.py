"""Deletes voices that may not be stored any more: after a withdrawal, an expiry, or a change of the workspace."""

from collections.abc import Sequence
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.tables import calls, findings, member_consents, stage_results, voiceprint_events, voiceprints, workspaces
from db.queue import stage_results as results
from db.queue.jobs import VOICES
from db.voices import profiles
from db.workspace import consents
from db.workspace.admin_log import Actor, changing
from db.workspace.consents import VoiceConsent
from db.workspace.directory import DirectoryMember, Workspace, find_workspace
from pipeline.domain.voices import KeptVoices, VoicePolicy


async def withdraw(
    database: Database, member: DirectoryMember, policy: VoicePolicy, by: Actor | None = None
) -> list[VoiceConsent]:
    """Withdraw a member's consents and delete the voiceprints and the profile; return the consents.

    A job that ends later stores no voice: it looks for the consent in the transaction of its results.
    """
    home, user_id = member.workspace_id, member.user_id
    of_member = sa.and_(member_consents.c.workspace_id == home, member_consents.c.user_id == user_id)
    async with changing(database, home, by) as change:
        await profiles.hold(change.connection, home)
        values = {"withdrawn_at": sa.func.clock_timestamp(), "withdrawn_by": change.by.name}
        open_consents = sa.update(member_consents).where(of_member, member_consents.c.withdrawn_at.is_(None))
        withdrawn = await change.run(open_consents.values(**values).returning(member_consents.c.id))
        await _delete(change.connection, home, policy, [user_id])
        if withdrawn:
            await change.note("withdrawn", "member", user_id, member.name, "consent", member.team_id)
    return await consents.list_(database, home, user_id)


async def set_kept(
    database: Database, workspace_id: UUID, setting: KeptVoices, policy: VoicePolicy, by: Actor | None = None
) -> Workspace:
    """Set whose voiceprints a workspace stores, and delete the others at once. Raises NotInDirectory."""
    async with changing(database, workspace_id, by) as change:
        await profiles.hold(change.connection, workspace_id)
        is_workspace = workspaces.c.id == workspace_id
        update = sa.update(workspaces).where(is_workspace).values(voiceprints=setting.value)
        (row,) = await change.run(update.returning(workspaces.c.name))
        await _delete(change.connection, workspace_id, policy)
        await change.note("changed", "workspace", workspace_id, row.name, f"voiceprints {setting}")
    return await find_workspace(database, workspace_id)


async def expire(database: Database, policy: VoicePolicy) -> int:
    """Delete the voices of members whose consent has expired; return the number of calls."""
    same_member = sa.and_(
        voiceprints.c.workspace_id == member_consents.c.workspace_id, voiceprints.c.user_id == member_consents.c.user_id
    )
    due = sa.select(member_consents.c.workspace_id, member_consents.c.user_id).join(voiceprints, same_member).distinct()
    due = due.where(member_consents.c.expires_at <= sa.func.clock_timestamp(), _IS_FORBIDDEN)
    deleted = 0
    for row in await database.rows(EVERY_WORKSPACE, due):
        async with database.transaction(row.workspace_id) as connection:
            await profiles.hold(connection, row.workspace_id)
            deleted += await _delete(connection, row.workspace_id, policy, [row.user_id])
    return deleted


_IS_FORBIDDEN = sa.not_(consents.is_allowed(voiceprints.c.workspace_id, voiceprints.c.user_id))


async def _delete(
    connection: AsyncConnection, workspace_id: UUID, policy: VoicePolicy, users: Sequence[UUID] | None = None
) -> int:
    """Delete the voices that may not be stored, of `users` or all; others' profiles are computed without them."""
    columns = (voiceprints.c.call_pk, voiceprints.c.user_id, voiceprints.c.model)
    prints = sa.select(*columns).where(voiceprints.c.workspace_id == workspace_id, _IS_FORBIDDEN)
    prints = prints if users is None else prints.where(voiceprints.c.user_id.in_(users))
    rows = (await connection.execute(prints)).all()
    call_pks = [row.call_pk for row in rows]
    of_calls = voiceprints.c.call_pk.in_(call_pks)
    released = {"user_id": None, "named_by": None, "removed_at": sa.func.now()}
    await connection.execute(sa.update(voiceprints).where(of_calls).values(released))
    for model in sorted({row.model for row in rows}):
        members = {row.user_id for row in rows if row.model == model}
        await profiles.refresh(connection, workspace_id, model, members, policy)
    for table in (voiceprint_events, voiceprints):
        await connection.execute(sa.delete(table).where(table.c.call_pk.in_(call_pks)))
    for call_pk in {*call_pks, *await _with_voices(connection, workspace_id, users)}:
        await results.drop_voiceprints(connection, call_pk)
    return len(rows)


async def _with_voices(connection: AsyncConnection, workspace_id: UUID, users: Sequence[UUID] | None) -> list[int]:
    """Return calls whose stage results may have the voice of an agent that may not be stored."""
    user_id_text = findings.c.value["user_id"].astext
    agent = sa.select(sa.cast(user_id_text, sa.UUID())).where(
        findings.c.call_pk == calls.c.id, findings.c.step == "agent", user_id_text.op("~")("^[0-9a-f-]{36}$")
    )
    owner = sa.func.coalesce(calls.c.user_id, agent.order_by(findings.c.version.desc()).limit(1).scalar_subquery())
    has_voices = sa.exists().where(stage_results.c.call_pk == calls.c.id, stage_results.c.stage.in_(VOICES))
    at_rest = calls.c.state != "transcribing"  # a running job decides when it completes
    forbidden = sa.not_(consents.is_allowed(calls.c.workspace_id, owner))
    query = sa.select(calls.c.id).where(calls.c.workspace_id == workspace_id, has_voices, at_rest, forbidden)
    query = query if users is None else query.where(owner.in_(users))
    return list((await connection.execute(query)).scalars())
