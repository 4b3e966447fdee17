"""The agent's voice in each call: stored with the call's record; listed, removed, restored and assigned by users."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import filter_by, read
from db.core.tables import calls, members, voice_centroids, voiceprint_events, voiceprints
from db.queue.jobs import Lease
from db.voices import profiles
from db.workspace import consents
from pipeline.domain.speech import Voiceprint
from pipeline.domain.voices import VoicePolicy


class NoVoiceprint(LookupError):
    """The call does not exist, or has no voiceprint."""


class NoConsent(ValueError):
    """The member has not agreed to voiceprints, or the workspace stores none."""


class UnassignedVoiceprint(ValueError):
    """A voiceprint must be assigned to a member before it can be approved."""


@dataclass(frozen=True, slots=True)
class VoiceprintSummary:
    """An agent's voice in one call. `state`: enrolled, waiting, quarantined, removed, unassigned, or recognized.

    `recognized`: it is not assigned but clearly matches the profile of `user_id`; it is not enrolled.
    """

    call_id: UUID
    workspace_id: UUID
    user_id: UUID | None
    name: str | None  # the member's
    state: str
    reasons: tuple[str, ...]
    model: str
    speech_seconds: float
    agreement: float | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class VoiceprintEvent:
    """A user's action: removed, restored, assigned (to `user_id`) or approved; replaced: by another recording."""

    at: datetime
    who: str
    action: str
    user_id: UUID | None = None
    name: str | None = None  # the member's


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarity of a voiceprint to a member's profile: the cosine, -1 to 1, to its closest centroid."""

    user_id: UUID
    name: str | None  # the member's
    cosine: float


@dataclass(frozen=True, slots=True)
class VoiceprintRecord:
    """A voiceprint, its similarity to each member's profile (the closest first), and users' actions."""

    summary: VoiceprintSummary
    likeness: tuple[Similarity, ...]
    history: tuple[VoiceprintEvent, ...]


async def keep(
    connection: AsyncConnection,
    lease: Lease,
    user_id: UUID | None,
    voiceprint: Voiceprint | None,
    policy: VoicePolicy | None = None,
    matched: UUID | None = None,
) -> bool:
    """Store the agent's voice in this call under the member who handled it, if known, and update profiles.

    Returns False if the voice may not be stored (`consents`), here or elsewhere: an earlier one is deleted. `matched`:
    the member whose profile a voice of a mixed recording matched. Without a voiceprint, an "analyze" job keeps an
    earlier one, and a "process" job removes it. What a user removed or assigned stays so. `policy` None: no profiles.
    """
    of_call = voiceprints.c.call_pk == lease.call_pk
    stored_model = (await connection.execute(sa.select(voiceprints.c.model).where(of_call))).scalar()
    if stored_model is None and voiceprint is None and matched is None:
        return True
    await profiles.hold(connection, lease.workspace_id)
    if stored_model is None and voiceprint is None:
        return await consents.allows(connection, lease.workspace_id, matched)
    approved = profiles.approved().label("approved")
    previous = (await connection.execute(sa.select(voiceprints, approved).where(of_call))).one_or_none()
    name = _name(previous, user_id)
    allowed = await consents.allows(connection, lease.workspace_id, name["user_id"] or matched)
    if not allowed:
        voiceprint = None
        await connection.execute(sa.delete(voiceprint_events).where(voiceprint_events.c.call_pk == lease.call_pk))
        await connection.execute(sa.delete(voiceprints).where(of_call))
    elif voiceprint is not None:
        await _store(connection, lease, name, voiceprint, previous)
    elif lease.job.kind == "analyze":
        await connection.execute(sa.update(voiceprints).where(of_call).values(**name))
    else:
        await connection.execute(sa.delete(voiceprints).where(of_call))
    affected = {previous.user_id if previous else None, name["user_id"]}
    if policy is not None:
        for model in {row.model for row in (previous, voiceprint) if row}:
            await profiles.refresh(connection, lease.workspace_id, model, affected, policy)
    return allowed


async def _store(
    connection: AsyncConnection, lease: Lease, name: Mapping[str, Any], voiceprint: Voiceprint, previous: Any
) -> None:
    values = {"workspace_id": lease.workspace_id, **name, **_of(voiceprint)}
    upsert = insert(voiceprints).values(call_pk=lease.call_pk, **values)
    await connection.execute(upsert.on_conflict_do_update(index_elements=["call_pk"], set_=values))
    if previous is not None and previous.approved and not _same_voice(previous, voiceprint):
        await _note(connection, lease.call_pk, "a new recording", "replaced")


async def list_(database: Database, workspace_id: UUID | None = None, limit: int = 1000) -> list[VoiceprintSummary]:
    """Return voiceprints, the latest first."""
    query = filter_by(_SUMMARY, voiceprints.c.workspace_id, workspace_id)
    query = query.order_by(voiceprints.c.created_at.desc(), voiceprints.c.call_pk.desc()).limit(limit)
    return [_summary(row) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)]


async def show(database: Database, call_id: UUID, workspace_id: UUID | None = None) -> VoiceprintRecord:
    """Return the voiceprint of one call with its history. Raises `NoVoiceprint`."""
    async with database.transaction(workspace_id or EVERY_WORKSPACE) as connection:
        row = await _find(connection, call_id, workspace_id)
        like = sa.func.max(profiles.cosine(voiceprints.c.vector, voice_centroids.c.vector)).label("like")
        same_model = sa.and_(
            voice_centroids.c.workspace_id == voiceprints.c.workspace_id,
            voice_centroids.c.model == voiceprints.c.model,
            voice_centroids.c.kind == "profile",
        )
        similarities = await connection.execute(
            sa.select(voice_centroids.c.user_id, members.c.name, like)
            .join(voiceprints, same_model)
            .outerjoin(members, _of_member(voice_centroids))
            .where(voiceprints.c.call_pk == row.call_pk)
            .group_by(voice_centroids.c.user_id, members.c.name)
            .order_by(like.desc(), voice_centroids.c.user_id)
        )
        is_member = sa.and_(
            members.c.workspace_id == row.workspace_id, members.c.user_id == voiceprint_events.c.user_id
        )
        events = await connection.execute(
            sa.select(voiceprint_events, members.c.name)
            .outerjoin(members, is_member)
            .where(voiceprint_events.c.call_pk == row.call_pk)
            .order_by(voiceprint_events.c.id)
        )
        return VoiceprintRecord(
            _summary(row),
            tuple(Similarity(user_id, name, round(float(cosine), 4)) for user_id, name, cosine in similarities),
            tuple(read(VoiceprintEvent, row) for row in events),
        )


async def remove(
    database: Database, call_id: UUID, who: str, policy: VoicePolicy, workspace_id: UUID | None = None
) -> VoiceprintSummary:
    """Remove a sample: it is stored but has no effect. Raises `NoVoiceprint`."""
    return await _change(database, call_id, workspace_id, who, "removed", {"removed_at": sa.func.now()}, policy)


async def restore(
    database: Database, call_id: UUID, who: str, policy: VoicePolicy, workspace_id: UUID | None = None
) -> VoiceprintSummary:
    """Restore a removed sample; the gate decides whether it is enrolled. Raises `NoVoiceprint`, `NoConsent`."""
    return await _change(database, call_id, workspace_id, who, "restored", {"removed_at": None}, policy)


async def assign(
    database: Database, call_id: UUID, user_id: UUID, who: str, policy: VoicePolicy, workspace_id: UUID | None = None
) -> VoiceprintSummary:
    """Assign a voice to a member. It persists, whatever the call's sender submits later.

    Raises `NoVoiceprint`, and `NoConsent` if the member's voice may not be stored.
    """
    values = {"user_id": user_id, "named_by": "person"}
    return await _change(database, call_id, workspace_id, who, "assigned", values, policy)


async def approve(
    database: Database, call_id: UUID, who: str, policy: VoicePolicy, workspace_id: UUID | None = None
) -> VoiceprintSummary:
    """Approve a sample, regardless of the gate: it is enrolled once there is a profile.

    Another recording of the call ends the approval. Raises `NoVoiceprint`, and `UnassignedVoiceprint` without a member.
    """
    return await _change(database, call_id, workspace_id, who, profiles.APPROVED, {}, policy)


async def follow(connection: AsyncConnection, lease: Lease) -> None:
    """Analyze a processed call again if its voice was named in the meantime.

    Not after an analysis: one that cannot find the member (of another team) would requeue itself endlessly.
    """
    if lease.job.kind != "process":
        return
    member = sa.select(voiceprints.c.user_id).where(voiceprints.c.call_pk == lease.call_pk)
    if (await connection.execute(member)).scalar() is not None:
        await profiles.requeue_analysis(connection, lease.call_pk)


async def _change(
    database: Database,
    call_id: UUID,
    workspace_id: UUID | None,
    who: str,
    action: str,
    values: dict[str, Any],
    policy: VoicePolicy,
) -> VoiceprintSummary:
    async with database.transaction(workspace_id or EVERY_WORKSPACE) as connection:
        row = await _find(connection, call_id, workspace_id)
        await profiles.hold(connection, row.workspace_id)
        current = await _find(connection, call_id, row.workspace_id)  # again, now that it is locked
        if not _changes(current, action, values):
            return _summary(current)
        if action == profiles.APPROVED and current.named_by not in ("sender", "person"):
            raise UnassignedVoiceprint(f"the voiceprint of call {call_id} is unassigned: assign it first")
        owner = values.get("user_id", current.user_id)
        if action != "removed" and not await consents.allows(connection, current.workspace_id, owner):
            raise NoConsent("the voice of this member may not be stored: record the member's consent first")
        of_call = voiceprints.c.call_pk == current.call_pk
        if values:
            await connection.execute(sa.update(voiceprints).where(of_call).values(**values))
        await _note(connection, current.call_pk, who, action, values.get("user_id"))
        if action == "assigned":
            await profiles.requeue_analysis(connection, current.call_pk)
        affected = {current.user_id, values.get("user_id", current.user_id)}
        await profiles.refresh(connection, current.workspace_id, current.model, affected, policy)
        return _summary(await _find(connection, call_id, current.workspace_id))


async def _note(connection: AsyncConnection, call_pk: int, who: str, action: str, user_id: UUID | None = None) -> None:
    event = {"call_pk": call_pk, "who": who, "action": action, "user_id": user_id}
    await connection.execute(sa.insert(voiceprint_events).values(**event))


def _same_voice(previous: Any, voiceprint: Voiceprint) -> bool:
    """Return whether both are of the same recording: PostgreSQL's vectors have single precision."""
    old_vector, new_vector = [float(x) for x in previous.vector], voiceprint.vector
    return len(old_vector) == len(new_vector) and all(
        abs(a - b) < 1e-5 for a, b in zip(old_vector, new_vector, strict=True)
    )


def _changes(current: Any, action: str, values: dict[str, Any]) -> bool:
    if action == "assigned":
        return any(current._mapping[name] != value for name, value in values.items())
    if action == profiles.APPROVED:
        return not current.approved
    return (current.removed_at is None) == (action == "removed")


def _name(previous: Any, user_id: UUID | None) -> dict[str, Any]:
    """Return the name by precedence: a user's, then the sender's, then that of a recognized voice."""
    if previous is not None and previous.named_by == "person":
        return {"user_id": previous.user_id, "named_by": "person"}
    if user_id is not None:
        return {"user_id": user_id, "named_by": "sender"}
    if previous is not None and previous.named_by == "voice":
        return {"user_id": previous.user_id, "named_by": "voice"}
    return {"user_id": None, "named_by": None}


def _of(voiceprint: Voiceprint) -> dict[str, Any]:
    return {
        "model": voiceprint.model,
        "vector": list(voiceprint.vector),
        "speech_seconds": voiceprint.speech_seconds,
        "agreement": voiceprint.agreement,
        "quality_issues": list(voiceprint.quality_issues),
        "standing": "quarantined" if voiceprint.quality_issues else "waiting",
        "reasons": list(voiceprint.quality_issues),
    }


def _of_member(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(members.c.workspace_id == table.c.workspace_id, members.c.user_id == table.c.user_id)


_SUMMARY = (
    sa.select(
        *(voiceprints.c[name] for name in ("call_pk", "workspace_id", "user_id", "named_by", "standing", "reasons")),
        *(voiceprints.c[name] for name in ("model", "speech_seconds", "agreement", "removed_at", "created_at")),
        calls.c.call_id,
        members.c.name,
        profiles.approved().label("approved"),
    )
    .join(calls, calls.c.id == voiceprints.c.call_pk)
    .outerjoin(members, _of_member(voiceprints))
)


async def _find(connection: AsyncConnection, call_id: UUID, workspace_id: UUID | None) -> Any:
    query = filter_by(_SUMMARY, voiceprints.c.workspace_id, workspace_id).where(calls.c.call_id == call_id)
    row = (await connection.execute(query.order_by(voiceprints.c.call_pk.desc()).limit(1))).one_or_none()
    if row is None:
        raise NoVoiceprint(f"no voiceprint of a call {call_id}")
    return row


def _summary(row: Any) -> VoiceprintSummary:
    return read(VoiceprintSummary, row, state=_state(row), reasons=tuple(row.reasons))


def _state(row: Any) -> str:
    if row.removed_at is not None:
        return "removed"
    if row.named_by is None:
        return "unassigned"
    if row.named_by == "voice":
        return "recognized"
    return str(row.standing)
