import os
import socket
import stat
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg
import pytest

from db.server import embedded
from serve_app.service.environment import prepare_environment
from serve_app.service.holder import FolderHeld, FolderLock
from serve_app.service.ports import free_port, own_port
from serve_app.service.service import Service, ServiceError
from serve_app.service.state import State
from serve_app.settings import Settings

OURS = ("SWITCHBOARD_", "RAY_", "MALLOC_")


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = Settings(data_dir=tmp_path, http={"host": "127.0.0.1", "port": port})
        with pytest.raises(ServiceError, match=f"port {port} .*process {os.getpid()}.*SWITCHBOARD_HTTP__PORT"):
            Service(settings, "local").start()


def test_a_second_service_on_one_data_folder_is_refused_by_name_and_leaves_the_firsts_postgresql_alone(
    tmp_path: Path,
) -> None:
    url = embedded.start(tmp_path)
    first = FolderLock(tmp_path)
    first.hold(url="http://127.0.0.1:8000")
    second = Service(Settings(data_dir=tmp_path, http={"port": free_port()}), "local")
    try:
        with pytest.raises(ServiceError, match=f"{tmp_path}.*http://127.0.0.1:8000.*process {os.getpid()}.*DATA_DIR"):
            second.start()
        second.stop()  # as `switchboard up` does, whatever happened
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        first.release()
        embedded.stop(tmp_path)


def test_a_service_that_could_not_start_stops_the_postgresql_that_it_held_and_lets_go_of_the_folder(
    tmp_path: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        service = Service(Settings(data_dir=tmp_path, http={"port": taken.getsockname()[1]}), "local")
        with pytest.raises(ServiceError, match="cannot listen"):
            service.start()
        service.stop()
    lock = FolderLock(tmp_path)
    lock.hold()
    lock.release()


def test_proxies_that_take_longer_than_serve_waits_do_not_end_the_start(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import serve

    def start(**_: object) -> None:
        raise TimeoutError("HTTP proxies not available after 60s.")

    asked: list[int] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer as the standby without routes; then as a proxy without the intake's; then as one with it."""
            status, routes = ((503, b""), (200, b"{}"), (200, b'{"/": "intake"}'))[min(len(asked), 2)]
            asked.append(status)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(routes)

        def do_POST(self) -> None:
            assert len(asked) > 2, "a 401 of the standby says nothing of the cluster"
            self.send_response(401)
            self.end_headers()

    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    monkeypatch.setattr(serve, "start", start)
    deployed: list[str] = []
    monkeypatch.setattr(serve, "run_many", lambda targets, **_: deployed.extend(target.name for target in targets))
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = Settings(data_dir=tmp_path, http={"port": server.server_port})
        assert Service(settings, "local")._start_serve() == f"http://127.0.0.1:{server.server_port}/submit"
        server.shutdown()
    assert deployed == ["intake", "calls", "console", "api"]


def test_a_folder_whose_holder_was_killed_is_free(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from serve_app.service.holder import FolderLock; "
    script += f"lock = FolderLock(Path({str(tmp_path)!r})); lock.hold(url='x'); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(FolderHeld) as refused:
            FolderLock(tmp_path).hold()
        assert refused.value.facts == {"pid": holder.pid, "url": "x"}
        holder.kill()
        holder.wait()
        lock = FolderLock(tmp_path)
        lock.hold()
        lock.release()


def test_recordings_that_others_could_read_are_closed_at_the_next_start(tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    recordings.mkdir(mode=0o755)
    recordings.chmod(0o755)
    State(Settings(data_dir=tmp_path, database_url="postgresql://localhost/calls")).open()
    assert stat.S_IMODE(recordings.stat().st_mode) == 0o700


def test_a_cluster_needs_a_database_that_every_node_reaches() -> None:
    with pytest.raises(ServiceError, match="SWITCHBOARD_DATABASE_URL"):
        Service(Settings(), "127.0.0.1:6379").start()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return this process's environment without settings of the service and of Ray."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    monkeypatch.setattr(os, "environ", environment)
    return environment


def test_where_another_service_has_its_replicas_and_its_proxy_this_one_has_ports_of_its_own(
    environment: dict[str, str],
) -> None:
    def ports() -> tuple[int, int, int]:
        for name in [name for name in environment if name.startswith("RAY_SERVE_")]:
            del environment[name]
        prepare_environment(Settings(), "postgresql://localhost/calls")
        names = ("DIRECT_INGRESS_MIN_HTTP_PORT", "DIRECT_INGRESS_MAX_HTTP_PORT", "FALLBACK_PROXY_HTTP_PORT")
        first, last, fallback = (int(environment[f"RAY_SERVE_{name}"]) for name in names)
        return first, last, fallback

    first, last, fallback = ports()
    with socket.socket() as replica, socket.socket() as proxy:
        replica.bind(("0.0.0.0", first))
        replica.listen()
        proxy.bind(("127.0.0.1", fallback))
        proxy.listen()
        other, end, other_fallback = ports()
    assert other > last or end < first, "the services share no port"
    assert other_fallback != fallback


def test_a_port_that_a_starting_service_has_chosen_is_not_chosen_again_while_that_service_lives() -> None:
    choosing = "from serve_app.service.ports import own_port; print(own_port(9301), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", choosing], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starting:
        assert starting.stdout is not None
        chosen = int(starting.stdout.readline())  # nothing listens on it
        assert own_port(chosen) != chosen
        starting.kill()
    assert own_port(chosen) == chosen
    assert own_port(chosen) == chosen, "a claimed port is kept"


def test_two_uses_of_a_service_get_two_ports_where_their_hundreds_overlap() -> None:
    with socket.socket() as first, socket.socket() as second:  # of another service
        first.bind(("127.0.0.1", 9401))
        second.bind(("127.0.0.1", 9402))
        assert own_port(9401) == 9403
        assert own_port(9402) == 9404
        assert own_port(9401) == 9403, "a claimed port is kept"


def test_a_job_of_the_services_ray_finds_switchboard(environment: dict[str, str]) -> None:
    environment["PATH"] = "/usr/bin"
    for _ in range(2):  # a service that is started again in this process
        prepare_environment(Settings(), "postgresql://localhost/calls")
        assert environment["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"


def test_processes_keep_few_heaps_and_rays_workers_are_no_less_than_others(environment: dict[str, str]) -> None:
    prepare_environment(Settings(), "postgresql://localhost/calls")
    assert environment["MALLOC_ARENA_MAX"] == "2"
    assert environment["RAY_worker_niceness"] == "0"
    environment["MALLOC_ARENA_MAX"] = "8"
    prepare_environment(Settings(), "postgresql://localhost/calls")
    assert environment["MALLOC_ARENA_MAX"] == "8", "what the operator set is left alone"
