"""Administration over HTTP: what a key with the scope `admin` may change, and what it never may."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import jsonschema
import pytest
import pytest_asyncio

from db.workspace import directory, keys, legal_holds, llm_usage
from serve_app import openapi
from serve_app.api.access import Route
from serve_app.api.administration import ROUTES
from serve_app.http.camel_json import camel
from tests.finished import finished
from tests.integration.db.voices.test_voiceprints import ANA, call, member, voice
from tests.postgres import World, new_world
from tests.reading_api import served

EVIL = '"><script>alert(1)</script>\u202e'


@dataclass
class Admin:
    """A running API, and admin keys of a workspace and of one of its teams."""

    base: str
    world: World
    wide: str
    team: str
    client: httpx.AsyncClient

    async def __call__(self, method: str, path: str, key: str | None = None, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key or self.wide}"}
        return await self.client.request(method, self.base + path, json=body or None, headers=headers)

    async def ok(self, method: str, path: str, key: str | None = None, **body: Any) -> Any:
        answer = await self(method, path, key, **body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def refused(self, status: int, method: str, path: str, key: str | None = None, **body: Any) -> Any:
        answer = await self(method, path, key, **body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.json()


async def key_of(world: World, team: UUID | None = None, *scopes: str, **more: Any) -> str:
    _, secret = await keys.create(world.database, world.workspace_id, team, scopes or ("admin",), "Ana", **more)
    return secret


@pytest.fixture
def base(postgres_url: str) -> Iterator[str]:
    with served(postgres_url) as url:
        yield url


@pytest_asyncio.fixture
async def admin(base: str, world: World) -> AsyncIterator[Admin]:
    async with httpx.AsyncClient(timeout=60) as client:
        yield Admin(base, world, await key_of(world), await key_of(world, world.team_id), client)


async def things(world: World) -> dict[str, UUID]:
    """One of everything that a path may name, of the world's other team where it has one."""
    home, team = world.workspace_id, world.other_team_id
    member = await directory.add_member(world.database, home, "Finn", team_id=team)
    contact = await directory.add_contact(world.database, home, "Eve")
    key, _ = await keys.create(world.database, home, team, ["submit"], "pbx")
    ids = {"user_id": member.user_id, "contact_id": UUID(contact.contact_id), "key_id": key.key_id}
    hold = await legal_holds.create(world.database, home, legal_holds.HoldKind.NUMBER, "+493077", "Case 12")
    return {"team_id": team, "hold_id": hold.hold_id} | ids


def path_of(route: Route, ids: dict[str, UUID]) -> str:
    path = route.path
    for name, id_ in ids.items():
        path = path.replace(f"{{{name}:uuid}}", str(id_))
    return path


BODIES: dict[str, dict[str, Any]] = {
    "createTeam": {"name": "sales"},
    "createMember": {"name": "Dana"},
    "createConsent": {"textVersion": "1"},
    "createContact": {"name": "Ann"},
    "createKey": {"name": "pbx", "scopes": ["submit"]},
    "setRetention": {"kind": "calls", "days": 30},
    "setRedaction": {"mode": "mask", "presets": ["pci"], "patterns": [{"name": "order", "shape": "AB-9999"}]},
    "createHold": {"kind": "number", "subject": "+493088", "reason": "Case 13"},
}


def body_of(route: Route) -> dict[str, Any]:
    return BODIES.get(route.name, {"name": "changed"}) if route.body else {}


async def everything(world: World) -> list[Any]:
    names = ("workspaces", "teams", "members", "contacts", "api_keys", "admin_changes")
    names += ("retention_periods", "legal_holds", "member_consents")
    return [sorted(map(str, await world.rows(f"SELECT to_jsonb(t) - 'last_used_at' FROM {name} t"))) for name in names]


async def test_no_route_takes_a_key_that_may_not(admin: Admin, subtests: pytest.Subtests) -> None:
    world = admin.world
    ids = await things(world)
    revoked = await key_of(world)
    (info,) = [one for one in await keys.list_keys(world.database) if one.prefix == revoked[: keys.PREFIX_LENGTH]]
    await keys.revoke(world.database, info.key_id)
    wrong = [
        (await key_of(world, None, "submit", "read", "edit"), 403),
        (await key_of(world, expires=timedelta(seconds=-1)), 401),
        (revoked, 401),
        ("sb_" + "x" * 49, 401),
    ]
    before = await everything(world)
    for route in ROUTES:
        path = path_of(route, ids)
        with subtests.test(route.name):
            for key, status in wrong[route.also is not None :]:  # a key that may read suffices
                await admin.refused(status, route.method, path, key, **body_of(route))
            answer = await admin.client.request(route.method, admin.base + path)
            assert answer.status_code == 401
            assert await everything(world) == before


async def test_what_belongs_to_others_is_not_there(admin: Admin, subtests: pytest.Subtests) -> None:
    """Another workspace's things, and for a key of a team those of another team."""
    other = await new_world(admin.world.database)
    await key_of(other)  # theirs is not the last
    theirs, ours = await things(other), await things(admin.world)
    before = await everything(admin.world)
    unknown = {name: uuid4() for name in theirs}
    for route in ROUTES:
        if "{" not in route.path:
            continue
        with subtests.test(route.name):
            missing = await admin(route.method, path_of(route, unknown), **body_of(route))
            answer = await admin(route.method, path_of(route, theirs), **body_of(route))
            assert (answer.status_code, answer.content) == (404, missing.content), "nothing says whether it is there"
            of_team = await admin(route.method, path_of(route, ours), admin.team, **body_of(route))
            assert of_team.status_code in (403, 404)
            assert await everything(admin.world) == before


async def test_answers_are_as_the_contract_says(admin: Admin, subtests: pytest.Subtests) -> None:
    document = openapi.api_document()
    for route in ROUTES:
        ids = await things(admin.world)
        if route.name == "removeTeam":
            ids["team_id"] = (await directory.create_team(admin.world.database, admin.world.workspace_id, "x")).team_id
        with subtests.test(route.name):
            answer = await admin(route.method, path_of(route, ids), **body_of(route))
            assert answer.status_code == (201 if route.name.startswith("create") else 200), answer.text
            assert "RateLimit" in answer.headers and "X-Request-Id" in answer.headers
            path = "/" + "/".join(
                camel(part.partition(":")[0].strip("{")).join("{}") if "{" in part else part
                for part in route.path.strip("/").split("/")
            )
            operation = document["paths"][path][route.method.lower()]
            schema = operation["responses"][str(answer.status_code)]["content"]["application/json"]["schema"]
            jsonschema.validate(answer.json(), {**document, **schema})


async def test_a_team_with_its_people_is_made_changed_and_removed(admin: Admin) -> None:
    team = await admin.ok("POST", "/teams", name=f"  sales  {EVIL}")
    assert team["name"] == f"sales {EVIL}", "names are data; pages escape them"
    path = f"/teams/{team['teamId']}"
    assert (await admin.ok("PATCH", path, name="care", channelsSwapped=True))["channelsSwapped"] is True
    member = await admin.ok("POST", "/members", name="Dana Wolf", aliases=["Dana"], teamId=team["teamId"])
    changed = await admin.ok("PATCH", f"/members/{member['userId']}", name="Dana Berg", aliases=[])
    assert (changed["name"], changed["aliases"]) == ("Dana Berg", [])
    pbx = await admin.ok("POST", "/keys", name="pbx", scopes=["submit"], teamId=team["teamId"])
    assert "1 active keys" in (await admin.refused(409, "DELETE", path))["detail"]
    await admin.ok("DELETE", f"/keys/{pbx['key']['keyId']}")
    await admin.ok("DELETE", path)
    await admin.refused(404, "DELETE", path)
    left = await directory.list_members(admin.world.database, admin.world.workspace_id)
    assert [(one.name, one.team_id) for one in left if one.name == "Dana Berg"] == [("Dana Berg", None)]
    await admin.ok("DELETE", f"/members/{member['userId']}")
    await admin.refused(404, "PATCH", f"/members/{member['userId']}", name="x")


async def test_a_team_with_calls_is_kept_and_the_sentence_says_what_to_do(admin: Admin) -> None:
    await finished(admin.world)
    told = await admin.refused(409, "DELETE", f"/teams/{admin.world.team_id}")
    assert told["type"] == "urn:switchboard:problem:in-use"
    assert "1 calls" in told["detail"] and "/api/v1/erasures" in told["detail"]


async def test_calls_keep_the_user_id_of_a_member_who_is_gone(admin: Admin) -> None:
    member = await directory.add_member(admin.world.database, admin.world.workspace_id, "Dana")
    call_id = await finished(admin.world, user_id=member.user_id)
    await admin.ok("DELETE", f"/members/{member.user_id}")
    (row,) = await admin.world.rows("SELECT user_id FROM calls WHERE call_id = :id", id=call_id)
    assert row["user_id"] == member.user_id


async def test_contacts_are_changed_and_their_numbers_read(admin: Admin) -> None:
    made = await admin.ok("POST", "/contacts", name="Ann Lee", phone="030 123456", company="Lee")
    assert made["phone"] == "+4930123456"
    path = f"/contacts/{made['contactId']}"
    changed = await admin.ok("PATCH", path, company=None, phone="+14155550101")
    assert (changed["company"], changed["phone"], changed["name"]) == (None, "+14155550101", "Ann Lee")
    told = await admin.refused(400, "PATCH", path, phone="call me")
    assert told["errors"][0]["pointer"] == "/phone" and "call me" not in str(told)
    await admin.ok("DELETE", path)
    await admin.refused(404, "DELETE", path)


async def test_the_workspace_renames_itself_and_is_not_removed(admin: Admin) -> None:
    changed = await admin.ok("PATCH", "/workspace", name="Acme Inc", timeZone="America/New_York", defaultCountry="US")
    assert (changed["name"], changed["timeZone"], changed["defaultCountry"]) == ("Acme Inc", "America/New_York", "US")
    assert await admin.ok("GET", "/workspace") == changed
    told = await admin.refused(400, "PATCH", "/workspace", timeZone="Mars/Base", defaultCountry="ZZ", name=" ")
    assert {one["pointer"] for one in told["errors"]} == {"/timeZone", "/defaultCountry", "/name"}
    await admin.refused(405, "DELETE", "/workspace")


async def test_a_secret_is_shown_once_and_kept_nowhere(admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    id_ = str(uuid4())
    answer = await admin("POST", "/keys", idempotencyKey=id_, name="pbx", scopes=["submit"])
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    secret = answer.json()["secret"]
    assert await keys.find(admin.world.database, secret)
    told = await admin.refused(409, "POST", "/keys", idempotencyKey=id_, name="pbx", scopes=["submit"])
    assert told["type"] == "urn:switchboard:problem:id-taken" and "is not stored" in told["detail"]
    assert (
        len([one for one in (await admin.ok("GET", "/keys"))["items"] if one["keyId"] == answer.json()["key"]["keyId"]])
        == 1
    )
    for shown in (await admin.ok("GET", "/keys"), await admin.ok("GET", "/changes"), await everything(admin.world)):
        assert secret not in str(shown)
    assert secret not in caplog.text


async def test_a_request_that_is_sent_again_makes_nothing_twice(admin: Admin) -> None:
    for path, name in (("/teams", "idempotencyKey"), ("/members", "userId"), ("/contacts", "idempotencyKey")):
        id_ = str(uuid4())
        both = await asyncio.gather(*(admin("POST", path, **{name: id_, "name": "Sam"}) for _ in range(2)))
        assert sorted(one.status_code for one in both) == [200, 201], [one.text for one in both]
        assert both[0].json() == both[1].json()
        told = await admin.refused(409, "POST", path, **{name: id_, "name": "Somebody else"})
        assert told["type"] == "urn:switchboard:problem:id-taken"
    created = [one for one in (await admin.ok("GET", "/changes"))["items"] if one["action"] == "created"]
    assert len([one for one in created if one["keyId"]]) == 3


async def test_a_key_of_a_team_stays_within_it(admin: Admin) -> None:
    world, key = admin.world, admin.team
    other = str(world.other_team_id)
    everybody = await directory.add_member(world.database, world.workspace_id, "Everybody")
    await admin.ok("PATCH", f"/teams/{world.team_id}", key, name="support")
    made = await admin.ok("POST", "/members", key, name="Dana")
    assert made["teamId"] == str(world.team_id)
    pbx = await admin.ok("POST", "/keys", key, name="mine", scopes=["submit", "read", "edit", "admin"])
    assert pbx["key"]["teamId"] == str(world.team_id)
    assert {one["teamId"] for one in (await admin.ok("GET", "/keys", key))["items"]} == {str(world.team_id)}
    assert [one["teamId"] for one in (await admin.ok("GET", "/teams", key))["items"]] == [str(world.team_id)]
    member = f"/members/{made['userId']}"
    for method, path, body in (
        ("POST", "/keys", {"name": "x", "scopes": ["read"], "teamId": other}),
        ("POST", "/members", {"name": "x", "teamId": other}),
        ("PATCH", member, {"teamId": other}),
        ("PATCH", member, {"teamId": None}),
        ("PATCH", f"/members/{everybody.user_id}", {"name": "x"}),
        ("DELETE", f"/members/{everybody.user_id}", {}),
        ("POST", "/teams", {"name": "x"}),
        ("DELETE", f"/teams/{world.team_id}", {}),
        ("POST", "/contacts", {"name": "x"}),
        ("PATCH", "/workspace", {"name": "x"}),
        ("GET", "/workspace/model-usage", {}),
    ):
        told = await admin.refused(403, method, path, key, **body)
        assert told["type"] == "urn:switchboard:problem:outside-team", path
    await admin.refused(404, "PATCH", f"/teams/{other}", key, name="x")
    theirs = (await new_world(world.database)).team_id
    told = await admin.refused(400, "POST", "/keys", name="x", scopes=["read"], teamId=str(theirs))
    assert told["errors"][0]["pointer"] == "/teamId"


async def test_the_use_of_the_language_model_is_shown_with_its_limits(admin: Admin) -> None:
    world = admin.world
    await llm_usage.set_budget(world.database, world.workspace_id, {"tokens": 100})
    await llm_usage.reserve(world.database, world.workspace_id, llm_usage.ModelTokens(70, 30, 0.25))
    shown = await admin.ok("GET", "/workspace/model-usage")
    assert shown == {
        "day": shown["day"],
        "requests": 1,
        "promptTokens": 70,
        "completionTokens": 30,
        "cost": 0.25,
        "estimated": 1,
        "budget": {"requests": None, "tokens": 100, "cost": None},
        "reached": ["tokens"],
    }


async def test_the_last_admin_key_stays_and_a_revoked_one_is_listed(admin: Admin) -> None:
    listed = (await admin.ok("GET", "/keys"))["items"]
    (own,) = [one for one in listed if one["prefix"] == admin.wide[: keys.PREFIX_LENGTH]]
    told = await admin.refused(409, "DELETE", f"/keys/{own['keyId']}")
    assert told["type"] == "urn:switchboard:problem:last-admin-key" and "Create another one" in told["detail"]
    another = await admin.ok("POST", "/keys", name="another", scopes=["admin"])
    told = await admin.refused(409, "DELETE", f"/keys/{own['keyId']}")
    assert "keepCreated=true" in told["detail"], "the other one would end with the key that created it"
    assert (await admin.ok("DELETE", f"/keys/{own['keyId']}?keepCreated=true"))["revokedAt"]
    await admin.refused(401, "GET", "/keys")
    shown = (await admin.ok("GET", "/keys", another["secret"]))["items"]
    assert [one["revokedAt"] is not None for one in shown if one["keyId"] == own["keyId"]] == [True]
    again = await admin.ok("DELETE", f"/keys/{own['keyId']}?keepCreated=true", another["secret"])
    assert again["revokedAt"]


async def test_an_admin_key_makes_none_that_outlives_it(admin: Admin) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    short = await key_of(admin.world, expires=ends)
    body = {"name": "x", "scopes": ["admin"]}
    told = await admin.refused(400, "POST", "/keys", short, **body, expiresAt=(ends + timedelta(days=1)).isoformat())
    assert told["errors"][0]["pointer"] == "/expiresAt"
    unset = await admin.ok("POST", "/keys", short, **body)
    assert datetime.fromisoformat(unset["key"]["expiresAt"]) == ends
    await admin.ok("POST", "/keys", short, **body, expiresAt=(ends - timedelta(minutes=1)).isoformat())
    await admin.refused(400, "POST", "/keys", **body, expiresAt="2020-01-01T00:00:00Z")


async def test_every_fault_of_a_body_is_told_at_once(admin: Admin, subtests: pytest.Subtests) -> None:
    headers = {"Authorization": f"Bearer {admin.wide}"}
    for body, pointers in [
        ({}, {"/name", "/scopes"}),
        ({"name": "x"}, {"/scopes"}),
        ({"name": "x", "scopes": ["owner"]}, {"/scopes"}),
        ({"name": 7, "scopes": [], "teamId": "no"}, {"/name", "/scopes", "/teamId"}),
        ({"name": "x", "scopes": ["read"], "workspaceId": "other"}, {""}),
        ({"name": "x" * 201, "scopes": ["read"]}, {"/name"}),
        ({"name": "a\u0000b", "scopes": ["read"]}, {"/name"}),
    ]:
        with subtests.test(str(body)[:60]):
            answer = await admin.client.post(f"{admin.base}/keys", json=body, headers=headers)
            assert answer.status_code == 400, answer.text
            assert {one["pointer"] for one in answer.json()["errors"]} >= pointers


async def test_bodies_are_bounded_and_changes_name_something(admin: Admin) -> None:
    await admin.refused(413, "POST", "/teams", name="x" * 140_000)
    headers = {"Authorization": f"Bearer {admin.wide}"}
    plain = await admin.client.post(f"{admin.base}/teams", content="name=x", headers=headers)
    assert plain.status_code == 415
    told = await admin.refused(400, "PATCH", f"/teams/{admin.world.team_id}", name=None)
    assert told["errors"] == [{"pointer": "/name", "detail": "name: must not be null. Omit it or set a value."}]
    empty = await admin.client.patch(f"{admin.base}/teams/{admin.world.team_id}", json={}, headers=headers)
    assert empty.status_code == 400 and "The body has no field" in empty.text


async def test_changes_say_who_what_and_by_which_request(admin: Admin) -> None:
    answer = await admin("POST", "/teams", name="sales")
    (latest, *_) = (await admin.ok("GET", "/changes"))["items"]
    assert (latest["who"], latest["action"], latest["kind"], latest["name"]) == ("Ana", "created", "team", "sales")
    assert latest["requestId"] == answer.headers["x-request-id"] and latest["keyId"]
    page = await admin.ok("GET", "/changes?limit=1")
    assert (await admin.ok("GET", f"/changes?limit=1&cursor={page['next']}"))["items"] != page["items"]


async def test_voiceprints_are_listed_and_decided_and_never_show_their_vectors(admin: Admin) -> None:
    world, ana = admin.world, await member(admin.world, "Ana")
    samples = [await call(world, voice(ANA, seed), ana) for seed in range(3)]
    unnamed = await call(world, voice(ANA, 9))
    listed = (await admin.ok("GET", "/voiceprints"))["items"]
    assert {item["callId"] for item in listed} == {str(sample) for sample in (*samples, unnamed)}
    assert "vector" not in str(listed)
    named = (await admin.ok("GET", f"/voiceprints?userId={ana}"))["items"]
    assert {item["callId"] for item in named if item["status"] == "enrolled"} == {str(sample) for sample in samples}
    path = f"/voiceprints/{samples[0]}"
    assert (await admin.ok("POST", path, action="remove"))["status"] == "removed"
    assert (await admin.ok("POST", path, action="restore"))["status"] != "removed"
    assert (await admin.ok("POST", f"/voiceprints/{unnamed}", action="assign", userId=str(ana)))["name"] == "Ana"
    record = await admin.ok("GET", path)
    assert [event["action"] for event in record["history"]] == ["removed", "restored"]
    await admin.refused(400, "POST", path, action="assign")
    await admin.refused(400, "POST", path, action="remove", userId=str(ana))
    await admin.refused(404, "GET", f"/voiceprints/{uuid4()}")
    await admin.refused(404, "POST", f"/voiceprints/{uuid4()}", action="remove")
    await admin.refused(403, "GET", "/voiceprints", admin.team)
