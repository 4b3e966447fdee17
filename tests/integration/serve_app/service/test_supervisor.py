import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from db.server import embedded
from serve_app.service.holder import FolderLock
from serve_app.service.ports import STANDBY, free_port

SCRIPT = """
import os, signal, subprocess, sys, time
from pathlib import Path
from serve_app.service.run_folder import MARK
from serve_app.settings import Settings
from serve_app.service.supervisor import StandbyProcess
from serve_app.service.state import State
from serve_app.service.supervisor import AGAIN, Supervisor

folder, kind = Path(sys.argv[1]), sys.argv[2]
port, kind = (int(kind), "drains") if kind.isdigit() else (8000, kind)
database_url = None if kind in ("embedded", "drains") else "postgresql://localhost/x"
settings = Settings(data_dir=folder, database_url=database_url, http={"port": port})

def worker(url, ready):
    if kind == "fails":
        raise SystemExit(3)
    if kind == "drains":
        from db.server import migrate
        migrate.migrate(url)
    os.environ[MARK] = str(folder)
    if kind == "drains":
        signal.signal(signal.SIGTERM, lambda *_: (print("draining", flush=True), sys.stdin.readline(), os._exit(0)))
    elif kind == "stubborn":  # before it reports running, because the signal follows then
        signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Its own process group, and an orphan at once: as HAProxy is when the process that started it is killed.
    subprocess.run(["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 &"])
    print("worker", os.getpid(), flush=True)
    if kind == "again" and not (folder / "seen").exists():
        (folder / "seen").touch()
        os._exit(AGAIN)
    if kind != "again":
        ready()
    if kind == "embedded":  # as the real one, which dies with its Ray
        import threading, psutil
        ray = []
        while not ray:  # they are not yet called so, in the moment after their start
            ray = [one for one in psutil.process_iter(["name", "environ"]) if one.info["name"] == "sleep"
                   and (one.info["environ"] or {}).get(MARK) == str(folder)]
        threading.Thread(target=lambda: (psutil.wait_procs(ray[:1]), os._exit(AGAIN)), daemon=True).start()
    while True:
        time.sleep(1)

state = State(settings, print)
standby = StandbyProcess(settings, folder, as_json=True) if kind == "drains" else None
drain = 60.0 if kind == "drains" else 1.0
code = Supervisor(state, worker, drain - 60.0 + 1.0, folder, lambda step: print(step, flush=True), standby).run()
print("code", code, flush=True)
sys.exit(code)
"""


class Running:
    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.family: set[psutil.Process] = set()

    def worker(self) -> psutil.Process:
        """Return the next running worker, with its orphans counted as family."""
        number = self.worker_number()
        until(lambda: len(self.sleepers()) >= 2)
        self.family |= set(psutil.Process(self.process.pid).children(recursive=True))
        return psutil.Process(number)

    def worker_number(self) -> int:
        """Return the number of the next worker that reported running, which may have ended since."""
        while not (line := self.line()).startswith("worker"):
            pass
        return int(line.split()[1])

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the supervisor said nothing more"
        return line

    def sleepers(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if name(child) == "sleep"]

    def gone(self) -> bool:
        return not any(runs(process) for process in self.family)


def name(process: psutil.Process) -> str | None:
    """None: it ended before it was asked, as connections of PostgreSQL do."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return None


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Running]]:
    started: list[Running] = []

    def begin(kind: str) -> Running:
        started.append(Running(tmp_path, kind))
        return started[-1]

    yield begin
    for child in started:
        for process in (*child.family, child.process):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        child.process.wait()
        for pipe in (child.process.stdin, child.process.stdout):
            assert pipe is not None
            pipe.close()
    embedded.stop(tmp_path)


def test_a_worker_that_is_killed_is_started_again_and_its_orphans_are_ended(start: Callable[[str], Running]) -> None:
    running = start("server")
    first = running.worker()
    orphans = running.sleepers()
    first.kill()
    assert running.worker() != first
    assert not any(runs(orphan) for orphan in orphans)


def test_sigterm_twice_ends_everything_with_0(start: Callable[[str], Running]) -> None:
    running = start("server")
    running.worker()
    running.process.send_signal(signal.SIGINT)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(120) == 0
    assert running.gone()


@pytest.mark.slow
def test_a_worker_that_does_not_end_is_told_once_and_then_killed(start: Callable[[str], Running]) -> None:
    running = start("stubborn")
    running.worker()
    running.process.send_signal(signal.SIGTERM)
    assert running.line().startswith("told")
    assert "killing" in running.line()
    assert running.process.wait(120) == 0
    assert running.gone()


@pytest.mark.slow
def test_a_first_start_that_fails_with_a_reason_is_not_tried_again(start: Callable[[str], Running]) -> None:
    running = start("fails")
    assert running.process.wait(120) == 3


@pytest.mark.slow
def test_a_first_start_in_which_ray_died_is_tried_again(start: Callable[[str], Running]) -> None:
    running = start("again")
    first = running.worker_number()
    assert running.worker().pid != first


@pytest.mark.slow
def test_a_postgresql_that_is_killed_comes_back_and_the_worker_stays(
    start: Callable[[str], Running], tmp_path: Path
) -> None:
    running = start("embedded")
    worker = running.worker()
    server = embedded.postmaster(tmp_path)
    assert server is not None
    server.kill()
    until(lambda: embedded.postmaster(tmp_path) not in (None, server))
    with psycopg.connect(embedded.start(tmp_path)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert worker.is_running()


def test_a_supervisor_that_is_killed_takes_postgresql_with_it_and_frees_the_folder(
    start: Callable[[str], Running], tmp_path: Path
) -> None:
    running = start("embedded")
    running.worker()
    running.process.kill()
    until(running.gone)
    until(lambda: embedded.postmaster(tmp_path) is None)
    lock = FolderLock(tmp_path)
    until(lambda: held(lock))
    lock.release()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death is Linux's")
def test_a_supervisor_that_is_killed_with_its_worker_takes_postgresql_with_it(
    start: Callable[[str], Running], tmp_path: Path
) -> None:
    running = start("embedded")
    worker = running.worker()
    running.process.kill()
    worker.kill()
    until(lambda: embedded.postmaster(tmp_path) is None)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the standby runs on Linux only")
def test_the_standby_outlives_workers_and_takes_calls_until_the_last_is_drained(
    start: Callable[[str], Running],
) -> None:
    port = free_port()
    running = start(str(port))
    worker = running.worker()
    until(lambda: answers(port))
    (standby,) = standbys(running)
    worker.kill()
    running.worker()
    assert standbys(running) == [standby]
    running.process.send_signal(signal.SIGTERM)
    while not running.line().startswith("draining"):
        pass
    assert answers(port)
    assert running.process.stdin is not None
    running.process.stdin.write("drained\n")
    running.process.stdin.flush()
    assert running.process.wait(120) == 0
    assert not answers(port)
    assert running.gone()
    assert not runs(standby)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the standby runs on Linux only")
def test_a_supervisor_that_is_killed_with_its_worker_takes_the_standby_with_it(start: Callable[[str], Running]) -> None:
    running = start(str(free_port()))
    worker = running.worker()
    (standby,) = standbys(running)
    running.process.kill()
    worker.kill()
    until(lambda: not runs(standby))


def standbys(running: Running) -> list[psutil.Process]:
    children = psutil.Process(running.process.pid).children()
    return [child for child in children if STANDBY in child.cmdline()]


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=10, trust_env=False).is_success
    except httpx.TransportError:
        return False


def held(lock: FolderLock) -> bool:
    from serve_app.service.holder import FolderHeld

    try:
        lock.hold()
    except FolderHeld:
        return False
    return True
