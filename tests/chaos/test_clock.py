"""A node whose wall clock is ten minutes off decides as any other. Real processes under `skew.c`."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from db.events import endpoints
from db.queue import jobs
from db.secrets.encryption import Sealer
from pipeline.errors import RecordingNotReady
from serve_app.webhooks import signing
from serve_app.webhooks.options import WebhookOptions
from tests.chaos import skew
from tests.chaos.recordings import Recordings, noise
from tests.cluster import ROOT
from tests.postgres import World
from tests.receiver import receiving
from tests.tuned import tuned

pytestmark = [
    pytest.mark.slow,  # each test starts a process
    pytest.mark.skipif(skew.missing() is not None, reason=str(skew.missing())),
]

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
DELIVERING = """
import asyncio, sys
from db.core.database import Database
from db.secrets.encryption import Sealer
from serve_app.conductor.webhooks import WebhookDispatcher
from serve_app.webhooks.options import WebhookOptions

async def main():
    database = await Database.open(sys.argv[1], pool_size=2)
    await WebhookDispatcher(database, WebhookOptions.model_validate_json(sys.argv[2]), Sealer([sys.argv[3]])).start()
    await asyncio.sleep(120)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skew")


@asynccontextmanager
async def process(seconds: int, folder: Path, *command: str) -> AsyncIterator[None]:
    """Python, with a clock that is `seconds` ahead."""
    environment = os.environ | skew.environment(seconds, folder)
    started = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, env=environment)
    try:
        yield
    finally:
        started.kill()
        await started.wait()


@pytest.mark.parametrize("seconds", [skew.SECONDS, -skew.SECONDS])
def test_a_clock_is_off_by_as_much_as_asked_for_and_waits_are_as_long_as_ever(seconds: int, folder: Path) -> None:
    script = """
import queue, threading, time
print(time.time(), flush=True)
started = time.monotonic()
threading.Lock().acquire() and threading.Event().wait(0.1)
try: queue.Queue().get(timeout=0.1)
except queue.Empty: print(time.monotonic() - started)
"""
    environment = os.environ | skew.environment(seconds, folder)
    output = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=True, timeout=60
    )
    clock, waited = map(float, output.stdout.split())
    assert abs(clock - time.time() - seconds) < 20
    assert 0.2 <= waited < 60


async def test_a_conductor_whose_clock_is_ahead_waits_for_the_second_file_as_long_as_it_should(
    world: World, folder: Path, tmp_path: Path
) -> None:
    """Its patience, five minutes here, is over by its own clock before it has begun."""
    recordings, rng = Recordings(), random.Random(1)
    with recordings.serving():
        urls = recordings.add("good", noise(rng)), recordings.add("never", noise(rng))
        await world.submit(recording_url=urls[0], recording_url2=urls[1])
        command = ("-m", "tests.chaos.deadly_conductor", world.database.url, tmp_path.as_uri())
        async with process(skew.SECONDS, folder, *command), asyncio.timeout(180):
            while recordings.of(urls[1]).answers.total() < 3:
                await asyncio.sleep(0.05)
            assert (await world.row())["state"] == "transcribing"
            recordings.of(urls[1]).behaviour = "good"
            while (await world.row())["state"] == "transcribing":
                await asyncio.sleep(0.05)
    record = await world.row()
    assert (record["state"], record["warnings"]) == ("completed", [])


@pytest.mark.parametrize("seconds", [skew.SECONDS, -skew.SECONDS])
async def test_events_are_signed_with_a_time_that_receivers_take(seconds: int, world: World, folder: Path) -> None:
    options = tuned(WebhookOptions, allowed_hosts=("127.0.0.1",), poll_seconds=0.1)
    secret = signing.new_secret()
    async with receiving() as receiver:
        await endpoints.add(world.database, world.workspace_id, receiver.url, Sealer([KEY]).seal(secret))
        await world.submit()
        command = ("-c", DELIVERING, world.database.url, options.model_dump_json(), KEY)
        async with process(seconds, folder, *command):
            (taken,) = await receiver.until(1, timeout=180)
            async with asyncio.timeout(30):
                while not (attempts := await world.rows("SELECT at FROM webhook_attempts")):
                    await asyncio.sleep(0.05)
    assert Webhook(secret).verify(taken.body, taken.headers)["type"] == "call.received"
    assert abs((attempts[0]["at"] - datetime.now(UTC)).total_seconds()) < 60


async def test_a_command_on_a_machine_whose_clock_is_ahead_means_the_databases_last_minutes(
    world: World, folder: Path
) -> None:
    """`--since 5m` had begun five minutes from now."""
    await world.submit(recording_url="https://store.example/a.wav")
    await jobs.fail(world.database, await world.claim_one(), RecordingNotReady())
    command = [sys.executable, "-m", "serve_app.cli", "jobs", "failed", "--since", "5m", "--json"]
    environment = os.environ | skew.environment(skew.SECONDS, folder)
    environment["SWITCHBOARD_DATABASE_URL"] = world.database.url
    run = await asyncio.to_thread(
        subprocess.run, command, env=environment, cwd=ROOT, capture_output=True, check=True, timeout=180
    )
    assert len(json.loads(run.stdout)) == 1
