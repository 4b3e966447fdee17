"""GPU nodes scale with the queue, from and to zero: cluster.yaml, start.sh, deploy.sh and serve.yaml as shipped.

Ray's autoscaler starts the nodes: machines of tests.machines. The GPU is pretended, engines compute on the CPU, and
waits and numbers of nodes are smaller.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from db.server import embedded, migrate
from tests.acceptance.test_cluster import SUBMIT, sender, states
from tests.machines import ROOT, Machine, machines, node_settings, submission

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes name spaces"),
]

ADDRESSES = [f"10.77.0.{number}" for number in range(1, 5)]
HEAD = ADDRESSES[0]
MOST = {"head": 0, "gpu": 2, "cpu": 1}  # nodes of each type
CALLS = 6
IDLE_MINUTES = 0.3
STORE = 80_000_000
SHORT_WAITS = {"SWITCHBOARD_SCALING__DOWN_SECONDS": "5", "SWITCHBOARD_SCALING__IDLE_SECONDS": "10"}
SERVICES = {"Intake", "Api", "Console", "Conductor"}
NODES = "set -a; . ~/switchboard/serve_app/deploy/node.env; ray list nodes --filter state=ALIVE --format json --detail"


def configuration(pool: list[Machine]) -> dict[str, Any]:
    """Return cluster.yaml with machines in place of AWS, prepared as `ray up` does."""
    from ray.autoscaler._private.util import prepare_config

    shipped = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    for name, kind in shipped["available_node_types"].items():
        kind.update(node_config={}, max_workers=MOST[name])
        kind["resources"]["object_store_memory"] = STORE
    described = [{"space": each.space, "address": each.address, "home": str(each.home)} for each in pool]
    provider = {
        "type": "external",
        "module": "tests.node_pool.NodePool",
        "head": HEAD,
        "machines": described,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    empty = ("cluster_synced_files", "head_setup_commands", "worker_setup_commands", "initialization_commands")
    changed = {"provider": provider, "idle_timeout_minutes": IDLE_MINUTES, "file_mounts": {}, "docker": {}}
    prepared: dict[str, Any] = prepare_config({**shipped, **changed, **{name: [] for name in empty}})
    return prepared


@dataclass
class Observed:
    """What ran where, at times since the start."""

    machine: Machine
    url: str
    started: float = field(default_factory=time.monotonic)
    line: list[tuple[float, int, dict[str, list[bool]]]] = field(default_factory=list)

    def look(self) -> int:
        """Note the GPU nodes and whether each deployment has replicas on them; return how many GPU nodes there are."""
        done = self.machine.shell(NODES)
        assert done.returncode == 0, done.stderr[-2000:]
        nodes = {node["node_id"]: node["resources_total"] for node in json.loads(done.stdout)}
        details = self.machine.serve_details()
        assert details is not None
        applications = details["applications"]
        assert "DEPLOY_FAILED" not in {application["status"] for application in applications.values()}, applications
        placed: dict[str, list[bool]] = {}
        for application in applications.values():
            for name, deployment in application["deployments"].items():
                replicas = [replica for replica in deployment["replicas"] if replica["state"] == "RUNNING"]
                placed[name] = ["GPU" in nodes.get(replica["node_id"], {}) for replica in replicas]
        gpus = sum("GPU" in resources for resources in nodes.values())
        self.line.append((round(time.monotonic() - self.started, 1), gpus, placed))
        print(self.line[-1], flush=True)
        assert not [name for name in SERVICES & placed.keys() if any(placed[name])], placed
        return gpus

    def services_run(self) -> bool:
        return bool(self.line) and {name for name, replicas in self.line[-1][2].items() if replicas} >= SERVICES

    def wait_for(self, reached: Callable[[int], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not reached(self.look()):
            assert time.monotonic() < deadline, self.line
            time.sleep(2)


@pytest.fixture
def observed() -> Iterator[Observed]:
    with tempfile.TemporaryDirectory(prefix="swb-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        url = embedded.start(folder / "state")
        try:
            migrate.migrate(url)
            settings = node_settings(folder, url, HEAD) | SHORT_WAITS
            with machines(folder, ADDRESSES, settings) as pool:
                head = pool[0]
                bootstrap = head.home / "ray_bootstrap_config.yaml"
                bootstrap.write_text(yaml.safe_dump(configuration(pool)))
                environment = {
                    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
                    "AUTOSCALER_HEARTBEAT_TIMEOUT_S": "300",  # a node may take longer to start on a busy machine
                    "PYTHONPATH": str(ROOT),
                    "RAY_enable_autoscaler_v2": "0",
                    "RAY_OVERRIDE_RESOURCES": json.dumps(
                        configuration(pool)["available_node_types"]["head"]["resources"]
                    ),
                }
                start = f"bash ~/switchboard/serve_app/deploy/start.sh head --autoscaling-config={bootstrap}"
                done = head.shell(start, seconds=600, **environment)
                assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
                head.deploy()
                yield Observed(head, url)
                for log in head.home.glob(".switchboard/ray/session_latest/logs/monitor.*"):
                    print(log.name, log.read_text()[-4000:])
        finally:
            embedded.stop(folder / "state")


def test_gpu_nodes_scale_with_the_queue_from_and_to_zero_and_run_no_service(observed: Observed) -> None:
    observed.wait_for(lambda gpus: gpus == 0 and observed.services_run(), 300)
    key = asyncio.run(sender(observed.url, "acme"))
    with observed.machine.serving_recordings():
        for number in range(CALLS):
            body = json.dumps(submission(HEAD, number))
            sent = observed.machine.run(sys.executable, "-c", SUBMIT, f"http://{HEAD}:8000/submit", key, body)
            assert (sent.returncode, sent.stdout.strip()) == (0, "202"), sent.stderr[-2000:]
        observed.wait_for(lambda gpus: gpus > 0, 180)

        def all_done(_: int) -> bool:
            calls = asyncio.run(states(observed.url))
            assert "failed" not in calls
            return calls.get("completed", 0) == CALLS

        observed.wait_for(all_done, 300)
    observed.wait_for(lambda gpus: gpus == 0, 240)
