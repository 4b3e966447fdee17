"""Consents of members to their voiceprints, and the condition under which voiceprints may be stored and used.

The latest consent of a member counts, unless it is withdrawn or expired; `db.voices.consent` deletes the voices.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.rows import read
from db.core.tables import member_consents, workspaces
from db.workspace.admin_log import Actor, changing
from db.workspace.directory import DirectoryMember
from pipeline.domain.voices import KeptVoices

MAX_TEXT_VERSION = 200  # characters


class ConsentRefused(ValueError):
    """A consent that cannot be recorded."""


@dataclass(frozen=True, slots=True)
class VoiceConsent:
    """A consent of a member. `text_version`: of the text agreed to; `active`: the latest, which is in force."""

    user_id: UUID
    text_version: str
    recorded_at: datetime
    recorded_by: str
    expires_at: datetime | None
    withdrawn_at: datetime | None
    withdrawn_by: str | None
    active: bool


def _is_active(of_member: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return whether the latest consent of a member is neither withdrawn nor expired, at the time of the statement."""
    in_force = sa.and_(
        member_consents.c.withdrawn_at.is_(None),
        sa.func.coalesce(member_consents.c.expires_at > sa.func.clock_timestamp(), sa.true()),
    )
    latest = sa.select(in_force).where(of_member).order_by(member_consents.c.id.desc()).limit(1)
    return sa.func.coalesce(latest.correlate_except(member_consents).scalar_subquery(), sa.false())


def _of(workspace_id: Any, user_id: Any) -> sa.ColumnElement[bool]:
    return sa.and_(member_consents.c.workspace_id == workspace_id, member_consents.c.user_id == user_id)


def is_allowed(workspace_id: Any, user_id: Any) -> sa.ColumnElement[bool]:
    """Return whether the voice of an agent may be stored and used; columns or values, `user_id` may be NULL."""
    setting = sa.select(workspaces.c.voiceprints).where(workspaces.c.id == workspace_id)
    kept_voices = setting.correlate_except(workspaces).scalar_subquery()
    return sa.case(
        (kept_voices == KeptVoices.ALL.value, sa.true()),
        (kept_voices == KeptVoices.CONSENTED.value, _is_active(_of(workspace_id, user_id))),
        else_=sa.false(),
    )


async def allows(connection: AsyncConnection, workspace_id: UUID, user_id: UUID | None) -> bool:
    """Return whether the voice of this agent (None: unknown) may be stored now."""
    user = sa.literal(user_id, sa.UUID())
    return bool(await connection.scalar(sa.select(is_allowed(sa.literal(workspace_id, sa.UUID()), user))))


async def record(
    database: Database,
    member: DirectoryMember,
    text_version: str,
    expires_at: datetime | None = None,
    by: Actor | None = None,
) -> VoiceConsent:
    """Record a consent, which replaces an earlier one. Raises `ConsentRefused`, and as `admin_log.changing` does."""
    text = " ".join(text_version.replace("\x00", "").split())
    if not 0 < len(text) <= MAX_TEXT_VERSION:
        raise ConsentRefused(f"The version of the text must have 1 to {MAX_TEXT_VERSION} characters.")
    async with changing(database, member.workspace_id, by) as change:
        expired = sa.select(sa.literal(expires_at, sa.DateTime(True)) <= sa.func.clock_timestamp())
        if expires_at is not None and await change.connection.scalar(expired):
            raise ConsentRefused("The consent would be expired already. Choose a later time.")
        values = {"workspace_id": member.workspace_id, "user_id": member.user_id, "text_version": text}
        values |= {"expires_at": expires_at, "recorded_by": change.by.name}
        await change.run(sa.insert(member_consents).values(**values))
        await change.note("consented", "member", member.user_id, member.name, text, member.team_id)
    return (await list_(database, member.workspace_id, member.user_id))[0]


async def list_(database: Database, workspace_id: UUID, user_id: UUID) -> list[VoiceConsent]:
    """Return the consents of a member, the latest first."""
    of_member = _of(workspace_id, user_id)
    last = sa.select(sa.func.max(member_consents.c.id)).where(of_member).correlate(None).scalar_subquery()
    active = sa.and_(member_consents.c.id == last, _is_active(of_member)).label("active")
    query = sa.select(member_consents, active).where(of_member).order_by(member_consents.c.id.desc())
    return [read(VoiceConsent, row) for row in await database.rows(workspace_id, query)]
