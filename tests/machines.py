"""Machines for tests: network name spaces of this one, each with an address, ports and a home. Only root makes them."""

import base64
import contextlib
import ctypes
import itertools
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psutil
import yaml

from serve_app.service import children
from tests import fixture_checkpoints
from tests.synthetic_calls import FOLDER

ROOT = Path(__file__).resolve().parents[1]
AUTOSCALING = "--autoscaling-config=~/ray_bootstrap_config.yaml"  # which `ray up` writes
STORE = "--object-store-memory=80000000"
TRIES = 4  # Ray gives a node 30 s to come up
FILES = 28080  # port of the recordings; those of Ray are refused
PROMISED = "RAY_OVERRIDE_RESOURCES"
SERVE = """
import pathlib, urllib.request
token = pathlib.Path("~/ray_token").expanduser().read_text()
asked = urllib.request.Request("http://127.0.0.1:8265/api/serve/applications/")
asked.add_header("Authorization", f"Bearer {token}")
print(urllib.request.urlopen(asked, timeout=30).read().decode())
"""
CLONE_NEWNET = 0x40000000
T = TypeVar("T")
START_SECONDS = 600  # on a busy machine: PyTorch is imported to look for its GPU, and Ray starts eight processes


@dataclass
class Machine:
    space: str
    address: str
    home: Path
    head: str  # the address of the first machine

    def command(self, *command: str, **environment: str) -> tuple[list[str], dict[str, str]]:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SWITCHBOARD_"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        here = {**variables, "HOME": str(self.home), "PATH": path, "RAY_HEAD_IP": self.head, **environment}
        return ["ip", "netns", "exec", self.space, *command], here

    def run(self, *command: str, seconds: float = 300, **environment: str) -> "subprocess.CompletedProcess[str]":
        line, here = self.command(*command, **environment)
        return subprocess.run(line, env=here, capture_output=True, text=True, timeout=seconds, check=False)

    def shell(self, line: str, seconds: float = 300, **environment: str) -> "subprocess.CompletedProcess[str]":
        return self.run("bash", "-c", line, seconds=seconds, **environment)

    def inside(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, whose connections are those of this machine."""

        def enter_and_work() -> T:
            with Path("/run/netns", self.space).open() as space:
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"no way into {self.space}")
            return work()

        with ThreadPoolExecutor(1) as threads:
            return threads.submit(enter_and_work).result()

    def lose_power(self) -> None:
        """End Ray on the machine without a packet to any other."""
        for device in _devices(self):
            _ip("-n", self.space, "link", "set", device, "down")
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    @contextlib.contextmanager
    def running(self, *command: str) -> Iterator[None]:
        """Run a command during the block."""
        line, here = self.command(*command)
        with subprocess.Popen(line, env=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.kill()

    def serving_recordings(self) -> "contextlib.AbstractContextManager[None]":
        """Serve the samples at http://ADDRESS:FILES/NAME/call.flac."""
        where = ("--bind", self.address, "--directory", str(FOLDER))
        return self.running(sys.executable, "-m", "http.server", str(FILES), *where)

    def serve_details(self) -> dict[str, Any] | None:
        """Return Serve's status of all applications, from the head; None while it does not respond."""
        done = self.run(sys.executable, "-c", SERVE)
        return None if done.returncode else dict(json.loads(done.stdout))

    def deploy(self) -> None:
        """Run deploy.sh, on the head. Fails with what it says."""
        done = self.shell("bash ~/switchboard/serve_app/deploy/deploy.sh", seconds=600)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    def processes(self) -> set[psutil.Process]:
        return children.with_variable("RAY_TMPDIR", str(self.home / ".switchboard"))

    def start_ray(self, *options: str, resources: Mapping[str, int] | None = None) -> None:
        """Start Ray as cluster.yaml does, with the resources of a node type: the first machine is the head.

        Fails with what the command says.
        """
        environment = {PROMISED: json.dumps(resources)} if resources else {}
        kind = "head" if self.address == self.head else "worker"
        commands = yaml.safe_load((ROOT / "cluster.yaml").read_text())[f"{kind}_start_ray_commands"]
        line = " ".join([commands[-1].replace(AUTOSCALING, ""), STORE, *options])
        for _ in range(TRIES):
            done = self.shell(line, seconds=START_SECONDS, **environment)
            if done.returncode == 0:
                return
            children.end(only=self.processes)
        raise AssertionError(done.stdout[-4000:] + done.stderr[-2000:])


def node_settings(folder: Path, database_url: str, head: str) -> dict[str, str]:
    """Return the deploy.env of a small service: fixture checkpoints, one thread, recordings from the head."""
    return {
        "SWITCHBOARD_DATABASE_URL": database_url,  # a socket, which every name space sees
        "SWITCHBOARD_STORAGE": (folder / "recordings").as_uri(),
        "SWITCHBOARD_SECRETS_KEYS": base64.b64encode(secrets.token_bytes(32)).decode(),
        "SWITCHBOARD_ASR__MODEL": str(fixture_checkpoints.RECOGNITION),
        "SWITCHBOARD_ASR__DEVICE": "cpu",
        "SWITCHBOARD_ASR__CPU_THREADS": "1",
        "SWITCHBOARD_DIARIZATION__PIPELINE": str(fixture_checkpoints.DIARIZATION),
        "SWITCHBOARD_DIARIZATION__DEVICE": "cpu",
        "SWITCHBOARD_FETCH__ALLOWED_HOSTS": f"{head}:{FILES}",
        "OMP_NUM_THREADS": "1",
    }


def submission(head: str, number: int) -> dict[str, Any]:
    """Return a submission of one of two samples, from the head."""
    name = ("08_flite_voices_stereo", "01_invoice_stereo")[number % 2]
    return {
        "callId": str(uuid4()),
        "from": "+49301234567",
        "to": "+4940987654",
        "startTime": "2026-11-24T06:00:00Z",
        "outgoing": False,
        "duration": 30,
        "recordingUrl": f"http://{head}:{FILES}/{name}/call.flac",
    }


@contextlib.contextmanager
def machines(
    folder: Path, addresses: list[str], settings: Mapping[str, str], project: Path = ROOT
) -> Iterator[list[Machine]]:
    """Machines that reach each other and nothing else, with the project, a token and a deploy.env of `settings`.

    What runs Ray on them ends with them.
    """
    token = secrets.token_hex(32)
    with connected(folder, addresses) as machines, contextlib.ExitStack() as stack:
        for machine in machines:
            (machine.home / "switchboard").symlink_to(project)
            (machine.home / "ray_token").write_text(token)
            (machine.home / "deploy.env").write_text(env_file(settings))
            stack.callback(children.end, only=machine.processes)
        yield machines


def env_file(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}='{value}'\n" for name, value in settings.items())


@contextlib.contextmanager
def connected(folder: Path, addresses: list[str]) -> Iterator[list[Machine]]:
    """Machines with empty homes in `folder` that reach each other and nothing else."""
    tag = secrets.token_hex(2)
    with contextlib.ExitStack() as stack:
        machines = []
        for number, address in enumerate(addresses):
            machine = Machine(f"swb-{tag}-{number}", address, folder / str(number), addresses[0])
            machine.home.mkdir(parents=True)
            _ip("netns", "add", machine.space)
            stack.callback(_ip, "netns", "del", machine.space)
            machines.append(machine)
        for machine in machines:
            _ip("-n", machine.space, "link", "set", "lo", "up")
        for number, (first, second) in enumerate(itertools.combinations(machines, 2)):
            _connect(first, second, f"s{tag}{number}")
        for machine in machines:  # Ray asks which address it would take to the world
            device = _devices(machine)[0]
            _ip("-n", machine.space, "route", "add", "default", "dev", device, "src", machine.address)
        yield machines


def _connect(first: Machine, second: Machine, name: str) -> None:
    _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
    for machine, peer, device in ((first, second, f"{name}a"), (second, first, f"{name}b")):
        _ip("link", "set", device, "netns", machine.space)
        _ip("-n", machine.space, "addr", "add", f"{machine.address}/32", "dev", device)
        _ip("-n", machine.space, "link", "set", device, "up")
        _ip("-n", machine.space, "route", "add", f"{peer.address}/32", "dev", device, "src", machine.address)


def _devices(machine: Machine) -> list[str]:
    shown = subprocess.run(
        ["ip", "-n", machine.space, "-o", "link", "show", "type", "veth"], capture_output=True, text=True, check=True
    )
    return [line.split(": ")[1].split("@")[0] for line in shown.stdout.splitlines()]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
