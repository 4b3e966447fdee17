import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio

from db.core.database import Reader
from db.experiments import gold_sets
from db.records import correct
from db.records.corrections import Editor
from pipeline.domain.edits import EditKind
from pipeline.evaluation.truth import digest, plain
from serve_app.experiments import compared_calls, comparison_cache
from serve_app.experiments.comparison_cache import ComparisonCache, ComparisonInput
from tests.finished import finished
from tests.postgres import World
from tests.support.console_site import browser, signed_in


@pytest_asyncio.fixture
async def site(postgres_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with browser(postgres_url, tmp_path) as client:
        yield client


async def gold_set(world: World, calls: int = 6) -> list[UUID]:
    """Create a set of calls; in the first, one word of thirty is corrected."""
    call_ids = [await finished(world, minutes=at) for at in range(calls)]
    reader = Reader(world.workspace_id)
    content = (await world.rows("SELECT content FROM transcripts LIMIT 1"))[0]["content"]
    word = next(item for item in content["turns"][0]["words"] if item["text"] == "Acme")
    edit = correct.WantedEdit(EditKind.TEXT, "Acme", "Acne", 0, word["start"], word["end"])
    await correct.make(world.database, reader, Editor(None, None, "Ana"), call_ids[0], edit)
    truths = await compared_calls.corrected_calls(world.database, reader, call_ids)
    contents = {UUID(call.name): plain(call) for call in truths}
    await gold_sets.add_version(world.database, world.workspace_id, "desk", "corrections", digest(truths), contents)
    return call_ids


async def shown(site: httpx.AsyncClient, address: str, **headers: str) -> str:
    """Return the page after the measurement."""
    for _ in range(240):
        answer = await site.get(address, headers=headers)
        assert answer.status_code == 200, answer.text
        if "load delay:1s" not in answer.text:
            return " ".join(answer.text.split())
        await asyncio.sleep(0.5)
    raise AssertionError("it is still being measured")


async def test_a_set_is_measured_and_the_worst_call_is_one_click_from_its_sound(
    site: httpx.AsyncClient, world: World
) -> None:
    await signed_in(site, world)
    assert "No gold sets yet" in (await site.get("/comparison")).text
    calls = await gold_set(world)
    page = await shown(site, "/comparison?gold=desk@1&by=wer")
    assert "word errors, normalized (WER)" in page and "0.6%" in page
    first = page[page.index("data-row") :][:200]
    assert f'href="/calls/{calls[0]}#t=0.00"' in first and "3.3%" in page, "one word of thirty"
    assert "invoice" not in page and "service desk" not in page, "no word of the calls"
    german = await shown(site, "/comparison?gold=desk&by=cpwer", **{"Accept-Language": "de"})
    assert "0,6 %" in german and "Wortfehler mit Sprecherzuordnung (cpWER)" in german
    assert (await site.get("/comparison?gold=desk@2")).status_code == 404
    assert (await site.get("/comparison?gold=other")).status_code == 404
    unknown = await shown(site, "/comparison?gold=desk&by=bleu")
    assert "0.6%" in unknown, "the usual metric"


async def test_sets_are_not_for_viewers_of_one_team(site: httpx.AsyncClient, world: World) -> None:
    await gold_set(world, 1)
    await signed_in(site, world, world.team_id)
    assert "No gold sets yet" in (await site.get("/comparison")).text
    assert (await site.get("/comparison?gold=desk")).status_code == 404


async def test_a_console_without_the_libraries_says_so(
    site: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'jiwer'", name="jiwer")

    await gold_set(world, 1)
    await signed_in(site, world)
    monkeypatch.setattr(comparison_cache, "measured", missing)
    for _ in range(40):
        answer = await site.get("/comparison?gold=desk")
        if answer.status_code != 200:
            break
        await asyncio.sleep(0.5)
    assert answer.status_code == 503 and "switchboard-calls[evaluation]" in answer.text


async def test_a_large_set_says_how_all_of_it_is_measured(
    site: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.console.comparison.MAX_CALLS", 2)
    await gold_set(world, 3)
    await signed_in(site, world)
    page = await shown(site, "/comparison?gold=desk")
    assert "2 calls" in page and "The gold set has 3 calls" in page and "switchboard gold score desk@1" in page


async def test_who_asks_meanwhile_waits_for_the_same_work_and_a_failure_is_tried_again() -> None:
    begun, gate = 0, asyncio.Event()

    async def read() -> ComparisonInput:
        nonlocal begun
        begun += 1
        await gate.wait()
        if begun == 1:
            raise OSError("the database is away")
        return ComparisonInput([], {"record": []}, {}, 0)

    cache, key = ComparisonCache(), (uuid4(), uuid4(), None)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await cache.get(key, read, 0.01)
    assert (begun, cache.progress(key)) == (1, (0, 0))
    gate.set()
    with pytest.raises(OSError, match="away"):
        await cache.get(key, read, 5)
    result = await cache.get(key, read, 60)
    assert (result.calls, result.metrics, begun) == (0, {}, 2)
    assert await cache.get(key, read, 5) is result, "it is kept for a while"
    assert asdict(result)["systems"] == ("record",)
