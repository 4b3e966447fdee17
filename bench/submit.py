"""How many submissions per second does Intake accept, compared with an empty request?

    python -m bench.submit [--seconds 5] [--rounds 5] [--connections 1,16] [--no-pgbench] [--json FILE]

The script starts PostgreSQL, Ray Serve and one Intake replica. The same replica has a no-op endpoint behind the same
ingress. Both are measured in turn, so that other load affects both: read the ratio. Every submission is a new call with
a recording; one durable transaction merges, records and enqueues it before the 202. In the same turns pgbench runs its
simple-update on the same server with as many clients.

An open loop then sends half of the highest rate. Its latencies count from the time at which a request was due.
"""

import argparse
import asyncio
import json
import math
import os
import platform
import shutil
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.lib.submit_load import closed_loop, open_loop
from bench.lib.submit_stand import PARTS, SubmitStand, pgbench, standing

NOOP, SUBMIT, PGBENCH = "/noop", "/submit", "pgbench -N"


@dataclass
class Measured:
    """One endpoint at one number of connections, all rounds together."""

    endpoint: str
    connections: int
    per_second: list[float] = field(default_factory=list)  # one per round
    latencies_ms: list[float] = field(default_factory=list)
    processor_seconds: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return statistics.median(self.per_second)

    def row(self) -> dict[str, Any]:
        requests = len(self.latencies_ms)
        row: dict[str, Any] = {"endpoint": self.endpoint, "connections": self.connections}
        row |= {"per_second": round(self.rate, 1), "requests": requests}
        if requests:
            row |= {"p50_ms": percentile(self.latencies_ms, 0.5), "p99_ms": percentile(self.latencies_ms, 0.99)}
            row["microseconds"] = {part: round(1e6 * self.processor_seconds[part] / requests) for part in PARTS}
        return row


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)], 2)


async def measure(stand: SubmitStand, measured: Measured, seconds: float) -> None:
    if measured.endpoint == PGBENCH:
        measured.per_second.append(await asyncio.to_thread(pgbench, stand, measured.connections, seconds))
        return
    before = Counter(stand.processor_seconds())
    latencies, rate = await closed_loop(stand.port, measured.endpoint, stand.secret, measured.connections, seconds)
    measured.processor_seconds += Counter(stand.processor_seconds()) - before
    measured.per_second.append(rate)
    measured.latencies_ms += latencies


async def in_turns(stand: SubmitStand, connections: int, options: argparse.Namespace) -> list[Measured]:
    """Run the no-op, /submit and pgbench in turn, in every round."""
    endpoints = [NOOP, SUBMIT] + ([] if options.no_pgbench else [PGBENCH])
    for endpoint in endpoints:  # connections, caches, plans
        await measure(stand, Measured(endpoint, connections), min(1.0, options.seconds))
    results = [Measured(endpoint, connections) for endpoint in endpoints]
    for number in range(options.rounds):
        for measured in results:
            await measure(stand, measured, options.seconds)
        rates = ", ".join(f"{result.endpoint} {result.per_second[-1]:.0f}/s" for result in results)
        print(f"{connections} connections, round {number + 1}: {rates}", flush=True)
    return results


async def at_half_load(stand: SubmitStand, rate: float, options: argparse.Namespace) -> list[dict[str, float]]:
    """Half of `rate`, in rounds."""
    rows = []
    for number in range(options.rounds):
        latencies = await open_loop(stand.port, SUBMIT, stand.secret, rate / 2, options.seconds)
        middle, slow = percentile(latencies, 0.5), percentile(latencies, 0.99)
        rows.append({"per_second": round(rate / 2, 1), "p50_ms": middle, "p99_ms": slow, "p99_by_p50": slow / middle})
        print(f"half load, round {number + 1}: p50 {middle} ms, p99 {slow} ms, {slow / middle:.1f} times", flush=True)
    return rows


def ratios(results: list[Measured]) -> list[float]:
    """/submit by no-op, round by round."""
    empty, submit = results[:2]
    return [round(some / none, 3) for none, some in zip(empty.per_second, submit.per_second, strict=True)]


def report(results: list[Measured]) -> None:
    print(f"\n{'':<12}{'connections':>11}{'per second':>12}{'p50 ms':>9}{'p99 ms':>9}   microseconds a request")
    for measured in results:
        row = measured.row()
        parts = ", ".join(f"{part} {used}" for part, used in row.get("microseconds", {}).items())
        print(
            f"{row['endpoint']:<12}{row['connections']:>11}{row['per_second']:>12}{row.get('p50_ms', ''):>9}"
            f"{row.get('p99_ms', ''):>9}   {parts}"
        )
    rounds = ratios(results)
    print(f"/submit by no-op: {statistics.median(rounds):.2f} (rounds {min(rounds):.2f} to {max(rounds):.2f})", end="")
    if len(results) > 2:
        print(f"; by pgbench {results[1].rate / results[2].rate:.2f}", end="")
    print("\n", flush=True)


async def run(stand: SubmitStand, options: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {"rows": [], "ratios": {}, "rounds": []}
    most = 0.0
    for connections in [int(number) for number in options.connections.split(",")]:
        results = await in_turns(stand, connections, options)
        report(results)
        most = results[1].rate
        figures["rows"] += [measured.row() for measured in results]
        figures["ratios"][connections] = ratios(results)
        figures["rounds"] += [
            {"endpoint": result.endpoint, "connections": result.connections, "per_second": result.per_second}
            for result in results
        ]
    figures["half_load"] = await at_half_load(stand, most, options)
    times = [load["p99_by_p50"] for load in figures["half_load"]]
    rounds = f"rounds {min(times):.1f} to {max(times):.1f}"
    print(f"half load: p99 is {statistics.median(times):.1f} times the median ({rounds})")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.submit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each endpoint, in turns")
    parser.add_argument("--connections", default="1,16", help="connections at once, comma separated, ascending")
    parser.add_argument("--no-pgbench", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="swb-bench-"))
    try:
        with standing(folder) as stand:
            proxy = "HAProxy" if os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1" else "Serve's own proxy"
            machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
            print(f"{proxy}, one replica, {machine}", flush=True)
            figures = asyncio.run(run(stand, options))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        figures |= {"proxy": proxy, "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
