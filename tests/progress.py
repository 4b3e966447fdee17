"""Reports the progress of a long run, ends it if it hangs, and writes the slowest tests to build/slowest.txt.

A run may be ended from outside before its summary, and a line of dots does not show which test held it up.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

SAY_EVERY = 120.0  # seconds
SLOWEST = 40  # tests that are listed
HUNG = 900.0  # seconds without any test that began or ended: longer than the deadline of a test in two processes
LAST_RESORT = 60.0  # seconds after a test's own deadline at which its process ends


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        faulthandler.register(signal.SIGUSR1, file=os.dup(sys.stderr.fileno()), all_threads=True)
    else:
        config.pluginmanager.register(Progress(has_workers=bool(config.getoption("numprocesses", None))))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Move the last resort of pyproject.toml behind the deadline of a test that has its own one."""
    deadline = item.get_closest_marker("timeout")
    if deadline:
        file = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(deadline.args[0] + LAST_RESORT, file=file, exit=True)


class Progress:
    """In the process that people read: names what failed at once, and what has been running for minutes."""

    def __init__(self, has_workers: bool) -> None:
        self._has_workers = has_workers
        self._began = self._moved = time.monotonic()
        self._running: dict[str, float] = {}  # test -> when it began
        self._over = threading.Event()
        self._seconds: Counter[str] = Counter()  # test -> with its fixtures

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        threading.Thread(target=self._watch, name="progress", daemon=True).start()
        try:
            return (yield)
        finally:
            self._over.set()
            self._write_slowest()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = self._moved = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._moved = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._running.pop(report.nodeid, None)  # its process may be dead, and will not say that it is over
            crash = getattr(report.longrepr, "reprcrash", None)
            print(f"\n{report.when} failed: {report.nodeid}", crash or report.longreprtext, sep="\n    ", flush=True)

    def _write_slowest(self) -> None:
        path = Path("build/slowest.txt")
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{took:7.1f} s  {test}\n" for test, took in self._seconds.most_common(SLOWEST)))

    def _watch(self) -> None:
        while not self._over.wait(SAY_EVERY):
            now = time.monotonic()
            for test, since in list(self._running.items()):
                if now - since > SAY_EVERY / 2:
                    print(f"\n{(now - self._began) / 60:.0f} min: running for {now - since:.0f} s: {test}", flush=True)
            if now - self._moved > HUNG and self._has_workers:
                self._end_workers(now - self._moved)

    def _end_workers(self, seconds: float) -> None:
        """Their stacks, then their end: other processes take over what they had left."""
        workers = psutil.Process().children()
        print(f"\nNo test began or ended for {seconds:.0f} s: {len(workers)} processes are ended.", flush=True)
        for number in (signal.SIGUSR1, signal.SIGKILL):
            for worker in workers:
                with suppress(psutil.NoSuchProcess):
                    worker.send_signal(number)
            time.sleep(5)
        self._moved = time.monotonic()
