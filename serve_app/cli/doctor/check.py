"""What one check of `switchboard doctor` says."""

import ipaddress
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    GOOD = "good"
    WARN = "warn"  # not needed by everybody, or not now
    BAD = "bad"  # Switchboard cannot run like this


@dataclass(frozen=True, slots=True)
class Check:
    """`found` is a fact, `advice` one line that says what to do about it."""

    name: str
    level: Level
    found: str
    advice: str = ""


def good(name: str, found: str) -> Check:
    return Check(name, Level.GOOD, found)


def warn(name: str, found: str, advice: str) -> Check:
    return Check(name, Level.WARN, found, advice)


def bad(name: str, found: str, advice: str) -> Check:
    return Check(name, Level.BAD, found, advice)


def inside(host: str) -> bool:
    """Whether a host is this machine or in a private network, as far as its name tells."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".svc", ".cluster.local"))
