"""How long until a call completes after a process it needs is killed?

    python -m bench.recovery [--rounds 3] [--json FILE]

The script submits a mono sample call, which needs every part. During recognition it kills the Conductor, the
Transcriber or the Diarizer with -9, or restarts PostgreSQL, and waits for the record. The reference in the same run is
the same call without a fault.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from db.server import embedded, migrate
from serve_app.service.ports import free_port
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.synthetic_calls import synthetic_calls

FAULTS = ("none", "Conductor", "Transcriber", "Diarizer", "PostgreSQL")
LEASE = "10"  # seconds, the default: what a dead Conductor costs at most


async def one_call(
    client: Client, files: FileServer, service: RunningService, state: Path, fault: str
) -> dict[str, float]:
    """Return the seconds of one call from submission, and from the fault, to the completed record."""
    mono = next(sample for sample in synthetic_calls() if sample.expected["layout"] == "mono")
    body = mono.submissions(files.add)[-1]
    victims = service.pids(fault)
    started = time.monotonic()
    await client.accepted(body)
    while (call := (await client.record(body["callId"])).call).stage not in ("asr", "diarization"):
        if call.state in ("completed", "failed"):  # it was past recognition between two looks
            return await one_call(client, files, service, state, fault)
        await asyncio.sleep(0.005)
    struck = time.monotonic()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    if fault == "PostgreSQL":
        await asyncio.to_thread(embedded.stop, state)
        await asyncio.to_thread(embedded.start, state)
    (record,) = await client.ended([body["callId"]], timeout=180)
    if record.call.state != "completed":
        raise SystemExit(f"{fault}: the call ended as {record.call.state}: {record.call.failure}")
    ended = time.monotonic()
    while fault in service.deployments and len(service.pids(fault)) != 1:  # a new victim for the next round
        await asyncio.sleep(0.2)
    return {"whole_seconds": ended - started, "after_fault_seconds": ended - struck}


async def measure(service: RunningService, state: Path, rounds: int) -> list[dict[str, Any]]:
    client = await Client.of(service)
    rows = []
    with FileServer() as files:
        await one_call(client, files, service, state, "none")  # warm
        for number in range(rounds):
            for fault in FAULTS:
                took = await one_call(client, files, service, state, fault)
                rows.append(
                    {"round": number + 1, "fault": fault, **{name: round(value, 2) for name, value in took.items()}}
                )
                print(
                    f"round {number + 1}  {fault:<12} completed {took['after_fault_seconds']:6.1f} s after the fault",
                    flush=True,
                )
    await client.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="switchboard-bench-") as name:
        folder = Path(name)
        url = embedded.start(folder / "state")
        try:
            migrate.migrate(url)
            service = RunningService(url, folder, free_port(), {"SWITCHBOARD_PROCESSING__LEASE_SECONDS": LEASE})
            service.start()
            try:
                rows = asyncio.run(measure(service, folder / "state", arguments.rounds))
            finally:
                service.stop()
        finally:
            embedded.stop(folder / "state")
    print("\nfault          median s from fault to completed    whole call, ratio to undisturbed")
    whole = {fault: statistics.median(r["whole_seconds"] for r in rows if r["fault"] == fault) for fault in FAULTS}
    for fault in FAULTS:
        after = statistics.median(r["after_fault_seconds"] for r in rows if r["fault"] == fault)
        print(f"{fault:<14}{after:>10.1f}{whole[fault] / whole['none']:>38.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"lease_seconds": float(LEASE), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
