"""The data about a call available before it is processed: the members of its team, their voices, the workspace's
contacts, terms, questions and scorecards.
"""

from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.tables import call_contacts, calls, contacts, members, teams, voice_centroids, voiceprints, workspaces
from db.queue.jobs import Lease
from db.records.redactions import policy_of
from db.workspace import consents, questions
from db.workspace.directory import template
from pipeline.domain.insight import Contact, Member, MemberVoiceprint, Roster
from pipeline.domain.questions import Question, Scorecard
from pipeline.domain.speech import Voiceprint

MAX_CONTACTS = 2_000  # contacts with the call's numbers first, then the latest


async def load(database: Database, lease: Lease) -> Roster:
    """Return the present roster of a call.

    Members are those of the call's team and those without a team. A voice comes from calls whose sender, or a user,
    named the member as the agent, once enough of them agree.
    """
    async with database.transaction(lease.workspace_id) as connection:
        row = (
            await connection.execute(
                sa.select(
                    *(workspaces.c[name] for name in ("default_country", "time_zone", "terms", "keep_digits")),
                    *(calls.c[name] for name in ("from_e164", "to_e164")),
                    questions.active_questions().label("questions"),
                    sa.func.coalesce(teams.c.summary, workspaces.c.summary).label("summary"),
                )
                .join(calls, calls.c.workspace_id == workspaces.c.id)
                .join(teams, teams.c.id == calls.c.team_id)
                .where(calls.c.id == lease.call_pk)
            )
        ).one()
        defined = questions.parsed(row.questions or ())
        redaction = await policy_of(connection, lease)
        return Roster(
            members=await _members(connection, lease),
            voiceprints=await _voiceprints(connection, lease),
            contacts=await _contacts(connection, lease.workspace_id, [row.from_e164, row.to_e164]),
            default_country=row.default_country,
            time_zone=row.time_zone,
            terms=tuple(row.terms),
            rep=await _agent_set_by_user(connection, lease),
            keep_digits=row.keep_digits,
            channels_swapped=lease.channels_swapped,
            questions=questions.only(Question, defined),
            scorecards=questions.only(Scorecard, defined),
            summary=template(row.summary),
            redaction=redaction,
        )


async def _members(connection: AsyncConnection, lease: Lease) -> tuple[Member, ...]:
    rows = await connection.execute(
        sa.select(members.c.user_id, members.c.name, members.c.aliases).where(_of_team(lease)).order_by(members.c.name)
    )
    return tuple(Member(str(row.user_id), row.name, tuple(row.aliases)) for row in rows)


async def _agent_set_by_user(connection: AsyncConnection, lease: Lease) -> str | None:
    is_named = sa.and_(voiceprints.c.call_pk == lease.call_pk, voiceprints.c.named_by == "person")
    user_id = (await connection.execute(sa.select(voiceprints.c.user_id).where(is_named))).scalar()
    return str(user_id) if user_id else None


async def _voiceprints(connection: AsyncConnection, lease: Lease) -> tuple[MemberVoiceprint, ...]:
    """Return the deciding centroids. A call without a `userId` is enrolled in none, so it never matches itself."""
    same_member = sa.and_(
        members.c.workspace_id == voice_centroids.c.workspace_id, members.c.user_id == voice_centroids.c.user_id
    )
    rows = await connection.execute(
        sa.select(voice_centroids)
        .join(members, same_member)
        .where(_of_team(lease), voice_centroids.c.kind == "profile")
        .where(consents.is_allowed(voice_centroids.c.workspace_id, voice_centroids.c.user_id))
        .order_by(voice_centroids.c.user_id, voice_centroids.c.model, voice_centroids.c.position)
    )
    return tuple(
        MemberVoiceprint(
            str(row.user_id), Voiceprint(tuple(float(x) for x in row.vector), row.model, row.speech_seconds)
        )
        for row in rows
    )


async def _contacts(connection: AsyncConnection, workspace_id: UUID, numbers: list[str | None]) -> tuple[Contact, ...]:
    is_party = sa.func.coalesce(contacts.c.phone.in_([n for n in numbers if n]), sa.false())
    direction_known = sa.exists().where(
        call_contacts.c.contact_id == contacts.c.id,
        calls.c.id == call_contacts.c.call_pk,
        calls.c.outgoing.is_not(None),
    )
    # Only for contacts with the call's numbers: nothing else depends on it.
    inferred = sa.and_(is_party, contacts.c.source == "call", sa.not_(direction_known)).label("inferred")
    rows = await connection.execute(
        sa.select(contacts, inferred)
        .where(contacts.c.workspace_id == workspace_id)
        .order_by(is_party.desc(), contacts.c.updated_at.desc())
        .limit(MAX_CONTACTS)
    )
    return tuple(Contact(str(row.id), row.name, row.company, row.email, row.phone, bool(row.inferred)) for row in rows)


def _of_team(lease: Lease) -> sa.ColumnElement[bool]:
    return sa.and_(
        members.c.workspace_id == lease.workspace_id,
        sa.or_(members.c.team_id.is_(None), members.c.team_id == lease.call.team_id),
    )
