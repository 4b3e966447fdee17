"""`ray up` of clusters/local.yaml over SSH, the file as shipped, with the steps of docs/deploying.md and the runbook.

Its machines are name spaces of this one, each with an SSH server, processes and a home. They get the resources of the
types head, gpu and cpu of cluster.yaml; on the last one ~/switchboard is a mount, as with Docker. The GPU is pretended:
engines compute on the CPU. `make cluster` runs it.
"""

import asyncio
import base64
import json
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.deploy import release
from tests import ray_up
from tests.machines import PROMISED, ROOT, env_file, node_settings, submission
from tests.ray_up import Host, hosts

SHIPPED = yaml.safe_load((ROOT / "serve_app/deploy/clusters/local.yaml").read_text())
KINDS = ("head", "gpu", "cpu")
ADDRESSES = dict(zip(KINDS, [SHIPPED["provider"]["head_ip"], *SHIPPED["provider"]["worker_ips"]], strict=True))
OPERATOR = "10.0.0.9"  # where `ray up` is typed
CONFIG = "serve_app/deploy/clusters/local.yaml"
DEPLOY = "bash ~/switchboard/serve_app/deploy/deploy.sh"
STORE = 80_000_000  # bytes of each node's object store: all of them share one memory
LATER = "# a later version\n"
CALLS = 6
NODES = "ray list nodes --filter state=ALIVE --format json"
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
    pytest.mark.skipif(bool(ray_up.missing()), reason=ray_up.missing()),
]


@dataclass
class Cluster:
    """What runs, and when what was seen first."""

    machines: dict[str, Host]
    operator: Host
    project: Path  # the operator's copy
    database_url: str
    started: float = field(default_factory=time.monotonic)
    line: list[tuple[float, str]] = field(default_factory=list)

    def note(self, what: str) -> None:
        if not self.line or self.line[-1][1] != what:
            self.line.append((round(time.monotonic() - self.started, 1), what))
            print(f"{self.line[-1][0]:7.1f} s  {what}", flush=True)

    def ray(self, *arguments: str) -> str:
        """Run `ray ARGUMENTS` in the project as the operator does; fail with its output."""
        done = self.operator.run("bash", "-c", 'cd switchboard && exec ray "$@"', "ray", *arguments, seconds=900)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout

    def details(self) -> dict[str, Any]:
        """Return Serve's status of all applications: configurations, replicas and their nodes."""
        details = self.machines["head"].serve_details()
        assert details is not None
        return details

    def wait_for(self, reached: Callable[[], bool], seconds: float = 600.0) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < deadline, self.line
            time.sleep(2)

    def deploy(self) -> str:
        """deploy.sh on the head, until every application runs; what it said."""
        output = self.ray("exec", CONFIG, DEPLOY)
        self.note("deploy.sh has ended")
        self.wait_for(self._all_run)
        return output

    def change_settings(self, name: str, value: str) -> None:
        file = self.project / "deploy.env"
        file.write_text(re.sub(rf"(?m)^{name}=.*$", f"{name}='{value}'", file.read_text()))
        self.ray("up", CONFIG, "-y", "--no-restart")
        self.deploy()

    def _all_run(self) -> bool:
        applications = self.details()["applications"]
        states = {name: application["status"] for name, application in applications.items()}
        self.note(f"applications: {states}")
        assert "DEPLOY_FAILED" not in states.values(), json.dumps(applications, indent=1)[-20000:]
        return len(states) == 4 and set(states.values()) == {"RUNNING"}

    def nodes(self) -> dict[str, str]:
        """Return the ids of live nodes by address, from the head."""
        done = self.machines["head"].shell(f"set -a; . ~/switchboard/serve_app/deploy/node.env; {NODES}")
        return {node["node_ip"]: node["node_id"] for node in json.loads(done.stdout or "[]")}

    def complete(self) -> bool:
        """Return whether there is a node on every machine."""
        nodes = self.nodes()
        self.note(f"nodes: {sorted(nodes)}")
        return set(nodes) == set(ADDRESSES.values())

    def calls_done(self, number: int) -> None:
        """Submit so many, one after the other to each machine that has a proxy, until all are completed."""
        before = asyncio.run(states(self.database_url)).get("completed", 0)
        key = asyncio.run(sender(self.database_url, f"acme-{before}"))
        doors = {proxy["node_ip"] for proxy in self.details()["proxies"].values() if proxy["status"] == "HEALTHY"}
        self.note(f"healthy proxies on {sorted(doors)}")
        assert len(doors) >= 2
        with self.machines["head"].serving_recordings():
            for count, door in zip(range(number), sorted(doors) * number, strict=False):
                body = json.dumps(submission(ADDRESSES["head"], count))
                sent = self.machines["cpu"].run(sys.executable, "-c", SUBMIT, f"http://{door}:8000/submit", key, body)
                assert (sent.returncode, sent.stdout.strip()) == (0, "202"), sent.stderr[-2000:]
            self.note(f"{number} calls taken in by {len(doors)} machines")

            def all_done() -> bool:
                calls = asyncio.run(states(self.database_url))
                self.note(f"calls: {calls}")
                assert "failed" not in calls
                return calls.get("completed", 0) == before + number

            self.wait_for(all_done)


def login(kind: str, packages: ray_up.Packages) -> dict[str, str]:
    """Return the variables of a login on a machine: packages, and the cores and GPUs it pretends to have."""
    types = yaml.safe_load((ROOT / "cluster.yaml").read_text())["available_node_types"]
    promised = {**types[kind]["resources"], "object_store_memory": STORE}
    return {**packages.variables(), PROMISED: json.dumps(promised)}


def pretend_a_gpu(machine: Host) -> None:
    """Pretend a GPU to `switchboard doctor --node`, which scripts do not configure."""
    (machine.home / "blind.sh").write_text(f'switchboard() {{ env -u {PROMISED} ~/venv/bin/switchboard "$@"; }}\n')
    with (machine.home / ".profile").open("a") as profile:
        profile.write("export BASH_ENV=~/blind.sh\n")


def copy_of_the_project(folder: Path, settings: dict[str, str]) -> None:
    """Copy the files of the project, and the two that an operator adds."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    copy = ["rsync", "--archive", "--from0", "--files-from=-", f"{ROOT}/", f"{folder}/"]
    subprocess.run(copy, input=listed, check=True)
    (folder / "deploy.env").write_text(env_file(settings))
    (folder / "ray_token").write_text(secrets.token_hex(32))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start the machines, and run `ray up` on them."""
    from db.server import embedded

    # Not below /tmp: each machine has its own.
    with tempfile.TemporaryDirectory(prefix="swb-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        packages = ray_up.Packages.fetch(folder)
        key = folder / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        url = embedded.start(folder / "state")
        try:
            profiles = {address: login(kind, packages) for kind, address in ADDRESSES.items()}
            every = [*ADDRESSES.values(), OPERATOR]
            with hosts(folder, every, profiles, key, mounted=ADDRESSES["cpu"]) as cluster_hosts:
                operator = cluster_hosts[OPERATOR]
                (operator.home / ".ssh/id_ed25519").write_bytes(key.read_bytes())
                (operator.home / ".ssh/id_ed25519").chmod(0o600)
                copy_of_the_project(operator.home / "switchboard", node_settings(folder, url, ADDRESSES["head"]))
                machines = {kind: cluster_hosts[address] for kind, address in ADDRESSES.items()}
                pretend_a_gpu(machines["gpu"])
                cluster = Cluster(machines, operator, operator.home / "switchboard", url)
                cluster.ray("up", CONFIG, "-y")
                cluster.note("`ray up` has ended")
                cluster.wait_for(cluster.complete, seconds=180)
                yield cluster
        finally:
            embedded.stop(folder / "state")


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Cluster:
    """Run deploy.sh and wait until every deployment runs."""
    cluster.deploy()
    return cluster


async def sender(url: str, workspace: str) -> str:
    """Create a key that may submit."""
    from db.core.database import Database
    from db.workspace import directory, keys

    async with await Database.open(url) as database:
        home = await directory.create_workspace(database, workspace)
        team = await directory.create_team(database, home.workspace_id, "sales")
        _, secret = await keys.create(database, home.workspace_id, team.team_id, {"submit"}, "pbx")
        return str(secret)


async def states(url: str) -> dict[str, int]:
    from db.core.database import Database
    from db.search import call_list

    counts: dict[str, int] = {}
    async with await Database.open(url) as database:
        for call in [line.call for line in await call_list.latest_calls(database, limit=1000)]:
            counts[str(call.state)] = counts.get(str(call.state), 0) + 1
    return counts


def test_a_machine_without_the_gpu_that_its_type_promises_joins_no_cluster(cluster: Cluster) -> None:
    resources = {PROMISED: json.dumps({"CPU": 8, "GPU": 1})}
    done = cluster.machines["cpu"].shell("bash ~/switchboard/serve_app/deploy/start.sh worker", **resources)
    assert done.returncode == 1
    assert "1 GPU promised, 0 usable" in done.stdout


def test_replicas_that_want_a_gpu_are_on_the_machine_that_has_one(deployed: Cluster) -> None:
    placed: dict[str, list[str]] = {}
    names = {address: kind for kind, address in ADDRESSES.items()}
    for application in deployed.details()["applications"].values():
        for name, deployment in application["deployments"].items():
            placed[name] = sorted(names[replica["node_ip"]] for replica in deployment["replicas"])
    deployed.note(f"placement: {placed}")
    assert set(placed) == {"Intake", "Api", "Console", "Conductor", "Transcriber", "Diarizer"}
    assert (placed["Transcriber"], placed["Diarizer"]) == (["gpu"], ["gpu"])
    assert len(placed["Intake"]) == 2


def test_deployments_have_the_bounds_and_policies_of_serve_yaml(deployed: Cluster) -> None:
    text = yaml.safe_load((ROOT / "serve_app/deploy/serve.yaml").read_text())
    shipped = release.adapted(text, {"GPU": 1, release.SERVICE_NODE: 1}, autoscales=False)["applications"]
    options = [option for application in shipped for option in application["args"]["scaling"].items()]
    limits = {name: value for name, value in options if isinstance(value, dict)}  # others are numbers for all
    actual = {}
    for application in deployed.details()["applications"].values():
        for name, deployment in application["deployments"].items():
            scaling = deployment["deployment_config"]["autoscaling_config"]
            policy = str(scaling.get("policy") or scaling.get("_policy"))
            actual[name.lower()] = (scaling["min_replicas"], scaling["max_replicas"], "QueuedAudio" in policy)
    deployed.note(f"bounds and policies: {actual}")
    queued = {"conductor", "transcriber", "diarizer"}
    assert actual == {
        name: (bounds["min_replicas"], bounds["max_replicas"], name in queued) for name, bounds in limits.items()
    }


def test_calls_that_come_in_on_any_machine_are_completed(deployed: Cluster) -> None:
    """HAProxy is on every machine with a replica, and on the head, at the port of serve.yaml."""
    deployed.calls_done(CALLS)


def test_an_upgrade_brings_new_code_to_every_machine(deployed: Cluster) -> None:
    """Follow docs/runbook.md: `ray up --no-restart`, which updates the head only, then deploy.sh."""
    replicas = running_replicas(deployed)
    code = deployed.project / "serve_app/app.py"
    code.write_text(code.read_text() + LATER)
    deployed.ray("up", CONFIG, "-y", "--no-restart")
    deployed.note("`ray up --no-restart` has ended")
    assert [kind for kind, machine in deployed.machines.items() if LATER in on(machine, "serve_app/app.py")] == ["head"]
    assert running_replicas(deployed) == replicas
    output = deployed.deploy()
    assert [f"{ADDRESSES[kind]}: has this release now" in output for kind in KINDS] == [False, True, True]
    assert all(LATER in on(machine, "serve_app/app.py") for machine in deployed.machines.values())
    deployed.wait_for(lambda: not running_replicas(deployed) & replicas)
    deployed.note("all replicas are replaced")
    deployed.calls_done(2)
    again = deployed.ray("exec", CONFIG, DEPLOY)
    assert again.count("has this release already") == len(KINDS) - 1


def test_a_key_is_replaced_by_two_changes_of_settings_while_calls_come_in(deployed: Cluster) -> None:
    """Follow docs/operating.md: each change is `ray up --no-restart` and deploy.sh; replicas start with it in order."""
    file = deployed.project / "deploy.env"
    (old,) = re.findall(r"SWITCHBOARD_SECRETS_KEYS='(.*)'", file.read_text())
    new = base64.b64encode(secrets.token_bytes(32)).decode()
    for number, keys in enumerate((f"{old},{new}", f"{new},{old}"), 1):
        replicas = running_replicas(deployed)
        deployed.change_settings("SWITCHBOARD_SECRETS_KEYS", keys)
        deployed.wait_for(lambda: not running_replicas(deployed) & replicas)  # noqa: B023
        deployed.note(f"all replicas are replaced after change {number}")
        deployed.calls_done(2)
    for group in ("calls", "credentials", "webhooks"):
        deployed.ray("exec", CONFIG, f"switchboard {group} reseal")
    deployed.change_settings("SWITCHBOARD_SECRETS_KEYS", new)
    deployed.calls_done(2)
    for machine in deployed.machines.values():
        done = machine.shell("cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a ^SWITCHBOARD_SECRETS_KEYS | sort -u")
        assert new in done.stdout, "replicas and their tasks have it"
    assert "all sealed with the first key" in deployed.ray("exec", CONFIG, "switchboard doctor || true")


def test_the_former_version_is_deployed_again_in_the_same_way(deployed: Cluster) -> None:
    code = deployed.project / "serve_app/app.py"
    code.write_text(code.read_text().removesuffix(LATER))
    deployed.ray("up", CONFIG, "-y", "--no-restart")
    deployed.deploy()
    assert not any(LATER in on(machine, "serve_app/app.py") for machine in deployed.machines.values())
    deployed.calls_done(2)


def test_ray_up_without_that_option_restarts_ray_on_every_machine(deployed: Cluster) -> None:
    """Follow docs/runbook.md for a release with another Ray; without Redis it has to be deployed again."""
    before = set(deployed.nodes().values())
    deployed.ray("up", CONFIG, "-y")
    deployed.note("`ray up` has ended again")
    deployed.wait_for(lambda: deployed.complete() and not set(deployed.nodes().values()) & before, seconds=180)
    deployed.deploy()
    deployed.calls_done(2)


def test_what_an_operator_asks_a_cluster_is_answered(deployed: Cluster) -> None:
    """Run the commands of docs/deploying.md: a login has programs, settings and token."""
    assert "3 local.cluster.node" in deployed.ray("exec", CONFIG, "ray status")
    output = deployed.ray("exec", CONFIG, "tail -n 200 ~/.switchboard/ray/session_latest/logs/monitor.*")
    assert "none is promised to this node" in output  # which the check said on a worker
    assert '"waitingCalls"' in deployed.ray("exec", CONFIG, "switchboard queue --json")


def test_ray_down_ends_ray_on_every_machine(deployed: Cluster) -> None:
    """Workers, which `ray down` does not reach, end themselves: they have no head any more."""
    deployed.ray("down", CONFIG, "-y")
    deployed.note("`ray down` has ended")

    def ended() -> bool:
        remaining = {
            kind: machine.shell("pgrep 'raylet|gcs_server|haproxy'").stdout
            for kind, machine in deployed.machines.items()
        }
        deployed.note(f"Ray runs on {[kind for kind, output in remaining.items() if output]}")
        return not any(remaining.values())

    deployed.wait_for(ended, seconds=180)


def running_replicas(cluster: Cluster) -> set[str]:
    replicas = set()
    for application in cluster.details()["applications"].values():
        for deployment in application["deployments"].values():
            replicas |= {replica["replica_id"] for replica in deployment["replicas"]}
    return replicas


def on(machine: Host, file: str) -> str:
    """Return a file of the project on a machine."""
    return machine.shell(f"cat ~/switchboard/{file}").stdout
