"""What a storm rages against: PostgreSQL, the wire to it, a Ray cluster of two nodes, and the service."""

import asyncio
import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import psutil
import psycopg
from psycopg.rows import dict_row

from db.server import embedded
from serve_app.service.ports import free_port
from serve_app.service.supervisor import StandbyProcess
from serve_app.settings import Settings
from tests import fixture_checkpoints
from tests.chaos.wire import Wire
from tests.standing_by import tend

ROOT = Path(__file__).resolve().parents[2]
TITLES = {  # how the processes of a kind are called, by Ray's process titles
    "intake": ("ray::ServeReplica:intake:Intake",),
    "proxy": ("ray::ProxyActor", "ray::HAProxyManager", "haproxy"),
    "controller": ("ray::ServeController",),
    "conductor": ("ray::ServeReplica:calls:Conductor",),
    "transcriber": ("ray::ServeReplica:calls:Transcriber",),
    "diarizer": ("ray::ServeReplica:calls:Diarizer",),
    "task": ("ray::_run",),
}
SECRETS_KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
SETTINGS = {
    "SECRETS_KEYS": json.dumps([SECRETS_KEY]),
    "ASR__MODEL": str(fixture_checkpoints.RECOGNITION),
    "DIARIZATION__PIPELINE": str(fixture_checkpoints.DIARIZATION),
    "FETCH__ALLOWED_HOSTS": '["127.0.0.1"]',
    "PROCESSING__RETRY_WINDOW_SECONDS": "30",  # how long a 404 may last; six hours in production
    "LIMITS__PER_MINUTE": "1000000",
    "SCALING__INTAKE__MIN_REPLICAS": "2",
    "SCALING__INTAKE__MAX_REPLICAS": "2",
    "SCALING__CONDUCTOR__MIN_REPLICAS": "2",
    "SCALING__CONDUCTOR__MAX_REPLICAS": "2",
}
START_SECONDS = 900
STARTS = 4


@dataclass
class Stand:
    """Environment of the storm (`async with Stand(folder).standing()`); all its parts can be killed and restart."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    skew: int = 0  # seconds by which the worker node's clock is ahead
    host: subprocess.Popen[str] | None = None
    ready: dict[str, Any] = field(default_factory=dict)
    _events: "queue.Queue[dict[str, Any]]" = field(default_factory=queue.Queue)
    _port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self._state = self.folder / "state"
        self._state.mkdir(parents=True, exist_ok=True)
        self.wire = Wire(self._state / "socket")
        self.standby: StandbyProcess

    @property
    def database_url(self) -> str:
        """URL of the server without the wire, for the audit."""
        return f"postgresql://postgres@/switchboard?host={quote(str(self._state / 'socket'), safe='/')}"

    @property
    def submit_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/submit"

    @asynccontextmanager
    async def standing(self) -> AsyncIterator["Stand"]:
        from db.server import migrate

        await self.start_postgres()
        try:
            await asyncio.to_thread(migrate.migrate, self.database_url)
            async with self.wire.strung(), self._standing_by():
                await self.start_service()
                try:
                    yield self
                finally:
                    await asyncio.to_thread(self.stop_service)
        finally:
            await asyncio.to_thread(embedded.stop, self._state)

    @asynccontextmanager
    async def _standing_by(self) -> AsyncIterator[None]:
        """Run the standby of the intake as the supervisor of `switchboard up` does: it survives the head."""
        with patch.dict(os.environ, self._settings()):
            self.standby = StandbyProcess(Settings(), self.folder, as_json=False)
        self.standby.start(self.wire.through(self.database_url))

        async def keep() -> None:
            while True:
                tend(self.standby)
                await asyncio.sleep(0.2)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            for process in self.standby.processes():
                process.kill()
                process.wait()

    async def start_postgres(self) -> None:
        await asyncio.to_thread(embedded.start, self._state)

    def kill_postgres(self) -> int:
        """SIGKILL for the postmaster: its children notice and go; what was not committed is lost."""
        pid = int((self._state / "cluster" / "postmaster.pid").read_text().split("\n", 1)[0])
        postmaster = psutil.Process(pid)
        postmaster.kill()
        with contextlib.suppress(psutil.TimeoutExpired):
            postmaster.wait(10)  # until then it would still be found running
        return pid

    async def start_service(self) -> None:
        """Start the service as a service manager does, with retries: Serve gives up on a busy machine."""
        for _ in range(STARTS - 1):
            with contextlib.suppress(RuntimeError):
                return await self._start_host()
        return await self._start_host()

    async def _start_host(self) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_"))},
            **self._settings(),
            "SWITCHBOARD_DATABASE_URL": self.wire.through(self.database_url),
            "HAPROXY_STANDBY": str(self.standby.socket),
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        }
        with (self.folder / "host.log").open("a") as log:
            self.host = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.host", str(self.skew), str(self.folder)],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._events = queue.Queue()
        threading.Thread(target=_read_events, args=(self.host, self._events), daemon=True).start()
        self.ready = await asyncio.to_thread(self._event, "ready")

    def _settings(self) -> dict[str, str]:
        return {
            **{f"SWITCHBOARD_{name}": value for name, value in (SETTINGS | self.settings).items()},
            "SWITCHBOARD_DATA_DIR": str(self.folder),
            "SWITCHBOARD_HTTP__PORT": str(self._port),
        }

    async def wait_for_engines(self) -> None:
        await asyncio.to_thread(self._event, "engines_ready")

    async def lose_node(self) -> int:
        """SIGKILL for everything on the worker node; how many processes that were."""
        return int((await self._command("lose_node", "node_lost"))["killed"])

    async def add_node(self) -> None:
        """Add a worker node, with the current clock of worker nodes."""
        self.ready |= await self._command(f"add_node {self.skew}", "node_added")

    async def _command(self, line: str, answer: str) -> dict[str, Any]:
        assert self.host is not None
        assert self.host.stdin is not None
        self.host.stdin.write(line + "\n")
        self.host.stdin.flush()
        return await asyncio.to_thread(self._event, answer)

    def kill_service(self) -> int:
        """Kill everything of the head at once with SIGKILL."""
        assert self.host is not None
        head = psutil.Process(self.host.pid)
        victims = [*head.children(recursive=True), head]
        for process in victims:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.host.wait()
        psutil.wait_procs(victims, timeout=10)
        return len(victims)

    def stop_service(self) -> None:
        assert self.host is not None
        if self.host.poll() is not None:
            return
        assert self.host.stdin is not None
        with contextlib.suppress(OSError):
            self.host.stdin.write("stop\n")
            self.host.stdin.flush()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.host.wait(60)
        if self.host.poll() is None:
            self.kill_service()

    def pids(self, kind: str, on_worker_node: bool = False) -> list[int]:
        """Return the live processes of a kind."""
        if kind == "standby":
            return [process.pid for process in self.standby.processes()]
        if self.host is None or self.host.poll() is not None:
            return []
        pids = []
        for process in _descendants(self.ready["raylet"] if on_worker_node else self.host.pid):
            with contextlib.suppress(psutil.Error):
                title = " ".join(process.cmdline())
                matches = title.startswith(TITLES[kind]) or (kind == "proxy" and process.name() == "haproxy")
                if matches and process.status() != psutil.STATUS_ZOMBIE:
                    pids.append(process.pid)
        return pids

    def kill_one(self, kind: str, rng: random.Random) -> int | None:
        """SIGKILL for one process of a kind; its pid, or None where there is none."""
        alive = self.pids(kind)
        if not alive:
            return None
        pid = rng.choice(sorted(alive))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return pid
        return None

    def _event(self, name: str) -> dict[str, Any]:
        assert self.host is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=0.3)
                if event.get("event") == name:
                    return event
                continue
            if self.host.poll() is not None:
                break
        raise RuntimeError(f"no event {name!r} from the service; the end of its log:\n{self.log_tail()}")

    def log_tail(self) -> str:
        return (self.folder / "host.log").read_text(errors="replace")[-3000:]


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _read_events(process: "subprocess.Popen[str]", events: "queue.Queue[dict[str, Any]]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            events.put(json.loads(line))


class Onlooker:
    """Reads the database straight, and waits where it is away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._lock = asyncio.Lock()

    async def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        async with self._lock:
            while True:
                try:
                    if self._connection is None or self._connection.closed:
                        self._connection = await psycopg.AsyncConnection.connect(
                            self._url, autocommit=True, row_factory=dict_row, application_name="onlooker"
                        )
                        await self._connection.execute("SELECT set_config('switchboard.workspace', '*', false)")
                    return await (await self._connection.execute(query, values)).fetchall()
                except psycopg.OperationalError:
                    self._connection = None
                    await asyncio.sleep(0.1)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
