"""A cluster loses the power of the node that runs the only replica of Api: what readers and writers see at the head.

All replicas of the service are on two other nodes, as on a cluster whose head runs none. Machines are name spaces of
this one. Takes minutes: `make attacks` runs it.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest

from db.core.database import Database
from db.server import embedded, migrate
from db.workspace import keys
from tests.attacks.test_killed_rooms import SEED, Writers, check_deletes, check_edits
from tests.finished import finished
from tests.machines import Machine, machines, node_settings
from tests.postgres import World, new_world
from tests.reading_api import store, with_sound

HEAD, *WORKERS = ADDRESSES = [f"10.213.79.{number}" for number in (1, 2, 3)]
ORIGIN = f"http://{HEAD}:8000"
CALLS = 20_000  # an export of several MB, more than buffers on the way hold
FILL = """
    INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)
    SELECT workspace_id, gen_random_uuid(), id, '+4930123456', '+4930100', now() - n * interval '1 minute', 'received'
    FROM teams, generate_series(1, :calls) AS n WHERE id = :team
"""
MAX_SECONDS = 90.0  # without an answer
WELL = 20  # answers in a row after the loss

pytestmark = [
    pytest.mark.slow_attack,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network name spaces"),
]


@dataclass
class Stand:
    nodes: dict[str, Machine]
    folder: Path
    database_url: str
    world: World
    secret: str
    calls: dict[str, list[UUID]]

    def replicas(self) -> dict[str, list[str]]:
        """Return the addresses of running replicas by deployment."""
        details = self.nodes[HEAD].serve_details()
        placed: dict[str, list[str]] = {}
        for application in (details or {"applications": {}})["applications"].values():
            for name, deployment in application["deployments"].items():
                running = [replica for replica in deployment["replicas"] if replica["state"] == "RUNNING"]
                placed[name] = [replica["node_ip"] for replica in running]
        return placed


async def stored(url: str, folder: Path) -> tuple[World, str, dict[str, list[UUID]]]:
    """Store calls before the service could claim their jobs; return their workspace, a key and their ids by use."""
    async with await Database.open(url, pool_size=4) as database:
        world = await new_world(database)
        _, secret = await keys.create(database, world.workspace_id, None, ["read", "edit", "admin"], "writer")
        calls = {
            name: [await finished(world) for _ in range(count)]
            for name, count in (("edited", 4), ("turns", 1), ("doomed", 200))
        }
        calls["sound"] = [await with_sound(world, store(folder, seconds=30.0))]
        await world.execute(FILL, calls=CALLS, team=world.team_id)
    return world, secret, calls


@pytest.fixture
def stand() -> Iterator[Stand]:
    with tempfile.TemporaryDirectory(prefix="swb-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        url = embedded.start(folder / "state")
        try:
            migrate.migrate(url)
            world, secret, calls = asyncio.run(stored(url, folder))
            with machines(folder, ADDRESSES, node_settings(folder, url, HEAD)) as nodes:
                for node in nodes:
                    node.start_ray(resources={"CPU": 4} | ({} if node.address == HEAD else {"service_node": 1000}))
                nodes[0].deploy()
                stand = Stand({node.address: node for node in nodes}, folder, url, world, secret, calls)
                deadline = time.monotonic() + 400
                while not {name for name, places in stand.replicas().items() if places} >= {"Intake", "Api", "Console"}:
                    assert time.monotonic() < deadline, nodes[0].serve_details()
                    time.sleep(2)
                yield stand
        finally:
            embedded.stop(folder / "state")


@dataclass
class Reader:
    """Repeats requests of several kinds, and notes when each was answered."""

    requests: dict[str, Callable[[], Awaitable[httpx.Response]]]
    answered: dict[str, list[float]] = field(default_factory=dict)
    refused: dict[str, dict[str, int]] = field(default_factory=dict)  # kind -> status or exception -> number
    in_a_row: dict[str, int] = field(default_factory=dict)

    async def repeat(self, kind: str) -> None:
        while True:
            try:
                answer = await self.requests[kind]()
                result = str(answer.status_code)
            except httpx.TransportError as error:
                result = type(error).__name__
            if result == "200":
                self.answered.setdefault(kind, []).append(time.monotonic())
                self.in_a_row[kind] = self.in_a_row.get(kind, 0) + 1
            else:
                counts = self.refused.setdefault(kind, {})
                counts[result] = counts.get(result, 0) + 1
                self.in_a_row[kind] = 0
            await asyncio.sleep(0.2)

    def longest_gap(self, kind: str) -> float:
        times = self.answered[kind]
        return max(later - earlier for earlier, later in pairwise(times))

    async def until_well(self) -> None:
        self.in_a_row = dict.fromkeys(self.requests, 0)
        async with asyncio.timeout(300):
            while min(self.in_a_row.values()) < WELL:
                await asyncio.sleep(0.2)


async def lose_the_node_during(stand: Stand, export: httpx.AsyncClient) -> tuple[str, float]:
    """Lose the node of Api in the middle of an export; return how the export ends, and after how many seconds."""
    (address,) = stand.replicas()["Api"]
    assert address in WORKERS
    async with export.stream("GET", "/export") as stream:
        parts = stream.aiter_bytes()
        assert stream.status_code == 200 and await anext(parts)
        await asyncio.to_thread(stand.nodes[address].lose_power)
        lost = time.monotonic()
        try:
            async for _ in parts:
                pass
        except httpx.TransportError as error:
            return type(error).__name__, time.monotonic() - lost
    return "complete", time.monotonic() - lost


async def read_and_write(stand: Stand, world: World) -> None:
    calls, secret = stand.calls, stand.secret
    rooms: list[Any] = [SimpleNamespace(origin=f"{ORIGIN}{path}") for path in ("/api/v1", "/console")]
    writers = Writers(*rooms, secret, random.Random(SEED))
    await writers.sign_in()
    (sound,) = calls["sound"]
    reader = Reader(
        {
            "search": lambda: writers.api.get("/calls", params={"text": "parcel"}, timeout=5),
            "sound": lambda: writers.api.get(f"/calls/{sound}/audio", params={"channel": "rep"}, timeout=5),
            "page": lambda: writers.console.get(f"/calls/{sound}", timeout=5),
        }
    )
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(reader.repeat(kind)) for kind in reader.requests]
        tasks.create_task(writers.edit(calls["edited"]))
        tasks.create_task(writers.edit_in_console(calls["turns"][0]))
        tasks.create_task(writers.delete(calls["doomed"]))
        await reader.until_well()
        before = writers.ledger.writes
        print(f"replicas: {await asyncio.to_thread(stand.replicas)}")
        end, seconds = await lose_the_node_during(stand, writers.api)
        print(f"the export ended after {seconds:.1f} s: {end}")
        await reader.until_well()
        print(f"replicas: {await asyncio.to_thread(stand.replicas)}")
        await asyncio.sleep(5)
        writers.ledger.over = True
        for task in reading:
            task.cancel()
    gaps = {kind: round(reader.longest_gap(kind), 1) for kind in reader.requests}
    print(f"longest seconds without an answer: {gaps}; refused: {reader.refused}")
    print(f"{writers.ledger.writes} writes acknowledged, {before} of them before the loss")
    assert end != "complete" and seconds < MAX_SECONDS
    assert max(gaps.values()) < MAX_SECONDS
    assert 0 < before < writers.ledger.writes
    await check_edits(world, writers.ledger, writers.api)
    await check_deletes(world, writers.ledger, writers.api)


def test_readers_continue_and_no_acknowledged_write_is_lost_when_the_node_of_api_loses_its_power(stand: Stand) -> None:
    async def scenario() -> None:
        async with await Database.open(stand.database_url, pool_size=4) as database:
            await read_and_write(stand, replace(stand.world, database=database))

    stand.nodes[HEAD].inside(lambda: asyncio.run(scenario()))
