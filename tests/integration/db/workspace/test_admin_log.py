import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from db.core.database import Reader
from db.records.erasures import ErasureKind, Target
from db.workspace import admin_log, directory, keys, removal, sessions
from db.workspace.admin_log import Actor, AdminChange, NotAdmin
from tests.erased import erased
from tests.postgres import World, new_world


async def admin(world: World, team: UUID | None = None, expires: datetime | timedelta | None = None) -> Actor:
    """Create a key of scope `admin`."""
    info, _ = await keys.create(world.database, world.workspace_id, team, ["admin"], "Ana", expires)
    return Actor("Ana", info.key_id, team)


async def changes(world: World, team: UUID | None = None) -> list[AdminChange]:
    reader = Reader(world.workspace_id, team)
    page = await admin_log.list_changes(world.database, reader, world.workspace_id)
    return list(page.items)


async def test_each_change_leaves_a_line_that_nobody_rewrites(world: World) -> None:
    ana = await admin(world)
    home = world.workspace_id
    team = await directory.create_team(world.database, home, "sales", by=ana)
    await directory.update_team(world.database, team, {"name": "inside sales"}, by=ana)
    member = await directory.add_member(world.database, home, "Dana", team_id=team.team_id, by=ana)
    await directory.remove_member(world.database, member, by=ana)
    contact = await directory.add_contact(world.database, home, "Eve Customer", phone="030 123456", by=ana)
    info, secret = await keys.create(world.database, home, team.team_id, ["submit"], "pbx", by=ana)
    await keys.revoke(world.database, info.key_id, by=ana)
    lines = [change for change in await changes(world) if change.key_id == ana.key_id]
    assert [(line.action, line.kind, line.name) for line in reversed(lines)] == [
        ("created", "team", "sales"),
        ("changed", "team", "inside sales"),
        ("created", "member", "Dana"),
        ("removed", "member", "Dana"),
        ("created", "contact", ""),
        ("created", "key", "pbx"),
        ("revoked", "key", "pbx"),
    ]
    assert {line.who for line in lines} == {"Ana"}
    assert contact.contact_id in {line.object_id for line in lines}
    assert secret not in str(lines) and "Eve" not in str(lines)
    with pytest.raises(DBAPIError, match="row-level security"):
        async with world.database.transaction(home) as connection:
            await connection.execute(sa.text("UPDATE admin_changes SET who = 'somebody else'"))
    async with world.database.transaction(home) as connection:
        assert (await connection.execute(sa.text("DELETE FROM admin_changes"))).rowcount == 0


async def test_a_team_reads_the_changes_that_concern_it(world: World) -> None:
    await directory.add_member(world.database, world.workspace_id, "Dana", team_id=world.team_id)
    await directory.add_member(world.database, world.workspace_id, "Finn", team_id=world.other_team_id)
    names = {change.name for change in await changes(world, world.team_id)}
    assert "Dana" in names and "Finn" not in names
    other = await new_world(world.database)
    assert "Dana" not in {change.name for change in await changes(other)}


async def test_the_change_log_comes_in_pages(world: World) -> None:
    for n in range(5):
        await directory.create_team(world.database, world.workspace_id, f"team {n}")
    whole = await changes(world)
    listed: list[AdminChange] = []
    cursor = None
    while True:
        page = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id, cursor, 2)
        listed += page.items
        if (cursor := page.next) is None:
            break
    assert listed == whole and len(listed) >= 5


async def test_who_was_revoked_a_moment_ago_changes_nothing(world: World) -> None:
    ana, ben = await admin(world), await admin(world)
    assert ben.key_id is not None
    await keys.revoke(world.database, ben.key_id, by=ana)
    with pytest.raises(NotAdmin):
        await directory.create_team(world.database, world.workspace_id, "mine", by=ben)
    late = await admin(world, expires=timedelta(seconds=-1))
    with pytest.raises(NotAdmin):
        await keys.create(world.database, world.workspace_id, None, ["admin"], "another", by=late)
    assert "mine" not in {team.name for team in await directory.list_teams(world.database, world.workspace_id)}


async def test_the_last_admin_key_is_revoked_by_operators_alone(world: World) -> None:
    ana, ben = await admin(world), await admin(world)
    await admin(world, world.team_id)  # one of a team makes none for the workspace
    assert ana.key_id and ben.key_id
    outcomes = await asyncio.gather(
        keys.revoke(world.database, ben.key_id, by=ana),
        keys.revoke(world.database, ana.key_id, by=ben),
        return_exceptions=True,
    )
    assert sorted(map(type, outcomes), key=str) == sorted([tuple, NotAdmin], key=str), "one of them was first"
    (remaining,) = [key for key in (ana, ben) if key.key_id in await valid(world)]
    assert remaining.key_id
    with pytest.raises(keys.LastAdminKey):
        await keys.revoke(world.database, remaining.key_id, by=remaining)
    assert remaining.key_id in await valid(world)
    assert await keys.revoke(world.database, remaining.key_id)


async def valid(world: World) -> set[UUID]:
    listed = await keys.list_keys(world.database, world.workspace_id)
    return {key.key_id for key in listed if key.revoked_at is None}


async def test_an_admin_key_that_ends_makes_none_that_goes_on(world: World) -> None:
    ends = datetime.now(UTC) + timedelta(days=1)
    ana = await admin(world, expires=ends)
    home = world.workspace_id
    for scope in ("admin", "submit"):
        with pytest.raises(keys.KeyOutlivesParent):
            await keys.create(world.database, home, None, [scope], "another", ends + timedelta(seconds=1), by=ana)
        for end in (None, ends):
            key, _ = await keys.create(world.database, home, None, [scope], "another", end, by=ana)
            assert key.expires_at == ends


async def test_a_team_in_use_stays_and_an_unused_one_goes(world: World) -> None:
    ana = await admin(world)
    home = world.workspace_id
    await world.submit()
    with pytest.raises(removal.TeamInUse) as refused:
        await removal.remove_unused_team(world.database, home, world.team_id, by=ana)
    assert (refused.value.contents.calls, refused.value.contents.keys) == (1, 1)
    team = await directory.create_team(world.database, home, "sales")
    member = await directory.add_member(world.database, home, "Dana", team_id=team.team_id)
    info, _ = await keys.create(world.database, home, team.team_id, ["submit"], "pbx")
    with pytest.raises(removal.TeamInUse):
        await removal.remove_unused_team(world.database, home, team.team_id, by=ana)
    await keys.revoke(world.database, info.key_id)
    await removal.remove_unused_team(world.database, home, team.team_id, by=ana)
    assert team.team_id not in {team.team_id for team in await directory.list_teams(world.database, home)}
    (remaining,) = [
        listed for listed in await directory.list_members(world.database, home) if listed.user_id == member.user_id
    ]
    assert remaining.team_id is None
    removed = [change for change in await changes(world) if change.action == "removed"]
    assert {(change.kind, change.name) for change in removed} == {("team", "sales"), ("key", "pbx")}
    assert info.prefix in removed[-1].detail, "a key that is gone is still recognized"


async def test_a_team_with_people_signed_in_is_removed(world: World) -> None:
    team = await directory.create_team(world.database, world.workspace_id, "sales")
    secret, _ = await sessions.issue_link(world.database, world.workspace_id, team.team_id, "Dana")
    assert await sessions.open_by_link(world.database, secret, "browser")
    await erased(world, Target(ErasureKind.TEAM, team.team_id))
    assert await world.rows("SELECT * FROM console_sessions") == []


async def test_two_who_draw_one_id_make_one_thing(world: World) -> None:
    ana = await admin(world)
    id_ = UUID(int=7)
    results = await asyncio.gather(
        *(directory.create_team(world.database, world.workspace_id, name, id_, by=ana) for name in ("one", "two")),
        return_exceptions=True,
    )
    assert {type(result) for result in results} == {directory.Team, directory.AlreadyExists}
