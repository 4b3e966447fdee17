"""Test whether Ray accepts unauthenticated clients by connecting, not by reading settings."""

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
JOBS = ("/api/job_agent/jobs/", "/api/jobs/")  # job endpoints of a dashboard agent and a dashboard
REFUSED = (401, 403, 404, 405)
SECONDS = 60
# Runs in a subprocess: Ray reads its token once per process. It only lists keys.
LIST_GCS_KEYS = (
    "import sys; from ray._raylet import GcsClient; "
    "print('in', len(GcsClient(sys.argv[1]).internal_kv_keys(b'', b'serve', 10)))"
)


def check_ray_auth(address: str) -> Iterator[Check]:
    """Connect to Ray at `address` (host:port) without a token, and with the token of this machine."""
    host = address.rpartition(":")[0].strip("[]")
    ways = [f"the job API at port {port}" for port in _job_ports(host) if _takes_jobs(host, port)]
    if _reads_gcs(address, _without_token()):
        ways.append(f"its GCS at {address}, as ray.init does")
    if ways:
        yield bad(
            "Ray authentication",
            f"Any client that reaches {host} can run commands as this user without a token, by {' and '.join(ways)}",
            "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH on every node (node.env), and restart Ray.",
        )
        return
    yield good("Ray authentication", f"Ray {address} rejects unauthenticated clients (GCS and dashboard job API)")
    if not _reads_gcs(address, os.environ | ray_access.joined_ray(address) | _operator_settings()):
        yield warn(
            "Ray token",
            f"this machine has no token of Ray {address}",
            "Set RAY_AUTH_TOKEN_PATH to its file, for `switchboard up --address`, `ray` and `serve`.",
        )


def _without_token() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**environment, "HOME": "/nonexistent", "RAY_AUTH_MODE": "disabled", **ray_access.ONE_MACHINE}


def _operator_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")}


def _reads_gcs(address: str, environment: dict[str, str]) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-c", LIST_GCS_KEYS, address],
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
    """POST an empty job: an unauthorized client gets 401/403, an authorized one a validation error."""
    for path in JOBS:
        try:
            response = httpx.post(f"http://{host}:{port}{path}", json={}, timeout=5, trust_env=False)
        except httpx.HTTPError:
            continue  # no listener, or no HTTP
        if response.status_code not in REFUSED:
            return True
    return False


def _job_ports(host: str) -> list[int]:
    """Return the default ports, and on this machine those on which dashboards and their agents listen."""
    ports = {AGENT_PORT, DASHBOARD_PORT}
    if host in ("127.0.0.1", "::1", "localhost", *_addresses()):
        for process in psutil.process_iter():
            try:
                if "dashboard" in " ".join(process.cmdline()[:3]).lower():
                    sockets = process.net_connections("tcp")
                    ports |= {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}
            except psutil.Error:
                continue
    return sorted(ports)


def _addresses() -> set[str]:
    return {address.address for interface in psutil.net_if_addrs().values() for address in interface}
