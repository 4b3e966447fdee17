"""Processes that this one started, directly or through others: what dies is reaped, what is left over is ended."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # before one that ends is started again, by how often in a row it has
END_SECONDS = 10.0  # that processes may take to be gone after SIGKILL


def adopt_orphans() -> None:
    """From now on a descendant whose parent dies becomes a child of this process, and so stays a descendant.

    Linux only; elsewhere nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when `parent`, which started it, is gone, however it went.

    Linux only; elsewhere only one that is gone already is noticed.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)


def descendants() -> set[psutil.Process]:
    """Every process that descends from this one and is alive."""
    return {process for process in psutil.Process().children(recursive=True) if is_alive(process)}


def with_variable(name: str, value: str) -> set[psutil.Process]:
    """Every process but this one that has the variable in its environment, and their descendants.

    Those inherited it too, but where a process changed its title (Ray's agents) that has overwritten what can be read.
    """
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(name) == value:
                found |= {process, *process.children(recursive=True)}
    return {process for process in found if process.pid != os.getpid() and is_alive(process)}


def pause(failures: int) -> float:
    """Seconds to wait before a process is started that has failed so often in a row."""
    return PAUSES[min(failures, len(PAUSES) - 1)]


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that is dead and only not reaped yet does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def reap() -> dict[int, int]:
    """The exit codes of children that have ended since the last call, by process number; -9 for one killed by SIGKILL.

    Takes them from `subprocess` too: only for a process that waits for no child of its own meanwhile.
    """
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def end(
    spared: Callable[[], Iterable[psutil.Process]] = set, only: Callable[[], set[psutil.Process]] = descendants
) -> list[psutil.Process]:
    """SIGKILL for every descendant but the `spared`, again until none is left, those included that start meanwhile.

    Returns those that were still there after `END_SECONDS`: in the kernel, waiting for a disk.
    """
    deadline = time.monotonic() + END_SECONDS
    while (left := only() - set(spared())) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.05)
    return list(left)
