"""Identifies this process among all machines that share a database, and detects dead ones on this machine."""

import os
import socket
import uuid
from functools import cache
from pathlib import Path

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def machine() -> str:
    """Return the name of this machine since its boot and of this process namespace, for people and for comparison.

    Neither a host name nor the number of a process namespace is unique: cloud images share the former, and the first
    namespace of every Linux has the same number. The boot id is random for each start of a kernel. Empty without one
    (not Linux): processes of such machines never count as dead.
    """
    try:
        boot, namespace = BOOT_ID.read_text().strip(), Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return ""
    return f"{socket.gethostname()}/{boot}/{namespace.strip('pid:[]')}"


def worker_name() -> str:
    """Return a unique name for a worker of this process: machine, process number and start, and a random part."""
    return f"{machine()}:{os.getpid()}@{_started(psutil.Process())}:{uuid.uuid4().hex[:6]}"


def is_dead(worker: str) -> bool:
    """Return whether `worker`, a `worker_name`, was a process of this machine that has ended.

    False for other machines, earlier boots, and names of another form: nothing is known about those.
    """
    machine_name, _, process = worker.rpartition(":")[0].rpartition(":")
    number, _, started = process.partition("@")
    if not machine_name or machine_name != machine() or not number.isdecimal():
        return False
    try:
        candidate = psutil.Process(int(number))
        return candidate.status() == psutil.STATUS_ZOMBIE or _started(candidate) != started
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _started(process: psutil.Process) -> str:
    """Return the start of a process in ticks since the boot: process numbers are reused, this is not."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    except FileNotFoundError as error:
        raise psutil.NoSuchProcess(process.pid) from error
