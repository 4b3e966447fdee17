import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio

from db.events import endpoints as webhooks
from db.workspace import admin_log, directory, keys
from serve_app.settings import Settings
from tests.finished import finished
from tests.postgres import World, new_world
from tests.support.console_site import EVIL, browser, signed_in

ADMIN = ("read", "admin")
LOCAL = "http://127.0.0.1:8443/hooks"
ALL = {f"event-{name}": "1" for name in ("call.completed", "call.failed")}


@pytest_asyncio.fixture
async def site(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a console that allows webhooks to 127.0.0.1."""
    monkeypatch.setenv("SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS", '["127.0.0.1"]')
    async with browser(postgres_url, tmp_path) as client:
        yield client


async def logged(world: World) -> list[tuple[str, str, str]]:
    changes = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)
    return [(change.action, change.kind, change.who) for change in changes.items if change.session_id is not None]


async def members(world: World) -> dict[str, directory.DirectoryMember]:
    return {member.name: member for member in await directory.list_members(world.database, world.workspace_id)}


async def teams(world: World) -> dict[str, directory.Team]:
    return {team.name: team for team in await directory.list_teams(world.database, world.workspace_id)}


async def endpoints(world: World) -> list[webhooks.Endpoint]:
    return await webhooks.list_endpoints(world.database, world.workspace_id)


async def test_a_team_is_made_changed_and_removed(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, scopes=ADMIN)
    form = {"id": str(uuid4()), "name": f" North {EVIL}", "channels_swapped": "1"}
    for _ in range(2):  # the form sent again makes no second one
        assert (await site.post("/people/teams", data=form)).status_code == 303
    team = (await teams(world))[f"North {EVIL}"]
    assert team.channels_swapped and len(await teams(world)) == 3
    page = (await site.get("/people")).text
    assert EVIL not in page and "North &#34;&gt;&lt;script&gt;" in page
    path = f"/people/teams/{team.team_id}"
    assert EVIL not in (await site.get(path)).text
    assert (await site.post(path, data={"name": "North"})).status_code == 303
    assert (await teams(world))["North"].channels_swapped is False
    assert (await site.post(path, data={"action": "remove"})).status_code == 303
    assert "North" not in await teams(world)
    assert [change[:2] for change in await logged(world)] == [
        ("removed", "team"),
        ("changed", "team"),
        ("created", "team"),
    ]
    await finished(world)
    used = await site.post(f"/people/teams/{world.team_id}", data={"action": "remove"})
    assert used.status_code == 409 and "Team in use" in used.text


async def test_a_member_is_added_changed_and_removed(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, scopes=ADMIN)
    of_pbx = str(uuid4())
    form = {"id": str(uuid4()), "name": "Dana Wolf", "aliases": "Dana, , Ms Wolf", "team": str(world.team_id)}
    assert (await site.post("/people/members", data=form | {"user_id": of_pbx})).status_code == 303
    assert (await site.post("/people/members", data=form | {"name": "Sam", "team": ""})).status_code == 303
    assert (await site.post("/people/members", data=form | {"name": "Sam"})).status_code == 303, "sent again"
    by_name = await members(world)
    dana = by_name["Dana Wolf"]
    assert (str(dana.user_id), dana.aliases, dana.team_id) == (of_pbx, ("Dana", "Ms Wolf"), world.team_id)
    assert by_name["Sam"].team_id is None and len(by_name) == 2
    taken = await site.post("/people/members", data=form | {"user_id": of_pbx, "name": "Kim"})
    assert taken.status_code == 409 and "userId already in use" in taken.text
    path = f"/people/members/{of_pbx}"
    assert 'value="Dana, Ms Wolf"' in (await site.get(path)).text
    assert (await site.post(path, data={"name": "Dana Berg", "aliases": "", "team": ""})).status_code == 303
    dana = (await members(world))["Dana Berg"]
    assert (dana.aliases, dana.team_id) == ((), None)
    assert (await site.post(path, data={"action": "remove"})).status_code == 303
    assert set(await members(world)) == {"Sam"}
    assert [change[0] for change in await logged(world)] == ["removed", "changed", "created", "created"]


async def test_a_bad_form_is_told_and_changes_nothing(
    site: httpx.AsyncClient, world: World, subtests: pytest.Subtests
) -> None:
    await signed_in(site, world, scopes=ADMIN)
    for path, form in [
        ("/people/teams", {"name": " "}),
        ("/people/teams", {"name": "x" * 201}),
        ("/people/teams", {"name": "x", "id": "no uuid"}),
        ("/people/members", {"name": ""}),
        ("/people/members", {"name": "x", "user_id": "17"}),
        ("/people/members", {"name": "x", "team": str(UUID(int=7))}),
        ("/people/members", {"name": "x", "aliases": ",".join(map(str, range(21)))}),
        ("/workspace/webhooks", {"url": "", **ALL}),
        ("/workspace/webhooks", {"url": "https://169.254.169.254/latest", **ALL}),
        ("/workspace/webhooks", {"url": "https://10.0.0.1/hooks", **ALL}),
        ("/workspace/webhooks", {"url": "http://example.com/hooks", **ALL}),
        ("/workspace/webhooks", {"url": "ftp://example.com/hooks", **ALL}),
        ("/workspace/webhooks", {"url": LOCAL}),
        ("/workspace/webhooks", {"url": LOCAL, "team": str(UUID(int=7)), **ALL}),
    ]:
        with subtests.test(f"{path} {form}"[:80]):
            assert (await site.post(path, data=form)).status_code == 400
            assert (len(await teams(world)), await members(world), await endpoints(world)) == (2, {}, [])
            assert await logged(world) == []


async def test_a_webhook_is_made_changed_given_another_secret_and_removed(
    site: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    await signed_in(site, world, scopes=ADMIN)
    form = {"id": str(uuid4()), "url": f"{LOCAL}?token=s3cret", "description": EVIL, "include-record": "1", **ALL}
    created = await site.post("/workspace/webhooks", data=form)
    assert created.status_code == 200 and created.headers["cache-control"] == "no-store"
    (secret,) = re.findall(r"<code>(whsec_[^<]+)</code>", created.text)
    again = await site.post("/workspace/webhooks", data=form)
    assert (again.status_code, again.headers["location"]) == (303, "/workspace#webhooks")
    (endpoint,) = await endpoints(world)
    assert (endpoint.url, endpoint.events, endpoint.include) == (
        form["url"],
        ("call.completed", "call.failed"),
        ("record",),
    )
    sealer = Settings(database_url=world.database.url, data_dir=tmp_path).sealer()
    assert [sealer.open(sealed) for sealed in await webhooks.sealed_secrets(world.database, endpoint)] == [secret]
    page = (await site.get("/workspace")).text
    assert secret not in page and "s3cret" not in page and EVIL not in page
    path = f"/workspace/webhooks/{endpoint.endpoint_id}"
    assert EVIL not in (await site.get(path)).text
    assert (await site.post(path, data={"url": endpoint.url, "event-call.failed": "1"})).status_code == 303
    refused = await site.post(path, data={"url": "https://10.0.0.1/x", **ALL})
    assert refused.status_code == 400 and "Invalid webhook URL" in refused.text
    (endpoint,) = await endpoints(world)
    assert (endpoint.url, endpoint.events, endpoint.include, endpoint.description) == (
        form["url"],
        ("call.failed",),
        (),
        "",
    )
    await site.post(path, data={"action": "disable"})
    assert (await endpoints(world))[0].disabled_at is not None
    await site.post(path, data={"action": "enable"})
    assert (await endpoints(world))[0].disabled_at is None
    rotated = await site.post(path, data={"action": "rotate"})
    (fresh,) = re.findall(r"<code>(whsec_[^<]+)</code>", rotated.text)
    signing = [sealer.open(sealed) for sealed in await webhooks.sealed_secrets(world.database, endpoint)]
    assert signing == [fresh, secret]
    assert (await site.post(path, data={"action": "remove"})).status_code == 303
    assert await endpoints(world) == [] and (await site.get(path)).status_code == 404
    actions = ["removed", "rotated", "enabled", "disabled", "changed", "created"]
    assert await logged(world) == [(action, "webhook", "reader") for action in actions]
    lines = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)
    assert not any("s3cret" in repr(line) or secret in repr(line) for line in lines.items)


async def test_there_are_at_most_so_many_webhooks(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, scopes=ADMIN)
    for _ in range(webhooks.MAX_ENDPOINTS):
        await webhooks.add(world.database, world.workspace_id, LOCAL, "sealed")
    answer = await site.post("/workspace/webhooks", data={"url": LOCAL, **ALL})
    assert answer.status_code == 409 and len(await endpoints(world)) == webhooks.MAX_ENDPOINTS


async def things(world: World) -> dict[str, Any]:
    """Something of every kind, of the other team, and a member of all teams."""
    home, team = world.workspace_id, world.other_team_id
    member = await directory.add_member(world.database, home, "Ours", team_id=team)
    everyone = await directory.add_member(world.database, home, "Everyone")
    endpoint = await webhooks.add(world.database, home, LOCAL, "sealed", team_id=team)
    return {
        "team": f"/people/teams/{team}",
        "member": f"/people/members/{member.user_id}",
        "webhook": f"/workspace/webhooks/{endpoint.endpoint_id}",
        "everyone": f"/people/members/{everyone.user_id}",
    }


async def test_nobody_else_sees_or_changes_them(site: httpx.AsyncClient, world: World) -> None:
    paths = await things(world)
    create = {"/people/teams": {"name": "x"}, "/people/members": {"name": "x"}, "/workspace/webhooks": {"url": LOCAL}}
    form = {"name": "Mine", "url": LOCAL, **ALL}
    before = (await teams(world), await members(world), await endpoints(world))
    other = await new_world(world.database)
    for who, scopes, team, status in (
        (world, ("read", "edit"), None, 403),
        (other, ADMIN, None, 404),
        (world, ADMIN, world.team_id, 404),
    ):
        await signed_in(site, who, team, scopes)
        for kind, path in paths.items():
            expected = 403 if kind == "everyone" and who is world else status
            assert (await site.get(path)).status_code == expected, (path, scopes)
            for action in ("save", "remove", "disable", "rotate"):
                assert (await site.post(path, data=form | {"action": action})).status_code == expected, (path, action)
        if status == 403:
            for path, new in create.items():
                assert (await site.post(path, data=new | ALL)).status_code == 403
            assert '<form class="stack"' not in (await site.get("/people")).text
    await signed_in(site, world, scopes=ADMIN)
    for path in [*paths.values(), *create]:
        answer = await site.post(path, data=form, headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 403, path
    assert (await teams(world), await members(world), await endpoints(world)) == before


async def test_a_key_of_a_team_keeps_to_its_team(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, world.team_id, ADMIN)
    form = {"name": "Dana", "team": str(world.other_team_id), "url": LOCAL, **ALL}
    assert (await site.post("/people/members", data=form)).status_code == 303
    dana = (await members(world))["Dana"]
    assert dana.team_id == world.team_id
    assert (await site.post(f"/people/members/{dana.user_id}", data=form)).status_code == 303
    assert (await members(world))["Dana"].team_id == world.team_id
    assert (await site.post("/workspace/webhooks", data=form)).status_code == 200
    assert [endpoint.team_id for endpoint in await endpoints(world)] == [world.team_id]
    assert (await site.post("/people/teams", data={"name": "x"})).status_code == 403
    path = f"/people/teams/{world.team_id}"
    assert (await site.post(path, data={"name": "Ours"})).status_code == 303
    assert (await site.post(path, data={"action": "remove"})).status_code == 403
    page = (await site.get("/people")).text
    assert "Ours" in page and str(world.other_team_id) not in page and '/people/teams"' not in page


async def test_what_a_revoked_key_sends_changes_nothing(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, scopes=ADMIN)
    (key,) = [info for info in await keys.list_keys(world.database, world.workspace_id) if info.name == "reader"]
    await keys.revoke(world.database, key.key_id)
    for path in ("/people/teams", "/people/members", "/workspace/webhooks"):
        assert (await site.post(path, data={"name": "x", "url": LOCAL, **ALL})).status_code == 401
    assert (len(await teams(world)), await members(world), await endpoints(world)) == (2, {}, [])
