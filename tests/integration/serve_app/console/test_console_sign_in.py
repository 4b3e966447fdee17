import re
from datetime import timedelta

import httpx
import pytest

from db.workspace import admin_log, keys
from db.workspace import sessions as console_sessions
from serve_app.console.guard import COOKIE
from tests.postgres import World, new_world
from tests.support.console_site import EVIL, is_signed_in, key_of, signed_in


async def test_a_key_of_scope_read_opens_a_session_whose_cookie_no_script_can_read(
    site: httpx.AsyncClient, world: World
) -> None:
    _, secret = await key_of(world)
    answer = await site.post("/sign-in", data={"key": secret, "next": "/tasks"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/tasks")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" not in cookie
    assert await is_signed_in(site)
    (row,) = await world.rows("SELECT * FROM console_sessions")
    assert site.cookies[COOKIE].encode() not in bytes(row["secret_sha256"])


async def test_behind_tls_the_cookie_goes_nowhere_without(site: httpx.AsyncClient, world: World) -> None:
    _, secret = await key_of(world)
    answer = await site.post("/sign-in", data={"key": secret}, headers={"X-Forwarded-Proto": "https"})
    assert "; Secure" in answer.headers["set-cookie"]


async def test_a_key_that_may_only_submit_is_told_so(site: httpx.AsyncClient, world: World) -> None:
    _, secret = await key_of(world, scopes=("submit",))
    answer = await site.post("/sign-in", data={"key": secret})
    assert answer.status_code == 403 and "has no read access" in answer.text
    assert not await is_signed_in(site)


async def test_a_link_opens_the_console_once(site: httpx.AsyncClient, world: World) -> None:
    secret, _ = await console_sessions.issue_link(world.database, world.workspace_id, None, "Ana")
    assert (await site.post("/sign-in", data={"link": secret})).status_code == 303
    assert await is_signed_in(site)
    site.cookies.clear()
    assert (await site.post("/sign-in", data={"link": secret})).status_code == 403


async def test_a_link_that_expired_opens_nothing(site: httpx.AsyncClient, world: World) -> None:
    secret, _ = await console_sessions.issue_link(
        world.database, world.workspace_id, None, "Ana", timedelta(seconds=-1)
    )
    assert (await site.post("/sign-in", data={"link": secret})).status_code == 403


@pytest.mark.parametrize("ends", ["key revoked", "key expired", "session revoked", "session expired", "signed out"])
async def test_a_session_ends(site: httpx.AsyncClient, world: World, ends: str) -> None:
    key_id, secret = await key_of(world)
    await site.post("/sign-in", data={"key": secret})
    assert await is_signed_in(site)
    if ends == "key revoked":
        await keys.revoke(world.database, key_id)
    elif ends == "key expired":
        await world.execute("UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = :id", id=key_id)
    elif ends == "session revoked":
        (session,) = await console_sessions.list_sessions(world.database, world.workspace_id)
        assert await console_sessions.revoke(world.database, session.session_id)
    elif ends == "session expired":
        await world.execute("UPDATE console_sessions SET expires_at = now()")
    else:
        cookie = site.cookies[COOKIE]
        await site.post("/sign-out")
        site.cookies.set(COOKIE, cookie)  # who kept the cookie has nothing
    answer = await site.get("/calls")
    assert answer.status_code == 303 and "/sign-in" in answer.headers["location"]


async def test_only_sessions_of_the_same_key_are_shown_and_ended(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world)
    (other,) = await console_sessions.list_sessions(world.database, world.workspace_id)
    await signed_in(site, world)
    page = await site.get("/sessions")
    assert page.status_code == 200 and str(other.session_id) not in page.text
    assert (await site.post(f"/sessions/{other.session_id}/revoke")).status_code == 404
    mine = re.search(r"/sessions/([0-9a-f-]{36})/revoke", page.text)
    assert mine and (await site.post(f"/sessions/{mine[1]}/revoke")).status_code == 303
    assert not await is_signed_in(site)


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
)
async def test_no_other_site_posts_with_the_cookie(
    site: httpx.AsyncClient, world: World, headers: dict[str, str]
) -> None:
    await signed_in(site, world)
    if "Origin" in headers:
        del site.headers["Sec-Fetch-Site"]
    _, secret = await key_of(world)
    assert (await site.post("/sign-out", headers=headers)).status_code == 403
    assert (await site.post("/sign-in", data={"key": secret}, headers=headers)).status_code == 403
    assert await is_signed_in(site)


async def test_wrong_keys_lock_nobody_out(site: httpx.AsyncClient, world: World) -> None:
    """Secrets have 256 bits: a limit of failures would only lock out others behind the same address."""
    for number in range(30):
        assert (await site.post("/sign-in", data={"key": f"guess{number}"})).status_code == 403
        assert (await site.post("/sign-in", data={"link": f"{number}" * 43})).status_code == 403
    await signed_in(site, world)


async def test_signing_in_leads_to_no_other_site(
    site: httpx.AsyncClient, world: World, subtests: pytest.Subtests
) -> None:
    _, secret = await key_of(world)
    for path in ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb"]:
        with subtests.test(path):
            answer = await site.post("/sign-in", data={"key": secret, "next": path})
            assert answer.headers["location"] == "/calls"


async def test_an_administrator_sees_and_ends_all_sessions_of_the_workspace(
    site: httpx.AsyncClient, world: World
) -> None:
    await signed_in(site, world, world.team_id)
    link, _ = await console_sessions.issue_link(world.database, world.workspace_id, None, EVIL)
    site.cookies.clear()
    await site.post("/sign-in", data={"link": link})
    victim = site.cookies[COOKIE]
    await signed_in(site, world, scopes=("read", "admin"))
    page = (await site.get("/sessions")).text
    assert page.count("/revoke") == 3 and EVIL not in page and "via link" in page
    open_sessions = await console_sessions.list_sessions(world.database, world.workspace_id)
    (theirs,) = [session for session in open_sessions if session.name == EVIL]
    assert (await site.post(f"/sessions/{theirs.session_id}/revoke")).status_code == 303
    assert (await site.get("/sessions")).text.count("/revoke") == 2
    (line,) = [
        change
        for change in (await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)).items
        if change.kind == "session"
    ]
    assert (line.action, line.who, line.name, line.object_id) == ("ended", "reader", EVIL, str(theirs.session_id))
    assert (await site.post(f"/sessions/{theirs.session_id}/revoke")).status_code == 404, "it ends once"
    site.cookies.clear()
    site.cookies.set(COOKIE, victim)
    assert not await is_signed_in(site)


async def test_an_administrator_of_a_team_or_of_another_workspace_ends_no_others(
    site: httpx.AsyncClient, world: World
) -> None:
    for team in (world.other_team_id, None):
        await signed_in(site, world, team)
    before = await console_sessions.list_sessions(world.database, world.workspace_id)
    other = await new_world(world.database)
    for reader, team in ((world, world.team_id), (other, None)):
        await signed_in(site, reader, team, scopes=("read", "admin"))
        page = (await site.get("/sessions")).text
        assert page.count("/revoke") == 1
        for session in before:
            assert str(session.session_id) not in page
            assert (await site.post(f"/sessions/{session.session_id}/revoke")).status_code == 404
    remaining = {
        session.session_id for session in await console_sessions.list_sessions(world.database, world.workspace_id)
    }
    assert {session.session_id for session in before} <= remaining
    lines = (await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)).items
    assert not any(line.kind == "session" for line in lines)
