from hashlib import sha256
from uuid import uuid4

import pytest

from db.workspace import directory, keys
from pipeline.errors import UnknownTeam
from tests.postgres import World


async def test_only_a_hash_of_the_secret_is_stored(world: World) -> None:
    info, secret = await keys.create(world.database, world.workspace_id, None, ["submit", "read"], "pbx")
    assert secret.startswith("sb_")
    assert len(secret) >= 3 + 43  # 32 bytes in base64
    (row,) = await world.rows("SELECT * FROM api_keys WHERE id = :id", id=info.key_id)
    assert row["secret_sha256"] == sha256(secret.encode()).digest()
    assert secret not in str(dict(row))
    assert secret.startswith(info.prefix)
    assert len(info.prefix) < 12


async def test_a_key_that_was_cut_or_mistyped_is_known_without_the_database(world: World) -> None:
    _, secret = await keys.create(world.database, world.workspace_id, None, ["submit"], "pbx")
    assert not keys.is_malformed(secret)
    for at in range(3, len(secret)):
        assert keys.is_malformed(secret[:at] + ("a" if secret[at] != "a" else "b") + secret[at + 1 :])
    assert not keys.is_malformed(secret[:-6]), "made before keys had a checksum: the database knows"


async def test_a_key_speaks_for_its_workspace_and_perhaps_a_team(world: World) -> None:
    info, secret = await keys.create(world.database, world.workspace_id, world.team_id, ["submit"], "pbx")
    sender = await keys.find(world.database, secret)
    assert sender is not None
    assert (sender.key_id, sender.workspace_id, sender.team_id) == (info.key_id, world.workspace_id, world.team_id)
    assert (sender.scopes, sender.default_country) == (frozenset({"submit"}), "DE")


async def test_an_unknown_secret_is_nobody(world: World, subtests: pytest.Subtests) -> None:
    for secret in ["", "sb_", "sb_unknown", "sb_\u00fc", "sb_\ud800", "x" * 10_000]:
        with subtests.test(repr(secret[:20])):
            assert await keys.find(world.database, secret) is None


async def test_a_revoked_key_is_nobody_from_then_on_but_stays_listed(world: World) -> None:
    info, secret = await keys.create(world.database, world.workspace_id, None, ["read"], "console")
    assert await keys.revoke(world.database, info.key_id)
    assert not await keys.revoke(world.database, info.key_id)
    assert not await keys.revoke(world.database, uuid4())
    assert await keys.find(world.database, secret) is None
    listed = {key.key_id: key for key in await keys.list_keys(world.database, world.workspace_id)}
    assert listed[info.key_id].revoked_at is not None


@pytest.mark.parametrize("scopes", [[], ["owner"], ["submit", "write"]])
async def test_a_key_has_known_scopes(world: World, scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="read, submit"):
        await keys.create(world.database, world.workspace_id, None, scopes, "k")


async def test_a_key_cannot_be_made_for_a_team_of_another_workspace(world: World) -> None:
    other = await directory.create_workspace(world.database, "Umbrella")
    with pytest.raises(UnknownTeam):
        await keys.create(world.database, other.workspace_id, world.team_id, ["submit"], "k")
    with pytest.raises(UnknownTeam):
        await keys.create(world.database, uuid4(), None, ["submit"], "k")


async def test_the_directory_lists_what_was_added(world: World) -> None:
    database, workspace = world.database, world.workspace_id
    ana = await directory.add_member(database, workspace, "Ana", team_id=world.team_id, aliases=["Anita"])
    await directory.add_member(database, workspace, "Anna", ana.user_id)
    assert [w.name for w in await directory.list_workspaces(database)] == ["Acme"]
    assert [t.name for t in await directory.list_teams(database, workspace)] == ["Sales", "Support"]
    assert await directory.list_members(database, workspace) == [
        directory.DirectoryMember(ana.user_id, workspace, None, "Anna", ())
    ]
    eve = await directory.add_contact(database, workspace, "Eve", "Acme", "eve@x.example", "030 1234567")
    assert eve.phone == "+49301234567"
    assert await directory.list_contacts(database, workspace) == [eve]


async def test_what_does_not_belong_together_is_refused(world: World) -> None:
    database = world.database
    with pytest.raises(directory.NotInDirectory):
        await directory.create_team(database, uuid4(), "Sales")
    with pytest.raises(directory.NotInDirectory):
        await directory.add_member(database, world.workspace_id, "Ana", team_id=uuid4())
    with pytest.raises(directory.NotInDirectory):
        await directory.add_contact(database, uuid4(), "Eve")
    with pytest.raises(ValueError, match="phone number"):
        await directory.add_contact(database, world.workspace_id, "Eve", phone="call me")
