"""Do GPU nodes come when calls wait, and go when they are done, without a call being lost?

    python bench/autoscale.py [--calls 12] [--nodes 3] [--json FILE]

Ray's own autoscaler with nodes that only pretend to have a GPU (Ray's FakeMultiNodeProvider: each is a raylet of its
own on this machine), in a cluster of its own with its own ports and folder. On it the real application `calls` with the
synthetic checkpoints on the CPU: no Transcriber and no Diarizer while idle, a whole pretended GPU for each Transcriber.
Calls are queued; while the nodes go again, more are. Prints what happened when; the seconds count from the first calls.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import fixture_checkpoints

HEAD = "f" * 51 + "00000"  # the id that the provider gives to the head
HEAD_TYPE = "ray.head.default"  # so does it name the type of the head
NODES_GO = 6.0  # seconds without work after which the autoscaler takes a node away
IDLE = 10.0  # seconds without work after which the last Transcriber goes
WITHIN = 30.0  # the goal for the first node
DEADLINE = 500.0


def cluster(address: str, nodes: int) -> dict[str, Any]:
    """A cluster configuration of a head without GPU and at most `nodes` nodes with one."""
    lists = (
        "initialization_commands",
        "setup_commands",
        "head_setup_commands",
        "worker_setup_commands",
        "head_start_ray_commands",
        "worker_start_ray_commands",
        "cluster_synced_files",
    )
    return {
        "cluster_name": "pretended",
        "max_workers": nodes,
        "head_node_type": HEAD_TYPE,
        "upscaling_speed": 10.0,
        "idle_timeout_minutes": NODES_GO / 60,
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "gcs_address": address,
            "launch_multiple": True,
            "head_node_id": HEAD,
        },
        "available_node_types": {
            HEAD_TYPE: {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 0},
            "gpu": {
                "resources": {"CPU": 1, "GPU": 1, "object_store_memory": 80 * 2**20},
                "node_config": {},
                "min_workers": 0,
                "max_workers": nodes,
            },
        },
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{name: [] for name in lists},
    }


@contextmanager
def head(folder: Path, nodes: int) -> Iterator[str]:
    """A running head with its autoscaler; yields its address. What it started ends with it."""
    from ray._private.services import get_node_ip_address

    from serve_app.service.ports import free_port

    address = f"{get_node_ip_address()}:{free_port()}"
    config = folder / "cluster.yaml"
    config.write_text(json.dumps(cluster(address, nodes)), encoding="utf-8")
    environment = os.environ | {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2"]
    command += [f"--port={address.rpartition(':')[2]}", "--object-store-memory=150000000", "--include-dashboard=false"]
    command += [f"--temp-dir={folder}/ray", f"--autoscaling-config={config}"]
    command += ["--min-worker-port=0", "--max-worker-port=0", f"--ray-client-server-port={free_port()}"]
    with (folder / "head.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield address
    finally:
        stop(process, folder)


def stop(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """End the head, and the pretended nodes: those processes that name Ray's folder in ours."""
    import psutil

    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    for one in psutil.process_iter(["pid", "cmdline"]):
        if f"{folder}/ray" in " ".join(one.info["cmdline"] or []) and one.pid != os.getpid():
            with contextlib.suppress(psutil.Error):
                one.kill()


def settings(url: str, folder: Path, nodes: int) -> Any:
    """A service that has no engine while idle."""
    from serve_app.service.ports import free_port
    from serve_app.settings import Settings

    return Settings(
        database_url=url,
        data_dir=folder / "data",
        storage=(folder / "recordings").as_uri(),
        http={"port": free_port()},
        fetch={"allowed_hosts": ["127.0.0.1"]},
        asr={"model": str(fixture_checkpoints.RECOGNITION), "device": "cpu", "cpu_threads": 1},
        diarization={"pipeline": str(fixture_checkpoints.DIARIZATION), "device": "cpu"},
        processing={"concurrency": 2 * nodes},
        scaling={
            "transcriber": {"min_replicas": 0, "max_replicas": nodes, "num_gpus": 1},
            "diarizer": {"min_replicas": 0, "max_replicas": 1, "num_gpus": 0},
            "task_cpus": 0.5,
            "target_drain_seconds": 20,
            "down_seconds": 3,
            "idle_seconds": IDLE,
        },
    )


class Watch:
    """Writes down each change: nodes, replicas, calls."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.line: list[dict[str, Any]] = []

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    def see(self, what: dict[str, Any]) -> None:
        if not self.line or {k: v for k, v in self.line[-1].items() if k != "at"} != what:
            self.line.append({"at": round(self.now, 1), **what})
            shown = "  ".join(f"{name} {value}" for name, value in what.items())
            print(f"{self.now:7.1f} s  {shown}", flush=True)

    def first(self, condition: Any) -> float | None:
        return next((one["at"] for one in self.line if condition(one)), None)


def gpu_nodes() -> int:
    import ray

    return sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU"))


def transcribers() -> int:
    from ray import serve

    deployments = serve.status().applications["calls"].deployments
    return int(deployments["Transcriber"].replica_states.get("RUNNING", 0))


class SentCalls:
    """Sends calls and counts what became of them."""

    def __init__(self, database: Any, sender: Any, files: Any) -> None:
        self._database = database
        self._sender = sender
        self._files = files
        self.sent: list[UUID] = []

    async def send(self, count: int) -> None:
        from datetime import UTC, datetime

        from db.intake.group_commit import Grouping
        from pipeline.domain.call import Submission
        from tests.synthetic_calls import FOLDER

        for number in range(count):
            call = uuid4()
            name = ("08_flite_voices_stereo", "01_invoice_stereo")[number % 2]
            url = self._files.add(FOLDER / name / "call.flac")
            data = Submission(call, "+49301234567", "+4940987654", datetime.now(UTC), recording_url=url, duration=30)
            await Grouping(self._database).submit(self._sender, data, {"callId": str(call)})
            self.sent.append(call)

    async def states(self) -> dict[str, int]:
        from db.records import views

        found: dict[str, int] = {}
        for one in await views.list_calls(self._database, limit=10_000):
            found[str(one.state)] = found.get(str(one.state), 0) + 1
        return found


async def watch(queue: SentCalls, calls: int, nodes: int) -> dict[str, Any]:
    """From the first call until the last node has gone."""
    line, again = Watch(), None
    await queue.send(calls)
    while line.now < DEADLINE:
        there, at_work = await asyncio.to_thread(gpu_nodes), await asyncio.to_thread(transcribers)
        states = await queue.states()
        line.see({"gpu_nodes": there, "transcribers": at_work, "calls": dict(sorted(states.items()))})
        done = states.get("completed", 0) + states.get("failed", 0)
        most = max(one["gpu_nodes"] for one in line.line)
        if again is None and done >= calls - 2 and most and (there < most or done == calls):
            again = round(line.now, 1)  # nodes are going, or are about to
            await queue.send(3)
        elif again is not None and done == len(queue.sent) and there == 0:
            break
        await asyncio.sleep(0.5)
    states = await queue.states()
    finished = line.first(lambda one: one["calls"].get("completed", 0) == len(queue.sent))
    return {
        "first_node_seconds": line.first(lambda one: one["gpu_nodes"] > 0),
        "most_nodes": max(one["gpu_nodes"] for one in line.line),
        "more_calls_at": again,
        "all_done_seconds": finished,
        "back_to_zero_seconds": line.line[-1]["at"] if line.line[-1]["gpu_nodes"] == 0 else None,
        "idle_limit_seconds": IDLE + NODES_GO,
        "calls": len(queue.sent),
        "states": states,
        "line": line.line,
    }


async def run(url: str, calls: int, nodes: int) -> dict[str, Any]:
    from db.core.database import Database
    from db.workspace import directory, keys
    from tests.file_server import FileServer

    database = await Database.open(url)
    try:
        home = await directory.create_workspace(database, "bench")
        team = await directory.create_team(database, home.workspace_id, "bench")
        _, secret = await keys.create(database, home.workspace_id, team.team_id, {"submit"}, "bench")
        with FileServer() as files:
            return await watch(SentCalls(database, await keys.find(database, secret), files), calls, nodes)
    finally:
        await database.close()


def measure(folder: Path, calls: int, nodes: int) -> dict[str, Any]:
    from db.server import embedded, migrate
    from serve_app.service.environment import prepare_environment

    url = embedded.start(folder / "state")
    try:
        migrate.migrate(url)
        wanted = settings(url, folder, nodes)
        prepare_environment(wanted, url)  # before Ray starts: nodes inherit it
        with head(folder, nodes) as address:
            import ray
            from ray import serve

            from serve_app.service.service import Service

            join(address)
            service = Service(wanted, address=address, proxy_location="HeadOnly", on_step=print)
            ray.shutdown()
            service.start()
            while serve.status().applications["calls"].status not in ("RUNNING", "DEPLOY_FAILED"):
                time.sleep(0.5)
            try:
                return asyncio.run(run(url, calls, nodes))
            finally:
                serve.shutdown()
                ray.shutdown()
    finally:
        embedded.stop(folder / "state")


def join(address: str) -> None:
    """Wait until the head answers."""
    import ray

    for _ in range(120):
        with contextlib.suppress(Exception):
            ray.init(address, log_to_driver=False, configure_logging=False)
            return
        time.sleep(1)
    raise SystemExit(f"Ray's head did not answer at {address} within two minutes; head.log in its folder says why.")


def report(found: dict[str, Any]) -> None:
    lost = found["calls"] - found["states"].get("completed", 0)
    after = None
    if found["all_done_seconds"] is not None and found["back_to_zero_seconds"] is not None:
        after = round(found["back_to_zero_seconds"] - found["all_done_seconds"], 1)
    found["nodes_gone_after_last_call_seconds"], found["not_completed"] = after, lost
    print(
        f"\nfirst GPU node after {found['first_node_seconds']} s (goal {WITHIN:.0f} s), at most {found['most_nodes']}"
    )
    print(
        f"{found['calls']} calls, {lost} not completed; 3 of them sent at {found['more_calls_at']} s, while nodes went"
    )
    print(f"no GPU node {after} s after the last call was done (idle limit {found['idle_limit_seconds']:.0f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=12, help="calls that are queued at once")
    parser.add_argument("--nodes", type=int, default=3, help="most GPU nodes")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swb-as-", ignore_cleanup_errors=True) as name:
        found = measure(Path(name), options.calls, options.nodes)
    report(found)
    if options.json:
        machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
        options.json.write_text(json.dumps(machine | found, indent=2) + "\n", encoding="utf-8")
    if found["not_completed"]:
        raise SystemExit("calls were lost")


if __name__ == "__main__":
    main()
