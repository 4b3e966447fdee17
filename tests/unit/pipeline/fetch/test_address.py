import asyncio
import socket
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import AddressForbidden, RecordingUnreachable
from pipeline.fetch.address import AddressGuard, parse_allowed, parse_ports, resolve


def answering(*addresses: str):
    async def resolver(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolver


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/a.wav",
        "file:///etc/passwd",
        "gopher://example.com/",
        "//example.com/a.wav",
        "example.com/a.wav",
        "http://",
        "http:///a.wav",
        "http://user:secret@example.com/a.wav",
        "http://user@example.com/a.wav",
        "http://@example.com/a.wav",
        "http://example.com:secret@127.0.0.1/a.wav",
        "http://example.com\\@127.0.0.1/a.wav",
        "http://exa mple.com/a.wav",
        "http://example.com/a\r\nHost: b",
        "http://2130706433/",
        "http://017700000001/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://0x7f.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://127.0.0.1.0x/",
        "http://256.256.256.256/",
        "http://example.com.123/",
        "http://[fe80::1%25eth0]/",
        "http://[::1%lo]/",
        "http://１２７.０.０.１/",
        "http://example.com:22/",
        "http://example.com:5432/",
        "http://example.com:6379/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://-example.com/",
        "http://exa%6dple.com/",
    ],
)
async def test_a_url_in_an_odd_form_or_to_a_forbidden_port_is_refused(url: str) -> None:
    guard = AddressGuard(ports=("80", "443", "1024-65535"), refused_ports=(5432, 6379), resolver=answering("127.0.0.1"))
    with pytest.raises(AddressForbidden) as refusal:
        target = guard.check(url)
        await guard.addresses(target.host, target.port)
    assert "secret" not in refusal.value.message


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "169.254.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "192.88.99.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
        "fe80::1%eth0",
    ],
)
async def test_an_address_off_the_open_internet_is_refused(address: str) -> None:
    with pytest.raises(AddressForbidden):
        await AddressGuard(resolver=answering(address)).addresses("recordings.example", 443)
    with pytest.raises(AddressForbidden):
        await AddressGuard(resolver=answering("93.184.216.34", address)).addresses("recordings.example", 443)
    if "%" not in address:
        with pytest.raises(AddressForbidden):
            await AddressGuard(resolver=answering("93.184.216.34")).addresses(address, 443)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1"])
async def test_an_address_on_the_open_internet_is_accepted(address: str) -> None:
    assert await AddressGuard(resolver=answering(address)).addresses("recordings.example", 443) == (address,)


async def test_a_name_without_an_address_is_unreachable_and_may_be_tried_again() -> None:
    with pytest.raises(RecordingUnreachable) as failure:
        await AddressGuard(resolver=answering()).addresses("recordings.example", 443)
    assert failure.value.retryable


@pytest.mark.parametrize(
    ("entry", "host", "answer", "port"),
    [
        ("pbx.local", "pbx.local", "10.0.0.5", 80),
        ("PBX.local.", "pbx.local", "10.0.0.5", 80),
        ("pbx.local:8088", "pbx.local", "10.0.0.5", 8088),
        ("10.0.0.0/8", "pbx.local", "10.0.0.5", 80),
        ("10.0.0.5", "10.0.0.5", "", 80),
        ("127.0.0.1:9001", "127.0.0.1", "", 9001),
        ("[fd00::5]:8080", "fd00::5", "", 8080),
        ("fd00::/8", "fd00::5", "", 80),
    ],
)
async def test_a_host_of_ones_own_network_may_be_allowed(entry: str, host: str, answer: str, port: int) -> None:
    guard = AddressGuard(allowed_hosts=(entry,), ports=("80",), resolver=answering(answer))
    bracketed = f"[{host}]" if ":" in host else host
    target = guard.check(f"http://{bracketed}:{port}/a.wav")
    assert list(await guard.addresses(target.host, target.port)) == [answer or host]


async def test_an_allowed_host_opens_neither_other_hosts_nor_other_ports() -> None:
    guard = AddressGuard(
        allowed_hosts=("pbx.local:8088", "127.0.0.1:9001"), ports=("80",), resolver=answering("10.0.0.5")
    )
    with pytest.raises(AddressForbidden):
        await guard.addresses("other.local", 8088)
    with pytest.raises(AddressForbidden):
        await guard.addresses("pbx.local", 80)
    with pytest.raises(AddressForbidden):
        await guard.addresses("127.0.0.1", 9002)
    with pytest.raises(AddressForbidden):
        guard.check("http://127.0.0.1:9002/")


async def test_an_allowed_name_does_not_open_the_metadata_address() -> None:
    with pytest.raises(AddressForbidden):
        await AddressGuard(allowed_hosts=("pbx.local",), resolver=answering("169.254.169.254")).addresses(
            "pbx.local", 80
        )


@pytest.mark.parametrize("entry", ["", "a b", "10.0.0.0/40", "pbx.local:http", "2130706433", "http://pbx.local"])
def test_an_allow_list_entry_that_cannot_be_read_is_refused(entry: str) -> None:
    with pytest.raises(ValueError):
        parse_allowed(entry)


@pytest.mark.parametrize("entry", ["", "0", "70000", "20-10", "http"])
def test_a_port_range_that_cannot_be_read_is_refused(entry: str) -> None:
    with pytest.raises(ValueError):
        parse_ports(entry)


@given(st.text(max_size=80))
def test_any_text_is_either_a_target_or_a_refusal(text: str) -> None:
    for url in (text, f"http://{text}", f"https://{text}/a.wav"):
        try:
            target = AddressGuard().check(url)
        except AddressForbidden:
            continue
        assert target.scheme in ("http", "https")
        assert target.port in (80, 443)
        assert target.host == target.host.lower()


@pytest.mark.parametrize("host", ["2606:2800:220:1:0:0:0:1", "2606:2800:0220:0001::0001", "2606:2800:220:1::1"])
def test_an_address_is_one_host_however_it_is_written(host: str) -> None:
    assert AddressGuard().check(f"https://[{host}]/a.wav").host == "2606:2800:220:1::1"


async def test_name_servers_that_do_not_answer_hold_up_no_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def silent(*_: object, **__: object) -> list[object]:
        answered.wait(120)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    asked = [asyncio.ensure_future(resolve(f"host{number}.example", 443)) for number in range(40)]
    try:
        await asyncio.wait_for(asyncio.to_thread(int), 60)
    finally:
        answered.set()
        await asyncio.gather(*asked)
