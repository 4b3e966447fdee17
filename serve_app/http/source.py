import os
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from fastapi import FastAPI

from serve_app.http.auth import SOURCE_HEADER

Networks = Sequence[IPv4Network | IPv6Network]
FORWARDED = b"x-forwarded-for"
MAX_PROXIES = 16  # in a row


class SourceMiddleware:
    """ASGI middleware that sets `SOURCE_HEADER` to the address of the client.

    It is the address of the connection, which HAProxy reports in `SOURCE_HEADER`, unless that is one of `proxies`: then
    it is the last address of X-Forwarded-For that is not one of them. A client may write any address before that.
    """

    def __init__(self, app: Any, behind_haproxy: bool, proxies: Networks) -> None:
        self._app = app
        self._behind_haproxy = behind_haproxy
        self._proxies = proxies

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            name = SOURCE_HEADER.encode()
            others = [header for header in scope["headers"] if header[0] != name]
            scope = scope | {"headers": [*others, (name, self._source(scope).encode("latin-1"))]}
        await self._app(scope, receive, send)

    def _source(self, scope: Any) -> str:
        peer = (scope.get("client") or ("",))[0]
        if self._behind_haproxy:
            peer = next(_values(scope, SOURCE_HEADER.encode()), peer)
        return client_address(peer, list(_values(scope, FORWARDED)) if self._proxies else [], self._proxies)


def trust_proxies(app: FastAPI, proxies: Networks) -> FastAPI:
    """Add `SourceMiddleware` to the application of a replica, and return it."""
    behind_haproxy = os.environ.get("RAY_SERVE_ENABLE_HA_PROXY") == "1"
    app.add_middleware(SourceMiddleware, behind_haproxy=behind_haproxy, proxies=proxies)
    return app


def client_address(peer: str, forwarded: Sequence[str], proxies: Networks) -> str:
    """Return the last address that is not one of `proxies`: of the values of X-Forwarded-For, then `peer`.

    Behind an address that cannot be parsed, all others are the client's claim: the proxy before it is the client.
    """
    address = _parsed(peer)
    if address is None:
        return peer
    hops = ",".join(forwarded).split(",")
    for hop in hops[: -MAX_PROXIES - 1 : -1]:
        following = _parsed(hop) if any(address in network for network in proxies) else None
        if following is None:
            break
        address = following
    return str(address)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address, without a port that some load balancers add; None if it is not one."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _values(scope: Any, name: bytes) -> Iterator[str]:
    return (value.decode("latin-1") for key, value in scope["headers"] if key == name)
