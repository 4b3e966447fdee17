"""Recordings are not fetched from the machine itself, nor from the ports on which a cluster's nodes take orders."""

import ipaddress

import pytest

from pipeline.errors import AddressForbidden
from pipeline.fetch.address import AddressGuard, own_addresses

ALL_PORTS = ("1-65535",)
OWN = frozenset(ipaddress.ip_address(text) for text in ("127.0.0.1", "::1", "8.8.4.4", "10.0.0.5", "fd00::5"))
RAY = (6379, 8265, 8404, 8500, 9101, 10001, 10002, 19999, 30000, 52365)


def guard(*allowed: str, name: str = "") -> AddressGuard:
    async def resolver(_host: str, _port: int) -> list[str]:
        return [name]

    return AddressGuard(allowed, ALL_PORTS, resolver=resolver, own_addresses=lambda: OWN)


async def forbidden(checked: AddressGuard, host: str, port: int = 8080) -> bool:
    try:
        await checked.addresses(host, port)
    except AddressForbidden:
        return True
    return False


def test_a_machine_knows_its_addresses() -> None:
    assert ipaddress.ip_address("127.0.0.1") in own_addresses()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "8.8.4.4", "10.0.0.5", "fd00::5"])
async def test_the_machine_itself_is_refused_though_its_network_is_allowed(host: str) -> None:
    assert await forbidden(guard(), host)
    assert await forbidden(guard("10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::/0", "0.0.0.0/0"), host)


async def test_a_name_that_leads_to_the_machine_itself_is_refused() -> None:
    assert await forbidden(guard("10.0.0.0/8", name="10.0.0.5"), "pbx.local")
    assert await forbidden(guard(name="8.8.4.4"), "public.example", 443)
    assert not await forbidden(guard("pbx.local", name="10.0.0.6"), "pbx.local")


async def test_whoever_means_the_machine_itself_can_say_so() -> None:
    assert not await forbidden(guard("127.0.0.1"), "127.0.0.1")
    assert not await forbidden(guard("10.0.0.5:8080"), "10.0.0.5")
    assert not await forbidden(guard("pbx.local:8080", name="10.0.0.5"), "pbx.local")
    assert not await forbidden(guard("pbx.local", name="10.0.0.5"), "pbx.local")
    assert await forbidden(guard("pbx.local", name="10.0.0.5"), "pbx.local", 8265)
    assert await forbidden(guard("127.0.0.1"), "127.0.0.1", 8265)
    assert await forbidden(guard("pbx.local:8081", name="10.0.0.5"), "pbx.local")


@pytest.mark.parametrize("port", RAY)
async def test_the_ports_of_a_clusters_nodes_are_refused_inside_ones_own_network(port: int) -> None:
    assert await forbidden(guard("10.0.0.0/8"), "10.0.0.6", port)
    assert await forbidden(guard("node.local", name="10.0.0.6"), "node.local", port)
    assert not await forbidden(guard(f"node.local:{port}", name="10.0.0.6"), "node.local", port)
    assert not await forbidden(guard("10.0.0.0/8"), "10.0.0.6", 8443)


async def test_a_recording_server_on_the_open_internet_may_use_such_a_port() -> None:
    assert not await forbidden(guard(name="8.8.8.8"), "pbx.example", 30443)
