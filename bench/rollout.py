"""Is a call lost or refused during a deployment, a rollback and the loss of the head?

    python -m bench.rollout [--former REV] [--calls 200] [--every 2.5] [--json FILE]

Run it as root. Two network namespaces act as two machines that run `start.sh` and `deploy.sh`. One is a head without
replicas, whose GCS keeps its state in Redis (requires redis-server); the other is a worker. A sender submits a call to
the worker every few seconds and repeats a submission answered with 503. In the meantime three versions are deployed:
the commit `--former` (default: the working tree), the working tree with one more migration, and the former one again.
Then all processes of the head are killed with -9, and the head is started again.

The audit: every accepted call is completed by exactly one job. Any answer except 202 and 503 with Retry-After is a
fault.
"""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import yaml

from serve_app.deploy import release, spread
from tests.machines import ROOT, Machine, machines, node_settings, submission

HEAD, WORKER = "10.213.79.1", "10.213.79.2"
REDIS = 26379
CPUS = {HEAD: 0, WORKER: 16}  # declared to Ray: a rolling update needs room for old and new replicas
MAX_SECONDS = 1500.0
REQUEST_SECONDS = 30.0  # seconds of one request


@dataclass
class Report:
    former: str | None
    line: list[tuple[float, str]] = field(default_factory=list)
    answers: dict[str, dict[str, int]] = field(default_factory=dict)  # by phase
    accepted: int = 0
    lost_calls: int = 0
    not_completed: dict[str, int] = field(default_factory=dict)
    more_than_one_job: int = 0
    seconds_to_202: dict[str, float] = field(default_factory=dict)  # the longest that a call was sent again for


class RolloutStand:
    """The two machines and the state of the deployment."""

    def __init__(self, pair: list[Machine], code: Path, report: Report) -> None:
        self.head, self.worker = pair
        self.code = code
        self.report = report
        self.started = time.monotonic()
        self.phase = "before"

    def note(self, what: str) -> None:
        self.report.line.append((round(time.monotonic() - self.started, 1), what))
        print(f"{self.report.line[-1][0]:7.1f} s  {what}", flush=True)

    def replicas(self) -> dict[str, set[str]]:
        """Return the running replicas of each deployment; empty while the controller does not respond."""
        applications = (self.head.serve_details() or {"applications": {}})["applications"]
        if len(applications) < 4 or any(application["status"] != "RUNNING" for application in applications.values()):
            return {}
        return {
            name: {replica["actor_id"] for replica in deployment["replicas"] if replica["state"] == "RUNNING"}
            for application in applications.values()
            for name, deployment in application["deployments"].items()
        }

    def wait(self, former: dict[str, set[str]] | None = None) -> dict[str, set[str]]:
        """Wait until all deployments run without replicas of `former`."""
        deadline = time.monotonic() + MAX_SECONDS
        while time.monotonic() < deadline:
            replicas = self.replicas()
            has_former = any(replicas[name] & former.get(name, set()) for name in replicas) if former else False
            if len(replicas) == 6 and all(replicas.values()) and not has_former:
                return replicas
            time.sleep(2)
        raise TimeoutError(f"After {MAX_SECONDS:.0f} s the applications do not run: {self.replicas()}")

    def deploy(self, tree: Path, what: str) -> None:
        """Replace the code and deploy it."""
        self.phase = what
        before = self.replicas() or None
        _replace(tree, self.code)
        self.note(f"{what}: deploy.sh begins")
        self.head.deploy()
        replicas = self.wait(before)
        self.note(f"{what}: done, {sum(map(len, replicas.values()))} replicas, all of them new")

    def key(self) -> str:
        """Create a key of a new workspace with the deployed version."""
        command = (
            "set -a; . ~/switchboard/serve_app/deploy/node.env; switchboard keys create --workspace acme --team sales"
        )
        done = self.head.shell(command)
        match = re.search(r"sb_\S{40,}", done.stdout)
        if match is None:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        return match.group()

    def kill_head(self) -> None:
        self.phase = "head killed"
        victims = self.head.processes()
        for process in victims:
            with contextlib.suppress(Exception):
                process.kill()
        self.note(f"{self.phase}: {len(victims)} processes")
        # All machines here show each other's processes, and Ray would take the worker's for a head that runs already.
        for file in (self.head.home / ".switchboard").rglob("ray_current_cluster"):
            file.unlink()
        self.start(self.head)
        replicas = self.wait()
        self.note(f"{self.phase}: running again, {sum(map(len, replicas.values()))} replicas")

    def start(self, machine: Machine) -> None:
        machine.start_ray(resources={"CPU": CPUS[machine.address]})


def _replace(tree: Path, code: Path) -> None:
    """Make `code` equal to `tree`, file by file, as `ray up` does while processes run."""
    names = {path.relative_to(tree) for path in tree.rglob("*") if path.is_file()}
    for path in [path for path in code.rglob("*") if path.is_file()]:
        if path.relative_to(code) not in names:
            path.unlink()
    for name in names:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / name, code / name)


def _tree(folder: Path, revision: str | None) -> Path:
    """Copy the project at a commit, or the working tree, with scaling limits for this machine."""
    folder.mkdir()
    if revision is None:
        line = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        paths = [*release.CODE, *release.PROJECT_FILES, *spread.PACKAGE_FILES]
        listed = subprocess.run([*line, *paths], cwd=ROOT, check=True, capture_output=True, text=True)
        for name in listed.stdout.splitlines():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    else:
        packed = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    path = folder / "serve_app/deploy/serve.yaml"
    deployed = yaml.safe_load(path.read_text())
    for application in deployed["applications"]:
        for name, bounds in application["args"]["scaling"].items():
            if isinstance(bounds, dict):
                bounds["max_replicas"] = bounds["min_replicas"]
            if name in ("transcriber", "diarizer"):
                bounds |= {"num_cpus": 0.5, "num_gpus": 0}
    path.write_text(yaml.safe_dump(deployed, sort_keys=False))
    return folder


def add_migration(tree: Path) -> None:
    """Add a migration to a copy of the project, which makes it the next version."""
    versions = tree / "db/migrations/versions"
    last = max(path.stem.partition("_")[0] for path in versions.glob("v*.py"))
    (versions / "v9999_of_the_bench.py").write_text(
        f'from alembic import op\n\nrevision, down_revision = "v9999", "{last}"\n\n\n'
        'def upgrade() -> None:\n    op.execute("CREATE TABLE of_the_bench (id int)")\n'
    )


class SenderProcess:
    """A telephony system: a process on the worker, and the responses it received."""

    def __init__(self, bench: RolloutStand, key: str, every: float, folder: Path) -> None:
        self.bench = bench
        self.stopping = folder / "stop"
        command = [
            sys.executable,
            "-m",
            "bench.rollout",
            "--send",
            key,
            "--every",
            str(every),
            "--stop",
            str(self.stopping),
        ]
        line, environment = bench.worker.command(*command)
        self.process = subprocess.Popen(line, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.accepted: set[str] = set()
        self.first: dict[str, float] = {}
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        report = self.bench.report
        for line in self.process.stdout or ():
            entry, phase = json.loads(line), self.bench.phase
            counted = report.answers.setdefault(phase, {})
            counted[entry["answer"]] = counted.get(entry["answer"], 0) + 1
            first_sent = self.first.setdefault(entry["call"], entry["at"])
            if entry["answer"] == "202":
                self.accepted.add(entry["call"])
                late = round(entry["at"] - first_sent, 1)
                report.seconds_to_202[phase] = max(late, report.seconds_to_202.get(phase, 0.0))

    def stop(self) -> None:
        self.stopping.touch()
        self.process.wait(300)
        self.reader.join()


def send(key: str, every: float, stop: Path) -> None:
    """Send a call every few seconds, each until it is accepted; print each response as a line."""
    with httpx.Client(timeout=REQUEST_SECONDS, limits=httpx.Limits(max_keepalive_connections=0)) as client:
        number = 0
        due = time.monotonic()
        while not stop.exists():
            body = submission(HEAD, number)
            call = body["callId"]
            answer = ""
            while answer != "202":
                wait = 1.0
                try:
                    response = client.post(
                        f"http://{WORKER}:8000/submit", json=body, headers={"Authorization": f"Bearer {key}"}
                    )
                    after = response.headers.get("Retry-After")
                    answer = f"{response.status_code}{' with Retry-After' if after else ''}"
                    wait = float(after or wait)
                except httpx.HTTPError as error:
                    answer = type(error).__name__
                print(json.dumps({"call": call, "at": time.monotonic(), "answer": answer}), flush=True)
                if answer != "202":
                    time.sleep(wait)
            number += 1
            due = max(due + every, time.monotonic() - 5 * every)  # catch up with up to five late calls
            time.sleep(max(0.0, due - time.monotonic()))


def audit(url: str, accepted: set[str], report: Report) -> bool:
    """Return whether every accepted call is completed; add the others to the report."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT set_config('switchboard.workspace', '*', false)")
        rows = connection.execute(
            "SELECT c.call_id::text, c.state, count(j.id) FILTER (WHERE j.kind = 'process')"
            " FROM calls c LEFT JOIN jobs j ON j.call_pk = c.id GROUP BY c.id"
        ).fetchall()
    calls = {call: (state, jobs) for call, state, jobs in rows}
    report.accepted = len(accepted)
    report.lost_calls = len(accepted - calls.keys())
    report.not_completed = dict(Counter(state for state, _ in calls.values() if state != "completed"))
    report.more_than_one_job = sum(jobs > 1 for _, jobs in calls.values())
    return not report.lost_calls and not report.not_completed


def run(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    from db.server import embedded

    former, following = _tree(folder / "former", arguments.former), _tree(folder / "following", None)
    add_migration(following)
    code = folder / "code"
    _replace(former, code)
    url = embedded.start(folder / "state")
    settings = node_settings(folder, url, HEAD) | {
        "PYTHONPATH": str(code),
        "RAY_REDIS_ADDRESS": f"{WORKER}:{REDIS}",
    }
    store = ("redis-server", "--port", str(REDIS), "--bind", WORKER, "--save", "", "--protected-mode", "no")
    try:
        with machines(folder, [HEAD, WORKER], settings, code) as pair:
            bench = RolloutStand(pair, code, report)
            with bench.worker.running(*store), bench.head.serving_recordings():
                _storm(bench, arguments, url, former, following, folder)
    finally:
        embedded.stop(folder / "state")


def _storm(
    bench: RolloutStand, arguments: argparse.Namespace, url: str, former: Path, following: Path, folder: Path
) -> None:
    for machine in (bench.head, bench.worker):
        bench.start(machine)
    bench.deploy(former, "first")
    sending = SenderProcess(bench, bench.key(), arguments.every, folder)
    try:
        bench.phase = "nothing"
        time.sleep(30)
        bench.deploy(following, "deployed")
        bench.deploy(former, "rolled back")
        bench.kill_head()
        bench.phase = "after"
        while len(sending.accepted) < arguments.calls:
            time.sleep(1)
    finally:
        sending.stop()
    bench.note(f"{len(sending.accepted)} calls accepted")
    deadline = time.monotonic() + MAX_SECONDS
    while not audit(url, sending.accepted, bench.report) and time.monotonic() < deadline:
        time.sleep(5)
    bench.note("audited")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rollout", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--former", metavar="REV", help="the version before", default=None)
    parser.add_argument("--calls", type=int, default=200, help="min. calls")
    parser.add_argument("--every", type=float, default=2.5, help="seconds between two calls")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--send", metavar="KEY", help=argparse.SUPPRESS)
    parser.add_argument("--stop", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.send:
        send(arguments.send, arguments.every, arguments.stop)
        return 0
    report = Report(arguments.former)
    with tempfile.TemporaryDirectory(prefix="swb-", ignore_cleanup_errors=True) as name:
        run(arguments, Path(name), report)
    shown: dict[str, Any] = asdict(report)
    print(json.dumps({**shown, "line": None}, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(shown, indent=2) + "\n")
    fine = {"202", "503 with Retry-After"}
    wrong = any(set(answers) - fine for answers in report.answers.values())
    return int(bool(report.lost_calls or report.not_completed or report.more_than_one_job or wrong))


if __name__ == "__main__":
    sys.exit(main())
