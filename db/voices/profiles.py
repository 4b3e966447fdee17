"""Voice profiles of members, computed again from their voiceprints whenever one is added, removed or reassigned.

A `VoicePolicy` decides; this module selects its samples. Everything follows from the set of stored samples, so removing
one restores the former centroids and states.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.tables import calls, findings, jobs, voice_centroids, voiceprint_events, voiceprints
from db.workspace import consents
from pipeline.domain.speech import Voiceprint
from pipeline.domain.voices import Centroid, Standing, VoicePolicy, VoiceSample

LATEST = 50  # voiceprints of a member that form the profile; older ones wait
MAX_UNASSIGNED = 500  # the latest unassigned voiceprints that a new profile may name
APPROVED = "approved"  # an action


def learnable() -> sa.ColumnElement[bool]:
    """Return the only condition for voiceprints that profiles may use: not removed, and named by a sender or a user.

    A recognized voice is never used, nor one without the consent that its workspace requires.
    """
    usable = sa.and_(voiceprints.c.removed_at.is_(None), voiceprints.c.named_by.in_(("sender", "person")))
    return sa.and_(usable, consents.is_allowed(voiceprints.c.workspace_id, voiceprints.c.user_id))


def approved() -> sa.ColumnElement[bool]:
    """Return whether a user approved a voiceprint and its recording was not replaced since."""
    last_action = (
        sa.select(voiceprint_events.c.action)
        .where(voiceprint_events.c.call_pk == voiceprints.c.call_pk)
        .where(voiceprint_events.c.action.in_((APPROVED, "replaced")))
        .order_by(voiceprint_events.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return sa.func.coalesce(last_action == APPROVED, sa.false())


def cosine(a: sa.ColumnElement[Any], b: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
    """Return the cosine of two vectors; -1 if their lengths differ, which pgvector rejects."""
    same_length = sa.func.vector_dims(a) == sa.func.vector_dims(b)
    return sa.case((same_length, 1 - a.op("<=>", return_type=sa.Double())(b)), else_=sa.literal(-1.0))


async def hold(connection: AsyncConnection, workspace_id: UUID) -> None:
    """Lock a workspace's voices for this transaction; after the call's row and before any voiceprint."""
    name = sa.func.hashtextextended(f"voices {workspace_id}", 0)
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(name)))


async def refresh(
    connection: AsyncConnection, workspace_id: UUID, model: str, members: Iterable[UUID | None], policy: VoicePolicy
) -> None:
    """Recompute the profiles of `members` and of members with similar samples, and name unassigned voices."""
    book = _WorkspaceVoices(connection, workspace_id, model, policy)
    changed = {member for member in members if member is not None}
    touched = set(changed)
    for member in sorted(changed):
        touched |= await book.resembling(member)  # by its former centroids
        await book.write(member, "own", policy.centroids(await book.samples(member)))
        touched |= await book.resembling(member)
    for member in sorted(touched):
        samples = await book.samples(member)
        profile = policy.learn(samples, await book.others(member))
        await book.write(member, "profile", profile.centroids)
        verdicts = {key: (verdict.standing, verdict.reasons) for key, verdict in profile.verdicts.items()}
        await book.mark(member, verdicts)
    await book.name_unassigned()


async def requeue_analysis(connection: AsyncConnection, call_pk: int) -> None:
    """Queue the analysis of a completed call sent without a `userId` if its agent differs from its voice.

    Runs in the transaction that names the voice. One live analysis is enough: one that runs while the voice is named
    may have used the older names, and is not repeated.
    """
    agent = sa.select(findings.c.value["user_id"].astext).where(
        findings.c.call_pk == call_pk, findings.c.step == "agent"
    )
    latest = agent.order_by(findings.c.version.desc()).limit(1).scalar_subquery()
    voice = sa.select(sa.cast(voiceprints.c.user_id, sa.Text)).where(voiceprints.c.call_pk == call_pk).scalar_subquery()
    due = (
        sa.select(calls.c.id, sa.literal("analyze"))
        .where(calls.c.id == call_pk, calls.c.state == "completed", calls.c.user_id.is_(None))
        .where(latest.is_distinct_from(voice), calls.c.content_expired.is_distinct_from(calls.c.job_id))
    )
    live = sa.text("state IN ('queued', 'running')")  # as in the index
    await connection.execute(
        insert(jobs)
        .from_select(["call_pk", "kind"], due)
        .on_conflict_do_nothing(index_elements=["call_pk", "kind"], index_where=live)
    )


@dataclass(frozen=True, slots=True)
class _WorkspaceVoices:
    connection: AsyncConnection
    workspace_id: UUID
    model: str
    policy: VoicePolicy

    async def samples(self, member: UUID) -> list[VoiceSample]:
        """Return the latest samples that may be used."""
        columns = [voiceprints.c[name] for name in ("call_pk", "vector", "speech_seconds", "quality_issues")]
        query = (
            sa.select(*columns, approved().label("approved"))
            .where(self._prints(), voiceprints.c.user_id == member, learnable())
            .order_by(voiceprints.c.created_at.desc(), voiceprints.c.call_pk.desc())
            .limit(LATEST)
        )
        rows = list(await self.connection.execute(query))
        return [
            VoiceSample(
                f"{row.call_pk:020d}",
                self._voiceprint(row.vector, row.speech_seconds, row.quality_issues),
                row.approved,
            )
            for row in rows
            if len(row.vector) == len(rows[0].vector)  # another model under the same name
        ]

    async def others(self, member: UUID) -> dict[str, list[Voiceprint]]:
        """Return the centroids of other members from their calls."""
        query = sa.select(voice_centroids).where(self._centroids("own"), voice_centroids.c.user_id != member)
        centroids: dict[str, list[Voiceprint]] = defaultdict(list)
        for row in await self.connection.execute(query.order_by(voice_centroids.c.user_id, voice_centroids.c.position)):
            centroids[str(row.user_id)].append(self._voiceprint(row.vector, row.speech_seconds))
        return centroids

    async def resembling(self, member: UUID) -> set[UUID]:
        """Return members with a sample that matches `member`'s centroids, so that its verdict may depend on them."""
        like = cosine(voiceprints.c.vector, voice_centroids.c.vector)
        threshold = self.policy.fit(self.model) - 1e-6  # PostgreSQL's vectors have single precision
        query = (
            sa.select(voiceprints.c.user_id)
            .join(voice_centroids, sa.and_(self._centroids("own"), voice_centroids.c.user_id == member))
            .where(self._prints(), learnable(), voiceprints.c.user_id != member, like >= threshold)
            .distinct()
        )
        return set((await self.connection.execute(query)).scalars())

    async def write(self, member: UUID, kind: str, centroids: Sequence[Centroid]) -> None:
        """Replace a member's centroids of one kind."""
        of_member = sa.and_(self._centroids(kind), voice_centroids.c.user_id == member)
        await self.connection.execute(sa.delete(voice_centroids).where(of_member))
        key = {"workspace_id": self.workspace_id, "user_id": member, "model": self.model, "kind": kind}
        rows = [
            {
                **key,
                "position": position,
                "vector": list(centroid.voiceprint.vector),
                "calls": centroid.calls,
                "speech_seconds": centroid.voiceprint.speech_seconds,
            }
            for position, centroid in enumerate(centroids)
        ]
        if rows:
            await self.connection.execute(sa.insert(voice_centroids), rows)

    async def mark(self, member: UUID, verdicts: Mapping[str, tuple[Standing, tuple[str, ...]]]) -> None:
        """Store the state of each sample; older ones wait."""
        older = {"standing": Standing.WAITING.value, "reasons": ["older"]}
        of_member = sa.and_(self._prints(), voiceprints.c.user_id == member, learnable())
        call_pks = [int(key) for key in verdicts]
        await self.connection.execute(
            sa.update(voiceprints).where(of_member, voiceprints.c.call_pk.not_in(call_pks)).values(**older)
        )
        by_verdict: dict[tuple[Standing, tuple[str, ...]], list[int]] = defaultdict(list)
        for key, verdict in verdicts.items():
            by_verdict[verdict].append(int(key))
        for (standing, reasons), keys in by_verdict.items():
            values = {"standing": standing.value, "reasons": list(reasons)}
            await self.connection.execute(
                sa.update(voiceprints).where(voiceprints.c.call_pk.in_(keys)).values(**values)
            )

    async def name_unassigned(self) -> None:
        """Name each unassigned voice after the member whose profile it clearly matches, else remove its name."""
        latest = (
            sa.select(voiceprints.c.call_pk, voiceprints.c.vector, voiceprints.c.user_id)
            .where(self._prints(), voiceprints.c.removed_at.is_(None))
            .where(sa.or_(voiceprints.c.named_by.is_(None), voiceprints.c.named_by == "voice"))
            .order_by(voiceprints.c.created_at.desc(), voiceprints.c.call_pk.desc())
            .limit(MAX_UNASSIGNED)
            .subquery()
        )
        like = sa.func.max(cosine(latest.c.vector, voice_centroids.c.vector))
        query = (
            sa.select(latest.c.call_pk, latest.c.user_id, voice_centroids.c.user_id.label("member"), like.label("like"))
            .outerjoin(voice_centroids, self._centroids("profile"))
            .group_by(latest.c.call_pk, latest.c.user_id, voice_centroids.c.user_id)
        )
        similarities: dict[int, dict[str, float]] = defaultdict(dict)
        assigned: dict[int, UUID | None] = {}
        for row in await self.connection.execute(query):
            assigned[row.call_pk] = row.user_id
            if row.member is not None and np.isfinite(row.like):
                similarities[row.call_pk][str(row.member)] = row.like
        for call_pk, current in assigned.items():
            match = self.policy.whose(similarities[call_pk], self.model)
            member = UUID(match) if match else None
            if member != current:
                await self.connection.execute(
                    sa.update(voiceprints)
                    .where(voiceprints.c.call_pk == call_pk)
                    .values(user_id=member, named_by="voice" if member else None)
                )
                await requeue_analysis(self.connection, call_pk)

    def _prints(self) -> sa.ColumnElement[bool]:
        return sa.and_(voiceprints.c.workspace_id == self.workspace_id, voiceprints.c.model == self.model)

    def _centroids(self, kind: str) -> sa.ColumnElement[bool]:
        return sa.and_(
            voice_centroids.c.workspace_id == self.workspace_id,
            voice_centroids.c.model == self.model,
            voice_centroids.c.kind == kind,
        )

    def _voiceprint(self, vector: Any, seconds: float, quality_issues: Iterable[str] = ()) -> Voiceprint:
        return Voiceprint(tuple(float(x) for x in vector), self.model, seconds, quality_issues=tuple(quality_issues))
