"""The cluster that cluster.yaml describes, by its own commands: types, start.sh, deploy.sh, serve.yaml, real ports.

Three machines, which are network name spaces of this one, get the resources of the types head, gpu and cpu as `ray up`
tells them. The GPU is pretended: engines compute on the CPU. Takes minutes: `make slow` runs it.
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

from tests.machines import PROMISED, ROOT, Machine, machines, node_settings, submission

ADDRESSES = {"head": "10.213.78.1", "gpu": "10.213.78.2", "cpu": "10.213.78.3"}
CALLS = 6
DEADLINE = 900.0
SUBMIT = """
import json, sys, urllib.request
url, key, body = sys.argv[1:]
asked = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
asked.add_header("Authorization", f"Bearer {key}")
with urllib.request.urlopen(asked, timeout=30) as answer:
    print(answer.status)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network name spaces"),
]


@dataclass
class Cluster:
    """What runs, and when what was seen first."""

    machines: dict[str, Machine]
    database_url: str
    started: float = field(default_factory=time.monotonic)
    line: list[tuple[float, str]] = field(default_factory=list)

    def note(self, what: str) -> None:
        if not self.line or self.line[-1][1] != what:
            self.line.append((round(time.monotonic() - self.started, 1), what))
            print(f"{self.line[-1][0]:7.1f} s  {what}", flush=True)

    def details(self) -> dict[str, Any]:
        """What Serve's controller says of all applications: configurations, replicas and their nodes."""
        told = self.machines["head"].serve_details()
        assert told is not None
        return told

    def wait_for(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not reached():
            assert time.monotonic() < deadline, self.line
            time.sleep(2)


def resources(kind: str) -> dict[str, int]:
    shipped = yaml.safe_load((ROOT / "cluster.yaml").read_text())["available_node_types"]
    return dict(shipped[kind]["resources"])


def pretend_a_gpu(machine: Machine) -> None:
    """`switchboard doctor --node` is not told that this machine was promised one."""
    shim = machine.home / "venv/bin/switchboard"
    shim.parent.mkdir(parents=True)
    real = Path(sys.executable).with_name("switchboard")
    shim.write_text(f'#!/bin/sh\nunset {PROMISED}\nexec {real} "$@"\n')
    shim.chmod(0o755)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    from db import embedded

    with tempfile.TemporaryDirectory(prefix="swb-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        url = embedded.start(folder / "state")
        settings = node_settings(folder, url, ADDRESSES["head"])
        try:
            with machines(folder, list(ADDRESSES.values()), settings) as made:
                yield Cluster(dict(zip(ADDRESSES, made, strict=True)), url)
        finally:
            embedded.stop(folder / "state")


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Cluster:
    """The cluster after deploy.sh, once every deployment runs."""
    pretend_a_gpu(cluster.machines["gpu"])
    for kind, machine in cluster.machines.items():
        machine.start_ray(resources=resources(kind))
        cluster.note(f"Ray runs on {kind}, with {resources(kind)}")
    cluster.machines["head"].deploy()
    cluster.note("deploy.sh has ended")

    def all_run() -> bool:
        states = {name: one["status"] for name, one in cluster.details()["applications"].items()}
        cluster.note(f"applications: {states}")
        assert "DEPLOY_FAILED" not in states.values()
        return len(states) == 4 and set(states.values()) == {"RUNNING"}

    cluster.wait_for(all_run)
    return cluster


async def sender(url: str) -> str:
    """A key that may submit."""
    from db import directory, keys
    from db.database import Database

    async with await Database.open(url) as database:
        home = await directory.create_workspace(database, "acme")
        team = await directory.create_team(database, home.workspace_id, "sales")
        _, secret = await keys.create(database, home.workspace_id, team.team_id, {"submit"}, "pbx")
        return str(secret)


async def states(url: str) -> dict[str, int]:
    from db import views
    from db.database import Database

    found: dict[str, int] = {}
    async with await Database.open(url) as database:
        for one in await views.list_calls(database, limit=1000):
            found[str(one.state)] = found.get(str(one.state), 0) + 1
    return found


def test_a_machine_without_the_gpu_that_its_type_promises_joins_no_cluster(cluster: Cluster) -> None:
    told = {PROMISED: json.dumps(resources("gpu"))}
    done = cluster.machines["gpu"].shell("bash ~/switchboard/serve_app/deploy/start.sh worker", **told)
    assert done.returncode == 1
    assert "1 GPU promised, 0 here" in done.stdout
    assert cluster.machines["gpu"].processes() == set()


def test_replicas_that_want_a_gpu_are_on_the_machine_that_has_one(deployed: Cluster) -> None:
    placed: dict[str, list[str]] = {}
    names = {address: kind for kind, address in ADDRESSES.items()}
    for application in deployed.details()["applications"].values():
        for name, one in application["deployments"].items():
            placed[name] = sorted(names[replica["node_ip"]] for replica in one["replicas"])
    deployed.note(f"placement: {placed}")
    assert set(placed) == {"Intake", "Api", "Console", "Conductor", "Transcriber", "Diarizer"}
    assert (placed["Transcriber"], placed["Diarizer"]) == (["gpu"], ["gpu"])
    assert len(placed["Intake"]) == 2


def test_deployments_have_the_bounds_and_policies_of_serve_yaml(deployed: Cluster) -> None:
    shipped = yaml.safe_load((ROOT / "serve_app/deploy/serve.yaml").read_text())["applications"]
    options = [option for one in shipped for option in one["args"]["scaling"].items()]
    wanted = {name: value for name, value in options if isinstance(value, dict)}  # beside them numbers for all
    found = {}
    for application in deployed.details()["applications"].values():
        for name, one in application["deployments"].items():
            scaling = one["deployment_config"]["autoscaling_config"]
            policy = str(scaling.get("policy") or scaling.get("_policy"))
            found[name.lower()] = (scaling["min_replicas"], scaling["max_replicas"], "QueuedAudio" in policy)
    deployed.note(f"bounds and policies: {found}")
    queued = {"conductor", "transcriber", "diarizer"}
    assert found == {name: (one["min_replicas"], one["max_replicas"], name in queued) for name, one in wanted.items()}


def test_calls_that_come_in_on_any_machine_are_completed(deployed: Cluster) -> None:
    """HAProxy is on every machine with a replica, and on the head, at the port of serve.yaml."""
    key = asyncio.run(sender(deployed.database_url))
    doors = {one["node_ip"] for one in deployed.details()["proxies"].values() if one["status"] == "HEALTHY"}
    deployed.note(f"healthy proxies on {sorted(doors)}")
    assert len(doors) >= 2
    with deployed.machines["head"].serving_recordings():
        for number, door in zip(range(CALLS), sorted(doors) * CALLS, strict=False):
            body = json.dumps(submission(ADDRESSES["head"], number))
            done = deployed.machines["cpu"].run(sys.executable, "-c", SUBMIT, f"http://{door}:8000/submit", key, body)
            assert (done.returncode, done.stdout.strip()) == (0, "202"), done.stderr[-2000:]
        deployed.note(f"{CALLS} calls taken in by {len(doors)} machines")

        def all_done() -> bool:
            found = asyncio.run(states(deployed.database_url))
            deployed.note(f"calls: {found}")
            assert "failed" not in found
            return found.get("completed", 0) == CALLS

        deployed.wait_for(all_done)
