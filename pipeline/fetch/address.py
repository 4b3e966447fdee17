"""The guard before every connection: which addresses a recording may be fetched from.

A URL is checked as text, its host is resolved once, every answer is checked, and the connection goes to a checked
answer (`transport.py`), so a name that resolves differently a moment later changes nothing.
"""

import asyncio
import ipaddress
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Annotated

import psutil
from pydantic import AfterValidator

from pipeline.errors import AddressForbidden, RecordingUnreachable
from pipeline.net import egress

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

LOOKUPS = 64  # names resolved at once in a process

DEFAULT_PORTS = {"http": 80, "https": 443}

REFUSED_PORTS = (
    *(1433, 1521, 3306, 5432, 6379, 9042, 9200, 9300, 11211, 27017),  # databases and caches
    *(2049, 2375, 2376, 2379, 2380, 6443, 10250, 15672),  # file service, orchestration, queues
    *(3389, 5900, 5985, 6000),  # remote control
)

# What listens here on nodes of a cluster runs commands, or serves state: Ray's GCS, dashboard, client and agents,
# its workers (10002-19999), the ingress's own ports. Closed on every address that is not on the open Internet.
SERVICE_PORTS = frozenset((6379, 8076, 8077, 8265, 8404, 10001, 44217, 44227, 52365, 52366)).union(
    range(8500, 8600), range(9101, 9201), range(10002, 20000), range(30000, 31000)
)
HOW_TO_ALLOW = (
    "allow it: `switchboard workspaces hosts` for one workspace, SWITCHBOARD_FETCH__ALLOWED_HOSTS for all of them"
)
OWN_SECONDS = 60.0  # for which this machine's addresses are taken to stay the same

# Clouds serve credentials here. Refused even for an allowed host name: only the literal address opens them.
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
    )
)

# What `ipaddress.is_global` lets through, or does not look inside of.
REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "100.64.0.0/10",  # carrier-grade NAT
        "192.88.99.0/24",  # 6to4 relays
        "::/96",  # IPv4-compatible
        "64:ff9b::/96",  # NAT64, whatever it wraps
        "64:ff9b:1::/48",
        "2001::/23",  # Teredo, ORCHID and other protocol assignments
        "2002::/16",  # 6to4
        "fec0::/10",  # site-local
        "5f00::/16",  # segment routing
    )
)

# A last label that is a number makes inet_aton read the whole host as IPv4: 2130706433, 0177.0.0.1, 0x7f.1, 127.1.
LOOKS_LIKE_IPV4 = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)$", re.IGNORECASE)
HOST_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*", re.IGNORECASE
)
UNUSUAL_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a checked URL leads. `host`: lower case ASCII, or an address in its shortest form; `path` has the query."""

    scheme: str
    host: str
    port: int
    path: bytes

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what credentials are good for (RFC 6454)."""
        return self.scheme, self.host, self.port

    @property
    def host_header(self) -> str:
        """Return the Host header: the host, with its port unless that is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


async def resolve(host: str, port: int) -> list[str]:
    with egress.permitted():  # the guard checks the answers
        ask = partial(copy_context().run, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    answers = await asyncio.get_running_loop().run_in_executor(_lookups(), ask)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


@cache
def _lookups() -> ThreadPoolExecutor:
    # separate: a silent name server blocks a thread for half a minute, and `asyncio.to_thread` writes downloads
    return ThreadPoolExecutor(LOOKUPS, "resolve")


def is_public(ip: IP) -> bool:
    """Return whether `ip` is a public unicast address; addresses that wrap another one are not."""
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return False  # ::ffff:8.8.8.8 has no business in DNS
    if ip in METADATA or not ip.is_global or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        return False
    return not any(ip in network for network in REFUSED_NETWORKS)


def own_addresses() -> frozenset[IP]:
    """Return the addresses of this machine's interfaces, cached for `OWN_SECONDS`."""
    return _own_addresses(int(time.monotonic() / OWN_SECONDS))


@lru_cache(maxsize=1)
def _own_addresses(_period: int) -> frozenset[IP]:
    texts = (address.address.partition("%")[0] for addresses in psutil.net_if_addrs().values() for address in addresses)
    return frozenset(ip for text in texts if (ip := _literal(text)) is not None)


class AddressGuard:
    """Decides by URL and by address; every refusal is an `AddressForbidden` that names the host and nothing more.

    `allowed_hosts`: host names, addresses and networks (CIDR) inside one's own network, each perhaps with a port.
    `ports`: single ports and ranges ("443", "1024-65535"); `refused_ports` are taken out of them. This machine's own
    addresses (`own`) are allowed only where an entry is just that host or address, or names the port; `SERVICE_PORTS`
    inside one's own network only where an entry names the port.
    """

    def __init__(
        self,
        allowed_hosts: Sequence[str] = (),
        ports: Sequence[str] = ("80", "443"),
        refused_ports: Sequence[int] = (),
        resolver: Resolver = resolve,
        own_addresses: Callable[[], frozenset[IP]] = own_addresses,
    ) -> None:
        self._allowed = [parse_allowed(entry) for entry in allowed_hosts]
        self._ports = [parse_ports(entry) for entry in ports]
        self._refused_ports = frozenset(refused_ports)
        self._resolve = resolver
        self._own = own_addresses

    def check(self, url: str) -> Target:
        """Check a URL's scheme, user-info, host and port.

        Raises `AddressForbidden`.
        """
        import httpx  # slow to import, for processes that only read options

        if UNUSUAL_CHARACTERS.search(url):
            raise AddressForbidden("The recording's address contains characters that a URL may not contain.")
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            raise AddressForbidden("The recording's address is not a valid URL.") from None
        if parsed.scheme not in DEFAULT_PORTS:
            raise AddressForbidden("The recording's address is neither http nor https.")
        if parsed.userinfo or "@" in parsed.netloc.decode("ascii", "replace"):
            raise AddressForbidden("The recording's address carries a user name or password.")
        host = parsed.raw_host.decode("ascii").lower().removesuffix(".")
        _check_host(host)
        host = str(_literal(host) or host)  # an IPv6 address may be written in many ways: one server, one credential
        target = Target(parsed.scheme, host, parsed.port or DEFAULT_PORTS[parsed.scheme], parsed.raw_path)
        if not self._port_allowed(host, target.port):
            raise AddressForbidden(
                f"Port {target.port} of {host} is not one that recordings are fetched from. "
                f"To allow it, list {host}:{target.port} in SWITCHBOARD_FETCH__ALLOWED_HOSTS."
            )
        return target

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolve `host`; one forbidden address forbids the host.

        Raises `AddressForbidden`, or `RecordingUnreachable` if the name has no address.
        """
        literal = _literal(host)
        answers = [str(literal)] if literal else await self._answers(host, port)
        for answer in answers:
            if not self._address_allowed(host, port, ipaddress.ip_address(answer)):
                raise _forbidden(host)
        return answers

    async def _answers(self, host: str, port: int) -> Sequence[str]:
        try:
            answers = await self._resolve(host, port)
        except (OSError, UnicodeError):
            answers = []
        if not answers:
            raise RecordingUnreachable(f"The name {host} has no address.").with_facts(host=host)
        if any("%" in answer for answer in answers):
            raise _forbidden(host)
        return answers

    def is_listed(self, target: Target) -> bool:
        """Return whether the allow-list names this host as written, and its port if the entry has one."""
        return any(rule.port in (None, target.port) and rule.names(target.host) for rule in self._allowed)

    def _port_allowed(self, host: str, port: int) -> bool:
        if any(rule.port == port and rule.names(host) for rule in self._allowed):
            return True
        return port not in self._refused_ports and any(port in span for span in self._ports)

    def _address_allowed(self, host: str, port: int, ip: IP) -> bool:
        with_port = any(rule.port == port and rule.covers(host, ip) for rule in self._allowed)
        is_own = ip.is_loopback or ip in self._own()
        if is_public(ip) and not is_own:
            return True
        if port in SERVICE_PORTS and not with_port:
            return False
        if is_own and not with_port:
            return ip not in METADATA and any(rule.allows_exactly(host, ip) for rule in self._allowed)
        rules = [rule for rule in self._allowed if rule.port in (None, port)]
        if any(rule.network is not None and ip in rule.network for rule in rules):
            return True
        return ip not in METADATA and any(rule.name == host for rule in rules)


@dataclass(frozen=True, slots=True)
class AllowRule:
    """Entry of the allow-list: a name or a network, and optionally a port."""

    name: str | None
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    port: int | None

    def covers(self, host: str, ip: IP) -> bool:
        """Return whether the rule applies to `host` or its address, ignoring the port."""
        return ip in self.network if self.network is not None else self.name == host

    def allows_exactly(self, host: str, ip: IP) -> bool:
        """Return whether the rule allows exactly this host or address, with any port."""
        is_single_host = self.network is None or self.network.num_addresses == 1
        return self.port is None and is_single_host and self.covers(host, ip)

    def names(self, host: str) -> bool:
        """Return whether the rule applies to `host` as written in a URL."""
        literal = _literal(host)
        if self.network is not None:
            return literal is not None and literal in self.network
        return self.name == host


def parse_allowed(entry: str) -> AllowRule:
    """Read `pbx.local`, `pbx.local:8088`, `10.1.2.3`, `10.0.0.0/8`, `::1`, `[fd00::1]:8080`; else ValueError."""
    text, port = entry.strip().lower().removesuffix("."), None
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", text)
    if bracketed:
        text, port = bracketed[1], int(bracketed[2]) if bracketed[2] else None
    elif text.count(":") == 1:
        text, _, digits = text.partition(":")
        if not digits.isdecimal():
            raise ValueError(f"{entry!r} is neither a host name, nor an address, nor a network")
        port = int(digits)
    try:
        return AllowRule(None, ipaddress.ip_network(text, strict=False), port)
    except ValueError:
        if HOST_NAME.fullmatch(text) and not LOOKS_LIKE_IPV4.search(text):
            return AllowRule(text, None, port)
    raise ValueError(f"{entry!r} is neither a host name, nor an address, nor a network")


def parse_ports(entry: str) -> range:
    """Read `443` or `1024-65535`. ValueError if it is neither."""
    first, _, last = entry.partition("-")
    span = range(int(first), int(last or first) + 1)
    if not span or span.start < 1 or span.stop > 65536:
        raise ValueError(f"{entry!r} is not a port or a range of ports")
    return span


def _each(parse: Callable[[str], object]) -> AfterValidator:
    def checked(entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            parse(entry)
        return entries

    return AfterValidator(checked)


AllowedHosts = Annotated[tuple[str, ...], _each(parse_allowed)]
Ports = Annotated[tuple[str, ...], _each(parse_ports)]


def _forbidden(host: str) -> AddressForbidden:
    return AddressForbidden(
        f"{host} leads to an address that recordings are not fetched from. "
        f"If it is a host of your own network, {HOW_TO_ALLOW}."
    ).with_facts(host=host)


def _check_host(host: str) -> None:
    literal = _literal(host)
    if literal is None and (LOOKS_LIKE_IPV4.search(host) or not HOST_NAME.fullmatch(host)):
        raise AddressForbidden("The host of the recording's address is written in a form that is not accepted.")


def _literal(host: str) -> IP | None:
    """Parse an address in its plain textual form: no zone, no octal, no short forms."""
    if "%" in host:
        return None
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
