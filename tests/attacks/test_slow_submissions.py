"""Bodies of submissions that never end take no more than the places of their key and workspace."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

from serve_app.http.options import LimitOptions, Places
from tests.support.intake_in_memory import BODY, JSON, Memory, is_problem, sender, service, three_keys

OTHER = {"Authorization": "Bearer sb_other"}


def two_workspaces() -> Memory:
    memory = three_keys()
    memory.keys["sb_second"] = replace(memory.keys["sb_team"], key_id=uuid4())
    memory.keys["sb_other"] = sender("submit", team=uuid4())
    return memory


async def endless() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.Event().wait()


async def test_a_workspace_whose_bodies_never_end_keeps_no_other_from_submitting() -> None:
    memory, places = two_workspaces(), LimitOptions.PLACES
    async with service(memory, body_seconds=4.0, places=replace(places, seconds=0.5)) as client:
        slow = [
            asyncio.create_task(
                client.post("/submit", content=endless(), headers=JSON | {"Authorization": f"Bearer {key}"})
            )
            for key in ["sb_team"] * 200 + ["sb_second"] * 200
        ]
        await asyncio.sleep(0.2)
        for _ in range(20):
            assert (await client.post("/submit", json=BODY, headers=OTHER)).status_code == 202
        answers = await asyncio.gather(*slow)
    assert Counter(answer.status_code for answer in answers) == {
        408: places.per_workspace,
        429: 400 - places.per_workspace,
    }
    refused = next(answer for answer in answers if answer.status_code == 429)
    is_problem(refused, 429, "too-many-requests")
    assert refused.headers["retry-after"] == "5"
    assert len(memory.recorded) == 20


async def test_a_key_sends_its_whole_burst_at_once() -> None:
    memory = two_workspaces()
    memory.pause = 0.05
    async with service(memory) as client:
        answers = await asyncio.gather(*(client.post("/submit", json=BODY) for _ in range(LimitOptions().burst)))
    assert {answer.status_code for answer in answers} == {202}
    assert len(memory.recorded) == LimitOptions().burst


async def test_the_waiting_of_a_workspace_is_bounded_whatever_the_number_of_its_keys() -> None:
    memory, few = two_workspaces(), Places(total=4, per_workspace=3, per_key=2, waiting=2, seconds=60.0)
    memory.held = asyncio.Event()
    for number in range(8):
        memory.keys[f"sb_{number}"] = replace(memory.keys["sb_team"], key_id=uuid4())
    async with service(memory, places=few) as client:
        sent = [
            asyncio.create_task(client.post("/submit", json=BODY, headers={"Authorization": f"Bearer sb_{number % 8}"}))
            for number in range(16)
        ]
        async with asyncio.timeout(60):
            while sum(task.done() for task in sent) < 16 - few.per_workspace - 2 * few.waiting:
                await asyncio.sleep(0.01)
        memory.held.set()
        answers = await asyncio.gather(*sent)
    assert Counter(answer.status_code for answer in answers) == {202: 7, 429: 9}
