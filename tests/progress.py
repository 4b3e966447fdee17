"""Says in the output of a long run what failed, and what has been running for minutes: the run may be ended before its
summary, and a list of dots does not say which test held it up."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

SAY_EVERY = 120.0  # seconds
IN_WORKER = "PYTEST_XDIST_WORKER" in os.environ

_started = time.monotonic()
_running: dict[str, float] = {}  # test -> when it began
_over = threading.Event()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    if not IN_WORKER:
        threading.Thread(target=_watch, name="progress", daemon=True).start()
    try:
        return (yield)
    finally:
        _over.set()


def pytest_runtest_logstart(nodeid: str) -> None:
    _running[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    _running.pop(nodeid, None)


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
                print(f"\n{(now - _started) / 60:.0f} min: running for {now - since:.0f} s: {test}", flush=True)
