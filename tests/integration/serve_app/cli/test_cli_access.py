import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from serve_app.cli.doctor import service as checks_service
from serve_app.cli.doctor.command import Level
from serve_app.service import ray_access
from serve_app.service.ports import AGENT_PORT

START = """
import sys, ray
ray.init("local", include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20, num_cpus=1)
print("at", ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def ray(folder: Path, mode: str) -> Iterator[tuple[str, psutil.Process]]:
    """Start Ray on this machine; return its address and process."""
    folder.mkdir(mode=0o700)
    environment = os.environ | ray_access.own_ray(folder) | {"RAY_AUTH_MODE": mode, "RAY_TMPDIR": str(folder)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", START], env=environment, text=True, **pipes) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("at "):
                yield line.split()[1], psutil.Process(process.pid)
                break
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a folder whose path is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="swb-", ignore_cleanup_errors=True) as name:
        yield Path(name) / "r"


@pytest.mark.slow
def test_a_ray_that_asks_for_no_token_is_in_the_way(short: Path) -> None:
    with ray(short, "disabled") as (address, starter):
        until = time.monotonic() + 180
        while not (agents := listeners(AGENT_PORT)) and time.monotonic() < until:
            time.sleep(0.2)
        is_its_own = any(child.pid in agents for child in starter.children(recursive=True))
        (check,) = checks_service.check_ray_auth(address)
    assert check.level is Level.BAD
    assert f"its GCS at {address}" in check.found
    assert agents
    if is_its_own:  # else that of another Ray, which may ask for its token
        assert f"the job API at port {AGENT_PORT}" in check.found
    assert "RAY_AUTH_MODE=token" in check.advice


def listeners(port: int) -> set[int | None]:
    """Return the listening processes; None for a process of another user."""
    connections = psutil.net_connections("tcp")
    return {
        connection.pid
        for connection in connections
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1] == port
    }


@pytest.mark.slow
def test_one_that_asks_is_in_order_and_the_token_may_be_named(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ray(short, "token") as (address, _):
        monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
        monkeypatch.setenv("HOME", str(short))
        unknown = list(checks_service.check_ray_auth(address))
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(short / ray_access.TOKEN))
        checks = list(checks_service.check_ray_auth(address))
    assert [check.level for check in unknown] == [Level.GOOD, Level.WARN]
    assert "RAY_AUTH_TOKEN_PATH" in unknown[1].advice
    assert [check.level for check in checks] == [Level.GOOD]
