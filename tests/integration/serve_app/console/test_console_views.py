import re
from uuid import UUID, uuid4

import httpx
import pytest

from db.core.database import Reader
from db.search import saved_views
from tests.postgres import World, new_world
from tests.support.console_site import EVIL, signed_in

SAD = "status=completed&tone=negative"


async def views(world: World, team: UUID | None = None) -> dict[str, str]:
    saved = await saved_views.list_views(world.database, Reader(world.workspace_id, team))
    return {view.name: view.query for view in saved}


async def view_id(world: World, name: str) -> UUID:
    saved = await saved_views.list_views(world.database, Reader(world.workspace_id))
    return next(view.view_id for view in saved if view.name == name)


async def test_filters_are_saved_picked_changed_renamed_and_deleted(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, scopes=("read", "edit"))
    page = (await site.get(f"/calls?{SAD}&outgoing=")).text
    assert 'action="/views"' in page and f'name="query" value="{SAD.replace("&", "&amp;")}"' in page
    saved = await site.post("/views", data={"name": f" Sad \n {EVIL}", "query": f"cursor=x&{SAD}&other=1"})
    assert (saved.status_code, saved.headers["location"]) == (303, f"/calls?{SAD}")
    assert await views(world) == {f"Sad {EVIL}": SAD}
    page = (await site.get(saved.headers["location"])).text
    assert EVIL not in page and re.search(r'aria-current="true">Sad &#34;', page)
    path = f"/views/{await view_id(world, 'Sad ' + EVIL)}"
    assert (await site.post(path, data={"action": "rename", "name": "Sad"})).status_code == 303
    await site.post("/views", data={"name": "Sad", "query": "tone=negative"})
    await site.post("/views", data={"name": "Ours", "query": "outgoing=true"})
    assert await views(world) == {"Ours": "outgoing=true", "Sad": "tone=negative"}
    taken = await site.post(path, data={"action": "rename", "name": "Ours"})
    assert taken.status_code == 409 and "Name already in use" in taken.text
    assert (await site.post(path, data={"action": "delete"})).status_code == 303
    assert list(await views(world)) == ["Ours"]
    assert (await site.post(path, data={"action": "delete"})).status_code == 404


async def test_invalid_views_are_rejected(site: httpx.AsyncClient, world: World, subtests: pytest.Subtests) -> None:
    await signed_in(site, world, scopes=("read", "edit"))
    for form in [
        {"name": "", "query": SAD},
        {"name": "x" * 61, "query": SAD},
        {"name": "no filter", "query": ""},
        {"name": "unknown filter", "query": "color=red"},
        {"name": "unknown status", "query": "status=lost"},
        {"name": "no day", "query": "from=yesterday"},
        {"name": "no team", "query": "teamId=sales"},
    ]:
        with subtests.test(form["name"]):
            assert (await site.post("/views", data=form)).status_code == 400
            assert await views(world) == {}


async def test_max_fifty_views(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, scopes=("read", "edit"))
    for number in range(saved_views.MAX_VIEWS):
        await saved_views.save(world.database, Reader(world.workspace_id), f"view {number}", SAD)
    answer = await site.post("/views", data={"name": "one more", "query": SAD})
    assert answer.status_code == 409 and "Maximum of 50 views reached" in answer.text
    assert len(await views(world)) == saved_views.MAX_VIEWS
    assert (await site.post("/views", data={"name": "view 7", "query": "text=invoice"})).status_code == 303
    team = Reader(world.workspace_id, world.team_id)
    await saved_views.save(world.database, team, "a team has its own", SAD)


async def test_a_view_is_shared_within_its_scope_only(site: httpx.AsyncClient, world: World) -> None:
    await saved_views.save(world.database, Reader(world.workspace_id, world.team_id), "Ours alone", SAD)
    await saved_views.save(world.database, Reader(world.workspace_id), "All of us", SAD)
    other = await new_world(world.database)
    narrow = (await saved_views.list_views(world.database, Reader(world.workspace_id, world.team_id)))[0].view_id
    wide = await view_id(world, "All of us")
    for reader, team, seen in (
        (world, world.team_id, {"Ours alone"}),
        (world, world.other_team_id, set()),
        (world, None, {"All of us"}),
        (other, None, set()),
    ):
        await signed_in(site, reader, team, scopes=("read", "edit"))
        page = (await site.get(f"/calls?{SAD}")).text
        assert {name for name in ("Ours alone", "All of us") if name in page} == seen
        for name, view in (("Ours alone", narrow), ("All of us", wide)):
            if name not in seen:
                for action in ("rename", "delete"):
                    answer = await site.post(f"/views/{view}", data={"action": action, "name": "Mine now"})
                    assert answer.status_code == 404, (name, action)
        await saved_views.save(world.database, Reader(reader.workspace_id, team), "One name in each scope", SAD)
    await signed_in(site, world, scopes=("read", "edit"))
    foreign = {"Sec-Fetch-Site": "cross-site"}
    changes = [("/views", {"name": "x", "query": SAD}), (f"/views/{wide}", {"action": "delete"})]
    for path, form in changes:
        assert (await site.post(path, data=form, headers=foreign)).status_code == 403
    await signed_in(site, world)
    page = (await site.get(f"/calls?{SAD}")).text
    assert "All of us" in page and "/views" not in page
    for path, form in changes:
        assert (await site.post(path, data=form)).status_code == 403
    assert set(await views(world)) == {"All of us", "One name in each scope"}
    assert set(await views(world, world.team_id)) == {"Ours alone", "One name in each scope"}


async def test_an_unknown_action_is_rejected(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, scopes=("read", "edit"))
    assert (await site.post(f"/views/{uuid4()}", data={"action": "share"})).status_code == 400
