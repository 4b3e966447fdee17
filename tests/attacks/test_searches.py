"""Searches by meaning and idle streams of one tenant leave the lists, pages and searches of another served."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from db.core.database import Reader
from db.search import passages
from serve_app.api.options import ApiOptions
from serve_app.console.app import build_console
from serve_app.http.options import Work
from serve_app.settings import Settings
from tests import serving
from tests.finished import finished
from tests.integration.db.search.test_meaning import CANCEL, E5, LATE, worked_off
from tests.postgres import World, new_world
from tests.reading_api import reading_key, served
from tests.tuned import tuned

SEARCHES = 32
QUESTION = "Who wants to end a subscription, and why? " * 4


PATIENT = tuned(ApiOptions, per_minute=1e9, query_seconds=60.0, search_seconds=60.0, poll_seconds=30.0)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowded machine is slow; here it matters who is refused."""
    monkeypatch.setattr("serve_app.records.query_embedding.SECONDS", 60.0)
    monkeypatch.setattr("serve_app.console.site.Reader", partial(Reader, seconds=60.0))


@contextlib.asynccontextmanager
async def searching(client: httpx.AsyncClient, path: str) -> AsyncIterator[Counter[int]]:
    """Run `SEARCHES` searches at a time, one after the other; yields the statuses of the responses."""
    statuses: Counter[int] = Counter()

    async def search() -> None:
        while True:
            answer = await client.get(path)
            statuses[answer.status_code] += 1
            await asyncio.sleep(0.05 if answer.status_code == 200 else 0.3)

    tasks = [asyncio.create_task(search()) for _ in range(SEARCHES)]
    try:
        yield statuses
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), ended


async def until_one_is_answered(statuses: Counter[int]) -> None:
    async with asyncio.timeout(60):
        while not statuses[200]:
            await asyncio.sleep(0.02)


async def with_passages(world: World, count: int) -> World:
    """Store calls of a workspace with their passages, and one of another, which is returned."""
    other = await new_world(world.database)
    await passages.switch_on(world.database, E5.model)
    for number in range(count):
        await finished(world, *(CANCEL, LATE)[number % 2], minutes=number)
    await finished(other, *CANCEL)
    await worked_off(world)
    return other


async def test_searches_by_meaning_of_one_key_leave_others_served(world: World, postgres_url: str) -> None:
    other = await with_passages(world, 6)
    loud, quiet = await reading_key(world), await reading_key(other)
    with served(postgres_url, PATIENT, E5) as base:
        async with (
            httpx.AsyncClient(base_url=base, timeout=60, headers={"Authorization": f"Bearer {loud}"}) as crowd,
            httpx.AsyncClient(base_url=base, timeout=60, headers={"Authorization": f"Bearer {quiet}"}) as neighbor,
        ):
            assert (await crowd.get("/calls", params={"meaning": "invoices"})).status_code == 200
            async with searching(crowd, f"/calls?meaning={QUESTION}") as statuses:
                for path in ("/calls", f"/calls?meaning={QUESTION}", "/calls?text=subscription") * 5:
                    answer = await neighbor.get(path)
                    assert answer.status_code == 200
                    assert len(answer.json()["items"]) == 1
                await until_one_is_answered(statuses)
    assert statuses.keys() <= {200, 429}


async def test_searches_of_one_session_leave_the_pages_of_others_served(
    world: World, postgres_url: str, tmp_path: Path
) -> None:
    other = await with_passages(world, 6)
    settings = Settings(database_url=postgres_url, data_dir=tmp_path, embedding={"engine": "e5"})
    with serving.served(build_console(settings)) as base:
        async with (
            httpx.AsyncClient(base_url=base, timeout=60, headers={"Sec-Fetch-Site": "same-origin"}) as crowd,
            httpx.AsyncClient(base_url=base, timeout=60, headers={"Sec-Fetch-Site": "same-origin"}) as neighbor,
        ):
            for client, tenant in ((crowd, world), (neighbor, other)):
                assert (await client.post("/sign-in", data={"key": await reading_key(tenant)})).status_code == 303
            async with searching(crowd, f"/calls?by=meaning&text={QUESTION}") as statuses:
                for path in ("/calls", f"/calls?by=meaning&text={QUESTION}", "/calls?text=subscription") * 4:
                    assert (await neighbor.get(path)).status_code == 200
                own = [(await crowd.get("/people")).status_code for _ in range(3)]
                await until_one_is_answered(statuses)
    assert statuses.keys() <= {200, 429}
    assert own == [200] * 3  # its searches take no places of its other pages


@pytest.mark.slow_attack
async def test_idle_streams_take_no_more_than_their_places(world: World, postgres_url: str) -> None:
    """A replica holds 128; those of one workspace are at most 96, and each other one learns when to try again."""
    places, other = ApiOptions.PLACES[Work.STREAM], await new_world(world.database)
    held: Counter[object] = Counter()
    refused: Counter[int] = Counter()
    async with contextlib.AsyncExitStack() as stack:
        base = stack.enter_context(served(postgres_url, PATIENT))
        limits = httpx.Limits(max_connections=None)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=base, timeout=60, limits=limits))
        for tenant in (world, other):
            for secret in [await reading_key(tenant) for _ in range(7)]:
                headers = {"Authorization": f"Bearer {secret}"}
                for _ in range(places.per_key + 1):
                    request = client.build_request("GET", "/events/stream", headers=headers)
                    answer = await client.send(request, stream=True)
                    stack.push_async_callback(answer.aclose)
                    if answer.status_code != 200:
                        refused[answer.status_code] += 1
                        assert answer.headers["Retry-After"] == str(ApiOptions.STREAM_RETRY_SECONDS)
                        break  # it is told late if it does not wait
                    held[tenant.workspace_id] += 1
                for _ in range(2):
                    assert (await client.get("/calls", headers=headers)).status_code == 200
    assert held == {world.workspace_id: places.per_workspace, other.workspace_id: places.total - places.per_workspace}
    assert refused.keys() == {429}
