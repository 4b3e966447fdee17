"""Search by meaning over HTTP and in the console: off, switched on, without its model."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from db.core.database import Reader
from db.search import passages
from db.workspace import access_log, keys
from pipeline.embedding import EmbeddingOptions
from serve_app.cli import app
from tests.finished import finished
from tests.integration.db.search.test_meaning import CANCEL, E5, LATE, worked_off
from tests.integration.serve_app.console.test_console import browser, signed_in
from tests.postgres import World
from tests.reading_api import UNLIMITED, served


async def asked(base: str, world: World, team: Any = None, **parameters: Any) -> httpx.Response:
    _, secret = await keys.create(world.database, world.workspace_id, team, ["read"], "reader")
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(timeout=60, headers=headers) as client:
        return await client.get(f"{base}/calls", params=parameters)


@pytest.fixture
def base(postgres_url: str) -> Iterator[str]:
    with served(postgres_url, UNLIMITED, E5) as url:
        yield url


@pytest_asyncio.fixture
async def calls(world: World) -> AsyncIterator[list[str]]:
    """A call of each team, with their passages."""
    await passages.switch_on(world.database, E5.model)
    made = [await finished(world, *CANCEL, sender=world.scoped), await finished(world, *LATE, minutes=2)]
    await worked_off(world)
    yield [str(one) for one in made]


async def test_calls_come_the_most_similar_first_with_words_and_seconds(
    base: str, world: World, calls: list[str]
) -> None:
    answer = await asked(base, world, meaning="Who ends the subscription?")
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["next"] is None
    assert [line["call"]["callId"] for line in page["items"]] == calls
    (hit,) = page["items"][0]["hits"]
    assert hit["words"] == " ".join(text for _, text in CANCEL)
    assert (hit["turn"], hit["speaker"], hit["start"]) == (0, "rep", 0.0)
    assert 0.8 < hit["similarity"] <= 1
    (line,) = (await asked(base, world, meaning="Who ends the subscription?", limit=1)).json()["items"]
    assert line["call"]["callId"] == calls[0]
    kept = await access_log.list_reads(world.database, Reader(world.workspace_id), UUID(calls[0]))
    assert "search" in {read.what for read in kept}
    team = await asked(base, world, world.other_team_id, meaning="Who ends the subscription?")
    assert team.json()["items"] == []


async def test_what_orders_otherwise_is_refused(base: str, world: World) -> None:
    for more in ({"text": "invoice"}, {"name": "Ana"}, {"cursor": "x"}, {"updatedAfter": "2026-01-01T00:00:00Z"}):
        answer = await asked(base, world, meaning="invoices", **more)
        assert answer.status_code == 400, more
        (fault,) = answer.json()["errors"]
        assert next(iter(more)) in fault["detail"]
    assert (await asked(base, world, meaning="")).status_code == 400


async def test_off_unless_switched_on(postgres_url: str, world: World) -> None:
    with served(postgres_url) as url:
        answer = await asked(url, world, meaning="invoices")
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("search-by-meaning-off")
    assert "SWITCHBOARD_EMBEDDING__ENGINE" in answer.json()["detail"]


async def test_passages_of_another_model_are_not_compared(base: str, world: World) -> None:
    assert "No call is indexed yet" in (await asked(base, world, meaning="invoices")).json()["detail"]
    await passages.switch_on(world.database, "yesterday's")
    answer = await asked(base, world, meaning="invoices")
    assert (answer.status_code, "switchboard search index" in answer.json()["detail"]) == (409, True)


async def test_without_its_model_it_says_so_and_other_searches_work(
    postgres_url: str, world: World, calls: list[str], tmp_path: Path
) -> None:
    with served(postgres_url, UNLIMITED, EmbeddingOptions(engine="e5"), tmp_path) as url:
        await asyncio.sleep(0.2)
        answer = await asked(url, world, meaning="invoices")
        assert answer.status_code == 503
        assert "model for search by meaning is not installed" in answer.json()["detail"]
        assert "Retry-After" in answer.headers
        assert (await asked(url, world, text="subscription")).json()["items"][0]["call"]["callId"] == calls[0]


async def test_the_console_offers_the_choice_where_it_is_switched_on(
    postgres_url: str, world: World, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browser(postgres_url, tmp_path) as site:
        await signed_in(site, world)
        assert 'name="by"' not in (await site.get("/calls")).text
        assert "turned off" in (await site.get("/calls", params={"text": "invoice", "by": "meaning"})).text
    monkeypatch.setenv("SWITCHBOARD_EMBEDDING__ENGINE", "e5")
    async with browser(postgres_url, tmp_path) as site:
        await signed_in(site, world)
        assert 'name="by"' in (await site.get("/calls")).text
        page = (await site.get("/calls", params={"text": "Who ends the subscription?", "by": "meaning"})).text
        assert CANCEL[1][1] in page
        assert page.index(calls[0]) < page.index(calls[1])
        assert page.count('class="day"') == page.count('id="closest"') == 1, (
            "no days: those of calls in this order repeat"
        )
        assert 'hx-trigger="never"' in page, "a question is not embedded again every few seconds"
        await signed_in(site, world, world.other_team_id)
        page = (await site.get("/calls", params={"text": "Who ends the subscription?", "by": "meaning"})).text
        assert "No matching calls" in page and CANCEL[1][1] not in page


def switchboard(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


async def test_stored_calls_are_indexed_by_command(
    postgres_url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finished(world, *CANCEL)
    await finished(world, *LATE, minutes=2)
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    assert "not switched on" in await asyncio.to_thread(switchboard, "search", "status")
    refused = await asyncio.to_thread(CliRunner().invoke, app, ["search", "index"])
    assert refused.exit_code == 2
    monkeypatch.setenv("SWITCHBOARD_EMBEDDING__ENGINE", "e5")
    assert "2 calls indexed here" in await asyncio.to_thread(switchboard, "search", "index")
    assert "0 calls indexed here" in await asyncio.to_thread(switchboard, "search", "index")
    assert "2 calls indexed here" in await asyncio.to_thread(switchboard, "search", "index", "--all")
    assert "2 calls, 2 passages; 0 calls due" in await asyncio.to_thread(switchboard, "search", "status")
    assert '"due": 0' in await asyncio.to_thread(switchboard, "search", "status", "--json")
    state = await passages.state(world.database)
    assert (state.model, state.calls, state.due) == (E5.model, 2, 0)
    assert "2 passages removed" in await asyncio.to_thread(switchboard, "search", "remove")
