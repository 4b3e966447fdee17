"""What tenant A does, however much it is, changes little for tenant B: reading, listening, pages, submissions."""

import asyncio
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import numpy as np
import pytest
import soundfile

from db.core.database import Database
from db.server import embedded, migrate
from db.workspace import keys, questions
from pipeline.domain.questions import Question
from tests.acceptance.conftest import free_port
from tests.acceptance.running import Client, RunningService
from tests.attacks.test_readers import long_calls
from tests.file_server import FileServer
from tests.postgres import World, new_world
from tests.reading_api import store, with_sound
from tests.synthetic_calls import FOLDER

ATTACKS = ("endless_bodies", "slow_edits", "all_streams", "exports", "searches", "sounds", "trackers")
BEGIN_SECONDS = 8.0  # until an attack has started its process and opened its connections, which takes some 3
ROUNDS = 3  # of each attack
ALONE, BESIDE = 30, 60  # requests of each kind, in turns: before the attack, beside it, and `ALONE` again after it
MAX_RATIO = 2.0  # of B's 95th percentiles; the goal is 1.5, on a machine that does nothing else
GRACE_SECONDS = 0.02  # below that a percentile says more of the scheduler than of the neighbor

pytestmark = [pytest.mark.slow_attack, pytest.mark.timeout(1200)]


class Neighbor:
    """Tenant B: a reader in the console and over HTTP, and a sender."""

    def __init__(self, origin: str, world: World, reading: str, sending: str, call_id: UUID) -> None:
        self.origin, self.world, self.sending, self.call_id = origin, world, sending, call_id
        self.api = httpx.AsyncClient(timeout=60, headers={"Authorization": f"Bearer {reading}"})
        self.console = httpx.AsyncClient(timeout=60, headers={"Sec-Fetch-Site": "same-origin"})
        self.reading = reading

    async def sign_in(self) -> None:
        answer = await self.console.post(f"{self.origin}/console/sign-in", data={"key": self.reading})
        assert answer.status_code == 303

    async def list_(self) -> httpx.Response:
        return await self.api.get(f"{self.origin}/api/v1/calls")

    async def call(self) -> httpx.Response:
        return await self.api.get(f"{self.origin}/api/v1/calls/{self.call_id}")

    async def sound(self) -> httpx.Response:
        return await self.api.get(f"{self.origin}/api/v1/calls/{self.call_id}/audio?channel=rep")

    async def page(self) -> httpx.Response:
        return await self.console.get(f"{self.origin}/console/calls/{self.call_id}")

    async def submit(self) -> httpx.Response:
        body = {
            "callId": str(uuid4()),
            "teamId": str(self.world.team_id),
            "from": "+12025550101",
            "to": "+12025550102",
            "startTime": "2026-01-01T00:00:00Z",
        }
        headers = {"Authorization": f"Bearer {self.sending}"}
        return await self.api.post(f"{self.origin}/submit", json=body, headers=headers)

    async def measure(self, seconds: dict[str, list[float]], times: int) -> None:
        """Ask for everything in turns; no answer may be a refusal."""
        requests: dict[str, Callable[[], Awaitable[httpx.Response]]] = {
            "list": self.list_,
            "call": self.call,
            "sound": self.sound,
            "page": self.page,
            "submit": self.submit,
        }
        for _ in range(times):
            for name, request in requests.items():
                begin = time.monotonic()
                answer = await request()
                assert answer.status_code in (200, 202), (name, answer.status_code, answer.text[:300])
                seconds[name].append(time.monotonic() - begin)


@asynccontextmanager
async def stand(folder: Path) -> AsyncIterator[tuple[Neighbor, str, list[str]]]:
    """Tenant B, and the key and calls of tenant A: long ones, some with sound."""
    url = embedded.start(folder / "state")
    migrate.migrate(url)
    service = RunningService(url, folder, free_port())
    try:
        async with await Database.open(url, pool_size=4) as database:
            loud, quiet = await new_world(database), await new_world(database)
            sound = store(folder, seconds=600.0)
            calls = [await with_sound(loud, sound, minutes=float(number)) for number in range(60)]
            await long_calls(loud, 60)
            mine = await with_sound(quiet, store(folder, seconds=30.0))
            secrets = [
                (await keys.create(database, world.workspace_id, None, scopes, "key"))[1]
                for world, scopes in ((loud, ["read", "edit", "admin"]), (quiet, ["read"]), (quiet, ["submit"]))
            ]
            service.start()
            calls.append(await recognized(service, loud, folder))
            await questions.set_questions(database, loud.workspace_id, trackers_at_their_limits())
            origin = service.submit_url.removesuffix("/submit")
            neighbor = Neighbor(origin, quiet, secrets[1], secrets[2], mine)
            await neighbor.sign_in()
            yield neighbor, secrets[0], [str(call_id) for call_id in calls]
    finally:
        if service.process is not None:
            service.stop()
        embedded.stop(folder / "state")


async def recognized(service: RunningService, world: World, folder: Path) -> UUID:
    """Send three minutes of talk; return the id of the call once it is recognized and analyzed."""
    samples, rate = soundfile.read(FOLDER / "01_invoice_stereo" / "call.flac")
    talk = folder / "talk.flac"
    soundfile.write(talk, np.tile(samples, (math.ceil(180 * rate / len(samples)), 1)), rate)
    _, secret = await keys.create(world.database, world.workspace_id, None, ["submit"], "key")
    sender = Client(service.submit_url, secret, world.database, world.workspace_id)
    call_id = uuid4()
    with FileServer() as files:
        await sender.accepted(
            {
                "callId": str(call_id),
                "teamId": str(world.team_id),
                "from": "+12025550101",
                "to": "+12025550102",
                "startTime": "2026-01-01T00:00:00Z",
                "recordingUrl": files.add(talk),
            }
        )
        (record,) = await sender.ended([str(call_id)], timeout=300)
    assert record.call.state == "completed", record.call.failure
    return call_id


def trackers_at_their_limits() -> list[Question]:
    """Return 99 trackers of 100 phrases, almost 200,000 characters, that nearly match at each word."""
    letters = random.Random(1)
    phrases = (f"{letters.choice('taiwo')}* ... {letters.choice('taiwo')}* yes yes" for _ in itertools.count())
    return [Question(f"t{at}", "tracker", phrases=tuple(itertools.islice(phrases, 100))) for at in range(99)]


async def runs_ended(origin: str, key: str) -> None:
    """Wait until what `trackers` began is done: the next figures are of B alone."""
    async with httpx.AsyncClient(timeout=60, headers={"Authorization": f"Bearer {key}"}) as api, asyncio.timeout(300):
        while any(run["status"] == "running" for run in (await api.get(f"{origin}/api/v1/runs")).json()["items"]):
            await asyncio.sleep(1.0)


def percentile(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


async def test_no_reader_slows_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone: dict[str, dict[str, list[float]]] = {attack: defaultdict(list) for attack in ATTACKS}
    beside: dict[str, dict[str, list[float]]] = {attack: defaultdict(list) for attack in ATTACKS}
    async with stand(tmp_path) as (neighbor, key, calls):
        await neighbor.measure(defaultdict(list), ALONE)  # the first of each decodes and connects
        for _ in range(ROUNDS):
            for attack in ATTACKS:
                await neighbor.measure(alone[attack], ALONE)
                order = {"origin": neighbor.origin, "key": key, "calls": calls, "attack": attack}
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.attacks.loud_reader"], stdin=subprocess.PIPE, text=True
                )
                assert process.stdin is not None
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.flush()
                try:
                    await asyncio.sleep(BEGIN_SECONDS)
                    await neighbor.measure(beside[attack], BESIDE)
                    assert process.poll() is None, f"{attack} ended by itself"
                finally:
                    process.kill()
                    process.wait()
                await runs_ended(neighbor.origin, key)
                await asyncio.sleep(2.0)
                await neighbor.measure(alone[attack], ALONE)
    rows, slow = table(alone, beside)
    with capsys.disabled():
        print("\n" + "\n".join(rows))
    assert not slow


def table(
    alone: dict[str, dict[str, list[float]]], beside: dict[str, dict[str, list[float]]]
) -> tuple[list[str], list[tuple[str, str, float]]]:
    """Compare each attack with the requests directly before and after it: a machine's speed drifts in a minute.

    Returns the lines to print, and the cells above `MAX_RATIO`.
    """
    rows = [f"{'p95, ms (ratio)':<16}" + "".join(f"{name:>11}" for name in next(iter(alone.values())))]
    slow = []
    for attack, seconds in beside.items():
        cells = []
        for name, values in seconds.items():
            here, there = percentile(values), percentile(alone[attack][name])
            cells.append(f"{1000 * here:.0f} ({here / there:.1f})")
            if here / there > MAX_RATIO and here > there + GRACE_SECONDS:
                slow.append((attack, name, round(here / there, 2)))
        rows.append(f"{attack:<16}" + "".join(f"{cell:>11}" for cell in cells))
    return rows, slow
