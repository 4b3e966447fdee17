"""Each alert fires in its fault and is silent in the others: Prometheus reads a service whose parts are broken.

The rules are those of `serve_app/deploy/alerts.yml` with their thresholds. Only `for` and ranges are shorter, and what
takes hours is moved in the database: the last backup, calls and events become older.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa
import yaml

from db.core.database import EVERY_WORKSPACE
from db.events import endpoints
from db.secrets.encryption import Sealer
from db.server import embedded, migrate, readiness
from serve_app.service.ports import free_port
from serve_app.webhooks import signing
from tests import fixture_checkpoints
from tests.acceptance.running import SECRETS_KEY, Client, RunningService
from tests.file_server import FileServer
from tests.paths import ROOT
from tests.prometheus import prometheus
from tests.receiver import HANG, receiving
from tests.small_disk import fill, small_disk
from tests.synthetic_calls import FOLDER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus"),
]
RULES = yaml.safe_load((ROOT / "serve_app/deploy/alerts.yml").read_text())
ALERTS = [rule["alert"].removeprefix("Switchboard") for group in RULES["groups"] for rule in group["rules"]]
SCRAPE_SECONDS = 3  # the agent of Ray serves one reader at a time
FASTER = 30  # the longest `for` takes half a minute
RANGE_SECONDS = 45  # at least: Ray's counters change every ten seconds
HOLD_SECONDS = 60.0  # of each fault: the longest `for`, and ten seconds until a gauge is read again
FIRE_SECONDS = CLEAR_SECONDS = 180.0
MONO, STEREO = FOLDER / "03_repair_mono/call.flac", FOLDER / "08_flite_voices_stereo/call.flac"
FULL_BELOW = 5_000_000_000  # bytes, of SwitchboardDiskAlmostFull


def faster_rules() -> str:
    """Return the shipped rules with shorter times."""
    text = yaml.safe_dump(RULES, width=1000)
    text = re.sub(r"for: (\d+)m", lambda match: f"for: {60 * int(match[1]) // FASTER}s", text)
    return re.sub(r"\[(\d+)m\]", lambda match: f"[{max(RANGE_SECONDS, 60 * int(match[1]) // FASTER)}s]", text)


@asynccontextmanager
async def repeating(action: Callable[[], Awaitable[object]], pause: float) -> AsyncIterator[None]:
    """Repeat an action during the block."""

    async def repeat() -> None:
        while True:
            await action()
            await asyncio.sleep(pause)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@dataclass
class Stand:
    """The service, its disks and files, and Prometheus."""

    service: RunningService
    client: Client
    files: FileServer
    database_disk: Path
    recordings_disk: Path
    checkpoint: Path
    prometheus_url: str

    def firing(self) -> set[str]:
        alerts = httpx.get(f"{self.prometheus_url}/api/v1/alerts", timeout=10).json()["data"]["alerts"]
        names = {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
        return {name.removeprefix("Switchboard") for name in names}

    def readings(self) -> str:
        """Return what Prometheus reads: its targets, their errors, and how many series of the service."""
        api = f"{self.prometheus_url}/api/v1"
        targets = httpx.get(f"{api}/targets", timeout=10).json()["data"]["activeTargets"]
        lines = [f"{target['scrapeUrl']}: {target['health']} {target['lastError']}" for target in targets]
        query = {"query": 'count({__name__=~"ray_switchboard_.*"})'}
        lines.append(f"series: {httpx.get(f'{api}/query', params=query, timeout=10).json()['data']['result']}")
        return "\n".join(lines)

    async def send(self, file: Path = STEREO, client: Client | None = None) -> None:
        """Send a call, whatever the answer is."""
        body = {
            "callId": str(uuid4()),
            "from": "+493012345678",
            "to": "+4940987654",
            "startTime": "2026-11-20T09:30:00+00:00",
            "recordingUrl": self.files.add(file),
        }
        with contextlib.suppress(httpx.TransportError):
            await (client or self.client).post(body)

    def sending(self, file: Path, pause: float = 1.0) -> AbstractAsyncContextManager[None]:
        return repeating(lambda: self.send(file), pause)

    def killing(self, deployment: str) -> AbstractAsyncContextManager[None]:
        """Kill every replica of a deployment as soon as there is one."""

        async def kill() -> None:
            for pid in await asyncio.to_thread(self.service.pids, deployment):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        return repeating(kill, 0.3)

    @asynccontextmanager
    async def aging(self, table: str, columns: tuple[str, ...], hours: float, condition: str) -> AsyncIterator[None]:
        """Make the rows of a condition older during the block, each once."""
        first, *_ = columns
        move = ", ".join(f"{column} = {column} + %(by)s * interval '1 hour'" for column in columns)
        old = f"{first} < now() - %(hours)s * interval '1 hour'"

        async def change(by: float, rows: str) -> None:
            async with await psycopg.AsyncConnection.connect(self.service.database_url, autocommit=True) as connection:
                statement = f"UPDATE {table} SET {move} WHERE {condition} AND {rows}"
                await connection.execute(statement.encode(), {"by": by, "hours": hours})

        async with repeating(lambda: change(-hours, f"NOT {old}"), 1.0):
            yield
        await change(hours, old)


@asynccontextmanager
async def no_fault(_: Stand) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def postgresql_stopped(stand: Stand) -> AsyncIterator[None]:
    await asyncio.to_thread(embedded.stop, stand.database_disk / "state")
    try:
        yield
    finally:
        await asyncio.to_thread(embedded.start, stand.database_disk / "state")


@asynccontextmanager
async def postgresql_without_disk(stand: Stand) -> AsyncIterator[None]:
    with contextlib.suppress(OSError):  # PostgreSQL took the last bytes
        fill(stand.database_disk)
    try:
        yield
    finally:
        (stand.database_disk / "filler").unlink()
        await asyncio.to_thread(embedded.start, stand.database_disk / "state")  # if it gave up


@asynccontextmanager
async def table_locked(stand: Stand) -> AsyncIterator[None]:
    """Another program creates an index, and more workspaces submit than Intake has connections."""
    clients = [await Client.of(stand.service) for _ in range(24)]
    async with contextlib.AsyncExitStack() as stack:
        for client in clients:
            stack.push_async_callback(client.close)
        connection = await psycopg.AsyncConnection.connect(stand.service.database_url)
        stack.push_async_callback(connection.close)
        await connection.execute("LOCK TABLE calls IN SHARE MODE")
        for client in clients:
            await stack.enter_async_context(repeating(lambda client=client: stand.send(STEREO, client), 0.1))
        yield


@asynccontextmanager
async def recordings_disk_fills_up(stand: Stand) -> AsyncIterator[None]:
    filler = fill(stand.recordings_disk, leave=FULL_BELOW - (100 << 20))
    try:
        yield
    finally:
        filler.unlink()


@asynccontextmanager
async def receiver_hangs(stand: Stand) -> AsyncIterator[None]:
    database, workspace = stand.client.database, stand.client.workspace_id
    async with receiving(answer=lambda _: HANG) as receiver:
        secret = Sealer([SECRETS_KEY]).seal(signing.new_secret())
        endpoint = await endpoints.add(database, workspace, receiver.url, secret)
        try:
            async with stand.aging("webhook_deliveries", ("created_at",), 0.5, "true"):
                yield
        finally:
            await endpoints.remove(database, endpoint)


@asynccontextmanager
async def engine_without_model(stand: Stand) -> AsyncIterator[None]:
    """The Diarizer's checkpoint is lost, and its replica starts again."""
    aside = stand.checkpoint.rename(stand.checkpoint.with_suffix(".aside"))
    for pid in stand.service.pids("Diarizer"):
        os.kill(pid, signal.SIGKILL)
    try:
        async with stand.sending(MONO):
            yield
    finally:
        aside.rename(stand.checkpoint)


WAITING = ("jobs", ("queued_at", "created_at"), 1.1, "state = 'queued'")  # calls, as if for more than an hour


@asynccontextmanager
async def no_transcriber(stand: Stand) -> AsyncIterator[None]:
    async with stand.killing("Transcriber"), stand.aging(*WAITING):
        yield


@asynccontextmanager
async def more_calls_than_room(stand: Stand) -> AsyncIterator[None]:
    """A second Transcriber is wanted, for which the machine has too few cores. Nobody waits for these calls later."""
    async with stand.aging(*WAITING), stand.sending(STEREO, 0.1):
        yield
    async with await psycopg.AsyncConnection.connect(stand.service.database_url, autocommit=True) as connection:
        await connection.execute(
            "UPDATE jobs SET state = 'superseded', finished_at = now(), lease_until = NULL"
            " WHERE state IN ('fetching', 'queued', 'running')"
        )


@asynccontextmanager
async def never_backed_up(stand: Stand) -> AsyncIterator[None]:
    database = stand.client.database
    await database.change(EVERY_WORKSPACE, sa.text("DELETE FROM engines WHERE name = 'Backup'"))
    async with stand.aging("workspaces", ("created_at",), 72.0, "true"):
        yield
    await readiness.heartbeat(database, readiness.BACKUP)


@asynccontextmanager
async def service_down(stand: Stand) -> AsyncIterator[None]:
    assert await asyncio.to_thread(stand.service.stop) == 0
    yield


Fault = Callable[[Stand], AbstractAsyncContextManager[None]]
BACKUP = ("engines", ("heartbeat_at",), 72.0, "name = 'Backup'")
FAULTS: dict[str, tuple[Fault, set[str]]] = {
    "none": (no_fault, set()),
    "PostgreSQL is down": (postgresql_stopped, {"DatabaseDown", "SubmissionsRefused"}),
    "the disk of PostgreSQL is full": (postgresql_without_disk, {"DatabaseFull", "SubmissionsRefused"}),
    "a table of PostgreSQL is locked": (table_locked, {"ConnectionsExhausted", "SubmissionsRefused"}),
    "no Intake": (lambda stand: stand.killing("Intake"), {"IntakeGone", "ReplicasMissing"}),
    "no Api": (lambda stand: stand.killing("Api"), {"ReplicasMissing"}),
    "no Console": (lambda stand: stand.killing("Console"), {"ReplicasMissing"}),
    "no Conductor": (lambda stand: stand.killing("Conductor"), {"ConductorGone"}),
    "the disk of recordings fills up": (recordings_disk_fills_up, {"DiskAlmostFull"}),
    "the last backup is three days old": (lambda stand: stand.aging(*BACKUP), {"BackupOld"}),
    "there was never a backup": (never_backed_up, {"BackupOld"}),
    "a receiver of events hangs": (receiver_hangs, {"WebhooksLate"}),
    "recordings are no sound": (lambda stand: stand.sending(Path(__file__)), {"JobsFail"}),
    "an engine has no model": (engine_without_model, {"EngineWithoutModel"}),
    "no Transcriber starts": (no_transcriber, {"CallsStandStill", "QueueOld", "ReplicasMissing"}),
    "more calls than room": (more_calls_than_room, {"QueueOld", "ReplicasMissing", "CallsSlow"}),
    "the service is down": (service_down, {"TargetDown", "IntakeGone", "ConductorGone"}),  # the last: it ends here
}


def settings(recordings: Path, checkpoint: Path, haproxy: int) -> dict[str, str]:
    transcriber = {"min_replicas": 1, "max_replicas": 2, "num_cpus": 0.6 * (os.cpu_count() or 1)}
    return {
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(haproxy),
        "SWITCHBOARD_STORAGE": (recordings / "files").as_uri(),
        "SWITCHBOARD_DIARIZATION__PIPELINE": str(checkpoint),
        "SWITCHBOARD_PROCESSING__RETRY_WINDOW_SECONDS": "3600",
        "SWITCHBOARD_SCALING__TRANSCRIBER": json.dumps(transcriber),
        "SWITCHBOARD_SCALING__TASK_CPUS": "0.5",
        "SWITCHBOARD_SCALING__TARGET_DRAIN_SECONDS": "30",
        "SWITCHBOARD_SCALING__DOWN_SECONDS": "5",
    }


def back_up(service: RunningService, folder: Path) -> None:
    """Create a backup."""
    variables = {"SWITCHBOARD_DATABASE_URL": service.database_url, "SWITCHBOARD_SECRETS_KEYS": f'["{SECRETS_KEY}"]'}
    variables |= {name: service.extra[name] for name in ("SWITCHBOARD_STORAGE",)}
    command = [sys.executable, "-m", "serve_app.cli", "backup", "create", str(folder / "backups")]
    subprocess.run(command, env=os.environ | variables | {"SWITCHBOARD_DATA_DIR": str(folder)}, check=True)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stand() -> AsyncIterator[Stand]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="switchboard-alerts-")))
        folder.chmod(0o755)
        database_disk = stack.enter_context(small_disk(folder / "database", 512 << 20))
        recordings_disk = stack.enter_context(small_disk(folder / "recordings", FULL_BELOW + (256 << 20)))
        checkpoint = Path(shutil.copytree(fixture_checkpoints.DIARIZATION, folder / "diarization"))
        url = embedded.start(database_disk / "state")
        stack.callback(embedded.stop, database_disk / "state")
        migrate.migrate(url)
        haproxy, port = free_port(), free_port()
        service = RunningService(url, folder, free_port(), settings(recordings_disk, checkpoint, haproxy))
        service.start()
        stack.callback(lambda: service.process and service.process.poll() is None and service.stop())
        back_up(service, folder)
        targets = {"haproxy": f"127.0.0.1:{haproxy}", "switchboard": urlsplit(service.ready["metricsUrl"]).netloc}
        stack.enter_context(prometheus(folder, port, targets, faster_rules(), seconds=SCRAPE_SECONDS))
        files = stack.enter_context(FileServer())
        client = await Client.of(service)
        stand = Stand(service, client, files, database_disk, recordings_disk, checkpoint, f"http://127.0.0.1:{port}")
        async with stand.sending(STEREO, 3.0):
            yield stand
        await client.close()


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether the condition held within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if await asyncio.to_thread(condition):
            return True
        await asyncio.sleep(0.5)
    return False


SEEN: dict[str, dict[str, float]] = {}  # seconds until an alert fired, by fault


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_alerts_of_a_fault_fire_and_no_others(stand: Stand, fault: str) -> None:
    cause, expected = FAULTS[fault]
    assert await until(lambda: not stand.firing(), CLEAR_SECONDS), f"still firing: {stand.firing()}"
    started = time.monotonic()
    seen = SEEN[fault] = {}

    def look() -> bool:
        for name in stand.firing() - seen.keys():
            seen[name] = time.monotonic() - started
        return expected <= seen.keys() and time.monotonic() > started + HOLD_SECONDS

    async with cause(stand):
        await until(look, FIRE_SECONDS)
    assert seen.keys() == expected, stand.readings()


def test_every_alert_has_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\n" + table())
    assert set(ALERTS) == set().union(*(expected for _, expected in FAULTS.values()))


def table() -> str:
    """Return the seconds until each alert fired in each fault; a dot: it was silent."""
    rows = [("Seconds until alert ...", [str(number) for number, _ in enumerate(ALERTS, 1)])]
    for fault, seen in SEEN.items():
        rows.append((fault, [f"{seen[name]:.0f}" if name in seen else "." for name in ALERTS]))
    lines = [f"{title:<34}" + "".join(f"{cell:>4}" for cell in cells) for title, cells in rows]
    return "\n".join([*lines, *(f"{number:>2}  {name}" for number, name in enumerate(ALERTS, 1))])
