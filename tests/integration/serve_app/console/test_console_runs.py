from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest_asyncio

from db.experiments import runs
from db.experiments.runs import Run
from tests.finished import TALK, work
from tests.integration.serve_app.console.test_console_comparison import gold_set, shown
from tests.postgres import World
from tests.support.console_site import browser, signed_in

OTHER = (("rep", TALK[0][1].replace("Acme", "Acne")), *TALK[1:])  # as the person says whose correction is in the set
WORSE = (*TALK[:2], ("rep", "I am sorry. I will send you a correct invoice to borrow."))


@pytest_asyncio.fixture
async def site(postgres_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with browser(postgres_url, tmp_path) as client:
        yield client


async def made(world: World, name: str, calls: list[UUID], *talk: tuple[str, str]) -> Run:
    """Create a run whose calls have these words."""
    run, _ = await runs.create(world.database, world.workspace_id, name, {"asr": {"model": f"whisper-{name}"}}, calls)
    if talk:
        await work(world, *talk)
    return run


async def words(world: World, call: UUID) -> str:
    query = f"SELECT t.content FROM transcripts t JOIN calls c ON c.id = t.call_pk WHERE c.call_id = '{call}'"
    return str((await world.rows(query))[0]["content"])


async def test_a_run_is_compared_with_live_with_another_run_and_on_a_gold_set(
    site: httpx.AsyncClient, world: World
) -> None:
    await signed_in(site, world)
    assert "No runs yet" in (await site.get("/comparison")).text
    calls = await gold_set(world)
    tiny, base = [await made(world, name, calls, *talk) for name, talk in (("tiny", WORSE), ("base", OTHER))]
    page = (await site.get("/comparison")).text
    assert "6 of 6" in page and "asr.model=whisper-tiny" in page and "hx-trigger" not in page
    page = await shown(site, f"/comparison/runs/{tiny.run_id}")
    assert "10%" in page and "relative to Live" in page, "3 of 30 words"
    assert "To find out which is better" in page and "tone 6" in page
    first = page[page.index("data-row") :][:200]
    assert f'href="/calls/{min(map(str, calls))}#t=7.00"' in first, "the worst call opens where its words differ"
    assert "borrow" not in page and "service desk" not in page, "no word of the calls"
    page = await shown(site, f"/comparison/runs/{tiny.run_id}?other={base.run_id}&gold=desk@1")
    assert "tiny is worse by" in page and "10.6%" in page and "2.8%" in page
    german = await shown(site, f"/comparison/runs/{base.run_id}", **{"Accept-Language": "de"})
    assert "bezogen auf Live" in german and "Abgeschlossen" in german
    await made(world, "other", calls[:1], *TALK)
    for query, why in (
        (f"?other={tiny.run_id}", "A run cannot be compared with itself"),
        ("?gold=nothing", None),
        ("?other=nothing", None),
    ):
        answer = await site.get(f"/comparison/runs/{tiny.run_id}{query}")
        assert why in answer.text if why else answer.status_code == 404
    assert (await site.get("/comparison/runs/x")).status_code == 404


async def test_a_run_under_way_is_followed_and_says_what_failed(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world)
    calls = await gold_set(world, 2)
    run = await made(world, "base", calls)
    page = (await site.get(f"/comparison/runs/{run.run_id}")).text
    assert "Waiting" in page and "0 of 2 calls" in page and "every 2s" in page and "Compare" not in page
    assert "every 5s" in (await site.get("/comparison")).text
    await work(world, fails=True)
    page = (await site.get(f"/comparison/runs/{run.run_id}?progress")).text
    assert "2 failed" in page and "run_not_reproducible" in page and "every 2s" not in page


async def test_a_run_that_ended_while_it_was_followed_leads_to_its_comparison(
    site: httpx.AsyncClient, world: World
) -> None:
    await signed_in(site, world)
    run = await made(world, "base", await gold_set(world, 1), *OTHER)
    page = (await site.get(f"/comparison/runs/{run.run_id}?progress")).text
    assert "1 of 1 calls" in page and ">Compare</a>" in page and "<select" not in page


async def test_administrators_promote_a_run_and_take_it_back(site: httpx.AsyncClient, world: World) -> None:
    calls = await gold_set(world, 2)
    run = await made(world, "tiny", calls, *WORSE)
    at = f"/comparison/runs/{run.run_id}"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    await signed_in(site, world)
    assert "Make live" not in (await site.get(at)).text
    assert (await site.post(f"{at}/promote", headers=form)).status_code == 403
    assert "borrow" not in await words(world, calls[0])
    await signed_in(site, world, scopes=("read", "admin"))
    assert "Replace 2 transcripts" in (await site.get(at)).text
    for _ in range(2):  # a second click leads back, too
        answer = await site.post(f"{at}/promote", headers=form)
        assert (answer.status_code, answer.headers["location"]) == (303, at)
    assert "borrow" in await words(world, calls[0])
    page = (await site.get(at)).text
    assert "Live for 2 calls since" in page and "Restore 2 transcripts" in page
    assert "Live" in (await site.get("/comparison")).text
    assert (await site.post(f"{at}/rollback", headers=form)).status_code == 303
    assert "borrow" not in await words(world, calls[0])
    assert (await site.post(f"{at}/delete", headers=form)).status_code == 404
    waiting = await made(world, "waiting", calls)
    refused = await site.post(f"/comparison/runs/{waiting.run_id}/promote", headers=form)
    assert refused.status_code == 409 and "has not ended" in refused.text
    other = {"Sec-Fetch-Site": "cross-site", **form}
    assert (await site.post(f"{at}/promote", headers=other)).status_code == 403
    assert "borrow" not in await words(world, calls[0])


async def test_runs_are_not_for_viewers_of_one_team(site: httpx.AsyncClient, world: World) -> None:
    run = await made(world, "tiny", await gold_set(world, 1), *WORSE)
    await signed_in(site, world, world.team_id, ("read", "admin"))
    assert "Runs" not in (await site.get("/comparison")).text
    at = f"/comparison/runs/{run.run_id}"
    assert (await site.get(at)).status_code == 404
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await site.post(f"{at}/promote", headers=form)).status_code == 404
