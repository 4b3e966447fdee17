"""What a long run tells while it runs, and how it ends if it hangs: it may be ended from outside before its summary, and
a list of dots does not say which test held it up."""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

SAY_EVERY = 120.0  # seconds
HUNG = 900.0  # seconds without any test that began or ended: longer than the deadline of a test
IN_WORKER = "PYTEST_XDIST_WORKER" in os.environ

_began = _moved = time.monotonic()
_running: dict[str, float] = {}  # test -> when it began
_over = threading.Event()


def pytest_configure() -> None:
    if IN_WORKER:
        faulthandler.register(signal.SIGUSR1, file=sys.__stderr__, all_threads=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    if not IN_WORKER:
        threading.Thread(target=_watch, name="progress", daemon=True).start()
    try:
        return (yield)
    finally:
        _over.set()


def pytest_runtest_logstart(nodeid: str) -> None:
    global _moved
    _running[nodeid] = _moved = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    global _moved
    _running.pop(nodeid, None)
    _moved = time.monotonic()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and not IN_WORKER:
        _running.pop(report.nodeid, None)  # its process may be dead, and will not say that it is over
        crash = getattr(report.longrepr, "reprcrash", None)
        print(f"\n{report.when} failed: {report.nodeid}", crash or report.longreprtext, sep="\n    ", flush=True)


def _watch() -> None:
    while not _over.wait(SAY_EVERY):
        now = time.monotonic()
        for test, since in list(_running.items()):
            if now - since > SAY_EVERY / 2:
                print(f"\n{(now - _began) / 60:.0f} min: running for {now - since:.0f} s: {test}", flush=True)
        if now - _moved > HUNG:
            _end_workers(now - _moved)


def _end_workers(seconds: float) -> None:
    """Their stacks, then their end: other processes take over what they had left."""
    global _moved
    workers = psutil.Process().children()
    print(f"\nNo test began or ended for {seconds:.0f} s: {len(workers)} processes are ended.", flush=True)
    for number in (signal.SIGUSR1, signal.SIGKILL):
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(number)
        time.sleep(5)
    _moved = time.monotonic()
