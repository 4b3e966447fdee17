"""The guard of outgoing connections under SWITCHBOARD_EGRESS=deny, installed in every process that imports our code.

It lets connections through to this machine, to hosts that a setting names, and to addresses that the guard of
recordings and webhooks has checked (`permitted`). It sees every socket of Python in an audit hook, whichever library
opens it. uvloop has sockets of its own, so its loops are wrapped. Names are looked up only if they may be reached.
Native code that opens sockets (libpq, Ray between its nodes, HAProxy) connects to what the settings name.
"""

import contextlib
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

SETTING = "SWITCHBOARD_EGRESS"
DENY = "deny"
SWITCHES = {  # of libraries that report or download on their own
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PYANNOTE_METRICS_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "ORT_DISABLE_TELEMETRY": "1",  # of native code, which the guard does not see
    "DO_NOT_TRACK": "1",
}
NAMING = re.compile(r"SWITCHBOARD_|OTEL_EXPORTER_OTLP_|AWS_ENDPOINT_URL|RAY_ADDRESS$|FSSPEC_")
CLOUDS = {  # domains of object stores whose addresses name no host
    "s3": (".amazonaws.com",),
    "gs": (".googleapis.com", "metadata.google.internal"),
    "abfs": (".windows.net", ".microsoftonline.com"),
    "az": (".windows.net", ".microsoftonline.com"),
}
_URL = re.compile(r"([a-z][a-z0-9+]*)://(?:[^@/\s\"']*@)?(\[[0-9a-fA-F:.]+\]|[^/\s\"'?#:]+)")
_BARE = re.compile(r"([\w.-]+):\d+")  # RAY_ADDRESS=head:6379
_permitted: ContextVar[bool] = ContextVar("egress_permitted", default=False)


class EgressDenied(ConnectionRefusedError):
    """A connection that SWITCHBOARD_EGRESS=deny refuses."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"The connection to {host} is refused by {SETTING}={DENY}, since no setting names this host. If it is your "
            "database, storage or model server, name it in SWITCHBOARD_DATABASE_URL, SWITCHBOARD_STORAGE, "
            f"SWITCHBOARD_ASR__BASE_URL or SWITCHBOARD_ANALYSIS__BASE_URL; otherwise set {SETTING}=allow."
        )
        self.host = host


def is_denied() -> bool:
    return os.environ.get(SETTING, "").strip().lower() == DENY


@contextlib.contextmanager
def permitted() -> Iterator[None]:
    """Permit connections in this block: their address was checked."""
    token = _permitted.set(True)
    try:
        yield
    finally:
        _permitted.reset(token)


def check_host(host: object) -> None:
    """Raise `EgressDenied` unless a name or address may be reached. It looks nothing up."""
    if not _installed or _permitted.get() or host is None:
        return
    name = (host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)).lower().rstrip(".")
    ip = _address(name)
    if not (_may_connect(ip) if ip is not None else name in _installed[0].names or _installed[0].covers(name)):
        raise EgressDenied(name)


class _Guard:
    """The hosts that the settings of this process name, and the addresses that they were resolved to."""

    def __init__(self) -> None:
        self.names = {"", "localhost", socket.gethostname().lower()}
        self.addresses: set[Any] = set()
        self._domains: tuple[str, ...] = ()
        for variable, value in os.environ.items():
            if not NAMING.match(variable):
                continue
            for scheme, host in _URL.findall(value):
                self._name(host.strip("[]").lower())
                self._domains += CLOUDS.get(scheme, ())
            self.names |= {match[1].lower() for match in [_BARE.fullmatch(value)] if match}

    def _name(self, host: str) -> None:
        if (ip := _address(host)) is not None:
            self.addresses.add(ip)
        self.names.add(host)

    def covers(self, name: str) -> bool:
        return name.endswith(self._domains) if self._domains else False


_installed: list[_Guard] = []  # max. one


def install() -> None:
    """Install the guard in this process, permanently. Its settings are those of the environment at this time."""
    if _installed:
        return
    os.environ.update(SWITCHES)
    _own_addresses()  # imports nothing later, inside of the hook
    _installed.append(_Guard())
    sys.addaudithook(_audit)
    look_up = socket.getaddrinfo

    def recorded(*args: Any, **more: Any) -> Any:
        answers = look_up(*args, **more)  # the hook has checked the name
        _record(answers)
        return answers

    socket.getaddrinfo = recorded
    with contextlib.suppress(ImportError):
        _wrap_uvloop()


def _record(answers: Any) -> None:
    if not _permitted.get():  # what is permitted once is checked again the next time
        _installed[0].addresses.update(_address(str(answer[4][0])) for answer in answers)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not event.startswith("socket."):
        return
    check = _CHECKS.get(event)
    if check is not None:
        check(args)


def _check_target(args: tuple[Any, ...]) -> None:
    target = args[1]
    if isinstance(target, tuple) and target:  # otherwise a path of this machine, or a connected socket
        check_host(target[0])


_CHECKS: dict[str, Callable[[tuple[Any, ...]], None]] = {
    "socket.connect": _check_target,
    "socket.sendto": _check_target,
    "socket.sendmsg": _check_target,
    "socket.getaddrinfo": lambda args: check_host(args[0]),
    "socket.gethostbyname": lambda args: check_host(args[0]),
    "socket.gethostbyaddr": lambda args: check_host(args[0]),
    "socket.getnameinfo": lambda args: check_host(args[0][0]),
}


def _wrap_uvloop() -> None:
    import uvloop

    loop: Any = uvloop.Loop
    original = {name: getattr(loop, name) for name in ("create_connection", "getaddrinfo", "sock_connect")}
    datagrams = loop.create_datagram_endpoint

    async def create_connection(self: Any, factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        check_host(host)
        return await original["create_connection"](self, factory, host, port, **more)

    async def getaddrinfo(self: Any, host: Any, port: Any, **more: Any) -> Any:
        check_host(host)
        answers = await original["getaddrinfo"](self, host, port, **more)
        _record(answers)
        return answers

    async def sock_connect(self: Any, sock: Any, address: Any) -> Any:
        _check_target((sock, address))
        return await original["sock_connect"](self, sock, address)

    async def create_datagram_endpoint(
        self: Any, factory: Any, local_addr: Any = None, remote_addr: Any = None, **more: Any
    ) -> Any:
        check_host(remote_addr[0] if remote_addr else None)
        return await datagrams(self, factory, local_addr, remote_addr, **more)

    loop.create_connection, loop.getaddrinfo = create_connection, getaddrinfo
    loop.sock_connect, loop.create_datagram_endpoint = sock_connect, create_datagram_endpoint


def _may_connect(ip: Any) -> bool:
    return ip.is_loopback or ip.is_unspecified or ip in _installed[0].addresses or ip in _own_addresses()


def _own_addresses() -> set[Any]:
    import psutil

    texts = (address.address for addresses in psutil.net_if_addrs().values() for address in addresses)
    return {ip for text in texts if (ip := _address(text)) is not None}


def _address(text: str) -> Any:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
