"""Does any request to /submit cause a 5xx, an unstructured error, or a crash?

    python -m tests.fuzz [--requests 100000] [--seed 1] [--connections 16] [--json FILE]

Starts a separate PostgreSQL, Ray Serve, HAProxy and one Intake replica (as bench/submit.py does), then sends generated
requests over raw sockets: submissions with mutated fields, keys, bytes and encodings, mutated headers, and invalid
framing. `serve_app.intake.schemas` in this process decides the expected response to a body, the generator that to
headers. A request with broken framing may get a response or be disconnected. Every secret that is sent is marked and
searched for in every log of Ray and PostgreSQL afterwards. At the end: slow clients and a flood of large bodies, with
the memory of the replica and the proxy.
"""

import argparse
import asyncio
import json
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.fuzz.cases import INJECTED, MARK, Maker, oracle
from tests.fuzz.pressure import flood, memory_meter, slow_clients
from tests.fuzz.wire import Tally, drive, latency_ms

ROOT = Path(__file__).resolve().parents[2]


def leaks(folders: list[Path], secret: str) -> dict[str, int]:
    """Files below `folders` with a line that holds a secret, or begins with what was sent after a line break."""
    sizes: dict[str, int] = {}
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        lines = path.read_bytes().splitlines()
        bad = sum(
            MARK.encode() in line or secret.encode() in line or line.startswith(INJECTED.encode()) for line in lines
        )
        if bad:
            sizes[str(path)] = bad
    return sizes


def report(figures: dict[str, Any], tally: Tally) -> None:
    answers = sorted({answer for counts in tally.statuses.values() for answer in counts})
    print(f"{'':<16}" + "".join(f"{answer:>8}" for answer in answers))
    for kind, counts in sorted(tally.statuses.items()):
        print(f"{kind:<16}" + "".join(f"{counts[answer]:>8}" for answer in answers))
    for name, value in figures.items():
        print(f"{name}: {value}")
    for name, count in tally.wrong.most_common():
        print(f"WRONG {count} x {name}\n      {tally.examples[name]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop sending after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--pressure-seconds", type=float, default=15.0, help="length of slow clients, and of the flood")
    parser.add_argument("--without-ray", action="store_true", help="the application behind uvicorn alone, no HAProxy")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    started = alone if options.without_ray else behind_ray
    folder, tally, figures = Path(tempfile.mkdtemp(prefix="swb-fuzz-")), Tally(), {}
    try:
        with started(folder) as (port, secret):
            front = "uvicorn alone" if options.without_ray else "HAProxy and Ray Serve"
            print(f"{front}, seed {options.seed}, Python {platform.python_version()}", flush=True)
            figures = asyncio.run(fuzz(options, port, secret, tally, memory_meter(options.without_ray)))
            figures["leaks in logs"] = leaks(log_folders(folder), secret)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(figures, tally)
    if options.json:
        rows = {kind: dict(counts) for kind, counts in tally.statuses.items()}
        wrong = {name: [count, tally.examples[name]] for name, count in tally.wrong.items()}
        options.json.write_text(
            json.dumps({**figures, "answers": rows, "wrong": wrong}, indent=2) + "\n", encoding="utf-8"
        )
    if tally.wrong or figures["leaks in logs"]:
        raise SystemExit(1)


@contextmanager
def behind_ray(folder: Path) -> Iterator[tuple[int, str]]:
    """Start the Intake of `bench/submit.py`; yields its port and an API key."""
    from bench.lib.submit_stand import standing

    with standing(folder) as stand:
        yield stand.port, stand.secret


@contextmanager
def alone(folder: Path) -> Iterator[tuple[int, str]]:
    """Start the same application and PostgreSQL behind uvicorn; yields its port and an API key."""
    from bench.lib.submit_stand import new_key
    from db.server import embedded, migrate
    from serve_app.service.ports import free_port

    url = embedded.start(folder)
    server = None
    try:
        migrate.migrate(url)
        secret, port = asyncio.run(new_key(url)), free_port()
        with (folder / "uvicorn.log").open("w") as log:
            server = subprocess.Popen([sys.executable, "-c", _ALONE, url, str(port)], stdout=log, stderr=log, cwd=ROOT)
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield port, secret
    finally:
        if server is not None:
            server.terminate()
            server.wait(30)
        embedded.stop(folder)


_ALONE = """
import sys, uvicorn
from serve_app.intake.store import open_store
from serve_app.http.options import LimitOptions
from serve_app.intake.submit import build_api
limits = LimitOptions(per_minute=1e9)
api = build_api(limits, lambda: open_store(sys.argv[1], limits.POOL_SIZE))
uvicorn.run(api, port=int(sys.argv[2]), access_log=False)
"""


def log_folders(folder: Path) -> list[Path]:
    """Ray's logs of this session, and PostgreSQL's; or uvicorn's."""
    postgres = folder / "only-logs"
    postgres.mkdir()
    for name in ("postgres.log", "uvicorn.log"):
        if (folder / name).exists():
            shutil.copy(folder / name, postgres)
    if (folder / "uvicorn.log").exists():
        return [postgres]
    import ray

    return [Path(ray._private.worker._global_node.get_session_dir_path()) / "logs", postgres]


async def fuzz(
    options: argparse.Namespace, port: int, secret: str, tally: Tally, memory: Callable[[], dict[str, float]]
) -> dict[str, Any]:
    maker = Maker(options.seed, secret, oracle())
    figures: dict[str, Any] = {"latency before, ms": round(await latency_ms(port, maker), 2)}
    await drive(port, maker, options, min(2000, options.requests), tally, lambda _: None)  # warm
    figures["memory warm, MiB"] = _rounded(memory())
    began = time.monotonic()

    def part(sent: int) -> None:
        seconds, wrong = time.monotonic() - began, dict(tally.wrong)
        progress = f"{sent} of {options.requests} in {seconds:.0f} s, {_rounded(memory())}, wrong: {wrong or 'none'}"
        print(progress, file=sys.stderr, flush=True)

    await drive(port, maker, options, options.requests, tally, part)
    figures["requests"] = sum(sum(counts.values()) for counts in tally.statuses.values())
    figures["seconds"] = round(time.monotonic() - began, 1)
    figures["memory after, MiB"] = _rounded(memory())
    figures["latency after, ms"] = round(await latency_ms(port, maker), 2)
    seconds = options.pressure_seconds
    figures["memory with 500 slow clients, MiB"] = _rounded(await slow_clients(port, secret, 500, seconds, memory))
    figures["latency after slow clients, ms"] = round(await latency_ms(port, maker), 2)
    most, answers = await flood(port, secret, 64, seconds, memory)
    figures["memory in a flood of 64 KiB bodies, MiB"] = _rounded(most)
    figures["answers to the flood"] = dict(answers)
    figures["latency after the flood, ms"] = round(await latency_ms(port, maker), 2)
    return figures


def _rounded(sizes: dict[str, float]) -> dict[str, float]:
    return {name: round(size, 1) for name, size in sizes.items()}


if __name__ == "__main__":
    main()
