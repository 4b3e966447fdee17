"""Does one tenant with a hostile server and hostile files delay another tenant's calls?

    python -m bench.starvation [--dripping 200] [--poison 20] [--calls 8] [--rounds 2] [--json FILE]

The service runs on synthetic checkpoints. Tenant B submits one call at a time and waits for its record: first alone,
then while tenant A has `--dripping` recordings on a server that sends one byte every tenth of a second, and `--poison`
files that keep a decoder busy. Rounds alternate. The result is the ratio of B's times from submission to record.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from db.server import embedded, migrate
from tests.acceptance.conftest import free_port
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.synthetic_calls import FOLDER
from tests.unit.pipeline.audio.test_absurd_media import far, m4a

HOSTS = ("127.0.0.2", "127.0.0.3")  # the dripping one's, and that of hostile files
MAX_RATIO = 1.5  # times as long as alone


def poison() -> dict[str, bytes]:
    """Small files that kept decoders busy, or took their memory."""
    return {
        "tracks": far(9, 20_000.0),
        "silence": far(9, 1700.0),
        "index": m4a(samples=10_000_000) + bytes(12 << 20),
        "tables": m4a(samples=100_000_000),
    }


class Hostile(BaseHTTPRequestHandler):
    """A server that drips, and one that serves poison."""

    files = poison()

    def do_GET(self) -> None:
        name = self.path.strip("/").partition("/")[0]
        if name in self.files:
            self._head(len(self.files[name]))
            self.wfile.write(self.files[name])
            return
        self._head(1_000_000)
        try:
            self.wfile.write(b"RIFF\xff\xff\x0f\x00WAVEfmt ")
            while True:
                self.wfile.write(b"\0" * 60)
                time.sleep(0.1)
        except OSError:
            return

    def _head(self, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "audio/wav")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def body(url: str) -> dict[str, Any]:
    return {
        "callId": str(uuid4()),
        "from": "+12025550101",
        "to": "+12025550102",
        "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "recordingUrl": url,
    }


@asynccontextmanager
async def stand(folder: Path) -> AsyncIterator[tuple[Client, Client, list[str]]]:
    """Tenants A and B, and where the dripping and the poisonous server are; all of it in `folder`."""
    url = embedded.start(folder / "state")
    migrate.migrate(url)
    more = {
        "SWITCHBOARD_FETCH__SLOW_SECONDS": "30",
        "SWITCHBOARD_PROCESSING__RETRY_WINDOW_SECONDS": "3600",
        "SWITCHBOARD_FETCH__ALLOWED_HOSTS": json.dumps(["127.0.0.1", *HOSTS]),
    }
    service = RunningService(url, folder, free_port(), more)
    servers = [ThreadingHTTPServer((host, 0), Hostile) for host in HOSTS]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        service.start()
        a, b = await Client.of(service, "hostile"), await Client.of(service, "patient")
        yield a, b, [f"http://{host}:{server.server_address[1]}" for host, server in zip(HOSTS, servers, strict=True)]
        await a.close()
        await b.close()
    finally:
        if service.process is not None:
            service.stop()
        for server in servers:
            server.shutdown()
        embedded.stop(folder / "state")


async def one_after_another(client: Client, url: str, count: int) -> list[dict[str, float]]:
    """Seconds that each call took from the submission to the completed record, and in each part of that."""
    results = []
    for _ in range(count):
        sent = body(url)
        began = time.monotonic()
        await client.accepted(sent)
        (record,) = await client.ended([sent["callId"]], timeout=600)
        assert record.call.state == "completed", record.call.failure
        results.append({"all": time.monotonic() - began, **await parts(client, sent["callId"])})
    return results


async def parts(client: Client, call_id: str) -> dict[str, float]:
    """Seconds between the moments that the database keeps of a call, in their order."""
    async with client.database.transaction(client.workspace_id) as connection:
        rows = await connection.execute(
            sa.text(
                "SELECT j.created_at, j.tried_since, j.queued_at, j.started_at, j.finished_at, s.stage AS name,"
                " s.recorded_at FROM calls c JOIN jobs j ON j.id = c.job_id JOIN stage_results s ON s.job_id = j.id"
                " WHERE c.call_id = :id ORDER BY s.recorded_at"
            ),
            {"id": call_id},
        )
        moments = list(rows)
    job, at = moments[0], {row.name: row.recorded_at for row in moments}
    steps = {
        "to be fetched": (job.created_at, job.tried_since),
        "fetching": (job.tried_since, job.queued_at),
        "for a place": (job.queued_at, job.started_at),
        "audio": (job.started_at, at["audio"]),
        "engines": (at["audio"], max(when for name, when in at.items() if name not in ("speakers", "analysis"))),
    }
    steps["conclusion"] = (steps["engines"][1], job.finished_at)
    return {name: (end - start).total_seconds() for name, (start, end) in steps.items()}


async def attack(client: Client, hostile: list[str], options: argparse.Namespace) -> dict[str, int]:
    """Submit the load of tenant A; return the number of each kind."""
    names = list(poison())
    urls = [f"{hostile[0]}/drip/{uuid4()}" for _ in range(options.dripping)]
    urls += [f"{hostile[1]}/{names[at % len(names)]}/{uuid4()}" for at in range(options.poison)]
    for url in urls:
        await client.accepted(body(url))
    await asyncio.sleep(3)
    return {"dripping": options.dripping, "poison": options.poison}


async def end_attack(client: Client) -> dict[str, int]:
    """Report the state of A's jobs, then remove them."""
    from db.core.database import EVERY_WORKSPACE

    async with client.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL ROLE NONE"))
        condition = "call_pk IN (SELECT id FROM calls WHERE workspace_id = :id)"
        rows = await connection.execute(
            sa.text(f"SELECT state, count(*) FROM jobs WHERE {condition} GROUP BY state"), {"id": client.workspace_id}
        )
        stood = {row[0]: row[1] for row in rows}
        await connection.execute(
            sa.text(
                "UPDATE jobs SET state = 'superseded', finished_at = now(), lease_until = NULL"
                f" WHERE state IN ('fetching', 'queued', 'running') AND {condition}"
            ),
            {"id": client.workspace_id},
        )
    await asyncio.sleep(8)  # their Conductor notices the lost leases
    return stood


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    alone: list[dict[str, float]] = []
    attacked: list[dict[str, float]] = []
    stood: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory(prefix="swb-bench-") as name, FileServer() as files:
        async with stand(Path(name)) as (a, b, hostile):
            url = files.add(FOLDER / options.sample / "call.flac")
            await one_after_another(b, url, 2)  # everything is loaded then
            for _ in range(options.rounds):
                alone += await one_after_another(b, url, options.calls)
                await attack(a, hostile, options)
                attacked += await one_after_another(b, url, options.calls)
                stood.append(await end_attack(a))
    whole, burdened = ([call["all"] for call in calls] for calls in (alone, attacked))
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "dripping": options.dripping,
        "poison": options.poison,
        "calls": len(alone),
        "alone_worst": max(whole),
        "attacked_worst": max(burdened),
        "ratio": statistics.median(burdened) / statistics.median(whole),
        "ratio_mean": statistics.fmean(burdened) / statistics.fmean(whole),
        "jobs_of_a": stood,
        "seconds": {
            part: [statistics.median(call[part] for call in calls) for calls in (alone, attacked)] for part in alone[0]
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.starvation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dripping", type=int, default=200, help="recordings of A on a server that drips")
    parser.add_argument("--poison", type=int, default=20, help="hostile files of A")
    parser.add_argument("--calls", type=int, default=8, help="calls of B in each half of a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sample", default="08_flite_voices_stereo", help="the call that B sends")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    figures = asyncio.run(measure(options))
    for key, value in figures.items():
        if key != "seconds":
            print(f"{key:14} {value:.2f}" if isinstance(value, float) else f"{key:14} {value}")
    print(f"{'median seconds':14} {'alone':>8} {'with A':>8}")
    for part, (alone, attacked) in figures["seconds"].items():
        print(f"{part:14} {alone:8.2f} {attacked:8.2f}")
    print(f"B takes {figures['ratio']:.2f} times what it takes alone (at most {MAX_RATIO:g} wanted).")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
