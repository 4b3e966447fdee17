"""Erasures of persons, teams and workspaces, carried out as a Conductor does."""

from db.core.database import Reader
from db.records import erase, erasures
from db.records.erasures import Erasure, ErasureKind, Target
from db.workspace.admin_log import Actor
from pipeline.domain.voices import VoicePolicy
from pipeline.speakers.profile import Voices
from tests.postgres import World


async def created(world: World, target: Target, by: Actor | None = None) -> Erasure:
    reader = Reader(world.workspace_id, by.team_id if by else None)
    resolved = await erasures.resolve(world.database, reader, target)
    return await erasures.create(world.database, world.workspace_id, resolved, by)


async def erased(
    world: World, target: Target, by: Actor | None = None, policy: VoicePolicy | None = None
) -> Erasure | None:
    """Erase a target; return the erasure, None if it was deleted with its workspace."""
    erasure = await created(world, target, by)
    lease = await erasures.claim(world.database, erasure.erasure_id)
    assert lease is not None
    await erase.work(world.database, lease, policy or Voices())
    return await erasures.find(world.database, Reader(world.workspace_id), erasure.erasure_id)


async def erased_workspace(world: World) -> None:
    assert await erased(world, Target(ErasureKind.WORKSPACE, world.workspace_id)) is None
