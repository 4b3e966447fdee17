"""What do events cost a submission, and how many does one Conductor deliver?

    python bench/events.py [--submissions 200] [--rounds 5] [--deliveries 600] [--json FILE]

First part: new calls with a recording are submitted, each alone, to a PostgreSQL of its own that writes durably. In
turns: without the triggers (the reference), with them and no endpoint, with one endpoint and with five. Read the
ratios. Second part: events that wait are sent to a receiver on 127.0.0.1 that answers at once; how many per second,
and how long after its commit an event arrives when nothing else waits.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sqlalchemy as sa

from db import directory, embedded, keys, migrate, webhooks
from db.database import EVERY_WORKSPACE, Database
from db.grouping import Grouping
from db.sealing import Sealer
from pipeline.domain.call import Sender, Submission
from serve_app.webhooks import signing
from serve_app.webhooks.dispatcher import WebhookDispatcher
from serve_app.webhooks.options import WebhookOptions
from tests.tuned import tuned

ENDPOINTS = {"no triggers": 0, "no endpoint": 0, "1 endpoint": 1, "5 endpoints": 5}
REFERENCE = "no triggers"
UNREACHABLE = "https://crm.example/hook"
WARM = 30  # submissions before each measurement: switching triggers throws plans away


@dataclass
class Receiver:
    """Answers every request with 204 at once."""

    taken: int = 0
    url: str = ""

    def has_more_than(self, taken: int) -> bool:
        return self.taken > taken

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        self.taken += 1
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        server.close()


async def sender(database: Database, name: str, urls: list[str]) -> Sender:
    """A key of a new workspace with endpoints at `urls`."""
    workspace = await directory.create_workspace(database, name, default_country="DE")
    team = await directory.create_team(database, workspace.workspace_id, name)
    _, secret = await keys.create(database, workspace.workspace_id, team.team_id, {"submit"}, "bench")
    for url in urls:
        made = await webhooks.add(database, workspace.workspace_id, url, Sealer().seal(signing.new_secret()))
        if url == UNREACHABLE:
            await webhooks.disable(database, made, "its events are written like any, and not sent")
    found = await keys.find(database, secret)
    assert found is not None
    return found


async def submit(database: Database, by: Sender) -> float:
    """Seconds that a new call with a recording takes."""
    url = f"https://store.example/{uuid4()}.wav"
    now = datetime(2026, 11, 2, 9, 30, tzinfo=UTC)
    submission = Submission(uuid4(), "+49301234567", "+14155550123", now, recording_url=url, duration=184)
    started = time.perf_counter()
    await Grouping(database).submit(by, submission, {"callId": str(submission.call_id)})
    return time.perf_counter() - started


async def set_triggers(url: str, on: bool) -> None:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        for name in ("calls_begun", "calls_moved"):
            connection.execute(sa.text(f"ALTER TABLE calls {'ENABLE' if on else 'DISABLE'} TRIGGER {name}"))


async def cost(url: str, database: Database, submissions: int, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of a submission in each case, all rounds together."""
    senders = {name: await sender(database, name, [UNREACHABLE] * count) for name, count in ENDPOINTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in senders}
    medians: dict[str, list[float]] = {name: [] for name in senders}
    for number in range(rounds):
        for name, by in senders.items():
            await set_triggers(url, name != REFERENCE)
            taken = [await submit(database, by) for _ in range(WARM + submissions)][WARM:]
            seconds[name] += taken
            medians[name].append(statistics.median(taken))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    await set_triggers(url, True)
    reference = statistics.median(medians[REFERENCE])
    return [
        {
            "case": name,
            "submissions": len(seconds[name]),
            "p50_ms": round(statistics.median(medians[name]) * 1000, 3),
            "p99_ms": round(sorted(seconds[name])[int(len(seconds[name]) * 0.99)] * 1000, 3),
            "ratio": round(statistics.median(medians[name]) / reference, 3),
        }
        for name in ENDPOINTS
    ]


async def timed(condition: Callable[[], bool]) -> float:
    started = time.perf_counter()
    while not condition():
        await asyncio.sleep(0.001)
    return time.perf_counter() - started


async def delivered(database: Database, deliveries: int) -> dict[str, Any]:
    """Events per second of one loop with the default settings save `endpoint_concurrency`, and milliseconds of one."""
    async with receiving() as receiver:
        by = await sender(database, "delivered", [receiver.url])
        for _ in range(deliveries // 2):
            await submit(database, by)  # two events each
        rates = {}
        for each in (8, 32):
            rates[each] = await drain(database, receiver, deliveries // 2 * 2, each)
            await send_all_again(database)
        loop = WebhookDispatcher(database, WebhookOptions(allowed_hosts=("127.0.0.1",)), Sealer())
        await loop.start()
        await asyncio.sleep(1.0)
        waits = []
        for _ in range(30):
            before = receiver.taken
            await submit(database, by)
            waits.append(await timed(partial(receiver.has_more_than, before)))
        await loop.stop(5.0)
    return {
        "deliveries": deliveries // 2 * 2,
        "per_second": {str(each): round(rate, 1) for each, rate in rates.items()},
        "p50_ms": round(statistics.median(waits) * 1000, 1),
    }


async def send_all_again(database: Database) -> None:
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(
            sa.text("UPDATE webhook_deliveries SET state = 'waiting', not_before = now() WHERE state = 'delivered'")
        )


async def drain(database: Database, receiver: Receiver, count: int, each: int) -> float:
    """Deliveries per second while `count` wait."""
    before = receiver.taken
    options = tuned(WebhookOptions, allowed_hosts=("127.0.0.1",), endpoint_concurrency=each)
    loop = WebhookDispatcher(database, options, Sealer())
    await loop.start()
    seconds = await timed(lambda: receiver.taken >= before + count)
    await loop.stop(5.0)
    return count / seconds


async def run(url: str, options: argparse.Namespace) -> dict[str, Any]:
    database = await Database.open(url, pool_size=4)
    try:
        rows = await cost(url, database, options.submissions, options.rounds)
        return {"submit": rows, "deliver": await delivered(database, options.deliveries)}
    finally:
        await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=200, help="of each case in each round")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case, in turns")
    parser.add_argument("--deliveries", type=int, default=600, help="events that wait when delivery begins")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="swb-bench-"))
    try:
        url = embedded.start(folder)
        migrate.migrate(url)
        figures = asyncio.run(run(url, options))
    finally:
        embedded.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'case':<14}{'submissions':>12}{'p50 ms':>9}{'p99 ms':>9}{'ratio':>8}")
    for row in figures["submit"]:
        print(f"{row['case']:<14}{row['submissions']:>12}{row['p50_ms']:>9}{row['p99_ms']:>9}{row['ratio']:>8}")
    sent = figures["deliver"]
    for each, rate in sent["per_second"].items():
        print(f"{sent['deliveries']} events to one endpoint, {each} at a time: {rate} per second")
    print(f"from the commit of a call to its receiver: {sent['p50_ms']} ms (median of 30)")
    if options.json:
        options.json.write_text(
            json.dumps(figures | {"cores": os.cpu_count(), "load": os.getloadavg()[0]}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
