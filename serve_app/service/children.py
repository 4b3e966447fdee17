import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # before a restart, by failures in a row
END_SECONDS = 10.0  # for processes to be gone after SIGKILL


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose parent dies, so that it stays a descendant. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when `parent`, which started it, is gone.

    Elsewhere than on Linux only a parent that is gone already is noticed.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)


def descendants() -> set[psutil.Process]:
    """Return the living descendants of this process."""
    return {process for process in psutil.Process().children(recursive=True) if is_alive(process)}


def with_variable(name: str, value: str) -> set[psutil.Process]:
    """Return every other process with this variable in its environment, and their descendants.

    Descendants inherit it, but a process that changed its title (Ray's agents) has overwritten what can be read.
    """
    matches = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(name) == value:
                matches |= {process, *process.children(recursive=True)}
    return {process for process in matches if process.pid != os.getpid() and is_alive(process)}


def pause(failures: int) -> float:
    """Return the seconds to wait before a process is started again after so many failures in a row."""
    return PAUSES[min(failures, len(PAUSES) - 1)]


def is_alive(process: psutil.Process) -> bool:
    """Return whether it runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def reap() -> dict[int, int]:
    """Return the exit codes of children that have ended since the last call, by process number; -9 after SIGKILL.

    Takes them from `subprocess` too: only for a process that waits for no child itself at the same time.
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
    """Kill every descendant except the `spared` until none remains, including those that start in the meantime.

    Returns those that still exist after `END_SECONDS`: blocked in the kernel, waiting for a disk.
    """
    deadline = time.monotonic() + END_SECONDS
    while (remaining := only() - set(spared())) and time.monotonic() < deadline:
        for process in remaining:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.05)
    return list(remaining)
