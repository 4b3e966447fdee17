import asyncio
import socket
import subprocess
import sys
import time
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from serve_app.http.auth import SOURCE_HEADER
from serve_app.intake.ingress import SubmitOnlyMiddleware
from serve_app.service import standby_app
from serve_app.service.ports import free_port, is_taken, shared_socket

FORGED = {SOURCE_HEADER: "203.0.113.9"}


def client(prefix: str, behind_haproxy: bool, *proxies: str) -> httpx.AsyncClient:
    async def seen(request: Request) -> PlainTextResponse:
        return PlainTextResponse(",".join(request.headers.getlist(SOURCE_HEADER)), 202)

    app: Any = Starlette(routes=[Route("/submit", seen, methods=["POST"]), Route("/console", seen, methods=["POST"])])
    standby = SubmitOnlyMiddleware(app, prefix, behind_haproxy, [ip_network(proxy) for proxy in proxies])
    transport = httpx.ASGITransport(standby, client=("198.51.100.7", 4711))
    return httpx.AsyncClient(transport=transport, base_url="http://switchboard")


@pytest.mark.parametrize("prefix", ["/", "/v1", "/v1/"])
async def test_submissions_pass_and_all_else_is_still_starting(prefix: str) -> None:
    at = prefix.rstrip("/")
    async with client(prefix, behind_haproxy=False) as http:
        assert (await http.post(f"{at}/submit")).status_code == 202
        for path in (f"{at}/console", f"{at}/api/v1/calls", f"{at}/submit/x", "/-/routes", "/-/healthz", "/v2/submit"):
            answer = await http.post(path)
            assert answer.status_code == 503, path
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["content-type"] == "application/problem+json"


async def test_only_haproxy_is_believed_where_a_sender_is() -> None:
    async with client("/", behind_haproxy=False) as http:
        assert (await http.post("/submit", headers=FORGED)).text == "198.51.100.7"
    async with client("/", behind_haproxy=True) as http:
        assert (await http.post("/submit", headers=FORGED)).text == "203.0.113.9"
        assert (await http.get("/-/healthz")).status_code == 200


@pytest.mark.parametrize("behind_haproxy", [False, True])
async def test_behind_a_trusted_proxy_the_standby_sees_its_client(behind_haproxy: bool) -> None:
    headers = {"X-Forwarded-For": "192.0.2.1"} | ({SOURCE_HEADER: "198.51.100.7"} if behind_haproxy else FORGED)
    async with client("/", behind_haproxy) as http:
        assert (await http.post("/submit", headers=headers)).text == "198.51.100.7"
    async with client("/", behind_haproxy, "198.51.100.0/24") as http:
        assert (await http.post("/submit", headers=headers)).text == "192.0.2.1"


@pytest.mark.skipif(sys.platform != "linux", reason="the standby runs on Linux only")
async def test_a_silent_connection_is_closed_and_one_that_is_answered_late_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(standby_app, "HEAD_SECONDS", 0.4)
    answered, stopping = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await answered.wait()
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    address = ("127.0.0.1", free_port())
    with socket.socket(socket.AF_UNIX) as private:
        private.bind(str(tmp_path / "s"))
        opened = asyncio.Event()
        running = asyncio.create_task(standby_app.Standby(slow, "/", address, private).run(stopping, opened.set))
        await opened.wait()
        request = b"POST /submit HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n"
        late, late_out = await connected(address)
        late_out.write(request + b"\r\n")
        for data in (b"", request):  # nothing, or a head that does not end
            silent, silent_out = await connected(address)
            silent_out.write(data)
            assert await silent.read() == b""
            silent_out.close()
        answered.set()
        assert (await late.read()).startswith(b"HTTP/1.1 202 ")
        late_out.close()
        stopping.set()
        await running


async def connected(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(*address)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="the standby runs on Linux only")
@pytest.mark.parametrize(
    ("host", "other", "taken"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "::", True),
        ("::", "127.0.0.1", True),
    ],
)
def test_a_port_is_taken_by_whoever_listens_there_but_ours(host: str, other: str, taken: bool) -> None:
    with shared_socket((host, 0)) as ours:
        port = ours.getsockname()[1]
        assert not is_taken((host, port), ours), "bound is not yet listening"
        ours.listen()
        assert is_taken((host, port), None)
        assert not is_taken((host, port), ours)
        family = socket.AF_INET6 if ":" in other else socket.AF_INET
        with socket.socket(family) as theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                theirs.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            theirs.bind((other, port))
            theirs.listen()
            assert is_taken((host, port), ours) is taken
        with socket.create_connection(("127.0.0.1", port)):
            assert not is_taken((host, port), ours), "a connection does not listen"


ORPHAN = """
import os, subprocess, sys
child = "from serve_app.service.children import end_with_parent; import sys, time; end_with_parent(int(sys.argv[1]));"
child += "print('alive', flush=True); time.sleep(600)"
process = subprocess.Popen([sys.executable, "-c", child, str(os.getpid())], stdout=subprocess.PIPE)
assert process.stdout.readline() == b"alive\\n"
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death is Linux's")
def test_a_process_ends_with_its_parent_however_that_went() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=False)
    remaining = int(done.stdout)
    for _ in range(600):
        if not psutil.pid_exists(remaining) or psutil.Process(remaining).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    raise AssertionError("it lives on")


def test_one_whose_parent_is_gone_already_ends() -> None:
    code = "import os; from serve_app.service.children import end_with_parent; end_with_parent(os.getpid())"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1
