import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import psutil

from serve_app.service import children
from serve_app.service.environment import settings_variables, without_settings
from serve_app.service.ports import STANDBY
from serve_app.service.run_folder import MARK
from serve_app.settings import Settings

SOCKET = "standby.sock"
LOG = "standby.log"
STEADY_SECONDS = 60.0  # a standby that lived longer resets the pause


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
