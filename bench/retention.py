"""How fast does retention delete, and does it slow submissions?

    python -m bench.retention [--calls 100000] [--rounds 6] [--seconds 10] [--per-second 50] [--json FILE]
    python -m bench.retention --live 6 [--calls 100000] [--rounds 6] [--json FILE]

One PostgreSQL server stores completed calls with recording, transcript, findings, tasks and stage results, all of them
due. Submissions arrive at a fixed rate, in turns with and without the retention loop of a Conductor, which runs in a
separate process with the pauses of the service. Latencies count from the time at which a submission was due. Then the
loop deletes the rest without pauses. The interval is Student's, of the logarithms of the rounds' ratios of p95.

With `--live`, a whole service on synthetic checkpoints processes that many calls of another tenant in each half of a
round, one after another, and its Conductor deletes. The measure is the median from submission to record.
"""

import argparse
import asyncio
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID, uuid4

import psycopg

from bench.lib.intervals import mean_ratio
from bench.scale import fill
from bench.starvation import one_after_another, stand
from db.core.database import Database
from db.intake.group_commit import GroupCommitter
from db.records import retention
from db.records.retention import RetentionKind
from db.server import embedded, migrate
from db.workspace import directory, keys
from pipeline.domain.call import Sender, Submission
from pipeline.speakers.profile import Voices
from serve_app.conductor.erasure import RetentionLoop
from serve_app.conductor.options import ErasureOptions
from tests.acceptance.running import Client
from tests.file_server import FileServer
from tests.synthetic_calls import FOLDER

KINDS = (RetentionKind.RECORDINGS, RetentionKind.TRANSCRIPTS)
TABLES = ("recordings", "transcripts", "findings", "tasks", "stage_results")


class Unpaced(ErasureOptions):
    """Options without pauses."""

    PAUSES: ClassVar[float] = 0.0
    PAUSE_SECONDS: ClassVar[float] = 0.0


async def run_loop(url: str, paced: bool) -> None:
    """Run the loop while the last line of standard input is "on"."""
    async with await Database.open(url, pool_size=2) as database:
        print("ready", flush=True)
        loop: RetentionLoop | None = None
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if line == "on":
                loop = RetentionLoop(database, ErasureOptions() if paced else Unpaced(), Voices())
                await loop.start()
            elif loop is not None:
                await loop.stop()
            print("done", flush=True)


@asynccontextmanager
async def switched(url: str, paced: bool = True) -> AsyncIterator[Any]:
    """Yield a function that switches the loop of another process on and off."""
    command = [sys.executable, "-m", "bench.retention", "--loop", url, *([] if paced else ["--unpaced"])]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    await process.stdout.readline()

    async def switch(to: str) -> None:
        process.stdin.write(f"{to}\n".encode())  # type: ignore[union-attr]
        await process.stdout.readline()  # type: ignore[union-attr]

    try:
        yield switch
    finally:
        process.kill()
        await process.wait()


async def submissions(database: Database, sender: Sender, per_second: float, seconds: float) -> list[float]:
    """Submit calls at a fixed rate; return the latencies in ms."""
    committer, latencies = GroupCommitter(database), []

    async def submit(due: float) -> None:
        call_id = uuid4()
        url = f"https://pbx.example.com/{call_id}.wav"
        call = Submission(call_id, "+49301", "+49402", datetime.now(UTC), recording_url=url, duration=240)
        await committer.submit(sender, call, {"callId": str(call_id)})
        latencies.append(1000 * (time.perf_counter() - due))

    began, tasks = time.perf_counter(), []
    for number in range(round(per_second * seconds)):
        due = began + number / per_second
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(submit(due)))
    await asyncio.gather(*tasks)
    return latencies


def rows(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as admin:
        return sum(admin.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in TABLES)


def p95(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]


def store_old_calls(url: str, workspace: UUID, team: UUID, count: int) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SET session_replication_role = replica")
        fill(admin, workspace, team, count, lean=False)
        admin.execute("UPDATE calls SET created_at = now() - interval '100 days' WHERE team_id = %s", (team,))
        admin.execute("VACUUM ANALYZE")


async def prepared(url: str, calls: int) -> tuple[Database, Sender]:
    database = await Database.open(url, pool_size=8)
    home = await directory.create_workspace(database, "bench", default_country="DE")
    team = await directory.create_team(database, home.workspace_id, "bench")
    _, secret = await keys.create(database, home.workspace_id, team.team_id, {"submit"}, "bench")
    sender = await keys.find(database, secret)
    assert sender is not None
    store_old_calls(url, home.workspace_id, team.team_id, calls)
    for kind in KINDS:
        await retention.set_period(database, home.workspace_id, kind, 30)
    return database, sender


async def measured(url: str, options: argparse.Namespace) -> dict[str, Any]:
    database, sender = await prepared(url, options.calls)
    latencies: dict[str, list[float]] = {"off": [], "on": []}
    ratios, paced_seconds = [], 0.0
    async with database:
        await submissions(database, sender, options.per_second, 2.0)
        all_rows = rows(url)
        async with switched(url) as switch:
            for number in range(options.rounds):
                p95_of = {}
                for to in ("on", "off") if number % 2 else ("off", "on"):
                    await switch(to)
                    began = time.perf_counter()
                    some = await submissions(database, sender, options.per_second, options.seconds)
                    paced_seconds += time.perf_counter() - began if to == "on" else 0.0
                    latencies[to] += some
                    p95_of[to] = p95(some)
                ratios.append(p95_of["on"] / p95_of["off"])
                print(f"round {number + 1}: p95 {p95_of['off']:.1f} ms without, {p95_of['on']:.1f} ms with", flush=True)
        rows_after = rows(url)
        began = time.perf_counter()
        async with switched(url, paced=False) as switch:
            await switch("on")
            while (remaining := rows(url)) and time.perf_counter() - began < options.timeout:
                await asyncio.sleep(0.5)
        seconds = time.perf_counter() - began
    mean, low, high = mean_ratio(ratios)
    return {
        "calls": options.calls,
        "rows_per_second": round((all_rows - rows_after) / paced_seconds, 1),
        "rows_per_second_without_pauses": round((rows_after - remaining) / seconds, 1) if rows_after else None,
        "remaining": remaining,
        "p95_ms_without": round(p95(latencies["off"]), 2),
        "p95_ms_with": round(p95(latencies["on"]), 2),
        "p95_ratio": mean,
        "p95_ratio_interval": [low, high],
        "p95_ratios": [round(ratio, 3) for ratio in ratios],
    }


async def set_periods(client: Client, days: int | None) -> None:
    for kind in KINDS:
        await retention.set_period(client.database, client.workspace_id, kind, days)
    await asyncio.sleep(ErasureOptions.POLL_SECONDS)  # until the Conductor sees it


async def live(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure live calls of a whole service, in turns with and without periods for another tenant's stored calls."""
    seconds: dict[str, list[float]] = {"off": [], "on": []}
    ratios, rows_deleted, seconds_on = [], 0, 0.0
    with FileServer() as files:
        sample = files.add(FOLDER / "08_flite_voices_stereo" / "call.flac")
        async with stand(folder) as (stored, sender, _):
            url = embedded.running(folder / "state")
            assert url is not None
            team = await directory.create_team(stored.database, stored.workspace_id, "Archive")
            store_old_calls(url, stored.workspace_id, team.team_id, options.calls)
            await one_after_another(sender, sample, 3)  # everything is loaded then
            for number in range(options.rounds):
                medians = {}
                for to in ("on", "off") if number % 2 else ("off", "on"):
                    await set_periods(stored, 30 if to == "on" else None)
                    rows_before, began = rows(url), time.perf_counter()
                    calls = await one_after_another(sender, sample, options.live)
                    some = [sum(call.values()) - call["all"] for call in calls]  # "all" is rounded by polls
                    if to == "on":
                        rows_deleted += rows_before - rows(url)
                        seconds_on += time.perf_counter() - began
                    seconds[to] += some
                    medians[to] = statistics.median(some)
                ratios.append(medians["on"] / medians["off"])
                print(f"round {number + 1}: {medians['off']:.2f} s without, {medians['on']:.2f} s with", flush=True)
            rows_left = rows(url)
    mean, low, high = mean_ratio(ratios)
    return {
        "calls": options.calls,
        "live_calls_with": len(seconds["on"]),
        "rows_per_second": round(rows_deleted / seconds_on, 1),
        "rows_left": rows_left,
        "median_seconds_without": round(statistics.median(seconds["off"]), 2),
        "median_seconds_with": round(statistics.median(seconds["on"]), 2),
        "ratio": mean,
        "ratio_interval": [low, high],
    }


def with_server(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    url = embedded.start(folder)
    try:
        migrate.migrate(url)
        return asyncio.run(measured(url, options))
    finally:
        embedded.stop(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.retention", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=6, help="pairs of measurements, in turns")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    parser.add_argument("--per-second", type=float, default=50.0, help="submissions")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for the rest, without pauses")
    parser.add_argument("--live", type=int, help="measure the processing of so many calls in each half of a round")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    parser.add_argument("--unpaced", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        asyncio.run(run_loop(options.loop, not options.unpaced))
        return
    with tempfile.TemporaryDirectory(prefix="swb-bench-") as folder:
        figures = asyncio.run(live(Path(folder), options)) if options.live else with_server(Path(folder), options)
    for name, value in figures.items():
        print(f"{name.replace('_', ' ')}: {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
