"""How many submissions a second does the intake take, and what does a submission cost beside an empty request?

    python bench/submit.py [--seconds 5] [--rounds 3] [--connections 1,16] [--json FILE]

Starts PostgreSQL, Ray Serve and one Intake replica of its own, with a no-op endpoint in the same replica, behind the
same ingress. Both are measured in turns, so that a neighbour's load falls on both: read the ratio. Every submission is
a new call with a recording: merged, recorded and enqueued in one durable transaction before its 202.
"""

import argparse
import asyncio
import json
import math
import os
import platform
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

HTTP_ACCEPTED = b"HTTP/1.1 202"


@dataclass
class Measured:
    """One endpoint at one number of connections, all rounds together."""

    endpoint: str
    connections: int
    per_second: list[float] = field(default_factory=list)  # one per round
    latencies_ms: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]

    def row(self) -> dict[str, float | int | str]:
        return {
            "endpoint": self.endpoint,
            "connections": self.connections,
            "requests": len(self.latencies_ms),
            "per_second": round(statistics.median(self.per_second), 1),
            "p50_ms": round(self.percentile(0.50), 2),
            "p99_ms": round(self.percentile(0.99), 2),
        }


@contextmanager
def intake(folder: Path) -> Iterator[tuple[int, str]]:
    """A running Intake with a no-op beside /submit; yields its port and an API key."""
    from db import embedded, migrate
    from serve_app.service import prepare_environment
    from serve_app.settings import Settings

    url = embedded.start(folder)
    try:
        migrate.migrate(url)
        settings = Settings(
            data_dir=folder, database_url=url, http={"port": free_port()}, limits={"per_minute": 1e9, "burst": 10**9}
        )
        prepare_environment(settings, url)
        secret = asyncio.run(new_key(url))
        serve_intake(settings.http.port, settings.limits.concurrency)
        yield settings.http.port, secret
        stop_serve()
    finally:
        embedded.stop(folder)


def serve_intake(port: int, concurrency: int) -> None:
    import ray
    from ray import serve

    from serve_app.intake import Intake

    ray.init(address="local", include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    replica = Intake.options(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=concurrency)
    serve.run(replica.bind(noop=True), name="intake", route_prefix="/")


def stop_serve() -> None:
    import ray
    from ray import serve

    serve.shutdown()
    ray.shutdown()


async def new_key(url: str) -> str:
    from db import directory, keys
    from db.database import Database

    database = await Database.open(url)
    workspace = await directory.create_workspace(database, "bench", default_country="DE")
    team = await directory.create_team(database, workspace.workspace_id, "bench")
    _, secret = await keys.create(database, workspace.workspace_id, team.team_id, {"submit"}, "bench")
    await database.close()
    return secret


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def request(path: str, secret: str) -> bytes:
    call = uuid4()
    body = json.dumps(
        {
            "callId": str(call),
            "recordingUrl": f"https://pbx.example.com/recordings/{call}.wav?X-Amz-Signature=abc&X-Amz-Expires=3600",
            "from": "+493012345678",
            "to": "+4940987654",
            "startTime": "2026-11-20T09:30:00+01:00",
            "outgoing": True,
            "duration": 184,
        }
    )
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


async def one_connection(port: int, path: str, secret: str, until: float, latencies: list[float]) -> None:
    """One request after the other over one kept connection; latencies in ms."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        message = request(path, secret)
        sent = time.perf_counter()
        writer.write(message)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as closed:
            if closed.partial:
                raise
            # HAProxy was reloaded, as it is when replicas come and go; a client connects again.
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            continue
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer = await reader.readexactly(int(length.split(b":")[1]))
        latencies.append((time.perf_counter() - sent) * 1000)
        if not head.startswith(HTTP_ACCEPTED):
            raise SystemExit(f"{path} was not accepted: {head.splitlines()[0].decode()} {answer.decode()}")
    writer.close()


async def measure(port: int, secret: str, measured: Measured, seconds: float) -> None:
    latencies: list[float] = []
    started = time.perf_counter()
    until = started + seconds
    await asyncio.gather(
        *(one_connection(port, measured.endpoint, secret, until, latencies) for _ in range(measured.connections))
    )
    measured.per_second.append(len(latencies) / (time.perf_counter() - started))
    measured.latencies_ms += latencies


async def run(port: int, secret: str, connections: list[int], rounds: int, seconds: float) -> list[Measured]:
    results = []
    for number in connections:
        pair = [Measured("/noop", number), Measured("/submit", number)]
        for warm in pair:  # connections, caches, plans
            await measure(port, secret, Measured(warm.endpoint, number), min(1.0, seconds))
        for _ in range(rounds):
            for measured in pair:
                await measure(port, secret, measured, seconds)
        results += pair
    return results


def report(results: list[Measured]) -> list[dict[str, float | int | str]]:
    rows = [measured.row() for measured in results]
    print(f"{'endpoint':<10}{'connections':>12}{'requests':>10}{'per second':>12}{'p50 ms':>9}{'p99 ms':>9}")
    for row in rows:
        print(
            f"{row['endpoint']:<10}{row['connections']:>12}{row['requests']:>10}{row['per_second']:>12}"
            f"{row['p50_ms']:>9}{row['p99_ms']:>9}"
        )
    for empty, submit in zip(results[::2], results[1::2], strict=True):
        ratio = statistics.median(submit.per_second) / statistics.median(empty.per_second)
        print(f"{submit.connections:>2} connections: /submit reaches {ratio:.2f} of the no-op's rate")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each endpoint, in turns")
    parser.add_argument("--connections", default="1,16", help="connections at once, comma separated")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    numbers = [int(number) for number in options.connections.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="swb-bench-"))
    try:
        with intake(folder) as (port, secret):
            proxy = "HAProxy" if os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1" else "Serve's own proxy"
            machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
            print(f"{proxy}, one replica, {machine}")
            results = asyncio.run(run(port, secret, numbers, options.rounds, options.seconds))
            rows = report(results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        figures = {"proxy": proxy, "cores": os.cpu_count(), "load": os.getloadavg()[0], "rows": rows}
        figures["rounds"] = [
            {key: value for key, value in asdict(one).items() if key != "latencies_ms"} for one in results
        ]
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
