"""How long does `switchboard up` take to the first 202, and how much memory does the idle service use?

    python -m bench.startup [--rounds 3] [--json FILE]

The script starts the service in a separate process, as an operator does. The first round uses a new data folder, in
which PostgreSQL is initialized; later rounds use the same folder. The standby returns the first 202. The reference in
the same run is `import ray; from ray import serve` in a new interpreter: the start of the cluster consists almost
entirely of such imports, and load slows both. Memory is PSS, which counts shared pages once, 10 s after the engines are
ready. Engines are counted separately.
"""

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.lib.processes import ENGINES, memory_mib
from db.server import embedded, migrate
from serve_app.service.ports import free_port
from tests.acceptance.running import Client, RunningService
from tests.synthetic_calls import synthetic_calls


def import_seconds() -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", "import ray; from ray import serve"], check=True)
    return time.monotonic() - started


async def first_202(service: RunningService) -> None:
    """Return the seconds until a submission with a new key is accepted."""
    client = await Client.of(service)
    try:
        body = synthetic_calls()[0].submissions(lambda _: "http://127.0.0.1:9/x.wav")[-1]
        await client.accepted({key: value for key, value in body.items() if not key.startswith("recordingUrl")})
    finally:
        await client.close()


def processes(service: RunningService, state: Path) -> list[psutil.Process]:
    assert service.process is not None
    postmaster = int((state / "cluster" / "postmaster.pid").read_text().split("\n", 1)[0])
    parents = [psutil.Process(service.process.pid), psutil.Process(postmaster)]
    return [process for parent in parents for process in (parent, *parent.children(recursive=True))]


def one_round(folder: Path) -> dict[str, Any]:
    reference = import_seconds()
    started = time.monotonic()
    state = folder / "state"
    url = embedded.start(state)
    migrate.migrate(url)
    service = RunningService(url, folder, free_port())
    service.begin()
    asyncio.run(first_202(service))
    seconds = time.monotonic() - started
    service.wait_until_ready(wait_for_engines=False)
    ready = time.monotonic() - started
    service.wait_for_engines()
    engines = time.monotonic() - started
    time.sleep(10)
    memory, number = memory_mib(processes(service, state))
    stopping = time.monotonic()
    code = service.stop()
    return {
        "first_202_seconds": round(seconds, 2),
        "import_seconds": round(reference, 2),
        "ratio": round(seconds / reference, 2),
        "ready_seconds": round(ready, 2),
        "engines_seconds": round(engines, 2),
        "stop_seconds": round(time.monotonic() - stopping, 2),
        "exit_code": code,
        "memory_mib": dict(memory),
        "processes": dict(number),
        "without_engines_mib": sum(mib for name, mib in memory.items() if name not in ENGINES),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.startup", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory(prefix="switchboard-bench-") as name:
        try:
            for number in range(arguments.rounds):
                rounds.append(one_round(Path(name)))
                done = rounds[-1]
                print(
                    f"round {number + 1}: first 202 after {done['first_202_seconds']} s = {done['ratio']} imports of "
                    f"ray.serve ({done['import_seconds']} s); the cluster after "
                    f"{done['ready_seconds']} s; engines after {done['engines_seconds']} s; "
                    f"stopped in {done['stop_seconds']} s, exit code {done['exit_code']}",
                    flush=True,
                )
        finally:
            embedded.stop(Path(name) / "state")
    last = rounds[-1]
    print("\nidle memory, MiB PSS and processes (last round)")
    for kind, mib in sorted(last["memory_mib"].items(), key=lambda item: -item[1]):
        print(f"  {kind:<18}{mib:>6}{last['processes'][kind]:>4}")
    print(f"  {'without engines':<18}{last['without_engines_mib']:>6}")
    print(f"  {'all':<18}{sum(last['memory_mib'].values()):>6}{sum(last['processes'].values()):>4}")
    result = {
        "machine": {"cpus": psutil.cpu_count(), "load": psutil.getloadavg()[0], "python": platform.python_version()},
        "median_first_202_seconds": statistics.median(round_["first_202_seconds"] for round_ in rounds),
        "median_ready_seconds": statistics.median(round_["ready_seconds"] for round_ in rounds),
        "median_ratio": statistics.median(round_["ratio"] for round_ in rounds),
        "rounds": rounds,
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
