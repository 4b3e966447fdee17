"""What an integrator uses: dates, totals, fields, batches, statistics, views, retries, webhooks, credentials."""

import re
from typing import Any
from uuid import uuid4

from db.events import endpoints
from db.queue import jobs
from db.workspace import keys, settings
from pipeline.errors import NotAudio
from serve_app.api import recording_servers, webhooks
from tests.finished import findings, finished, task
from tests.postgres import World
from tests.reading_api import Api, asking, reading_key

ADMIN = ["read", "edit", "admin"]


async def test_a_date_is_midnight_in_the_zone_of_the_workspace(api: Api) -> None:
    call_id = await finished(api.world, found=findings("positive"))
    await api.world.execute("UPDATE calls SET start_time = '2026-03-01T23:30:00Z' WHERE call_id = :c", c=call_id)
    await api.world.execute("UPDATE workspaces SET time_zone = 'Europe/Berlin'")
    assert api.ids(startedFrom="2026-03-02", startedBefore="2026-03-03") == [str(call_id)]
    assert api.ids(startedBefore="2026-03-02") == []
    refused = api.get("/calls", startedFrom="2026-03-02T10:00:00")
    assert refused.status_code == 400
    assert "must be a time with an offset" in refused.json()["errors"][0]["detail"]


async def test_lists_have_totals_fields_and_either_order(api: Api) -> None:
    ids = [str(await finished(api.world, found=findings("positive", (task("Pay"),)))) for _ in range(3)]
    for day, call_id in enumerate(ids, 1):
        await api.world.execute(
            "UPDATE calls SET start_time = make_timestamptz(2026, 1, CAST(:d AS int), 0, 0, 0) WHERE call_id = :c",
            d=day,
            c=call_id,
        )
    assert api.ids(sort="startTime") == ids
    assert api.ids() == ids[::-1]
    first = api.get("/calls", sort="startTime", limit=1, total="true", fields="call.callId,summary").json()
    assert first["total"] == 3 and first["items"][0].keys() == {"call", "summary"}
    assert first["items"][0]["call"] == {"callId": ids[0]}
    assert api.ids(sort="startTime", limit=2, cursor=first["next"]) == ids[1:]
    assert api.get("/calls").json()["total"] is None
    wrong = api.get("/calls", fields="call.callIdd")
    assert wrong.status_code == 400 and "Did you mean callId?" in wrong.json()["errors"][0]["detail"]
    unknown = api.get("/calls", startedfrom="2026-01-01").json()["errors"][0]["detail"]
    assert unknown.startswith("Unknown parameter startedfrom. Did you mean startedFrom?")
    assert api.get("/calls", total="true", text="pay").status_code == 400


async def test_a_batch_has_the_records_in_order_and_names_the_missing(api: Api) -> None:
    ids = [str(await finished(api.world, found=findings("positive"))) for _ in range(2)]
    nowhere = "00000000-0000-4000-8000-000000000000"
    batch = api.get("/calls/batch", callIds=",".join([ids[1], nowhere, ids[0]]), fields="call.callId").json()
    assert [record["call"]["callId"] for record in batch["items"]] == [ids[1], ids[0]]
    assert batch["missing"] == [nowhere]
    other = api.get("/calls/batch", api.other_team, callIds=ids[0]).json()
    assert (other["items"], other["missing"]) == ([], [ids[0]])
    assert api.get("/calls/batch", callIds=",".join([ids[0]] * 21)).status_code == 400
    logged = await api.world.rows("SELECT call_id, what FROM reads")
    assert {str(row["call_id"]) for row in logged if row["what"] == "record"} == set(ids)


async def test_statistics_are_those_of_the_trends_of_the_key(api: Api) -> None:
    await finished(api.world, found=findings("positive", (task("Pay"),)))
    (week,) = api.get("/statistics", weeks=4).json()["items"]
    assert (week["calls"], week["positive"], week["tasks"]) == (1, 1, 1)
    assert api.get("/statistics", api.other_team).json()["items"] == []
    teams = api.get("/teams").json()["items"]
    assert week["teamId"] in {team["teamId"] for team in teams}, "a reader sees the names of teams"


async def test_a_failed_call_is_retried_once(postgres_url: str, world: World) -> None:
    _, editor = await keys.create(world.database, world.workspace_id, None, ["read", "edit"], "editor")
    await world.submit(recording_url="https://store.example/a.wav")
    await jobs.fail(world.database, await world.claim_one(), NotAudio())
    async with asking(postgres_url) as ask:
        reader = await reading_key(world)
        assert (await ask("POST", f"/calls/{world.call_id}/retry", reader)).status_code == 403
        retried = await ask("POST", f"/calls/{world.call_id}/retry", editor)
        assert retried.status_code == 202 and retried.json()["callId"] == str(world.call_id)
        again = await ask("POST", f"/calls/{world.call_id}/retry", editor)
        assert again.status_code in (202, 409)
        if again.status_code == 202:  # the new job waits for its turn, and is tried now
            assert again.json()["jobId"] == retried.json()["jobId"]


async def test_views_are_saved_renamed_and_deleted(postgres_url: str, world: World) -> None:
    _, editor = await keys.create(world.database, world.workspace_id, None, ["read", "edit"], "editor")
    async with asking(postgres_url) as ask:
        view = (await ask("POST", "/views", editor, name="open", query="openTasks=true")).json()
        again = (await ask("POST", "/views", editor, name="open", query="status=failed")).json()
        assert again == {**view, "query": "status=failed"}
        path = f"/views/{view['viewId']}"
        assert (await ask("PATCH", path, editor, name="failed")).json()["name"] == "failed"
        assert [item["name"] for item in (await ask("GET", "/views", editor)).json()["items"]] == ["failed"]
        assert (await ask("DELETE", path, editor)).status_code == 200
        assert (await ask("DELETE", path, editor)).status_code == 404


async def test_webhooks_are_managed_within_the_team_of_the_key(postgres_url: str, world: World) -> None:
    home = world.workspace_id
    _, admin = await keys.create(world.database, home, None, ADMIN, "admin")
    _, of_team = await keys.create(world.database, home, world.team_id, ADMIN, "team")
    await settings.set_allowed_hosts(world.database, home, ["127.0.0.1"])
    body: dict[str, Any] = {"url": "http://127.0.0.1:8443/hook?token=secret", "events": ["call.completed"]}
    async with asking(postgres_url) as ask:
        created = (await ask("POST", "/webhooks", admin, **body)).json()
        assert created["secret"].startswith("whsec_")
        assert "secret" not in created["webhook"]["url"], "its query may be one"
        path = f"/webhooks/{created['webhook']['endpointId']}"
        assert (await ask("GET", path, of_team)).status_code == 404
        own = (await ask("POST", "/webhooks", of_team, **body)).json()["webhook"]
        assert own["teamId"] == str(world.team_id)
        assert len((await ask("GET", "/webhooks", of_team)).json()["items"]) == 1
        assert (await ask("PATCH", path, admin, enabled=False)).json()["disabledAt"]
        assert (await ask("PATCH", path, admin, enabled=True)).json()["disabledAt"] is None
        (stored, _) = await endpoints.list_endpoints(world.database, home)
        assert stored.url == body["url"], "a change of another field keeps the whole URL"
        assert (await ask("GET", f"{path}/deliveries", admin)).json()["items"] == []
        refused = await ask("POST", "/webhooks", admin, url="http://10.0.0.9/x")
        assert refused.status_code == 400 and "workspaces hosts" in refused.json()["errors"][0]["detail"]
        assert (await ask("DELETE", path, admin)).status_code == 200
        assert (await ask("GET", path, admin)).status_code == 404


async def test_credentials_are_set_and_listed_without_secrets(postgres_url: str, world: World) -> None:
    _, admin = await keys.create(world.database, world.workspace_id, None, ADMIN, "admin")
    _, of_team = await keys.create(world.database, world.workspace_id, world.team_id, ADMIN, "team")
    body = {"host": "pbx.example", "port": 8443, "kind": "basic", "name": "sw", "secret": "hunter2"}
    async with asking(postgres_url) as ask:
        made = await ask("POST", "/credentials", admin, **body)
        listed = await ask("GET", "/credentials", admin)
        assert made.status_code == 201 and listed.json()["items"] == [made.json()]
        assert "hunter2" not in made.text + listed.text
        assert (await ask("GET", "/credentials", of_team)).status_code == 403
        assert (await ask("GET", "/hosts", admin)).json() == {"hosts": []}
        assert (await ask("POST", "/credentials", admin, **{**body, "kind": "bearer"})).status_code == 400
        assert (await ask("DELETE", "/credentials/pbx.example/8443", admin)).status_code == 200
        assert (await ask("DELETE", "/credentials/pbx.example/8443", admin)).status_code == 404


async def test_webhooks_and_servers_need_the_scope_admin(postgres_url: str, world: World) -> None:
    _, editor = await keys.create(world.database, world.workspace_id, None, ["read", "edit", "submit"], "editor")
    async with asking(postgres_url) as ask:
        for route in (*webhooks.ROUTES, *recording_servers.ROUTES):
            path = re.sub(r"\{\w+:uuid\}", str(uuid4()), route.path).replace("{host}/{port:int}", "pbx.example/443")
            assert (await ask(route.method, path, editor)).status_code == 403, route.name
            assert (await ask(route.method, path, "sb_" + "x" * 49)).status_code == 401, route.name


async def test_the_reference_page_is_served_without_a_key_and_runs_nothing(api: Api) -> None:
    page = api.client.get(f"{api.base}/docs")
    assert page.status_code == 200 and "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script" not in page.text and "listCalls" in page.text
