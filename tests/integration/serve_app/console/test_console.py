import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from jinja2 import Environment
from starlette.routing import Route

from db.core.database import Reader
from db.queue.stage_results import stages_done
from pipeline.asr.verdicts import REASONS
from pipeline.domain.insight import Evidence, Finding, Task
from pipeline.domain.stage import Stage
from pipeline.evaluation.report import DURATION_BANDS, TITLES
from serve_app.console import labels, sentences, wording
from serve_app.console.guard import COOKIE
from tests.finished import START, findings, finished, received, task
from tests.postgres import World, new_world
from tests.support.console_site import EVIL, Parsed, browser, recorded, signed_in


def private_routes(site: httpx.AsyncClient) -> list[tuple[str, str]]:
    """(method, path) of every route that needs a session."""
    routes = [route for route in site.app.routes if isinstance(route, Route)]  # type: ignore[attr-defined]
    methods_and_paths = [
        (method, route.path) for route in routes for method in (route.methods or ()) if method != "HEAD"
    ]
    return [(m, p) for m, p in methods_and_paths if p not in ("/sign-in", "/language")]


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


async def test_calls_of_other_workspaces_and_teams_are_hidden(
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
        if method == "GET" and path.startswith("/calls/{id}"):
            assert (await site.get(filled(path, call_id))).status_code in (200, 202), path


async def test_markup_in_data_is_escaped(site: httpx.AsyncClient, world: World) -> None:
    spoken = {"name": EVIL, "company": EVIL, "email": EVIL}
    evil_task = Task(EVIL, "rep", "commitment", Evidence(0, 0.0, 3.0, EVIL), 0.9, beneficiary=EVIL, due_expression=EVIL)
    evil_findings = [
        *[f for f in findings(tone="negative", tasks=(evil_task,), heard=spoken) if f.step != "summary"],
        Finding(
            "summary", 1, {"text": EVIL, "sentences": [{"text": EVIL, "speaker": "rep"}], "outcome": EVIL}, note=EVIL
        ),
        Finding("direction", 1, {"outgoing": True, "source": EVIL}, (Evidence(0, 0.0, 3.0, EVIL),)),
        Finding("another", 1, {"engine": EVIL}),
    ]
    talk = (("rep", EVIL), ("customer", EVIL))
    call_id = await finished(world, *talk, found=evil_findings, from_number=EVIL[:40], to_number=EVIL[:40])
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
        "/people",
        "/sessions",
        f"/calls?text={html.escape(EVIL)}",
        "/calls?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
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
    assert str(sad) in (await site.get("/calls?tone=negative&text=invoice&status=completed&outgoing=")).text
    assert str(sad) not in (await site.get("/calls?tone=positive")).text
    assert "No matching calls" in (await site.get("/calls?text=xylophone")).text
    day = START.date().isoformat()
    assert str(sad) in (await site.get(f"/calls?from={day}&to={day}")).text
    assert "No matching calls" in (await site.get("/calls?to=2020-01-01")).text
    first = (await site.get("/calls")).text
    following = re.search(r'href="([^"]*cursor=[^"]*)"', first)
    assert first.count("data-row>") == 50 and following
    assert (await site.get(html.unescape(following[1]))).text.count("data-row>") == 4
    for wrong in ("cursor=x", "status=x", "teamId=x", "from=x", "userId=1"):
        assert (await site.get(f"/calls?{wrong}")).status_code == 400, wrong


async def test_polling_returns_304_without_changes(site: httpx.AsyncClient, world: World) -> None:
    await received(world)
    await signed_in(site, world)
    part = {"HX-Request": "true"}
    first = await site.get("/calls", headers=part)
    again = await site.get("/calls", headers=part | {"If-None-Match": first.headers["etag"]})
    assert "<html" not in first.text and again.status_code == 304 and not again.content
    call_id = await finished(world)
    news = await site.get("/calls", headers=part | {"If-None-Match": first.headers["etag"]})
    assert news.status_code == 200 and str(call_id) in news.text


async def test_an_empty_workspace_shows_how_to_submit_the_first_call(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world)
    page = (await site.get("/calls")).text
    assert "switchboard submit call.wav" in page and "/submit" in page


async def test_pages_follow_the_language_of_the_browser(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world)
    page = await site.get("/calls", headers={"Accept-Language": "de-DE,de;q=0.9,en;q=0.5"})
    assert 'lang="de"' in page.text and "Noch keine Anrufe" in page.text
    await site.post("/language", data={"language": "en"})
    assert "No calls yet" in (await site.get("/calls", headers={"Accept-Language": "de"})).text


WORDS = (
    *("Calls", "Tasks", "Trends", "Quality", "Queue", "Status", "Direction", "Sentiment", "Language", "Team", "Member"),
    *("From", "To", "Open", "Incoming", "Outgoing", "Agent", "Customer"),
)
"""Texts that templates receive as values."""


def within(value: object) -> Iterator[str]:
    """Yield every text in a constant: a string, or the values of a tuple or a mapping."""
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ():
        yield from within(item)


def texts() -> set[str]:
    """Return all texts of templates, labels and messages."""
    environment = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
    constants = (value for module in (sentences, labels) for name, value in vars(module).items() if name.isupper())
    messages = {
        *WORDS,
        *map(labels.stage, Stage),
        *(message for value in (REASONS, TITLES, tuple(DURATION_BANDS), *constants) for message in within(value)),
    }
    for template in (Path(wording.__file__).parent / "templates").glob("*.html"):
        text = template.read_text(encoding="utf-8")
        extracted = [message for *_, message in environment.extract_translations(text, ("_",))]  # type: ignore[attr-defined]
        messages |= {
            str(message[0] if isinstance(message, tuple) else message) for message in extracted if message
        }  # a tuple: with facts
        messages |= set(re.findall(r"""["']([^"']*\{n\} [^"']*)["']""", text))  # of Wording.count
    return messages


def test_the_german_catalog_has_every_text_of_the_pages() -> None:
    messages = texts()
    assert len(messages) > 150
    assert wording.missing("de", messages) == []


async def test_an_unavailable_database_gives_a_503_page(tmp_path: Path) -> None:
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


@pytest.mark.slow
async def test_a_call_of_three_hours_loads_in_parts(site: httpx.AsyncClient, world: World) -> None:
    sentence = "well then we shall see what comes of it in the end"
    talk = [("rep" if at % 2 else "customer", f"{sentence} {at}") for at in range(3 * 3600 * 2 // 7)]
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
    assert [int(number) for number in numbers] == list(range(len(talk)))
    assert (await site.get(f"/calls/{call_id}/turns/{len(parts) + 1}")).status_code == 400


async def test_the_call_page_shows_when_each_stage_was_done(site: httpx.AsyncClient, world: World) -> None:
    call_id = await finished(world)
    await world.execute(
        "INSERT INTO stage_results (call_pk, job_id, content_key, stage, result, recorded_at, worked_seconds)"
        " SELECT call_pk, id, 'k', done.stage, '{}', started_at + done.at * interval '1 second', done.worked FROM jobs,"
        " (VALUES ('audio', 2, 1.0), ('asr', 50, 12.5), ('prosody', -30, NULL)) AS done (stage, at, worked)"
    )
    await signed_in(site, world)
    page = (await site.get(f"/calls/{call_id}")).text
    assert re.findall(r"<li>([^<]*: done after [^<]*)</li>", page) == [
        "Audio analysis: done after 2 seconds",
        "Recognition: done after 50 seconds",
    ]
    assert "Transcriber: 12.5 s" in page and "Cost:" not in page  # no price is set
    await signed_in(site, world, world.other_team_id)
    reader = Reader(world.workspace_id, world.other_team_id)
    assert await stages_done(world.database, reader, call_id) == []
