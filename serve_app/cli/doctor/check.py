import ipaddress
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    GOOD = "good"
    WARN = "warn"  # not needed by every installation, or not now
    BAD = "bad"  # Switchboard cannot run


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check. `found`: a fact; `advice`: one line that says what to do."""

    name: str
    level: Level
    found: str  # language: ok
    advice: str = ""


def good(name: str, fact: str) -> Check:
    return Check(name, Level.GOOD, fact)


def warn(name: str, fact: str, advice: str) -> Check:
    return Check(name, Level.WARN, fact, advice)


def bad(name: str, fact: str, advice: str) -> Check:
    return Check(name, Level.BAD, fact, advice)


def is_private_host(host: str) -> bool:
    """Return whether a host name or address is this machine or in a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".svc", ".cluster.local"))
