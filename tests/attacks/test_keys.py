"""Access ends with the key that gave it: no key, session or webhook remains by accident."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from db.events import endpoints
from db.workspace import admin_log, directory, keys, sessions
from db.workspace.admin_log import Actor
from pipeline.domain.call import Sender
from tests.postgres import World
from tests.reading_api import asking
from tests.support.console_site import browser, is_signed_in

SCOPES = ("read", "admin")


async def admin(world: World, by: Actor | None = None, expires: datetime | None = None) -> tuple[Actor, str]:
    """Return a new admin key as the author of changes, and its secret."""
    key, secret = await keys.create(world.database, world.workspace_id, None, SCOPES, "admin", expires, by=by)
    return Actor("", key.key_id), secret


async def is_valid(world: World, secret: str) -> bool:
    return await keys.find(world.database, secret) is not None


async def sender(world: World, secret: str) -> Sender:
    found = await keys.find(world.database, secret)
    assert found is not None
    return found


async def test_a_key_with_an_end_gives_nothing_that_lasts_longer(world: World, postgres_url: str) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    _, secret = await admin(world, expires=ends)
    async with asking(postgres_url) as ask:
        for scope in keys.SCOPES:
            later = (ends + timedelta(minutes=1)).isoformat()
            refused = await ask("POST", "/keys", secret, name="x", scopes=[scope], expiresAt=later)
            assert refused.status_code == 400 and refused.json()["errors"][0]["pointer"] == "/expiresAt"
            created = await ask("POST", "/keys", secret, name="x", scopes=[scope])
            assert datetime.fromisoformat(created.json()["key"]["expiresAt"]) == ends
    created_keys = [key for key in await keys.list_keys(world.database, world.workspace_id) if key.created_by]
    assert [key.expires_at for key in created_keys] == [ends] * len(keys.SCOPES)


async def test_a_session_of_a_key_with_an_end_gives_no_key_that_lasts_longer(
    world: World, postgres_url: str, tmp_path: Path
) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    _, secret = await admin(world, expires=ends)
    async with browser(postgres_url, tmp_path) as site:
        assert (await site.post("/sign-in", data={"key": secret})).status_code == 303
        assert (await site.post("/workspace/keys", data={"name": "x", "scope-read": "1"})).status_code == 200
    (made,) = [key for key in await keys.list_keys(world.database, world.workspace_id) if key.name == "x"]
    assert made.expires_at == ends


async def test_a_revoked_key_takes_along_what_it_created(world: World) -> None:
    """A thief makes keys from the stolen one, keys from those, sessions and a webhook."""
    other, _ = await admin(world)
    stolen, _ = await admin(world)
    child, child_secret = await admin(world, by=stolen)
    _, grandchild_secret = await admin(world, by=child)
    _, unrelated_secret = await admin(world, by=other)
    cookie = await sessions.open_by_key(world.database, await sender(world, grandchild_secret), "thief")
    hook, unrelated_hook = [
        await endpoints.add(world.database, world.workspace_id, "https://thief.example/x", "sealed", by=by)
        for by in (child, other)
    ]
    assert stolen.key_id is not None
    revoked = await keys.revoke(world.database, stolen.key_id, by=other)
    assert [key.created_by for key in revoked] == [None, stolen.key_id, child.key_id]
    assert not await is_valid(world, child_secret) and not await is_valid(world, grandchild_secret)
    assert await sessions.find(world.database, cookie) is None
    assert await is_valid(world, unrelated_secret)
    found = {each.endpoint_id: each for each in await endpoints.list_endpoints(world.database, world.workspace_id)}
    assert found[hook.endpoint_id].disabled_at is not None
    assert found[unrelated_hook.endpoint_id].disabled_at is None
    page = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)
    assert [change.action for change in page.items[:4]] == ["disabled", "revoked", "revoked", "revoked"]


async def test_what_a_revoked_key_created_stays_by_choice(world: World) -> None:
    parent, _ = await admin(world)
    _, child_secret = await admin(world, by=parent)
    hook = await endpoints.add(world.database, world.workspace_id, "https://crm.example/x", "sealed", by=parent)
    assert parent.key_id is not None
    assert len(await keys.revoke(world.database, parent.key_id, keep_created=True)) == 1
    assert await is_valid(world, child_secret)
    found = await endpoints.find(world.database, hook.endpoint_id)
    assert found is not None and found.disabled_at is None
    assert len(await keys.revoke(world.database, parent.key_id)) == 1, "the choice can be changed later"
    assert not await is_valid(world, child_secret)


async def test_a_new_secret_does_not_cut_a_key_from_those_it_created(world: World) -> None:
    first, _ = await admin(world)
    _, child_secret = await admin(world, by=first)
    assert first.key_id is not None
    rotated = await keys.rotate(world.database, first.key_id, timedelta(hours=1))
    assert rotated is not None
    _, replacement, secret = rotated
    assert await is_valid(world, child_secret)
    assert len(await keys.revoke(world.database, replacement.key_id)) == 3
    assert not await is_valid(world, child_secret) and not await is_valid(world, secret)


async def test_a_revocation_reaches_no_other_workspace(world: World) -> None:
    other = await directory.create_workspace(world.database, "Umbrella")
    parent, _ = await admin(world)
    foreign, secret = await keys.create(world.database, other.workspace_id, None, SCOPES, "foreign")
    await world.execute("UPDATE api_keys SET created_by = :by WHERE id = :id", by=parent.key_id, id=foreign.key_id)
    assert parent.key_id is not None
    assert len(await keys.revoke(world.database, parent.key_id)) == 1
    assert await is_valid(world, secret)


@pytest.mark.parametrize("keep", [False, True])
async def test_api_and_console_let_the_admin_choose(
    world: World, postgres_url: str, tmp_path: Path, keep: bool
) -> None:
    _, boss = await admin(world)
    created: list[tuple[UUID, str]] = []
    for _ in range(2):
        parent, _ = await admin(world)
        _, child_secret = await admin(world, by=parent)
        assert parent.key_id is not None
        created.append((parent.key_id, child_secret))
    async with asking(postgres_url) as ask:
        answer = await ask("DELETE", f"/keys/{created[0][0]}{'?keepCreated=true' if keep else ''}", boss)
        assert answer.status_code == 200 and answer.json()["revokedAt"]
    async with browser(postgres_url, tmp_path) as site:
        assert (await site.post("/sign-in", data={"key": boss})).status_code == 303
        page = (await site.get("/workspace")).text
        assert re.search(rf'keys/{created[1][0]}/revoke">.*?name="keep-created"', page)
        form = {"keep-created": "1"} if keep else {"x": ""}
        assert (await site.post(f"/workspace/keys/{created[1][0]}/revoke", data=form)).status_code == 303
    assert [await is_valid(world, secret) for _, secret in created] == [keep, keep]


async def test_a_key_has_a_bounded_number_of_sessions_and_the_oldest_end(world: World) -> None:
    _, secret = await admin(world)
    _, other_secret = await admin(world)
    mine, others = await sender(world, secret), await sender(world, other_secret)
    bystander = await sessions.open_by_key(world.database, others, "browser")
    opened = [await sessions.open_by_key(world.database, mine, "browser") for _ in range(3)]
    opened += await asyncio.gather(*(sessions.open_by_key(world.database, mine, "flood") for _ in range(40)))
    alive = [await sessions.find(world.database, cookie) is not None for cookie in opened]
    assert sum(alive) == sessions.MAX_SESSIONS and not any(alive[:3])
    (row,) = await world.rows("SELECT count(*) AS number FROM console_sessions WHERE key_id = :id", id=mine.key_id)
    assert row["number"] == sessions.MAX_SESSIONS, "ended ones take no room"
    assert await sessions.find(world.database, bystander) is not None


async def test_signing_in_and_out_ends_nobody_elses_session(world: World) -> None:
    _, secret = await admin(world)
    mine = await sender(world, secret)
    first = await sessions.open_by_key(world.database, mine, "colleague")
    for _ in range(sessions.MAX_SESSIONS + 5):
        viewer = await sessions.find(world.database, await sessions.open_by_key(world.database, mine, "script"))
        assert viewer is not None
        await sessions.revoke(world.database, viewer.session_id, viewer.workspace_id, viewer)
    assert await sessions.find(world.database, first) is not None
    (row,) = await world.rows("SELECT count(*) AS number FROM console_sessions WHERE key_id = :id", id=mine.key_id)
    assert row["number"] <= sessions.MAX_SESSIONS


async def test_a_link_opens_one_session_also_for_many_at_once(world: World, postgres_url: str, tmp_path: Path) -> None:
    link, _ = await sessions.issue_link(world.database, world.workspace_id, None, "Ana")
    opened = await asyncio.gather(*(sessions.open_by_link(world.database, link, "flood") for _ in range(10)))
    (cookie,) = [secret for secret in opened if secret is not None]
    assert await sessions.find(world.database, cookie) is not None
    async with browser(postgres_url, tmp_path) as site:
        answer: httpx.Response = await site.post("/sign-in", data={"link": link})
        assert answer.status_code == 403 and not await is_signed_in(site)
