"""Compare `switchboard queue` with the actual drain of a backlog on two Conductors and two of each engine."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Database
from db.queue import backlog as queue
from serve_app.cli.calls.queue import QueueView, StageLine, queue_view
from serve_app.operations.estimates import RUNS_ON
from serve_app.operations.options import ScalingOptions
from serve_app.settings import Settings
from tests.acceptance.running import Client, RunningService
from tests.acceptance.test_several_replicas import ENGINES, lines_of, serving_several
from tests.file_server import FileServer
from tests.synthetic_calls import synthetic_calls

pytestmark = pytest.mark.slow
COPIES = 4  # of each sample call
STEADY = 30  # looks, one each half second, after which the queue shows what Serve does
MAX_STEP = 10.0  # seconds between two looks; beyond that the machine was suspended
PRICES = {"Conductor": 0.5, "Transcriber": 2.0, "Diarizer": 1.0}
AS_A_DRIVER = """
import json, sys, time
from serve_app.service.ray_access import join
address = join(sys.argv[1])
import ray
ray.init(address, log_to_driver=False)
from ray import serve
while True:
    found = serve.status().applications["calls"].deployments
    print(json.dumps({name: one.replica_states.get("RUNNING", 0) for name, one in found.items()}), flush=True)
    time.sleep(0.5)
"""
REQUEST = re.compile(r"(?:transcribe|diarize|voiceprint|voices): (?:\w+ after )?([0-9.]+) s")


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """Start a service whose engines run only while there is work."""
    with serving_several() as running:
        yield running


@contextmanager
def watched(service: RunningService) -> Iterator[list[dict[str, int]]]:
    """Record the running replicas of Serve at every look, until the block ends."""
    command = [sys.executable, "-c", AS_A_DRIVER, service.ready["rayAddress"]]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    looks: list[dict[str, int]] = []
    with subprocess.Popen(command, env=clean, stdout=subprocess.PIPE, text=True) as process:

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    looks.append(json.loads(line))

        threading.Thread(target=read, daemon=True).start()
        try:
            yield looks
        finally:
            process.terminate()


@dataclass(frozen=True, slots=True)
class Look:
    """The queue at one moment."""

    at: float  # seconds since the first look, without pauses of the machine
    view: QueueView
    serve: tuple[dict[str, int], ...]  # the latest looks of Serve at its running replicas

    def stage(self, name: str) -> StageLine:
        return next(stage for stage in self.view.stages if stage.deployment == name)

    def __str__(self) -> str:
        stages = (f"{stage.deployment} {stage.drain_seconds:.0f} s / {stage.replicas}" for stage in self.view.stages)
        summary = f"{self.at:.0f} s: {self.left} calls left, {self.view.drain_seconds:.0f} s said"
        return f"{summary} ({', '.join(stages)}); {self.serve[-1:]}"

    @property
    def left(self) -> int:
        return self.view.waiting_calls + self.view.running_calls


async def looks_until(done: Callable[[Look], bool], database: Database, serve: list[dict[str, int]]) -> list[Look]:
    """Run `switchboard queue` repeatedly, until `done` is true."""
    prices = {name.lower(): {"price_per_hour": price} for name, price in PRICES.items()}
    settings = Settings(scaling=ScalingOptions.model_validate(prices))
    looks: list[Look] = []
    passed, before = 0.0, time.monotonic()
    while not looks or not done(looks[-1]):
        await asyncio.sleep(1)
        view = queue_view(*await queue.lanes(database), settings)
        now = time.monotonic()
        passed, before = passed + min(now - before, MAX_STEP), now
        looks.append(Look(passed, view, tuple(serve[-STEADY:])))
        print(looks[-1])
    return looks


def busy_seconds(service: RunningService, deployment: str) -> float:
    """Seconds in which replicas of an engine had a request at all, by their own logs."""
    total = 0.0
    for lines in lines_of(service, deployment).values():
        until = 0.0
        for begun, end in sorted(_requests(lines)):
            total += max(0.0, end - max(begun, until))
            until = max(until, end)
    return total


def _requests(lines: list[dict[str, Any]]) -> Iterator[tuple[float, float]]:
    """Return start and end of each request."""
    for line in lines:
        if match := REQUEST.match(line["message"]):
            end = datetime.fromisoformat(line["asctime"].replace(",", ".")).timestamp()
            yield end - float(match[1]), end


async def worked(client: Client) -> dict[str, float]:
    """Return replica seconds by engine, as they were recorded with the stages of calls."""
    totals: dict[str, float] = defaultdict(float)
    async with client.database.transaction(EVERY_WORKSPACE) as connection:
        query = "SELECT stage, sum(worked_seconds) FROM stage_results WHERE worked_seconds IS NOT NULL GROUP BY stage"
        for stage, seconds in await connection.execute(sa.text(query)):
            totals[RUNS_ON.get(stage, "")] += seconds
    return totals


async def submit_all(client: Client, files: FileServer) -> set[str]:
    """Submit the sample calls, each COPIES times; return their ids."""
    bodies = [body for _ in range(COPIES) for call in synthetic_calls() for body in call.submissions(files.add)]
    for body in bodies:
        while (await client.post(body)).status_code == 503:  # a busy machine: senders try again
            await asyncio.sleep(1)
    return {body["callId"] for body in bodies}


def estimate_by_actual(looks: list[Look], calls: int) -> list[float]:
    """Return the ratio of estimated to actual drain time when 25, 50 and 75 % of the calls were done."""
    quarters = [next(look for look in looks if look.left <= calls * part) for part in (0.75, 0.5, 0.25)]
    ratios = [look.view.drain_seconds / (looks[-1].at - look.at) for look in quarters]
    print(f"estimated / actual when 25, 50 and 75 % were done: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    return ratios


@pytest.mark.timeout(1800)
async def test_drain_time_replicas_and_cost_are_what_happens(service: RunningService, files: FileServer) -> None:
    client = await Client.of(service)
    with watched(service) as serve:
        ids = await submit_all(client, files)
        looks = await looks_until(lambda look: not look.left, client.database, serve)
        records = await client.ended(ids, 60)
        scaled_down = await looks_until(
            lambda look: not any(look.stage(name).replicas for name in ENGINES), client.database, serve
        )
    assert all(record.call.state == "completed" for record in records)
    cold = estimate_by_actual(looks, len(ids))

    for name in ENGINES:
        assert {look.stage(name).replicas for look in looks} >= {0, 2}
        assert max(seen[name] for look in looks for seen in look.serve) == 2
        for look in (*looks, *scaled_down):
            steady = {seen[name] for seen in look.serve}
            if len(look.serve) == STEADY and len(steady) == 1:
                assert steady == {look.stage(name).replicas}
    assert {look.stage("Conductor").replicas for look in looks[1:]} == {2}
    assert any({"mixed", "separated"} <= look.stage("Transcriber").audio_seconds.keys() for look in looks)

    spent = await worked(client)
    hours = COPIES * sum(call.expected["duration"] for call in synthetic_calls()) / 3600
    for name in ENGINES:
        busy = busy_seconds(service, name)
        cost = looks[-1].stage(name).cost_per_audio_hour
        assert cost is not None
        print(f"{name}: {busy:.1f} s by its logs, {spent[name]:.1f} s recorded; {cost * hours:.4f} for all calls")
        assert spent[name] == pytest.approx(busy, rel=0.1, abs=1.0)
        assert 0.5 < cost * hours / (PRICES[name] * busy / 3600) < 2
    assert all(0.25 < ratio < 4 for ratio in cold)

    more = await submit_all(client, files)  # their pace is known now, and the engines start once more
    warm = estimate_by_actual(await looks_until(lambda look: not look.left, client.database, []), len(more))
    assert all(0.5 < ratio < 2 for ratio in warm)
    await client.close()
