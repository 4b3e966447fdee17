"""Ports that no other service on this machine uses, even if several start at once."""

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

AGENT_PORT = 52365  # of Ray's agent, which starts submitted jobs: fixed in `ray.init`
LEFT_SECONDS = 10.0  # for remains of a killed service to end; measured: 2.7 s on two cores
STANDBY = "serve_app.service.standby_app"
EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104
LISTS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"  # the state of a socket
RANGE = 100  # ports of the replicas of one service, of those from 30000 to 31000


def free_range() -> int:
    """Return the first port of a range whose first ports are free: Serve assigns those first."""
    ranges = range(30000, 31000, RANGE)
    return next(
        (first for first in ranges if all(_is_free(first + n) for n in range(10)) and _claim(first, first)), 30000
    )


def own_port(first: int) -> int:
    """Return `first`, or one of the next hundred, on which nothing listens and which no other service has chosen.

    Seconds pass between the choice and the moment in which Ray's processes listen: without a claim two services that
    start at once would choose the same.
    """
    return (
        next((port for port in range(first, first + 100) if _is_free(port) and _claim(port, first)), None)
        or free_port()
    )


_CLAIMED: dict[int, tuple[int, socket.socket]] = {}  # ports of this process until it ends, and their use


def _claim(port: int, first: int) -> bool:
    """Claim `port` for the use that `first` identifies; False if another service, or another use, has it.

    A name among Linux's abstract sockets is free again when its process ends, and leaves no file.
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
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def agent_is_ours() -> bool:
    """Return False if a process that does not descend from this one listens on `AGENT_PORT`."""
    ours = {process.pid for process in children.descendants()}
    return all(connection.pid in ours for connection in _listening(AGENT_PORT))


def _listening(port: int) -> list[Any]:
    """Return the sockets that listen on a port; `pid` is None for another user's."""
    connections = psutil.net_connections("tcp")
    return [
        connection
        for connection in connections
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr[1] == port
    ]


def _listener(port: int) -> str:
    """Return a phrase about the process that listens on a port, if this user may see it."""
    for service in running():
        if urlsplit(str(service.facts.get("url"))).port == port:
            return f": used by the service at {service.facts['url']} (process {service.facts['pid']})"
    for connection in _listening(port):
        if connection.pid:
            with contextlib.suppress(psutil.Error):
                return f": used by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""


def refuse_taken_port(host: str, port: int) -> None:
    """Raise `ServiceError` if something listens already: two HAProxies would share the port, and the requests.

    Waits for the HAProxy of a service that was killed, which ends by itself.
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
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended do not count
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def _is_left_over(port: int) -> bool:
    """Return whether the listener is about to end: an HAProxy of this user, of no service that runs."""
    if any(urlsplit(str(service.facts.get("url"))).port == port for service in running()):
        return False
    return all(_ends_by_itself(connection.pid) for connection in _listening(port))


def _ends_by_itself(pid: int | None) -> bool:
    """Return whether the process ends with its parent, as HAProxy and the standby do."""
    try:
        return pid is not None and (psutil.Process(pid).name() == "haproxy" or STANDBY in psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def shared_socket(address: tuple[str, int]) -> socket.socket:
    """Return a socket bound to (host, port), on which other processes of this user may listen too. Raises OSError."""
    family, host = _resolved(address)
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, address[1]))
    except OSError:
        listener.close()
        raise
    return listener


def is_taken(address: tuple[str, int], ours: socket.socket | None) -> bool:
    """Return whether a socket other than `ours` listens at (host, port), or at that port of every address. Linux only.

    Binding a socket as a test could make a process fail that binds one at the same moment.
    """
    _, host = _resolved(address)
    own_inode = os.fstat(ours.fileno()).st_ino if ours is not None and ours.fileno() >= 0 else None
    return any(
        port == address[1] and inode != own_inode and (at == host or EVERYWHERE & {at, host})
        for at, port, inode in _listeners()
    )


def _listeners() -> Iterator[tuple[str, int, int]]:
    """Yield address, port and inode of each TCP socket that listens.

    The kernel lists them first, so the cost does not depend on the number of connections.
    """
    for path in LISTS:
        with contextlib.suppress(FileNotFoundError), path.open() as lines:  # tcp6 is missing without IPv6
            next(lines)
            for line in lines:
                _, local, _, state, *others = line.split()
                if state != LISTENS:
                    break
                at, port = local.split(":")
                yield _address(at), int(port, 16), int(others[5])


def _address(digits: str) -> str:
    """Return the address of hexadecimal digits: words of four bytes in the byte order of this machine."""
    words = [struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


@cache
def _resolved(address: tuple[str, int]) -> tuple[socket.AddressFamily, str]:
    """Return the family and the numeric host; every address of IPv6 counts as every one of IPv4, as in HAProxy."""
    if address[0] == "::":
        return socket.AF_INET, "0.0.0.0"  # noqa: S104
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return family, str(socket.getaddrinfo(*address, family, socket.SOCK_STREAM)[0][4][0])
