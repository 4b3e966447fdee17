"""The service as a telephony system and an operator see it: a process started by `switchboard up`, and PostgreSQL."""

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil

from db.core.database import Database
from db.records import views
from db.records.views import CallRecord
from db.secrets.call_keys import CallKeys
from db.secrets.encryption import Sealer
from db.workspace import directory, keys
from tests import fixture_checkpoints

ENDED = ("completed", "failed")
SECRETS_KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@dataclass
class RunningService:
    """`switchboard up` in a separate process, on synthetic checkpoints, with a workspace, a team and their keys.

    `database_url`: empty for the embedded PostgreSQL of `folder`.
    """

    database_url: str
    folder: Path
    port: int
    extra: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    ready: dict[str, Any] = field(default_factory=dict)
    deployments: tuple[str, ...] = ("Intake", "Api", "Conductor", "Transcriber", "Diarizer")
    problems: dict[str, str] = field(default_factory=dict)  # deployment -> why it has no model
    models: dict[str, dict[str, str]] = field(default_factory=dict)  # stage -> the model in use
    _events: "queue.Queue[dict[str, Any]]" = field(default_factory=queue.Queue)

    def start(self, wait_for_engines: bool = True) -> None:
        """Returns when calls are taken in and worked on; raises with the end of the output when it comes to nothing."""
        self.begin()
        try:
            self.wait_until_ready(wait_for_engines)
        except BaseException:
            self.stop()
            raise

    def begin(self) -> None:
        """Returns as soon as calls are taken in."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_"))},
            **({"SWITCHBOARD_DATABASE_URL": self.database_url} if self.database_url else {}),
            **({"SWITCHBOARD_SECRETS_KEYS": json.dumps([SECRETS_KEY])} if self.database_url else {}),
            "SWITCHBOARD_DATA_DIR": str(self.folder),
            "SWITCHBOARD_HTTP__PORT": str(self.port),
            "SWITCHBOARD_ASR__MODEL": str(fixture_checkpoints.RECOGNITION),
            "SWITCHBOARD_DIARIZATION__PIPELINE": str(fixture_checkpoints.DIARIZATION),
            "SWITCHBOARD_FETCH__ALLOWED_HOSTS": '["127.0.0.1"]',
            "SWITCHBOARD_FETCH__MAX_BYTES": str(32 << 20),
            "SWITCHBOARD_FETCH__SLOW_SECONDS": "1.5",
            "SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS": '["127.0.0.1"]',
            "SWITCHBOARD_PROCESSING__RETRY_WINDOW_SECONDS": "4",
            "SWITCHBOARD_PROCESSING__LEASE_SECONDS": "6",
            "SWITCHBOARD_PROCESSING__DRAIN_SECONDS": "2",
            "SWITCHBOARD_LIMITS__PER_MINUTE": "60000",
            **self.extra,
        }
        self._events = queue.Queue()
        with (self.folder / "up.log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "serve_app.cli", "up", "--json"],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        threading.Thread(target=_read_events, args=(self.process, self._events), daemon=True).start()
        try:
            self.ready = self._event("taking_calls", 240)
        except BaseException:
            self.stop()
            raise

    def wait_until_ready(self, wait_for_engines: bool = True) -> None:
        """Until the cluster is there, at a start or after its head died."""
        self.ready = self._event("ready", 240)
        if wait_for_engines:
            self.wait_for_engines()

    def wait_for_engines(self) -> None:
        event = self._event("engines_ready", 240)
        self.problems, self.models = event["problems"], event["models"]

    def stop(self) -> int:
        """SIGTERM, as a service manager sends it; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    @property
    def submit_url(self) -> str:
        return str(self.ready["submitUrl"])

    def processes(self) -> list[psutil.Process]:
        """Return all descendants of the supervisor."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def pids(self, deployment: str) -> list[int]:
        """Processes of a deployment's replicas, by Ray's process title."""
        titles = [(process.pid, _title(process)) for process in self.processes()]
        return [pid for pid, title in titles if f":{deployment}" in title and "ServeReplica" in title]

    def _event(self, name: str, timeout: float) -> dict[str, Any]:
        assert self.process is not None
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                event = self._events.get(timeout=0.5)
            except queue.Empty:
                continue
            if event.get("event") == name:
                return event
        raise AssertionError(f"no event {name!r} from switchboard up:\n{(self.folder / 'up.log').read_text()[-3000:]}")


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _read_events(process: "subprocess.Popen[str]", events: "queue.Queue[dict[str, Any]]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            events.put(json.loads(line))


@dataclass
class Client:
    """A telephony system with a key, and a reader of the records."""

    submit_url: str
    key: str
    database: Database
    workspace_id: UUID

    @classmethod
    async def of(cls, service: RunningService, name: str | None = None) -> "Client":
        """Create a client with a new workspace, team and team-scoped key."""
        keys_of_service = CallKeys(Sealer([SECRETS_KEY]))  # to read calls that the service seals
        database = await Database.open(service.database_url, pool_size=2, call_keys=keys_of_service)
        workspace = await directory.create_workspace(database, name or f"w-{uuid4().hex[:8]}", default_country="US")
        team = await directory.create_team(database, workspace.workspace_id, "Service desk")
        _, secret = await keys.create(database, workspace.workspace_id, team.team_id, ["submit"], "acceptance")
        return cls(service.submit_url, secret, database, workspace.workspace_id)

    async def close(self) -> None:
        await self.database.close()

    async def post(self, body: dict[str, Any], client: httpx.AsyncClient | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        if client is not None:
            return await client.post(self.submit_url, json=body, headers=headers)
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            return await http.post(self.submit_url, json=body, headers=headers)

    async def accepted(self, body: dict[str, Any]) -> dict[str, Any]:
        """POST a body that must be taken."""
        answer = await self.post(body)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def record(self, call_id: str) -> CallRecord:
        record = await views.show_call(self.database, UUID(call_id), self.workspace_id)
        assert record is not None
        return record

    async def ended(self, call_ids: Iterable[str], timeout: float = 120.0) -> list[CallRecord]:
        """Return the records once all are completed or failed."""
        call_ids = list(call_ids)
        deadline = time.monotonic() + timeout
        while True:
            records = [await self.record(call_id) for call_id in call_ids]
            if all(record.call.state in ENDED for record in records):
                return records
            if time.monotonic() > deadline:
                raise AssertionError(f"not ended: {[(r.call.state, r.call.stage, r.call.failure) for r in records]}")
            await asyncio.sleep(0.2)
