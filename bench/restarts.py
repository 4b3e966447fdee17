"""What is left running, and how long until 202 again, after each process of `switchboard up` is killed?

    python bench/restarts.py [--only GCS HAProxy ...] [--json FILE]

Starts `switchboard up` with its embedded PostgreSQL, sends it start-phase submissions all the time, and kills -9 its
processes one after another; then `up` itself, `up` with its worker, these two with a new `up` at once, Ctrl-C twice, a
second `up` on the same folder, and (as root) a full disk. The reference is the time of the first start in the same run.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from db.server import embedded
from serve_app.service import children, run_folder
from serve_app.service.ports import STANDBY, free_port
from tests.acceptance.running import Client, RunningService

TITLES = {  # what is killed, by the beginning of its title, or the script that it runs
    "PostgreSQL": "",
    "log monitor": "log_monitor.py",
    "autoscaler monitor": "monitor.py",
    "standby": STANDBY,
    "Intake": "ray::ServeReplica:intake:Intake",
    "Api": "ray::ServeReplica:api:Api",
    "Console": "ray::ServeReplica:console:Console",
    "Conductor": "ray::ServeReplica:calls:Conductor",
    "Transcriber": "ray::ServeReplica:calls:Transcriber",
    "Diarizer": "ray::ServeReplica:calls:Diarizer",
    "ServeController": "ray::ServeController",
    "HAProxy": "haproxy",
    "HAProxyManager": "ray::HAProxyManager",
    "fallback proxy": "ray::ProxyActor",
    "runtime env agent": "ray::RuntimeEnvAgent",
    "dashboard agent": "ray::DashboardAgent",
    "raylet": "raylet",
    "GCS": "gcs_server",
    "worker of up": "",
}
OTHERS = ("up", "up and its worker", "up, new at once", "Ctrl-C twice", "a second up", "disk full")
NOT_RESTARTED = ("log monitor", "autoscaler monitor")  # by Ray; nothing of ours needs them
WATCH_SECONDS, STEADY_SECONDS, LONGEST = 10.0, 4.0, 300.0
DISK_BYTES = 500 << 20


@dataclass
class FaultRow:
    """`seconds_to_202`: from the kill until every submission is answered with 202 again; 0: none was refused."""

    killed: str
    seconds_to_202: float | None = None
    refused: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    process_back_seconds: float | None = None
    left_running: list[str] = field(default_factory=list)
    remark: str = ""


class RestartStand:
    """A service, and what it answered while parts of it were killed."""

    def __init__(self, folder: Path) -> None:
        self.service = RunningService("", folder, free_port())
        self.folder = folder
        self.key = ""
        self.accepted: list[str] = []
        self.folders: set[str] = set()  # run folders of every `up` that was started

    def start(self) -> float:
        """Seconds until calls were taken in; returns when the engines run."""
        started = time.monotonic()
        self.service.begin()
        took = time.monotonic() - started
        self.service.wait_until_ready()
        (replica, *_) = self.find("Intake")
        self.folders.add(replica.environ()[run_folder.MARK])
        assert replica in self.marked(), "what is left running would not be found"
        return took

    @property
    def up(self) -> psutil.Process:
        assert self.service.process is not None
        return psutil.Process(self.service.process.pid)

    def make_key(self) -> None:
        async def make() -> None:
            self.service.database_url = embedded.start(self.folder)
            client = await Client.of(self.service)
            self.key = client.key
            await client.close()

        asyncio.run(make())
        self.service.database_url = ""

    def find(self, what: str) -> list[psutil.Process]:
        if what == "PostgreSQL":
            server = embedded.postmaster(self.folder)
            return [server] if server else []
        family = self.up.children(recursive=True)
        if what == "worker of up":
            return [one for one in self.up.children() if "serve_app.cli" in _title(one)]
        title = TITLES[what]
        found = []
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                named = _title(one).startswith(title) if title.startswith("ray::") else one.name() == title
                named = (
                    named
                    or (title == STANDBY and title in _title(one))
                    or (title.endswith(".py") and f"/{title}" in _title(one))
                )
                if named and children.is_alive(one):
                    found.append(one)
        return found

    def post(self) -> str:
        call_id = str(uuid4())
        body = {"callId": call_id, "from": "+4930901820", "to": "+14155550123", "outgoing": True}
        body["startTime"] = datetime.now(UTC).isoformat()
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            answer = httpx.post(self.service.submit_url, json=body, headers=headers, timeout=5, trust_env=False)
        except httpx.HTTPError as error:
            return type(error).__name__
        if answer.status_code == 202:
            self.accepted.append(call_id)
        return str(answer.status_code)

    def watch(self, row: FaultRow, struck: float, done: Callable[[], bool] = lambda: True) -> None:
        """Send submissions until they have been taken for `STEADY_SECONDS`, and `done`."""
        good_since = struck
        while time.monotonic() - struck < LONGEST:
            answer = self.post()
            now = time.monotonic()
            row.answers[answer] = row.answers.get(answer, 0) + 1
            if answer != "202":
                row.refused += 1
                good_since = now
            if done() and now - struck > WATCH_SECONDS and now - good_since > STEADY_SECONDS:
                row.seconds_to_202 = round(good_since - struck, 1) if row.refused else 0.0
                return
            time.sleep(0.1)

    def strays(self) -> list[str]:
        """Processes of the service that do not descend from `up`."""
        assert self.service.process is not None
        family = {self.up, *self.up.children(recursive=True)} if self.service.process.poll() is None else set()
        server = embedded.postmaster(self.folder)
        return sorted(_short(one) for one in (self.marked() | ({server} if server else set())) - family)

    def marked(self) -> set[psutil.Process]:
        """Processes that say by their environment that they are of a service."""
        found: set[psutil.Process] = set()
        for folder in self.folders | set(map(str, Path(tempfile.gettempdir()).glob(f"{run_folder.PREFIX}*"))):
            found |= children.with_variable(run_folder.MARK, folder)
        return found

    def kill_child(self, what: str) -> FaultRow:
        row = FaultRow(what)
        victims = self.find(what)
        if not victims:
            row.remark = "there was none"
            return row
        struck = time.monotonic()
        for victim in victims:
            victim.kill()

        def back() -> bool:
            if what in NOT_RESTARTED:
                return True
            fresh = [one for one in self.find(what) if one not in victims]
            if fresh and row.process_back_seconds is None:
                row.process_back_seconds = round(time.monotonic() - struck, 1)
            return bool(fresh)

        self.watch(row, struck, lambda: back() and self.whole())
        row.left_running = self.strays()
        if len(self.find("HAProxy")) > 1:
            row.remark = f"{len(self.find('HAProxy'))} HAProxies"
        return row

    def whole(self) -> bool:
        """Whether every replica is there, so that the next one can be killed."""
        return all(self.find(name) for name in ("Intake", "Conductor", "Transcriber", "Diarizer", "HAProxy", "standby"))

    def gone(self, row: FaultRow, struck: float) -> None:
        """Wait until nothing of the service is left, note what is left after 30 s, and start it again."""
        assert self.service.process is not None
        self.service.process.wait(120)
        while (left := self.strays()) and time.monotonic() - struck < 120:
            time.sleep(0.1)
        row.remark += f"nothing left after {time.monotonic() - struck:.1f} s"
        row.left_running = left
        took = self.start()
        row.seconds_to_202 = round(took, 1)
        row.remark += "; seconds to 202 are those of the next start"

    def kill_up(self, name: str) -> FaultRow:
        row = FaultRow(name)
        victims = [self.up, *(self.find("worker of up") if name != "up" else [])]
        struck = time.monotonic()
        for victim in victims:
            victim.kill()
        if name == "up, new at once":
            row.seconds_to_202 = round(self.start(), 1)
            row.remark = "seconds to 202 are those of the new one"
            row.left_running = self.strays()
        else:
            self.gone(row, struck)
        return row

    def interrupt_twice(self) -> FaultRow:
        row, struck = FaultRow("Ctrl-C twice"), time.monotonic()
        self.up.send_signal(signal.SIGINT)
        time.sleep(0.3)
        with contextlib.suppress(psutil.Error):
            self.up.send_signal(signal.SIGINT)
        assert self.service.process is not None
        row.remark = f"exit code {self.service.process.wait(120)}, "
        self.gone(row, struck)
        return row

    def second_up(self) -> FaultRow:
        row, struck = FaultRow("a second up"), time.monotonic()
        other = RunningService("", self.folder, free_port())
        environment = self.up.environ() | {"SWITCHBOARD_HTTP__PORT": str(other.port)}
        done = subprocess.run(
            [sys.executable, "-m", "serve_app.cli", "up"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        row.remark = f"refused with exit code {done.returncode}: {' '.join(done.stderr.split())[:90]}"
        self.watch(row, struck)
        row.left_running = self.strays()
        return row

    def fill_disk(self) -> FaultRow:
        """The disk of the data folder is full for 15 s, and PostgreSQL wants a new file."""
        row, struck = FaultRow("disk full"), time.monotonic()
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        for _ in range(4):
            with contextlib.suppress(psycopg.Error), psycopg.connect(embedded_url(self.folder), autocommit=True) as one:
                one.execute("SELECT pg_switch_wal()")
                one.execute(
                    "CREATE TABLE IF NOT EXISTS fills AS SELECT repeat('x', 7000) FROM generate_series(1, 6000)"
                )
        while time.monotonic() - struck < 15:
            answer = self.post()
            row.answers[answer] = row.answers.get(answer, 0) + 1
            row.refused += answer != "202"
            time.sleep(0.2)
        filler.unlink()
        row.remark = "seconds to 202 from the moment in which there was space again"
        self.watch(row, time.monotonic(), self.whole)
        row.left_running = self.strays()
        return row

    def lost(self) -> int:
        """Acknowledged submissions of which the database knows nothing."""
        with psycopg.connect(embedded.start(self.folder)) as connection:
            connection.execute("SELECT set_config('switchboard.workspace', '*', false)")
            known = {str(row[0]) for row in connection.execute("SELECT call_id FROM calls")}
        return sum(call not in known for call in self.accepted)


def embedded_url(folder: Path) -> str:
    return f"postgresql://postgres@/switchboard?host={folder / 'socket'}"


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _short(process: psutil.Process) -> str:
    return f"{process.pid} {_title(process)[:60]}"


def measure(folder: Path, only: list[str]) -> dict[str, Any]:
    bench = RestartStand(folder)
    first = bench.start()
    rows: list[FaultRow] = []
    try:
        bench.make_key()
        for name in [*TITLES, *OTHERS]:
            if only and name not in only:
                continue
            if name == "disk full" and not os.path.ismount(folder):
                row = FaultRow(name, remark="not tried: needs root, and a file system of its own")
            elif name in TITLES:
                row = bench.kill_child(name)
            elif name == "a second up":
                row = bench.second_up()
            elif name == "disk full":
                row = bench.fill_disk()
            elif name == "Ctrl-C twice":
                row = bench.interrupt_twice()
            else:
                row = bench.kill_up(name)
            rows.append(row)
            print(row, flush=True)
        lost = bench.lost()
    finally:
        bench.service.stop()
    left = bench.strays()
    return {
        "first_start_seconds": round(first, 1),
        "rows": [asdict(row) for row in rows],
        "acknowledged": len(bench.accepted),
        "lost": lost,
        "left_at_the_end": left,
        "port_free": _is_free(bench.service.port),
    }


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def show(found: dict[str, Any]) -> None:
    print(f"\nfirst start: 202 after {found['first_start_seconds']} s\n")
    print(f"{'kill -9 of':<20}{'s to 202':>10}{'refused':>9}{'back after s':>14}  left running; remark")
    for row in found["rows"]:
        back = "" if row["process_back_seconds"] is None else row["process_back_seconds"]
        left = ", ".join(row["left_running"]) or "nothing"
        print(
            f"{row['killed']:<20}{row['seconds_to_202']!s:>10}{row['refused']:>9}{back!s:>14}  {left}; {row['remark']}"
        )
    print(f"\n{found['acknowledged']} acknowledged, {found['lost']} lost; left at the end: {found['left_at_the_end']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[*TITLES, *OTHERS], default=[])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if os.geteuid() == 0 and "SWB_MOUNTS" not in os.environ:  # a name space of its own, for a small disk
        again = ["unshare", "-m", sys.executable, *sys.argv]
        os.execvpe(again[0], again, {**os.environ, "SWB_MOUNTS": "own"})
    with tempfile.TemporaryDirectory(prefix="swb-rs-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "disk"
        folder.mkdir()
        if "SWB_MOUNTS" in os.environ:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=711", "none", folder], check=True)
        found = measure(folder, arguments.only)
    show(found)
    if arguments.json:
        machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
        arguments.json.write_text(json.dumps(machine | found, indent=2) + "\n", encoding="utf-8")
    if found["lost"] or found["left_at_the_end"] or any(row["left_running"] for row in found["rows"]):
        raise SystemExit("calls were lost, or something was left running")


if __name__ == "__main__":
    main()
