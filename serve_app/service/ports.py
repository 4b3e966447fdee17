"""Ports that no other service on this machine has, though several start at once."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from serve_app.service import children
from serve_app.service.run_folder import running
from serve_app.service.state import ServiceError
from serve_app.settings import PREFIX

AGENT_PORT = 52365  # of Ray's agent, which starts submitted jobs: `ray.init` takes no other
LEFT_SECONDS = 10.0  # what a killed service leaves has ended by then; measured: 2.7 s on two cores
STANDBY = "serve_app.service.standby_app"  # the module that runs as one
EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104
LISTS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"  # the state of a socket
RANGE = 100  # ports of the replicas of one service, of those from 30000 to 31000


def free_range() -> int:
    """The first port of a range in which nobody listens at its beginning, where replicas are put first."""
    ranges = range(30000, 31000, RANGE)
    return next(
        (first for first in ranges if all(_is_free(first + n) for n in range(10)) and _claim(first, first)), 30000
    )


def own_port(first: int) -> int:
    """`first`, or one of the hundred from there, on which nothing listens and which no other service has chosen.

    Between the choice and the moment in which Ray's processes listen there lie seconds: two services that start at
    once would choose the same.
    """
    return (
        next((port for port in range(first, first + 100) if _is_free(port) and _claim(port, first)), None)
        or free_port()
    )


_CLAIMED: dict[int, tuple[int, socket.socket]] = {}  # ports that are this process's until it ends, and what for


def _claim(port: int, first: int) -> bool:
    """Whether `port` is ours: no other service that runs on this machine has claimed it, nor this one for another use.

    `first` stands for the use: the hundred ports from one may hold the first port of another.

    A name among Linux's abstract sockets is free again when its process ends, however it ends, and leaves no file.
    """
    if port in _CLAIMED:
        return _CLAIMED[port][0] == first
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0switchboard-port-{port}")
    except OSError:
        claim.close()
        return False
    _CLAIMED[port] = first, claim
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 (replicas listen on every interface; this one does not listen)
        except OSError:
            return False
    return True


def free_port() -> int:
    """One where nothing listens: two services may share a machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def agent_is_ours() -> bool:
    """False where a process that does not descend from this one listens on `AGENT_PORT`."""
    ours = {process.pid for process in children.descendants()}
    return all(one.pid in ours for one in _listening(AGENT_PORT))


def _listening(port: int) -> list[Any]:
    """The sockets that listen there; of another user's, `pid` is None."""
    found = psutil.net_connections("tcp")
    return [one for one in found if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr[1] == port]


def _listener(port: int) -> str:
    """Who listens there, as far as this user may know."""
    for service in running():
        if urlsplit(str(service.facts.get("url"))).port == port:
            return f": the service at {service.facts['url']} does (process {service.facts['pid']})"
    for one in _listening(port):
        if one.pid:
            with contextlib.suppress(psutil.Error):
                return f": process {one.pid} does ({psutil.Process(one.pid).name()})"
    return ""


def refuse_taken_port(host: str, port: int) -> None:
    """Raise `ServiceError` where something listens already: two HAProxies would share the port, and the requests.

    The HAProxy of a service that was killed ends by itself: that is waited for.
    """
    deadline = time.monotonic() + LEFT_SECONDS
    while error := _taken(host, port):
        if time.monotonic() > deadline or not _is_left_over(port):
            raise ServiceError(
                f"The service cannot listen on {host}, port {port} ({error.strerror}){_listener(port)}. Stop what "
                f"listens there, or choose another one with --port or {PREFIX}HTTP__PORT."
            )
        time.sleep(0.1)


def _taken(host: str, port: int) -> OSError | None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended are no obstacle
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def _is_left_over(port: int) -> bool:
    """Whether what took the port goes or has gone: an HAProxy of this user, of no service that runs."""
    if any(urlsplit(str(service.facts.get("url"))).port == port for service in running()):
        return False
    return all(_ends_by_itself(one.pid) for one in _listening(port))


def _ends_by_itself(pid: int | None) -> bool:
    """Whether it dies with the process that started it: HAProxy, and the standby."""
    try:
        return pid is not None and (psutil.Process(pid).name() == "haproxy" or STANDBY in psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def shared_socket(address: tuple[str, int]) -> socket.socket:
    """Bound to (host, port), which other processes of this user may listen on as well, if they share it too.

    Raises OSError.
    """
    family, host = _resolved(address)
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((host, address[1]))
    except OSError:
        found.close()
        raise
    return found


def is_taken(address: tuple[str, int], ours: socket.socket | None) -> bool:
    """Whether a socket other than `ours` listens at (host, port), or at that port of every address. Linux.

    To bind a socket for an answer would be in the way of a process that binds one at the same moment.
    """
    _, host = _resolved(address)
    own = os.fstat(ours.fileno()).st_ino if ours is not None and ours.fileno() >= 0 else None
    return any(
        port == address[1] and inode != own and (at == host or EVERYWHERE & {at, host})
        for at, port, inode in _listeners()
    )


def _listeners() -> Iterator[tuple[str, int, int]]:
    """Address, port and inode of each TCP socket that listens.

    The kernel lists them before all others, so that it costs nothing however many connections there are.
    """
    for path in LISTS:
        with contextlib.suppress(FileNotFoundError), path.open() as lines:  # without IPv6, that of IPv6 is not there
            next(lines)
            for line in lines:
                _, local, _, state, *others = line.split()
                if state != LISTENS:
                    break
                at, port = local.split(":")
                yield _address(at), int(port, 16), int(others[5])


def _address(digits: str) -> str:
    """Of hexadecimal digits, words of four bytes in the order of this machine."""
    words = [struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


@cache
def _resolved(address: tuple[str, int]) -> tuple[socket.AddressFamily, str]:
    """The family, and the host as a number; every address of IPv6 is every one of IPv4 here, as HAProxy is told."""
    if address[0] == "::":
        return socket.AF_INET, "0.0.0.0"  # noqa: S104
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return family, str(socket.getaddrinfo(*address, family, socket.SOCK_STREAM)[0][4][0])
