"""Which process this is, among all machines that share a database, and whether another one of this machine is dead."""

import os
import socket
import uuid
from functools import cache
from pathlib import Path

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def machine() -> str:
    """The name of this machine since it was booted and of this process namespace, for people and for comparison.

    Neither a host name nor the number of a process namespace is unique: cloud images share the former, and the first
    namespace of every Linux has the same number. The boot id is drawn at random when a kernel starts. Empty where
    there is none (not Linux): processes of such machines are never taken for dead.
    """
    try:
        boot, namespace = BOOT_ID.read_text().strip(), Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return ""
    return f"{socket.gethostname()}/{boot}/{namespace.strip('pid:[]')}"


def worker_name() -> str:
    """A name for a worker of this process: machine, process number and start, and what tells two workers apart."""
    return f"{machine()}:{os.getpid()}@{_started(psutil.Process())}:{uuid.uuid4().hex[:6]}"


def is_dead(worker: str) -> bool:
    """True when `worker`, a `worker_name`, was a process of this very machine that is no more.

    Of other machines, of earlier boots, and of names of another form nothing is known: False.
    """
    there, _, process = worker.rpartition(":")[0].rpartition(":")
    number, _, started = process.partition("@")
    if not there or there != machine() or not number.isdecimal():
        return False
    try:
        found = psutil.Process(int(number))
        return found.status() == psutil.STATUS_ZOMBIE or _started(found) != started
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _started(process: psutil.Process) -> str:
    """When a process began, in ticks since the boot: a process number is given out again, this is not."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    except FileNotFoundError as error:
        raise psutil.NoSuchProcess(process.pid) from error
