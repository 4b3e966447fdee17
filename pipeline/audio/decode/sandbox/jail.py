"""Dropping the privileges of a process: limits on its resources and, on Linux, a filter of system calls.

After `enter` a process can read and write open files, and allocate memory up to a limit. It can open no file, start no
program or thread and reach no network: the kernel returns EPERM. Without such a filter (not Linux, another processor, a
kernel or container that forbids it) only the limits apply, which also prevent further open files and connections;
`enter` returns which restrictions apply.
"""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
SECCOMP_SET_MODE_FILTER, TSYNC = 1, 1
LOAD, JUMP_EQUAL, JUMP_ABOVE, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, KILL, EPERM = 0x7FFF0000, 0x80000000, 0x00050001
ANOTHER_ABI = 0x40000000  # x32's numbers begin here

# By machine: the kernel's name for it, the call that sets a filter, and the calls that remain: read, write, close,
# fstat, lseek, mmap, mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, pread64, readv, writev,
# sched_yield, mremap, madvise, nanosleep, getpid, gettid, exit, exit_group, futex, clock_gettime, clock_nanosleep,
# getrandom, tgkill (abort), sched_getaffinity, sigaltstack, getrusage.
MACHINES: dict[str, tuple[int, int, str]] = {
    "x86_64": (
        0xC000003E,
        317,
        "0 1 3 5 8 9 10 11 12 13 14 15 17 19 20 24 25 28 35 39 60 98 131 186 202 204 228 230 231 234 318",
    ),
    "aarch64": (
        0xC00000B7,
        277,
        "57 62 63 64 65 66 67 80 93 94 98 101 113 115 123 124 131 132 134 135 139 165 172 178 214 215 216 222 226 233 "
        "278",
    ),
}
STDERR_BYTES = 1 << 16


def enter(memory_bytes: int, cpu_seconds: int) -> dict[str, bool]:
    """Drop all privileges and return which restrictions apply; `memory_bytes` is on top of the current use."""
    return {
        "dies with its parent": _dies_with_parent(),
        "memory": _bound(resource.RLIMIT_AS, _mapped() + memory_bytes),
        "processor": _bound(resource.RLIMIT_CPU, cpu_seconds, beyond=5),  # SIGXCPU, and SIGKILL 5 s later
        "file size": _bound(resource.RLIMIT_FSIZE, STDERR_BYTES),
        "core files": _bound(resource.RLIMIT_CORE, 0),
        "open files": _bound(resource.RLIMIT_NOFILE, 3),
        "system calls": _filter_calls(),
    }


def _bound(what: int, limit: int, beyond: int = 0) -> bool:
    try:
        resource.setrlimit(what, (limit, limit + beyond))
    except (OSError, ValueError):
        return False
    return True


def _mapped() -> int:
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:  # noqa: PTH123 (pathlib costs an import)
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 1 << 30


def _dies_with_parent() -> bool:
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no other process reads the memory of this one
    return bool(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _filter_calls() -> bool:
    """Restrict every thread of this process to the calls of `MACHINES`; return whether it worked."""
    machine = MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    architecture, seccomp, calls = machine[0], machine[1], [int(number) for number in machine[2].split()]
    steps = [
        (LOAD, 0, 0, 4),  # the architecture of the call
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),  # its number
        (JUMP_ABOVE, len(calls), 0, ANOTHER_ABI),
        *((JUMP_EQUAL, len(calls) - at, 0, call) for at, call in enumerate(calls)),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.cast(packed, ctypes.c_void_p))
    libc = ctypes.CDLL(None)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.syscall(seccomp, SECCOMP_SET_MODE_FILTER, TSYNC, ctypes.byref(program)) == 0)
