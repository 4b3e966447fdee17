"""The rep's voice in each call: kept with the call's record; listed, taken out, put back and given a name by people."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import read, within
from db.core.tables import calls, members, voice_centroids, voiceprint_events, voiceprints
from db.queue.jobs import Lease
from db.voices import profiles as voice_profiles
from pipeline.domain.speech import Voiceprint
from pipeline.domain.voices import VoicePolicy


class NoVoiceprint(LookupError):
    """The call is not there, or has no voiceprint."""


class UnassignedVoiceprint(ValueError):
    """A voiceprint is assigned to a member before it can be approved."""


@dataclass(frozen=True, slots=True)
class VoiceprintSummary:
    """A rep's voice in one call. `state`: enrolled, waiting, quarantined, removed, unassigned, or recognized.

    `recognized`: nobody said whose voice it is, but it clearly fits the profile of `user_id`; it is not enrolled.
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
    """What a person did: removed, restored, assigned (to `user_id`) or approved; replaced: another recording came."""

    at: datetime
    who: str
    action: str
    user_id: UUID | None = None
    name: str | None = None  # the member's


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like a member's profile a voiceprint is: the cosine, from -1 to 1, of the likest of its centers."""

    user_id: UUID
    name: str | None  # the member's
    cosine: float


@dataclass(frozen=True, slots=True)
class VoiceprintRecord:
    """A voiceprint, how like each member's profile it is (the likest first), and what people did to it."""

    summary: VoiceprintSummary
    likeness: tuple[Likeness, ...]
    history: tuple[VoiceprintEvent, ...]


async def keep(
    connection: AsyncConnection,
    lease: Lease,
    user_id: UUID | None,
    voiceprint: Voiceprint | None,
    policy: VoicePolicy | None = None,
) -> None:
    """The rep's voice in this call, under the member who handled it, if known; profiles follow.

    None keeps an earlier one of an "analyze" job and removes that of a "process" job. What a person did to it (removal,
    a name) holds, whatever the call's sender says later. Without a policy nothing is learnt from it.
    """
    own = voiceprints.c.call_pk == lease.call_pk
    before = (await connection.execute(sa.select(voiceprints.c.model).where(own))).scalar()
    if before is None and voiceprint is None:
        return
    await voice_profiles.hold(connection, lease.workspace_id)
    approved = voice_profiles.approved().label("approved")
    was = (await connection.execute(sa.select(voiceprints, approved).where(own))).one_or_none()
    name = _name(was, user_id)
    if voiceprint is not None:
        values = {"workspace_id": lease.workspace_id, **name, **_of(voiceprint)}
        upsert = insert(voiceprints).values(call_pk=lease.call_pk, **values)
        await connection.execute(upsert.on_conflict_do_update(index_elements=["call_pk"], set_=values))
        if was is not None and was.approved and not _same_voice(was, voiceprint):
            await _note(connection, lease.call_pk, "a new recording", "replaced")
    elif lease.job.kind == "analyze":
        await connection.execute(sa.update(voiceprints).where(own).values(**name))
    else:
        await connection.execute(sa.delete(voiceprints).where(own))
    concerned = {was.user_id if was else None, name["user_id"]}
    if policy is None:
        return
    for model in {was.model if was else None, voiceprint.model if voiceprint else None} - {None}:
        await voice_profiles.refresh(connection, lease.workspace_id, str(model), concerned, policy)


async def list_(database: Database, workspace_id: UUID | None = None, limit: int = 1000) -> list[VoiceprintSummary]:
    """The latest first."""
    query = within(_SUMMARY, voiceprints.c.workspace_id, workspace_id)
    query = query.order_by(voiceprints.c.created_at.desc(), voiceprints.c.call_pk.desc()).limit(limit)
    return [_summary(row) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)]


async def show(database: Database, call_id: UUID, workspace_id: UUID | None = None) -> VoiceprintRecord:
    """All about the voiceprint of one call. Raises `NoVoiceprint`."""
    async with database.transaction(workspace_id or EVERY_WORKSPACE) as connection:
        row = await _find(connection, call_id, workspace_id)
        like = sa.func.max(voice_profiles.cosine(voiceprints.c.vector, voice_centroids.c.vector)).label("like")
        compared = sa.and_(
            voice_centroids.c.workspace_id == voiceprints.c.workspace_id,
            voice_centroids.c.model == voiceprints.c.model,
            voice_centroids.c.kind == "profile",
        )
        alike = await connection.execute(
            sa.select(voice_centroids.c.user_id, members.c.name, like)
            .join(voiceprints, compared)
            .outerjoin(members, _of_member(voice_centroids))
            .where(voiceprints.c.call_pk == row.call_pk)
            .group_by(voice_centroids.c.user_id, members.c.name)
            .order_by(like.desc(), voice_centroids.c.user_id)
        )
        named = sa.and_(members.c.workspace_id == row.workspace_id, members.c.user_id == voiceprint_events.c.user_id)
        events = await connection.execute(
            sa.select(voiceprint_events, members.c.name)
            .outerjoin(members, named)
            .where(voiceprint_events.c.call_pk == row.call_pk)
            .order_by(voiceprint_events.c.id)
        )
        return VoiceprintRecord(
            _summary(row),
            tuple(Likeness(user_id, name, round(float(cosine), 4)) for user_id, name, cosine in alike),
            tuple(read(VoiceprintEvent, row) for row in events),
        )


async def remove(
    database: Database, call_id: UUID, who: str, policy: VoicePolicy, workspace_id: UUID | None = None
) -> VoiceprintSummary:
    """Take a sample out: it is kept and has no effect, as if it had never come. Raises `NoVoiceprint`."""
    return await _change(database, call_id, workspace_id, who, "removed", {"removed_at": sa.func.now()}, policy)


async def restore(
    database: Database, call_id: UUID, who: str, policy: VoicePolicy, workspace_id: UUID | None = None
) -> VoiceprintSummary:
    """Put a removed sample back; whether it is enrolled, the gate decides. Raises `NoVoiceprint`."""
    return await _change(database, call_id, workspace_id, who, "restored", {"removed_at": None}, policy)


async def assign(
    database: Database,
    call_id: UUID,
    user_id: UUID,
    who: str,
    policy: VoicePolicy,
    workspace_id: UUID | None = None,
) -> VoiceprintSummary:
    """Say whose voice it is. That holds, whatever the call's sender says later. Raises `NoVoiceprint`."""
    values = {"user_id": user_id, "named_by": "person"}
    return await _change(database, call_id, workspace_id, who, "assigned", values, policy)


async def approve(
    database: Database, call_id: UUID, who: str, policy: VoicePolicy, workspace_id: UUID | None = None
) -> VoiceprintSummary:
    """Approve a sample, whatever the gate found: it is enrolled, once there is a profile.

    Another recording of the call ends it. Raises `NoVoiceprint`, and `UnassignedVoiceprint` where no member was named.
    """
    return await _change(database, call_id, workspace_id, who, voice_profiles.APPROVED, {}, policy)


async def follow(connection: AsyncConnection, lease: Lease) -> None:
    """After the recording of a call has been processed: analyze it again if its voice was named meanwhile.

    Not after an analysis: one that cannot find the member (of another team) would ask for itself without end.
    """
    if lease.job.kind != "process":
        return
    named = sa.select(voiceprints.c.user_id).where(voiceprints.c.call_pk == lease.call_pk)
    if (await connection.execute(named)).scalar() is not None:
        await voice_profiles.analyse_again(connection, lease.call_pk)


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
        found = await _find(connection, call_id, workspace_id)
        await voice_profiles.hold(connection, found.workspace_id)
        was = await _find(connection, call_id, found.workspace_id)  # as it is now that nobody else changes it
        if not _changes(was, action, values):
            return _summary(was)
        if action == voice_profiles.APPROVED and was.named_by not in ("sender", "person"):
            raise UnassignedVoiceprint(f"the voiceprint of call {call_id} is unassigned: assign it first")
        own = voiceprints.c.call_pk == was.call_pk
        if values:
            await connection.execute(sa.update(voiceprints).where(own).values(**values))
        await _note(connection, was.call_pk, who, action, values.get("user_id"))
        if action == "assigned":
            await voice_profiles.analyse_again(connection, was.call_pk)
        concerned = {was.user_id, values.get("user_id", was.user_id)}
        await voice_profiles.refresh(connection, was.workspace_id, was.model, concerned, policy)
        return _summary(await _find(connection, call_id, was.workspace_id))


async def _note(connection: AsyncConnection, call_pk: int, who: str, action: str, user_id: UUID | None = None) -> None:
    event = {"call_pk": call_pk, "who": who, "action": action, "user_id": user_id}
    await connection.execute(sa.insert(voiceprint_events).values(**event))


def _same_voice(was: Any, voiceprint: Voiceprint) -> bool:
    """The print of the same recording: PostgreSQL's vectors have single precision."""
    before, now = [float(x) for x in was.vector], voiceprint.vector
    return len(before) == len(now) and all(abs(a - b) < 1e-5 for a, b in zip(before, now, strict=True))


def _changes(was: Any, action: str, values: dict[str, Any]) -> bool:
    """Whether it is not so already."""
    if action == "assigned":
        return any(was._mapping[name] != value for name, value in values.items())
    if action == voice_profiles.APPROVED:
        return not was.approved
    return (was.removed_at is None) == (action == "removed")


def _name(was: Any, user_id: UUID | None) -> dict[str, Any]:
    """What a person said goes before what the sender says, and that before what a voice resembles."""
    if was is not None and was.named_by == "person":
        return {"user_id": was.user_id, "named_by": "person"}
    if user_id is not None:
        return {"user_id": user_id, "named_by": "sender"}
    if was is not None and was.named_by == "voice":
        return {"user_id": was.user_id, "named_by": "voice"}
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
        voice_profiles.approved().label("approved"),
    )
    .join(calls, calls.c.id == voiceprints.c.call_pk)
    .outerjoin(members, _of_member(voiceprints))
)


async def _find(connection: AsyncConnection, call_id: UUID, workspace_id: UUID | None) -> Any:
    query = within(_SUMMARY, voiceprints.c.workspace_id, workspace_id).where(calls.c.call_id == call_id)
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
