"""Keeps a service up: restarts what dies, and leaves no process behind, whatever dies.

Two processes. The supervisor, which people start and signal, holds the data folder and PostgreSQL, and becomes the
parent of every orphaned process of the service. Its child, the worker, starts Ray and Serve, and is restarted when it
or Ray dies. If the supervisor is killed, the worker notices, ends everything and exits. If both are killed, Ray's
processes end by themselves, and the kernel signals PostgreSQL. A third process, the standby of the intake, takes calls
while there is no worker.
"""

import contextlib
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from serve_app.service import children
from serve_app.service.environment import settings_variables, without_settings
from serve_app.service.log_stream import LogStream
from serve_app.service.ports import STANDBY
from serve_app.service.run_folder import MARK
from serve_app.service.state import State
from serve_app.settings import Settings

SOCKET = "standby.sock"
LOG = "standby.log"


class StandbyProcess:
    """The supervisor's handle of the intake's standby (`serve_app.service.standby_app`): max. one process.

    It has its own process group, since Ctrl-C is for the supervisor. `as_json`: it reports as an event.
    """

    def __init__(self, settings: Settings, folder: Path, as_json: bool) -> None:
        self._settings, self._folder, self._as_json = settings, folder, as_json
        self._began = time.time()
        self._environment: dict[str, str] = {}
        self._pid: int | None = None
        self._started = 0.0
        self._wanted = False
        self._due = 0.0  # when to start it again
        self._failures = 0

    @property
    def socket(self) -> Path:
        """Socket for HAProxy, in the service's folder."""
        return self._folder / SOCKET

    def start(self, database_url: str) -> None:
        """Start it, and let `keep` restart it from now on."""
        settings = self._settings.with_folder_key().model_copy(update={"database_url": database_url})
        self._environment = without_settings(os.environ) | settings_variables(settings) | {MARK: str(self._folder)}
        self._wanted = True
        self.keep({})

    def keep(self, ended: dict[int, int]) -> None:
        """Start it again if it is among the children that have `ended`, after a pause that grows with its failures."""
        now = time.monotonic()
        if self._pid in ended:
            self._pid = None
            self._failures = 0 if now - self._started > STEADY_SECONDS else self._failures + 1
            self._due = now + children.pause(self._failures)
        if self._pid is None and self._wanted and now >= self._due:
            self._pid, self._started = self._spawn(), now

    def processes(self) -> set[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return {psutil.Process(self._pid)} if self._pid else set()
        return set()

    def stop(self) -> None:
        """Take no further requests; the process ends when the current ones are answered."""
        self._wanted = False
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)

    def _spawn(self) -> int:
        command = [sys.executable, "-m", STANDBY, "--private", str(self.socket), "--log", str(self._folder / LOG)]
        command += ["--parent", str(os.getpid()), "--started", str(self._began)]
        command += ["--events", str(self._folder)] if self._as_json else []
        return os.posix_spawn(sys.executable, command, self._environment, setpgroup=0)


LOOK_SECONDS = 0.2
STATE_SECONDS = 0.5  # between two checks of PostgreSQL
STEADY_SECONDS = 60.0  # a worker that lived longer did not fail to start
AGAIN = 70  # exit code of a worker that requests a restart, even if none has been ready yet
STANDBY_SECONDS = 15.0  # for the standby to answer the current requests
STOP_SECONDS = 60.0  # for Ray and Serve to end, once calls are drained

Step = Callable[[str], None]
Worker = Callable[[str, Callable[[], None]], None]


class Supervisor:
    """Restarts `worker(database_url, ready)`, which calls `ready` when it is up and ends after a SIGTERM.

    `on_step(sentence)` receives what happens. `drain_seconds`: how long running calls may take to end. `folder`: the
    service's, which all processes that the worker starts have in their environment as `MARK`. `standby` runs in
    parallel with the workers, also while there is none. `logs` forwards the lines of all processes.
    """

    def __init__(
        self,
        state: State,
        worker: Worker,
        drain_seconds: float,
        folder: Path,
        on_step: Step = lambda _: None,
        standby: StandbyProcess | None = None,
        logs: LogStream | None = None,
    ) -> None:
        self._state, self._worker, self._folder, self._on_step = state, worker, folder, on_step
        self._standby, self._logs = standby, logs
        self._stop_seconds = drain_seconds + STOP_SECONDS
        self._stopping = False
        self._ready = mmap.mmap(-1, 1)  # shared with the workers: whether any has been ready
        self._state_failures = 0

    def run(self) -> int:
        """Return the exit code: 0 after SIGTERM, SIGINT or SIGHUP, else that of a first start that failed.

        Returns in this process only: the worker's ends with SystemExit, or what the worker raises. Raises what
        `State.open` raises.
        """
        children.adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._stop)
        supervisor = os.getpid()
        try:
            return self._keep_up(self._state.open())
        finally:
            if os.getpid() == supervisor:
                children.end(spared=self._spared)
                self._end_standby()
                children.end(spared=self._state.processes)
                self._state.close()
                if self._logs:
                    self._logs.close()

    def _stop(self, _number: int, _frame: Any) -> None:
        """Request the stop; a second signal changes nothing, so that impatience does not cut draining short."""
        self._stopping = True

    def _keep_up(self, url: str) -> int:
        failures = 0
        if self._standby:
            self._standby.start(url)
        while not self._stopping:
            started = time.monotonic()
            code = self._watch(self._start_worker(url))
            children.end(spared=self._spared)
            if not self._stopping and not self._ready[0] and code > 0 and code != AGAIN:
                return code
            failures = 0 if time.monotonic() - started > STEADY_SECONDS else failures + 1
            if not self._stopping:
                self._on_step(f"The service's process ended ({_why(code)}): starting it again")
                self._wait(children.pause(failures))
        return 0

    def _spared(self) -> set[psutil.Process]:
        return self._state.processes() | (self._standby.processes() if self._standby else set())

    def _reap(self) -> dict[int, int]:
        """Return the exit codes of children that have ended; restart the standby if it is among them.

        Runs several times a second, and forwards the logs too.
        """
        ended = children.reap()
        if self._logs:
            self._logs.forward()
        if self._standby:
            self._standby.keep(ended)
        return ended

    def _end_standby(self) -> None:
        """End the standby last: while running calls are drained, it takes new ones for the next start."""
        if self._standby:
            self._standby.stop()
            deadline = time.monotonic() + STANDBY_SECONDS
            while self._standby.processes() and time.monotonic() < deadline:
                self._reap()
                time.sleep(0.05)

    def _start_worker(self, url: str) -> int:
        here, alive = os.pipe()  # `alive` is closed when this process is gone
        pid = os.fork()
        if pid:
            os.close(here)
            self._alive = alive
            return pid
        os.close(alive)
        os.setpgid(0, 0)  # Ctrl-C in a terminal is for the supervisor, which signals the worker once
        threading.Thread(target=_end_with_supervisor, args=(here, self._state, self._folder), daemon=True).start()
        self._worker(url, self._set_ready)
        raise SystemExit(0)

    def _set_ready(self) -> None:
        self._ready[0] = 1

    def _watch(self, worker: int) -> int:
        """Wait for the worker to end, keeping PostgreSQL up; return the worker's exit code."""
        deadline, look_at_state = float("inf"), 0.0
        while (code := self._reap().get(worker)) is None:
            now = time.monotonic()
            if self._stopping and deadline == float("inf"):
                deadline = now + self._stop_seconds
                os.kill(worker, signal.SIGTERM)
            if now > deadline:
                self._on_step(f"The service has not ended within {self._stop_seconds:.0f} s: killing it")
                children.end(spared=self._state.processes)
            if now > look_at_state:
                look_at_state = self._keep_state()
            time.sleep(LOOK_SECONDS)
        os.close(self._alive)
        return code

    def _keep_state(self) -> float:
        """Restart PostgreSQL if it died; return the time of the next check."""
        try:
            self._state.restart_if_gone()
            self._state_failures = 0
        except Exception as error:  # a full disk, for example, may have space again in a moment
            self._state_failures += 1
            self._on_step(f"PostgreSQL does not start: {error}")
        return time.monotonic() + STATE_SECONDS + children.pause(self._state_failures)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stopping:
            time.sleep(LOOK_SECONDS)
            self._reap()


def _why(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _end_with_supervisor(alive: int, state: State, folder: Path) -> None:
    """Run in the worker: when the supervisor is gone, stop PostgreSQL, kill the descendants, and exit.

    PostgreSQL goes first: a process whose Ray is killed under it may not live to do anything more.
    """
    os.read(alive, 1)
    try:
        with contextlib.suppress(Exception):  # the other processes must end in any case
            state.stop()
        # Orphans went to the supervisor, and now have no parent: their environment identifies them.
        children.end(only=lambda: children.descendants() | children.with_variable(MARK, str(folder)))
    finally:
        os._exit(1)  # releases the data folder
