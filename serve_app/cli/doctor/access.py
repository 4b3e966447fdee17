"""Whether somebody without its token gets into Ray: tried, not read from settings."""

import os
import subprocess
import sys
from collections.abc import Iterator

import httpx
import psutil

from serve_app.cli.doctor.check import Check, bad, good, warn
from serve_app.service import ray_access
from serve_app.service.ports import AGENT_PORT

DASHBOARD_PORT = 8265
JOBS = ("/api/job_agent/jobs/", "/api/jobs/")  # where a dashboard's agent, and a dashboard, take commands to run
REFUSED = (401, 403, 404, 405)
SECONDS = 60
# In a process of its own: Ray reads its token once in a process. Nothing is changed: keys are only listed.
ASK_GCS = (
    "import sys; from ray._raylet import GcsClient; "
    "print('in', len(GcsClient(sys.argv[1]).internal_kv_keys(b'', b'serve', 10)))"
)


def ray_doors(address: str) -> Iterator[Check]:
    """Tries to get into the Ray that runs at `address`, host:port, without its token, and with the one known here."""
    host = address.rpartition(":")[0].strip("[]")
    ways = [f"the job API at port {port}" for port in _job_ports(host) if _takes_jobs(host, port)]
    if _reads_gcs(address, _without_token()):
        ways.append(f"its GCS at {address}, as ray.init does")
    if ways:
        yield bad(
            "Ray's doors",
            f"Anyone who reaches {host} can run commands as this user, without a token, by {' and '.join(ways)}",
            "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH on every node (node.env), and restart Ray.",
        )
        return
    yield good("Ray's doors", f"Ray at {address} refuses who has no token: its GCS, and the job API of its dashboards")
    if not _reads_gcs(address, os.environ | ray_access.joined_ray(address) | _named_by_operator()):
        yield warn(
            "Ray's token",
            f"the token of Ray at {address} is not known here",
            "Name its file in RAY_AUTH_TOKEN_PATH, for `switchboard up --address`, `ray` and `serve`.",
        )


def _without_token() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**kept, "HOME": "/nonexistent", "RAY_AUTH_MODE": "disabled", **ray_access.ONE_MACHINE}


def _named_by_operator() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")}


def _reads_gcs(address: str, environment: dict[str, str]) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK_GCS, address],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.startswith("in")


def _takes_jobs(host: str, port: int) -> bool:
    """An empty job is no job: who is not let in is told so, who is let in that something is missing."""
    for path in JOBS:
        try:
            answer = httpx.post(f"http://{host}:{port}{path}", json={}, timeout=5, trust_env=False)
        except httpx.HTTPError:
            continue  # nobody listens, or no HTTP
        if answer.status_code not in REFUSED:
            return True
    return False


def _job_ports(host: str) -> list[int]:
    """The usual ports, and those on which dashboards and their agents listen if `host` is this machine."""
    ports = {AGENT_PORT, DASHBOARD_PORT}
    if host in ("127.0.0.1", "::1", "localhost", *_addresses()):
        for process in psutil.process_iter():
            try:
                if "dashboard" in " ".join(process.cmdline()[:3]).lower():
                    found = process.net_connections("tcp")
                    ports |= {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN}
            except psutil.Error:
                continue
    return sorted(ports)


def _addresses() -> set[str]:
    return {one.address for interface in psutil.net_if_addrs().values() for one in interface}
