"""Does the memory of any process grow while the service is under mixed load?

    python bench/soak.py [--minutes 30] [--rate 3] [--json FILE] [--plot FILE.png]

Starts the service and PostgreSQL, and keeps up a mixed load: first phases, whole calls (hiss, some with speech), the
same ones again, recordings that are gone or no sound, bodies that are refused, wrong keys, and senders that drip their
bodies and never finish them. Meanwhile the memory of every process is sampled: its unique set size, and its share of
what processes have in common (PSS).

Compares the first and the last ten minutes (of a shorter run, thirds) by kind of process. The first minutes after a
start are left out: libraries are loaded then. Flat: less than 5 per cent or 8 MB of growth.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from db.server import embedded, migrate
from serve_app.service.ports import free_port
from tests.acceptance.running import Client, RunningService
from tests.chaos.recordings import Recordings, noise, spoken

WARM_SECONDS = 180.0
SAMPLE_SECONDS = 5.0
GROWTH, GROWTH_MB = 0.05, 8.0
KINDS = (  # what a process's title begins with or holds, and how the table calls it
    ("ServeReplica:intake:Intake", "Intake"),
    ("ServeReplica:calls:Conductor", "Conductor"),
    ("ServeReplica:calls:Transcriber", "Transcriber"),
    ("ServeReplica:calls:Diarizer", "Diarizer"),
    ("ray::ServeController", "Serve controller"),
    ("ray::ProxyActor", "Serve proxy"),
    ("ray::HAProxyManager", "HAProxy manager"),
    ("haproxy", "HAProxy"),
    ("ray::_run", "Ray tasks"),
    ("ray::IDLE", "Ray tasks"),
    ("gcs_server", "GCS"),
    ("raylet", "raylet"),
    ("ray::", "Ray, others"),
    ("serve_app.cli", "switchboard up"),
    ("ray", "Ray, others"),
)


class Sampler:
    """MB of every kind of process, all its processes together."""

    def __init__(self, service: RunningService, state: Path) -> None:
        self._service = service
        self._state = state
        self.rows: list[dict[str, Any]] = []

    def sample(self, at: float) -> None:
        private: dict[str, float] = defaultdict(float)
        shared: dict[str, float] = defaultdict(float)
        count: Counter[str] = Counter()
        for process in self._processes():
            with contextlib.suppress(psutil.Error, OSError):
                kind = _kind(process)
                used = process.memory_full_info()
                private[kind] += used.uss / 2**20
                shared[kind] += used.pss / 2**20
                count[kind] += 1
        self.rows += [
            {
                "at": round(at, 1),
                "kind": kind,
                "uss_mb": private[kind],
                "pss_mb": shared[kind],
                "processes": count[kind],
            }
            for kind in private
        ]

    def _processes(self) -> Iterator[psutil.Process]:
        assert self._service.process is not None
        up = psutil.Process(self._service.process.pid)
        yield from (up, *up.children(recursive=True))
        postmaster = int((self._state / "cluster" / "postmaster.pid").read_text().split("\n", 1)[0])
        server = psutil.Process(postmaster)
        yield from (server, *server.children(recursive=True))


def _kind(process: psutil.Process) -> str:
    if process.name().startswith("postgres"):
        return "PostgreSQL"
    title = " ".join(process.cmdline())
    return next((kind for part, kind in KINDS if part in title), "others")


class MixedLoad:
    """Senders of every manner, at about `rate` calls a second; no more while `MOST_WAITING` calls wait."""

    MOST_WAITING = 40

    def __init__(self, client: Client, recordings: Recordings, rate: float) -> None:
        self._client, self._recordings, self._rate = client, recordings, rate
        self._rng = random.Random(1)
        self.answers: Counter[str] = Counter()
        self._dripping: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        async with httpx.AsyncClient(timeout=15, trust_env=False) as http:
            while time.monotonic() < ends:
                if await self._waiting() < self.MOST_WAITING:
                    await self._one(http)
                if self._rng.random() < 0.1 and len(self._dripping) < 20:
                    task = asyncio.create_task(self._drip())
                    self._dripping.add(task)
                    task.add_done_callback(self._dripping.discard)
                await asyncio.sleep(self._rng.expovariate(self._rate))
        await asyncio.gather(*self._dripping)

    async def _waiting(self) -> int:
        from db.queue import backlog

        return sum(group.calls for group in (await backlog.backlog(self._client.database)).groups)

    async def _one(self, http: httpx.AsyncClient) -> None:
        body: dict[str, Any] = {"callId": str(uuid4()), "from": "+12025550101", "to": "+12025550102"}
        body |= {"startTime": "2026-03-02T10:00:00Z"}
        await self._post(http, body)
        body |= {"recordingUrl": self._recording(), "duration": 1}
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            await self._post(http, body)
        await self._post(http, {"callId": "x", "from": "", "more": [1] * self._rng.randint(1, 2000)})
        if self._rng.random() < 0.2:
            headers = {"Authorization": f"Bearer sb_{uuid4().hex}"}
            self._note(await http.post(self._client.submit_url, json=body, headers=headers))

    def _recording(self) -> str:
        behavior = self._rng.choices(("good", "gone", "page", "late"), (80, 8, 6, 6))[0]
        speaks = self._rng.random() < 0.15
        kind = self._rng.choice(("mono", "stereo"))
        content = spoken(self._rng, kind) if speaks else noise(self._rng)
        url = self._recordings.add(behavior, content, 3.0)
        for path in list(self._recordings.known)[:-500]:  # the sender's memory is not what is measured
            self._recordings.known[path].content = b""
        return url

    async def _post(self, http: httpx.AsyncClient, body: dict[str, Any]) -> None:
        try:
            self._note(await self._client.post(body, http))
        except httpx.HTTPError as error:
            self.answers[type(error).__name__] += 1

    def _note(self, answer: httpx.Response) -> None:
        self.answers[str(answer.status_code)] += 1

    async def _drip(self) -> None:
        """A sender that announces a body and sends it byte by byte, until the service has had enough."""
        url = httpx.URL(self._client.submit_url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = f"POST {url.path} HTTP/1.1\r\nHost: {url.host}\r\nAuthorization: Bearer {self._client.key}\r\n"
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n".encode())
            for _ in range(60):
                writer.write(b" ")
                await writer.drain()
                with contextlib.suppress(asyncio.TimeoutError):
                    if not await asyncio.wait_for(reader.read(1024), 0.5):
                        break
                    self.answers["drip cut off"] += 1
        writer.close()


def compare(rows: list[dict[str, Any]], minutes: float) -> list[dict[str, Any]]:
    """What each kind of process held in the first and the last ten minutes.

    The least and the most of each (10th and 90th percentile of the unique set): what a process takes for the length of
    a call and gives back is no growth, whichever of the two the median happens to meet.
    """
    span = min(600.0, minutes * 20)
    first, last = min(row["at"] for row in rows), max(row["at"] for row in rows)
    table = []
    for kind in sorted({row["kind"] for row in rows}):
        of_kind = [row for row in rows if row["kind"] == kind]
        early = [row for row in of_kind if row["at"] <= first + span]
        late = [row for row in of_kind if row["at"] >= last - span]
        if not early or not late:
            continue
        one = {"kind": kind, "processes": statistics.median(row["processes"] for row in late)}
        for unit in ("uss_mb", "pss_mb"):
            one[f"first_{unit}"] = round(statistics.median(row[unit] for row in early), 1)
            one[f"last_{unit}"] = round(statistics.median(row[unit] for row in late), 1)
        one["flat"] = all(_flat(early, late, at) for at in (0, 8))
        table.append(one)
    return table


def _flat(early: list[dict[str, Any]], late: list[dict[str, Any]], decile: int) -> bool:
    before, after = (statistics.quantiles([row["uss_mb"] for row in rows], n=10)[decile] for rows in (early, late))
    return bool(after - before < max(GROWTH * before, GROWTH_MB))


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """USS of every kind over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 6))
    axes.set_prop_cycle(color=matplotlib.color_sequences["tab20"])  # as many as there are kinds
    for kind in sorted({row["kind"] for row in rows}):
        of_kind = [row for row in rows if row["kind"] == kind]
        axes.plot([row["at"] / 60 for row in of_kind], [row["uss_mb"] for row in of_kind], label=kind)
    axes.set(xlabel="minutes", ylabel="unique set size, MB", yscale="log")
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(file)


async def soak(service: RunningService, state: Path, minutes: float, rate: float) -> dict[str, Any]:
    client = await Client.of(service)
    recordings, sampler = Recordings(), Sampler(service, state)
    with recordings.serving():
        load = MixedLoad(client, recordings, rate)
        started = time.monotonic()
        warm = min(WARM_SECONDS, minutes * 12)
        running = asyncio.create_task(load.run(60 * minutes + warm))
        while not running.done():
            await asyncio.wait({running}, timeout=SAMPLE_SECONDS)
            seconds = time.monotonic() - started
            if seconds > warm:
                await asyncio.to_thread(sampler.sample, seconds)
            if int(seconds / SAMPLE_SECONDS) % 12 == 0:
                print(f"{seconds / 60:5.1f} min  {dict(load.answers.most_common())}", flush=True)
        running.result()
    from sqlalchemy import text

    from db.core.database import EVERY_WORKSPACE

    async with client.database.transaction(EVERY_WORKSPACE) as connection:
        ended = (await connection.execute(text("SELECT state, count(*) FROM calls GROUP BY 1"))).all()
    await client.close()
    return {"rows": sampler.rows, "answers": dict(load.answers), "calls": dict(ended)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="of measuring, after the warm-up")
    parser.add_argument("--rate", type=float, default=3.0, help="calls a second; fewer where they pile up")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="switchboard-soak-") as name:
        folder = Path(name)
        url = embedded.start(folder / "state")
        try:
            migrate.migrate(url)
            ports = {f"RAY_SERVE_HAPROXY_{what}_PORT": str(free_port()) for what in ("METRICS", "STATS")}
            service = RunningService(url, folder, free_port(), ports)
            service.start()
            try:
                found = asyncio.run(soak(service, folder / "state", given.minutes, given.rate))
            finally:
                service.stop()
        finally:
            embedded.stop(folder / "state")
    table = compare(found["rows"], given.minutes)
    print(f"\n{'process':<18}{'number':>7}{'USS first':>11}{'USS last':>10}{'PSS first':>11}{'PSS last':>10}  flat")
    for one in table:
        figures = (one["first_uss_mb"], one["last_uss_mb"], one["first_pss_mb"], one["last_pss_mb"])
        print(
            f"{one['kind']:<18}{one['processes']:>7.0f}{figures[0]:>11.1f}{figures[1]:>10.1f}{figures[2]:>11.1f}"
            f"{figures[3]:>10.1f}  {'yes' if one['flat'] else 'NO'}"
        )
    print(f"\ncalls {found['calls']}, answers {found['answers']}")
    if given.json:
        given.json.write_text(json.dumps({"minutes": given.minutes, "cpus": os.cpu_count(), "table": table, **found}))
    if given.plot:
        plot(found["rows"], given.plot)


if __name__ == "__main__":
    main()
