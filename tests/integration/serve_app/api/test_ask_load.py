"""POST /ask at twice the load that it admits: refusals say when to come back, and all else goes on."""

import asyncio
import itertools
import statistics
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest_asyncio

from db.workspace import llm_usage
from serve_app.answers.asking import AnsweringModel
from serve_app.api.options import ApiOptions
from serve_app.http.options import Work
from tests.finished import finished
from tests.integration.serve_app.api.test_ask import QUESTION
from tests.llm_server import Endpoint
from tests.postgres import World, new_world
from tests.reading_api import reading_key, served
from tests.support.llm_by_hand import KEY, options
from tests.tuned import tuned

# A crowded machine is not what this measures: only places refuse.
LIMITS = tuned(ApiOptions, per_minute=1e9, ask_seconds=300.0, search_seconds=60.0, query_seconds=60.0)
PLACES = ApiOptions.PLACES[Work.ASK]
MODEL_SECONDS = 1.0
MAX_SECONDS = 60.0  # of the load: it ends when each workspace has its answers
ANSWERS = 8
BUDGET = 5
NAMES = ("Zebulon", "Quentin")  # spoken in the calls of each workspace


@dataclass
class SlowModel:
    """Counts the questions about each name, and those at the same time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    questions: Counter[str] = field(default_factory=Counter)
    at_once: Counter[str] = field(default_factory=Counter)
    peak: Counter[str] = field(default_factory=Counter)

    def __call__(self, body: dict[str, Any]) -> Any:
        prompt = body["messages"][-1]["content"]
        (name,) = [name for name in NAMES if name in prompt]
        with self.lock:
            self.questions[name] += 1
            self.at_once[name] += 1
            self.peak[name] = max(self.peak[name], self.at_once[name])
            self.peak["all"] = max(self.peak["all"], self.at_once.total())
        time.sleep(MODEL_SECONDS)
        with self.lock:
            self.at_once[name] -= 1
        return {"sentences": []}


@dataclass
class Load:
    """A workspace that asks with two keys, each twice as many questions at once as are admitted."""

    world: World
    keys: list[str]
    goal: Counter[int]  # answers by status, after which it ends
    answers: list[httpx.Response] = field(default_factory=list)

    @property
    def statuses(self) -> Counter[int]:
        return Counter(answer.status_code for answer in self.answers)

    async def run(self, base: str, http: httpx.AsyncClient) -> None:
        numbers, ends = itertools.count(), time.monotonic() + MAX_SECONDS

        async def ask(key: str) -> None:
            while not self.goal <= self.statuses and time.monotonic() < ends:
                question = f"{QUESTION} {next(numbers)}?"  # one that was not answered yet
                headers = {"Authorization": f"Bearer {key}"}
                self.answers.append(await http.post(f"{base}/ask", json={"question": question}, headers=headers))
                if self.answers[-1].status_code != 200:
                    await asyncio.sleep(0.2)  # less than Retry-After: a client in a hurry

        at_once = 2 * (PLACES.per_key + PLACES.waiting)
        await asyncio.gather(*(ask(key) for key in self.keys for _ in range(at_once)))


@pytest_asyncio.fixture
async def loads(world: World) -> AsyncIterator[list[Load]]:
    worlds = [world, await new_world(world.database)]
    for each, name in zip(worlds, NAMES, strict=True):
        await finished(each, ("customer", f"The invoice of {name} is wrong."))
    goals = (Counter({200: ANSWERS, 429: 1}), Counter({200: BUDGET, 409: 1, 429: 1}))
    yield [
        Load(each, [await reading_key(each) for _ in range(2)], goal) for each, goal in zip(worlds, goals, strict=True)
    ]


async def _seconds_of_reads(base: str, http: httpx.AsyncClient, key: str, goes_on: Callable[[], bool]) -> list[float]:
    seconds = []
    while goes_on():
        began = time.monotonic()
        answer = await http.get(f"{base}/calls", headers={"Authorization": f"Bearer {key}"})
        seconds.append(time.monotonic() - began)
        assert answer.status_code == 200, answer.text
        await asyncio.sleep(0.02)
    return seconds


async def test_twice_the_admitted_load_is_refused_politely(
    postgres_url: str, loads: list[Load], endpoint: Endpoint
) -> None:
    model, (free, limited) = SlowModel(), loads
    endpoint.answers(model)
    await llm_usage.set_budget(limited.world.database, limited.world.workspace_id, {"requests": BUDGET})
    reader = await reading_key(free.world)
    limits = httpx.Limits(max_connections=None)
    answering = AnsweringModel(options(endpoint, api_key=KEY))
    async with httpx.AsyncClient(timeout=60, limits=limits) as http:
        with served(postgres_url, LIMITS, answering=answering, wait_seconds=60.0) as base:
            first = {"question": "Who?", "filters": {"language": "de"}}  # starts the process that reads calls
            await http.post(f"{base}/ask", json=first, headers={"Authorization": f"Bearer {reader}"})
            asking = asyncio.gather(*(load.run(base, http) for load in loads))
            seconds = await _seconds_of_reads(base, http, reader, lambda: not asking.done())
            await asking
    print(free.statuses, limited.statuses, model.peak, len(seconds), statistics.median(seconds), max(seconds))
    assert set(free.statuses) == {200, 429}, [answer.text for answer in free.answers if answer.status_code > 499]
    assert set(limited.statuses) == {200, 409, 429}
    refused = [answer for load in loads for answer in load.answers if answer.status_code == 429]
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
    spent = next(answer for answer in limited.answers if answer.status_code == 409)
    assert spent.json()["type"].endswith(":model-budget-spent")
    assert model.questions == {"Zebulon": free.statuses[200], "Quentin": BUDGET}
    assert limited.statuses[200] == BUDGET
    for load in loads:
        usage = await llm_usage.usage_today(load.world.database, load.world.workspace_id)
        assert usage.requests == load.statuses[200], "what was reserved for refused questions is given back"
    assert max(model.peak[name] for name in NAMES) <= PLACES.per_workspace
    assert PLACES.per_workspace <= model.peak["all"] <= PLACES.total
    assert statistics.median(seconds) < MODEL_SECONDS, "reads do not wait for the model"
