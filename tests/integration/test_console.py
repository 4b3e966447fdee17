"""The pages as a browser gets them: who may see what, what becomes of markup, how sound is handed out."""

import contextlib
import html
import re
import wave
from collections.abc import AsyncIterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import numpy as np
import pytest
import pytest_asyncio
from jinja2 import Environment
from starlette.routing import Route

from db import audit, console_sessions, directory, keys
from db.database import EVERY_WORKSPACE, Database, Reader
from pipeline.domain.insight import Evidence, Finding, Task
from pipeline.domain.speech import Turn, Word
from serve_app.console import sentences, wording
from serve_app.console.app import build_console
from serve_app.console.editing import changes, text_edits
from serve_app.console.guard import COOKIE
from serve_app.settings import Settings
from tests.finished import START, TALK, findings, finished, received, task
from tests.postgres import World, new_world

BASE = "http://switchboard.test"
OURS = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html,*/*;q=0.8"}
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


@contextlib.asynccontextmanager
async def browser(url: str, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(database_url=url, data_dir=folder)
    app = build_console(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, client=("192.0.2.1", 1234))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=OURS) as client:
            client.app = app  # type: ignore[attr-defined]
            yield client


@pytest_asyncio.fixture
async def site(postgres_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with browser(postgres_url, tmp_path) as client:
        yield client


async def key_of(world: World, team: UUID | None = None, scopes: tuple[str, ...] = ("read",)) -> tuple[UUID, str]:
    info, secret = await keys.create(world.database, world.workspace_id, team, scopes, "reader")
    return info.key_id, secret


async def signed_in(site: httpx.AsyncClient, world: World, team: UUID | None = None) -> None:
    """Forget the session there was, and open one with a new key."""
    site.cookies.clear()
    _, secret = await key_of(world, team)
    answer = await site.post("/sign-in", data={"key": secret})
    assert answer.status_code == 303, answer.text


async def is_signed_in(site: httpx.AsyncClient) -> bool:
    return (await site.get("/calls")).status_code == 200


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
    assert answer.status_code == 403 and "may submit calls, not read them" in answer.text
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
        (one,) = await console_sessions.list_sessions(world.database, world.workspace_id)
        assert await console_sessions.revoke(world.database, one.session_id)
    elif ends == "session expired":
        await world.execute("UPDATE console_sessions SET expires_at = now()")
    else:
        kept = site.cookies[COOKIE]
        await site.post("/sign-out")
        site.cookies.set(COOKIE, kept)  # who kept the cookie has nothing
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


async def test_who_guesses_is_kept_waiting(site: httpx.AsyncClient, world: World) -> None:
    statuses = [(await site.post("/sign-in", data={"key": f"guess{n}"})).status_code for n in range(14)]
    assert statuses[0] == 403 and statuses[-1] == 503
    assert (await site.post("/sign-in", data={"link": "x" * 43})).status_code == 503


@pytest.mark.parametrize(
    "path", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb"]
)
async def test_signing_in_leads_to_no_other_site(site: httpx.AsyncClient, world: World, path: str) -> None:
    _, secret = await key_of(world)
    answer = await site.post("/sign-in", data={"key": secret, "next": path})
    assert answer.headers["location"] == "/calls"


def private_routes(site: httpx.AsyncClient) -> list[tuple[str, str]]:
    """(method, path) of every route that needs a session."""
    routes = [route for route in site.app.routes if isinstance(route, Route)]  # type: ignore[attr-defined]
    found = [(method, route.path) for route in routes for method in (route.methods or ()) if method != "HEAD"]
    return [(m, p) for m, p in found if p not in ("/sign-in", "/language")]


async def test_every_route_but_signing_in_needs_a_session(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world)
    routes = private_routes(site)
    assert len(routes) > 9
    for method, path in routes:
        answer = await site.request(method, filled(path, call_id))
        assert answer.status_code in (303, 401), (method, path)
        assert "invoice" not in answer.text


def filled(path: str, call_id: UUID) -> str:
    return path.replace("{id}", str(call_id)).replace("{part:int}", "0").replace("{part}", "0")


async def test_nobody_sees_another_workspaces_or_another_teams_calls(
    site: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    tasks = (task("Send the corrected invoice"),)
    call_id = await finished(world, found=findings(tone="negative", tasks=tasks))
    await recorded(world, call_id, tmp_path)
    stranger = await new_world(world.database)
    for reader, team in ((stranger, None), (world, world.other_team_id)):
        await signed_in(site, reader, team)
        for method, path in private_routes(site):
            if method != "GET":
                continue
            answer = await site.get(filled(path, call_id))
            assert answer.status_code == (404 if "{id}" in path else 303 if path == "/" else 200), path
            assert str(call_id) not in answer.text and "invoice" not in answer.text, path
    await signed_in(site, world, world.team_id)
    for method, path in private_routes(site):
        if method == "GET" and "{id}" in path:
            assert (await site.get(filled(path, call_id))).status_code in (200, 202), path


class Parsed(HTMLParser):
    """The elements of a page, and the text that is seen."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.seen = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.seen += data


async def test_markup_in_what_others_wrote_or_said_changes_nothing(site: httpx.AsyncClient, world: World) -> None:
    heard = {"name": EVIL, "company": EVIL, "email": EVIL}
    one = Task(EVIL, "rep", "commitment", Evidence(0, 0.0, 3.0, EVIL), 0.9, beneficiary=EVIL, due_expression=EVIL)
    found = [
        *[f for f in findings(tone="negative", tasks=(one,), heard=heard) if f.step != "summary"],
        Finding(
            "summary", 1, {"text": EVIL, "sentences": [{"text": EVIL, "speaker": "rep"}], "outcome": EVIL}, note=EVIL
        ),
        Finding("direction", 1, {"outgoing": True, "source": EVIL}, (Evidence(0, 0.0, 3.0, EVIL),)),
        Finding("another", 1, {"engine": EVIL}),
    ]
    talk = (("rep", EVIL), ("customer", EVIL))
    call_id = await finished(world, *talk, found=found, from_number=EVIL[:40], to_number=EVIL[:40])
    await world.execute("UPDATE teams SET name = :evil", evil=EVIL)
    await world.execute("UPDATE workspaces SET name = :evil", evil=EVIL)
    await world.execute("UPDATE calls SET warnings = ARRAY[:evil]", evil=EVIL)
    failed = await received(world, from_number=EVIL[:40])
    await world.execute(
        "UPDATE calls SET state = 'failed', failure_code = :evil, failure_message = :evil WHERE call_id = :id",
        evil=EVIL,
        id=failed,
    )
    site.headers["User-Agent"] = EVIL
    await signed_in(site, world)
    paths = (
        f"/calls/{call_id}",
        f"/calls/{call_id}/turns/0",
        f"/calls/{failed}",
        "/calls",
        "/tasks",
        "/queue",
        "/trends",
        "/workspace",
        "/sessions",
        f"/calls?q={html.escape(EVIL)}",
        "/calls?who=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
        "/calls?language=%22%3E%3Cscript%3E",
    )
    for path in paths:
        answer = await site.get(path)
        assert answer.status_code == 200, (path, answer.text[:300])
        page = Parsed(answer.text)
        for tag, attributes in page.elements:
            assert tag != "script" or (attributes.get("src") or "").startswith("/static/"), path
            assert not any(name.startswith("on") or name == "style" for name in attributes), (path, tag, attributes)
            assert (tag, attributes.get("src")) != ("img", "x"), path
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy and "default-src 'none'" in policy
    assert EVIL in Parsed((await site.get(f"/calls/{call_id}")).text).seen


async def test_the_list_is_filtered_by_its_url_and_paged(site: httpx.AsyncClient, world: World) -> None:
    for minutes in range(53):
        await received(world, minutes)
    sad = await finished(world, minutes=99, found=findings(tone="negative"))
    await signed_in(site, world)
    assert str(sad) in (await site.get("/calls?tone=negative&q=invoice&state=completed&direction=")).text
    assert str(sad) not in (await site.get("/calls?tone=positive")).text
    assert "No call matches" in (await site.get("/calls?q=xylophone")).text
    day = START.date().isoformat()
    assert str(sad) in (await site.get(f"/calls?from={day}&to={day}")).text
    assert "No call matches" in (await site.get("/calls?to=2020-01-01")).text
    first = (await site.get("/calls")).text
    following = re.search(r'href="([^"]*cursor=[^"]*)"', first)
    assert first.count("data-row>") == 50 and following
    assert (await site.get(html.unescape(following[1]))).text.count("data-row>") == 4
    for wrong in ("cursor=x", "state=x", "team=x", "from=x", "member=1"):
        assert (await site.get(f"/calls?{wrong}")).status_code == 400, wrong


async def test_a_page_that_is_open_is_told_only_what_is_new(site: httpx.AsyncClient, world: World) -> None:
    await received(world)
    await signed_in(site, world)
    part = {"HX-Request": "true"}
    first = await site.get("/calls", headers=part)
    again = await site.get("/calls", headers=part | {"If-None-Match": first.headers["etag"]})
    assert "<html" not in first.text and again.status_code == 304 and not again.content
    call_id = await finished(world)
    news = await site.get("/calls", headers=part | {"If-None-Match": first.headers["etag"]})
    assert news.status_code == 200 and str(call_id) in news.text


async def test_an_empty_workspace_is_told_how_to_submit_its_first_call(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world)
    page = (await site.get("/calls")).text
    assert "switchboard submit call.wav" in page and "/submit" in page


async def recorded(world: World, call_id: UUID, folder: Path, seconds: float = 10.5) -> bytes:
    """Give a completed call a stereo recording: noise of either party in turn, the customer's softer. Its bytes."""
    path = folder / f"{uuid4().hex}.wav"
    noise = np.random.default_rng(7).uniform(-1, 1, (int(seconds * 16000), 2))
    turn = (np.arange(len(noise)) // 16000) % 2  # they take turns, a second each
    samples = np.stack([noise[:, 0] * (turn == 0) * 16000, noise[:, 1] * (turn == 1) * 8000], axis=1).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())
    await world.execute(
        "INSERT INTO recordings (call_pk, job_id, channel, uri, sha256, size_bytes, media_type)"
        " SELECT id, job_id, 0, :uri, :sha, :size, 'audio/wav' FROM calls WHERE call_id = :call",
        uri=path.as_uri(),
        sha=uuid4().hex * 2,
        size=path.stat().st_size,
        call=call_id,
    )
    return path.read_bytes()


async def test_a_recording_is_handed_out_by_range_and_by_channel(
    site: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    call_id = await finished(world)
    whole = await recorded(world, call_id, tmp_path)
    await signed_in(site, world)
    url = f"/calls/{call_id}/audio"
    answer = await site.get(url)
    assert answer.content == whole and answer.headers["content-type"] == "audio/wav"
    ranges = {"bytes=0-99": whole[:100], "bytes=1000-": whole[1000:], "bytes=-7": whole[-7:]}
    for asked, bytes_ in ranges.items():
        partly = await site.get(url, headers={"Range": asked})
        assert (partly.status_code, partly.content) == (206, bytes_), asked
    assert (await site.get(url, headers={"Range": f"bytes={len(whole)}-"})).status_code == 416
    assert (await site.get(url, headers={"If-None-Match": answer.headers["etag"]})).status_code == 304
    peaks = []
    for channel in ("rep", "customer"):
        one = (await site.get(url, params={"channel": channel})).content
        samples = np.frombuffer(one[44:], "<i2")
        assert len(samples) == (len(whole) - 44) // 4
        odd = await site.get(url, params={"channel": channel}, headers={"Range": "bytes=1001-2000"})
        assert odd.content == one[1001:2001]
        peaks.append(int(np.abs(samples.astype(int)).max()))
    assert peaks[0] > 15000 and 7000 < peaks[1] < 8500
    assert (await site.get(url, params={"channel": 2})).status_code == 400


async def test_the_outline_has_a_lane_for_each_party_and_is_kept(
    site: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    call_id = await finished(world)
    await recorded(world, call_id, tmp_path)
    await signed_in(site, world)
    for _ in range(60):
        answer = await site.get(f"/calls/{call_id}/outline")
        if answer.status_code == 200:
            break
    lanes = np.frombuffer(answer.content, np.uint8).reshape(2, -1)
    seconds = lanes[:, :200].reshape(2, 10, 20).max(axis=2)
    assert (seconds[0, ::2] > 115).all() and (seconds[0, 1::2] < 5).all()
    assert (seconds[1, 1::2] > 55).all() and (seconds[1] < 70).all() and (seconds[1, ::2] < 5).all()
    assert lanes.shape[1] == 210
    (row,) = await world.rows("SELECT * FROM waveforms")
    assert bytes(row["peaks"]) == answer.content
    await world.execute("UPDATE recordings SET uri = 'file:///gone'")
    assert (await site.get(f"/calls/{call_id}/outline")).content == answer.content
    assert (await site.get(f"/calls/{call_id}/audio")).status_code == 404


async def test_it_is_kept_who_read_and_who_listened(site: httpx.AsyncClient, world: World, tmp_path: Path) -> None:
    call_id = await finished(world)
    await recorded(world, call_id, tmp_path)
    await signed_in(site, world)
    for path in ("", "/turns/0", "/audio"):
        assert (await site.get(f"/calls/{call_id}{path}")).status_code == 200
    found = await audit.list_reads(world.database, EVERY_WORKSPACE, call_id)
    assert sorted(one.what for one in found) == ["audio", "record", "transcript"]
    session = (await console_sessions.list_sessions(world.database, world.workspace_id))[0]
    assert {one.key_id for one in found} == {session.key_id}


async def test_pages_speak_german_where_the_browser_does(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world)
    page = await site.get("/calls", headers={"Accept-Language": "de-DE,de;q=0.9,en;q=0.5"})
    assert 'lang="de"' in page.text and "Noch keine Anrufe" in page.text
    await site.post("/language", data={"language": "en"})
    assert "No calls yet" in (await site.get("/calls", headers={"Accept-Language": "de"})).text


def texts() -> set[str]:
    """Every text of the pages: of the templates, of labels, and of problems."""
    environment = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
    found = set(sentences.all_of_them())
    for template in (Path(wording.__file__).parent / "templates").glob("*.html"):
        text = template.read_text(encoding="utf-8")
        told = [message for *_, message in environment.extract_translations(text, ("_",))]  # type: ignore[attr-defined]
        found |= {one for one in told if isinstance(one, str)}
        found |= set(re.findall(r"""["']([^"']*\{n\} [^"']*)["']""", text))  # of Wording.count
    return found


def test_the_german_catalog_has_every_text_of_the_pages() -> None:
    found = texts()
    assert len(found) > 150
    assert wording.missing("de", found) == []


async def test_a_database_that_is_away_gives_a_page_that_says_so(tmp_path: Path) -> None:
    async with browser("postgresql://nobody@127.0.0.1:1/nothing", tmp_path) as site:
        site.cookies.set(COOKIE, "x")
        answer = await site.get("/calls")
        assert answer.status_code == 503 and answer.headers["retry-after"] == "5"


async def test_times_are_the_viewers(site: httpx.AsyncClient, world: World) -> None:
    await finished(world)
    await signed_in(site, world)
    for zone, shown in (("Asia/Tokyo", "6:00"), ("America/New_York", "4:00"), ("../../etc/passwd", "10:00")):
        site.cookies.set("switchboard_zone", zone)
        assert shown in (await site.get("/calls")).text, zone


async def test_a_reader_of_one_team_finds_no_waveform_of_another(
    world: World, database: Database, tmp_path: Path
) -> None:
    from db import waveforms

    call_id = await finished(world)
    job_id: Any = (await world.row(call_id))["job_id"]
    peaks = np.zeros((2, 5), np.uint8)
    await waveforms.keep(database, Reader(world.workspace_id, world.other_team_id), call_id, job_id, peaks, 1.0)
    assert await waveforms.find(database, Reader(world.workspace_id), call_id) is None
    await waveforms.keep(database, Reader(world.workspace_id, world.team_id), call_id, job_id, peaks, 1.0)
    assert await waveforms.find(database, Reader(world.workspace_id, world.other_team_id), call_id) is None
    assert await waveforms.find(database, Reader(world.workspace_id), call_id) is not None


async def test_a_call_of_three_hours_comes_in_parts(site: httpx.AsyncClient, world: World) -> None:
    """3,085 turns of 13 words, 3.5 s each: the page brings a screenful, and says where the rest is."""
    said = "well then we shall see what comes of it in the end"
    talk = [("rep" if at % 2 else "customer", f"{said} {at}") for at in range(3 * 3600 * 2 // 7)]
    call_id = await finished(world, *talk)
    await signed_in(site, world)
    page = (await site.get(f"/calls/{call_id}")).text
    assert 250 <= page.count('class="w') < 300
    parts = re.findall(r'hx-get="[^"]*(/calls/[^"]*/turns/\d+)" hx-trigger="revealed, need"', page)
    numbers: list[str] = re.findall(r">(\d+)</span></p>", page)
    assert 20 < len(parts) < 30
    for part in parts:
        answer = await site.get(part)
        assert answer.status_code == 200 and answer.text.count('class="w') <= 1513
        numbers += re.findall(r">(\d+)</span></p>", answer.text)
    assert [int(one) for one in numbers] == list(range(len(talk)))
    assert (await site.get(f"/calls/{call_id}/turns/{len(parts) + 1}")).status_code == 400


async def editing(site: httpx.AsyncClient, world: World, scopes: tuple[str, ...] = ("read", "edit")) -> None:
    site.cookies.clear()
    _, secret = await keys.create(world.database, world.workspace_id, None, scopes, "Ana")
    assert (await site.post("/sign-in", data={"key": secret})).status_code == 303


async def corrected(
    site: httpx.AsyncClient, call_id: UUID, part: int, old: str, new: str, **more: str
) -> httpx.Response:
    """Save a turn's form."""
    speaker = ("rep", "customer", "rep")[part]
    form = {"old": old, "text": new, "was": speaker, "speaker": speaker} | more
    return await site.post(f"/calls/{call_id}/turn/{part}", data=form, headers={"HX-Request": "true"})


async def states(world: World) -> list[tuple[Any, Any, bool]]:
    rows = await world.rows("SELECT before, after, undone_at IS NULL AS counts FROM edits ORDER BY position")
    return [(row["before"], row["after"], row["counts"]) for row in rows]


async def test_a_turn_is_corrected_word_by_word_and_undone(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world)
    await editing(site, world)
    form = await site.get(f"/calls/{call_id}/turn/1?edit", headers={"HX-Request": "true"})
    assert "<textarea" in form.text and TALK[1][1] in Parsed(form.text).seen
    new = TALK[1][1].replace("invoice", "first invitation").replace("too high", "much too high")
    answer = await corrected(site, call_id, 1, TALK[1][1], new)
    assert answer.status_code == 200 and "hx-swap-oob" in answer.text and "first" in answer.text
    assert await states(world) == [("invoice", "first invitation", True), ("is", "is much", True)]
    page = Parsed((await site.get(f"/calls/{call_id}")).text)
    assert any(one.get("title") == "Machine: invoice" for _, one in page.elements)
    assert "Ana, " in page.seen and "Corrections" in page.seen
    (edit, *_) = [one["action"] for tag, one in page.elements if tag == "form" and "/undo" in (one.get("action") or "")]
    assert (await site.post(str(edit))).status_code == 303
    assert sorted(await states(world)) == [("invoice", "first invitation", True), ("is", "is much", False)]
    (kept,) = await world.rows("SELECT content::text AS content FROM transcripts")
    assert '"invoice"' in kept["content"] and "invitation" not in kept["content"]


async def test_the_speaker_of_a_turn_and_the_parties_are_changed(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world)
    await editing(site, world)
    answer = await corrected(site, call_id, 2, TALK[2][1], TALK[2][1], speaker="customer")
    assert 'class="turn customer' in answer.text
    swap = {"kind": "roles", "old": "no", "new": "yes"}
    assert (await site.post(f"/calls/{call_id}/edit", data=swap)).status_code == 303
    page = (await site.get(f"/calls/{call_id}")).text
    assert re.findall(r'class="turn (\w+)', page) == ["customer", "rep", "rep"]
    again = await site.post(f"/calls/{call_id}/edit", data=swap)
    assert again.status_code in (303, 409) and len(await states(world)) == 2, "and not back again"


async def test_somebody_who_was_slower_is_told_and_nothing_is_lost(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world)
    await editing(site, world)
    await corrected(site, call_id, 1, TALK[1][1], TALK[1][1].replace("invoice", "invitation"))
    late = await corrected(site, call_id, 1, TALK[1][1], TALK[1][1].replace("invoice", "inversion"))
    assert "changed meanwhile" in late.text and "my invitation is wrong" in Parsed(late.text).seen
    assert len(await states(world)) == 1


async def test_agent_and_contact_are_chosen(site: httpx.AsyncClient, world: World) -> None:
    bob = await directory.add_member(world.database, world.workspace_id, "Bob Stone")
    eve = await directory.add_contact(world.database, world.workspace_id, "Eve Adams", phone="+493012345")
    call_id = await finished(world)
    await editing(site, world)
    await site.post(f"/calls/{call_id}/edit", data={"kind": "agent", "old": "", "new": str(bob.user_id)})
    choices = await site.get(f"/calls/{call_id}/contacts?q=adams")
    assert "Eve Adams" in choices.text and "No contact" in (await site.get(f"/calls/{call_id}/contacts?q=zzz")).text
    await site.post(f"/calls/{call_id}/edit", data={"kind": "contact", "old": "", "new": eve.contact_id})
    page = Parsed((await site.get(f"/calls/{call_id}")).text)
    assert "Bob Stone · Eve Adams" in " ".join(page.seen.split()) and "as a person said" in page.seen
    assert "Eve Adams" in (await site.get(f"/calls?member={bob.user_id}")).text
    bad = await site.post(f"/calls/{call_id}/edit", data={"kind": "agent", "old": str(bob.user_id), "new": "x"})
    assert bad.status_code == 400


async def test_a_task_is_ticked_on_both_pages_and_taken_back(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world, found=findings(tasks=(task(EVIL), task("Pay"))))
    await editing(site, world)
    for path in ("/tasks", f"/calls/{call_id}"):
        page = Parsed((await site.get(path)).text)
        ticks = [
            one["action"] for tag, one in page.elements if tag == "form" and "/tasks/" in (one.get("action") or "")
        ]
        assert len(ticks) == 2, path
    form = {"done": "yes", "title": EVIL}
    done = await site.post(str(ticks[0]), data=form, headers={"HX-Request": "true"})
    assert 'aria-pressed="true"' in done.text and "<script" not in done.text and "Ana, " in done.text
    assert (await site.get("/tasks")).text.count('class="task-title"') == 1
    assert "Done: Ana" in Parsed((await site.get("/tasks?done=yes")).text).seen
    back = await site.post(str(ticks[0]), data={"done": "no"})
    assert back.status_code == 303 and (await site.get("/tasks")).text.count('class="task-title"') == 2


async def test_a_session_that_may_only_read_sees_no_forms_and_changes_nothing(
    site: httpx.AsyncClient, world: World
) -> None:
    call_id = await finished(world, found=findings(tasks=(task("Pay"),)))
    await editing(site, world)
    await corrected(site, call_id, 1, TALK[1][1], TALK[1][1].replace("invoice", EVIL.replace(" ", "/")))
    task_id = str((await world.rows("SELECT task_id(call_pk, title, evidence) AS id FROM tasks"))[0]["id"])
    edit_id = str((await world.rows("SELECT edit_id FROM edits"))[0]["edit_id"])
    writes = {
        f"/calls/{call_id}/turn/0": {"old": TALK[0][1], "text": "x", "was": "rep"},
        f"/calls/{call_id}/edit": {"kind": "roles", "old": "no", "new": "yes"},
        f"/calls/{call_id}/edits/{edit_id}/undo": {},
        f"/calls/{call_id}/tasks/{task_id}/done": {"done": "yes"},
    }
    before = await states(world)
    for path, form in writes.items():
        other = await site.post(path, data=form, headers={"Sec-Fetch-Site": "cross-site"})
        assert other.status_code == 403, path
    await editing(site, world, ("read",))
    for path, form in writes.items():
        answer = await site.post(path, data=form)
        assert answer.status_code == 403 and "scope edit" in answer.text, path
    page = Parsed((await site.get(f"/calls/{call_id}")).text)
    shown = {one.get("action") or "" for tag, one in page.elements if tag == "form"}
    assert not any(str(call_id) in one for one in shown)
    assert EVIL.replace(" ", "/") in page.seen, "words are shown as words"
    assert not any(tag == "img" or (tag == "script" and not one.get("src")) for tag, one in page.elements)
    stranger = await new_world(world.database)
    for reader, team in ((stranger, None), (world, world.other_team_id)):
        site.cookies.clear()
        _, secret = await key_of(reader, team, ("read", "edit"))
        await site.post("/sign-in", data={"key": secret})
        for path, form in writes.items():
            assert (await site.post(path, data=form)).status_code == 404, path
        assert (await site.get(f"/calls/{call_id}/contacts")).status_code == 404
    assert await states(world) == before and await world.rows("SELECT * FROM task_marks") == []


@pytest.mark.parametrize("may_edit", [True, False])
async def test_a_link_may_be_issued_for_correcting(site: httpx.AsyncClient, world: World, may_edit: bool) -> None:
    call_id = await finished(world)
    secret, _ = await console_sessions.issue_link(world.database, world.workspace_id, None, "Ana", may_edit=may_edit)
    await site.post("/sign-in", data={"link": secret})
    answer = await corrected(site, call_id, 1, TALK[1][1], TALK[1][1].replace("invoice", "invitation"))
    assert answer.status_code == (200 if may_edit else 403)
    assert await states(world) == ([("invoice", "invitation", True)] if may_edit else [])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a b c", "a x c", [(1, 2, 1, 2)]),
        ("a b c", "a b x c", [(1, 2, 1, 3)]),
        ("a b", "x a b", [(0, 1, 0, 2)]),
        ("a b c", "a c", [(1, 2, 1, 1)]),
        ("a b", "", [(0, 2, 0, 0)]),
        ("a", "x a y", [(0, 1, 0, 3)]),
        ("a b c d", "a b c d", []),
    ],
)
def test_what_differs_is_found_word_by_word(old: str, new: str, expected: list[tuple[int, ...]]) -> None:
    assert changes(old.split(), new.split()) == expected


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (("50\N{NO-BREAK SPACE}000", "euros"), "50 000 euros", []),
        (("50\N{NO-BREAK SPACE}000", "euros"), "50 000 dollars", ["50 000 dollars"]),
        (("你", "_号"), "你号", []),
        (("你", "_号"), "你好", ["你好"]),
        (("a", "b", "c"), "a x c", ["x"]),
    ],
)
def test_a_turn_that_is_saved_as_it_was_is_no_correction(
    words: tuple[str, ...], text: str, expected: list[str]
) -> None:
    said = tuple(Word(at, at + 1, one.strip("_"), 0.9, joined=one[0] == "_") for at, one in enumerate(words))
    found = text_edits(Turn(0, "rep", 0.0, 9.0, said, "en"), text)
    assert [one.new for one in found] == expected
