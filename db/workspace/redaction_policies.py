"""Policies of redaction, of a workspace and of its teams: a team's replaces its workspace's."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.tables import redaction_policies, teams
from db.workspace.admin_log import Actor, Changing, changing
from db.workspace.directory import NoSuchTeam
from pipeline.domain.redaction import (
    MAX_GUARD_SECONDS,
    MAX_LAST_DIGITS,
    EntityKind,
    NamedPolicy,
    RedactionMode,
    RedactionPreset,
)

MAX_PATTERNS, MAX_SHAPE = 50, 64
_POLICY = TypeAdapter(NamedPolicy)


class PolicyRefused(ValueError):
    """A policy that cannot be applied; the message says why."""


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """The policy of a workspace (`team_id` None) or a team; None: a team has its workspace's, a workspace none."""

    team_id: UUID | None
    version: int
    policy: NamedPolicy | None


def named(
    mode: RedactionMode,
    presets: Iterable[RedactionPreset] = (),
    kinds: Iterable[EntityKind] = (),
    **options: Any,
) -> NamedPolicy:
    """Return a policy named after its presets and further kinds. `options`: fields of `RedactionPolicy`.

    Raises `PolicyRefused`.
    """
    if mode is RedactionMode.OFF:
        return NamedPolicy(mode, name=RedactionMode.OFF, version=0)
    presets = sorted(set(presets))
    of_presets = {kind for preset in presets for kind in preset.kinds}
    further = sorted(set(kinds) - of_presets - {EntityKind.CUSTOM})
    policy = NamedPolicy(mode, tuple(sorted({*of_presets, *further})), **options, name="", version=0)
    words = [*presets, *further, *(["patterns"] if policy.patterns else [])]
    _require(bool(words), "The policy hides nothing. Name a preset, a kind or a pattern.")
    _check(policy)
    return replace(policy, name="+".join(words))


def _check(policy: NamedPolicy) -> None:
    digits, seconds, patterns = policy.last_digits, policy.guard_seconds, policy.patterns
    _require(0 <= digits <= MAX_LAST_DIGITS, f"last_digits is {digits}. Write 0 to {MAX_LAST_DIGITS}.")
    _require(0 <= seconds <= MAX_GUARD_SECONDS, f"guard_seconds is {seconds}. Write 0 to {MAX_GUARD_SECONDS}.")
    _require(len(patterns) <= MAX_PATTERNS, f"The policy has {len(patterns)} patterns. Use up to {MAX_PATTERNS}.")
    for pattern in patterns:
        fits = 0 < len(pattern.shape) <= MAX_SHAPE and any(sign in "A9" for sign in pattern.shape)
        _require(
            bool(pattern.name.strip()) and fits,
            f"The pattern {pattern.name!r} has the shape {pattern.shape!r}. Write up to {MAX_SHAPE} characters with A "
            "for a letter and 9 for a digit, as in AB-999999.",
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise PolicyRefused(message)


async def set_policy(
    database: Database,
    workspace_id: UUID,
    policy: NamedPolicy | None,
    team_id: UUID | None = None,
    by: Actor | None = None,
) -> StoredPolicy:
    """Set the policy of a workspace or team for calls processed from now on; None removes it.

    Raises `NoSuchTeam`, and what `changing` raises.
    """
    async with changing(database, workspace_id, by) as change:
        is_team = sa.and_(teams.c.workspace_id == workspace_id, teams.c.id == team_id)
        if team_id is not None and not await change.run(sa.select(teams.c.id).where(is_team)):
            raise NoSuchTeam(f"no team {team_id}")
        version = await _next_version(change, team_id)
        numbered = policy and replace(policy, version=version)
        await _write(change, team_id, version, numbered)
        shown = "none" if numbered is None else f"{numbered.name}, {numbered.mode}, version {version}"
        await change.note("changed", "redaction", team_id or workspace_id, detail=shown, team_id=team_id)
    return StoredPolicy(team_id, version, numbered)


async def _next_version(change: Changing, team_id: UUID | None) -> int:
    query = sa.select(redaction_policies.c.version).where(_is_of(change.workspace_id, team_id))
    rows = await change.run(query)
    return int(rows[0].version) + 1 if rows else 1


async def _write(change: Changing, team_id: UUID | None, version: int, policy: NamedPolicy | None) -> None:
    stored = sa.null() if policy is None else policy
    values: dict[str, Any] = {"version": version, "policy": stored, "changed_at": sa.func.now()}
    if version == 1:
        row = {"workspace_id": change.workspace_id, "team_id": team_id}
        await change.run(insert(redaction_policies).values(row | values))
    else:
        await change.run(sa.update(redaction_policies).where(_is_of(change.workspace_id, team_id)).values(values))


def _is_of(workspace_id: UUID, team_id: UUID | None) -> sa.ColumnElement[bool]:
    return sa.and_(
        redaction_policies.c.workspace_id == workspace_id, redaction_policies.c.team_id.is_not_distinct_from(team_id)
    )


async def list_policies(database: Database, workspace_id: UUID) -> list[StoredPolicy]:
    """Return the policies that are set, the workspace's first."""
    query = sa.select(redaction_policies).where(
        redaction_policies.c.workspace_id == workspace_id, redaction_policies.c.policy.is_not(None)
    )
    rows = await database.rows(workspace_id, query.order_by(sa.nulls_first(redaction_policies.c.team_id)))
    return [StoredPolicy(row.team_id, row.version, _POLICY.validate_python(row.policy)) for row in rows]


async def effective(connection: AsyncConnection, workspace_id: UUID, team_id: UUID | None) -> NamedPolicy | None:
    """Return the policy of a team's calls; None if nothing is hidden."""
    of_scope = sa.or_(redaction_policies.c.team_id == team_id, redaction_policies.c.team_id.is_(None))
    query = sa.select(redaction_policies.c.policy).where(
        redaction_policies.c.workspace_id == workspace_id, of_scope, redaction_policies.c.policy.is_not(None)
    )
    stored = await connection.scalar(query.order_by(sa.nulls_last(redaction_policies.c.team_id)).limit(1))
    policy = None if stored is None else _POLICY.validate_python(stored)
    return None if policy is None or policy.mode is RedactionMode.OFF else policy
