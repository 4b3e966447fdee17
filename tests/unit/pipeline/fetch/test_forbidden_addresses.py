# ruff: noqa: SIM905 - a list of so many would fill pages

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest

from pipeline.errors import AddressForbidden, RedirectInsecure
from pipeline.fetch.fetcher import Fetcher
from pipeline.fetch.options import FetchOptions
from tests.recording_server import AUDIO, Server, reply, serving
from tests.tuned import tuned

DIRECT = """
    http://127.0.0.1:{port}/ http://127.0.0.2:{port}/ http://127.255.255.254:{port}/ http://127.1:{port}/
    http://127.0.1:{port}/ http://2130706433:{port}/ http://02130706433:{port}/ http://017700000001:{port}/
    http://0177.0.0.1:{port}/ http://0177.1:{port}/ http://0x7f000001:{port}/ http://0x7f.0.0.1:{port}/
    http://0x7f.1:{port}/ http://0x7F.0x0.0x0.0x1:{port}/ http://127.0.0.1.:{port}/ http://0:{port}/
    http://0.0.0.0:{port}/ http://0x0:{port}/ http://127.000.000.001:{port}/ http://4294967295:{port}/
    http://[::1]:{port}/ http://[::]:{port}/ http://[0:0:0:0:0:0:0:1]:{port}/ http://[::ffff:127.0.0.1]:{port}/
    http://[::ffff:7f00:1]:{port}/ http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/ http://[::127.0.0.1]:{port}/
    http://[64:ff9b::127.0.0.1]:{port}/ http://[64:ff9b:1::7f00:1]:{port}/ http://[2002:7f00:1::1]:{port}/
    http://[2001:0:7f00:1::80ff:fffe]:{port}/ http://[::ffff:0:127.0.0.1]:{port}/ http://[::1%25lo]:{port}/
    http://[::1%lo]:{port}/ http://[fe80::1%25eth0]:{port}/ http://[fe80::1]:{port}/ http://[fec0::1]:{port}/
    http://[fc00::1]:{port}/ http://[fd00:ec2::254]:{port}/ http://[ff02::1]:{port}/ http://[2001:db8::1]:{port}/
    http://[5f00::1]:{port}/ http://[100::1]:{port}/ http://[::ffff:169.254.169.254]/
    http://10.0.0.1:{port}/ http://172.16.0.1:{port}/ http://172.31.255.255:{port}/ http://192.168.0.1:{port}/
    http://169.254.1.1:{port}/ http://100.64.0.1:{port}/ http://100.127.255.255:{port}/ http://192.0.0.1:{port}/
    http://192.0.2.1:{port}/ http://198.18.0.1:{port}/ http://198.51.100.1:{port}/ http://203.0.113.1:{port}/
    http://192.88.99.1:{port}/ http://224.0.0.1:{port}/ http://239.255.255.255:{port}/ http://240.0.0.1:{port}/
    http://255.255.255.255:{port}/ http://169.254.169.254/latest/meta-data/ http://169.254.170.2/v2/credentials
    http://100.100.100.200/latest/ http://192.0.0.192/opc/v1/ http://0xA9FEA9FE/ http://2852039166/
    http://0251.0376.0251.0376/ http://169.254.43518/ http://metadata.google.internal/computeMetadata/v1/
    http://localhost:{port}/ http://LOCALHOST:{port}/ http://localhost.:{port}/ http://localhost.localdomain:{port}/
    http://ip6-localhost:{port}/ http://a.localhost:{port}/ http://127.0.0.1.nip.example:{port}/ http://intranet:{port}/
    http://user@127.0.0.1:{port}/ http://public.example@127.0.0.1:{port}/ http://127.0.0.1:{port}@public.example/
    http://public.example:80@127.0.0.1:{port}/ http://@127.0.0.1:{port}/ http://public.example%40127.0.0.1:{port}/
    http://public.example\\@127.0.0.1:{port}/ http:\\\\127.0.0.1:{port}/ http:/\\127.0.0.1:{port}/
    http://127.0.0.1\\.public.example:{port}/ http://127.0.0.1%2f@public.example:{port}/
    http://１２７.０.０.１:{port}/ http://127。0。0。1:{port}/ http://①②⑦.⓪.⓪.①:{port}/ http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{port}/
    http://localhoſt:{port}/ http://%6c%6f%63%61%6c%68%6f%73%74:{port}/ http://127.0.0.1%00.public.example:{port}/
    http://[127.0.0.1]:{port}/ http://127.0.0.1:22/ http://127.0.0.1:6379/ http://public.example:25/
    http://public.example:0/ http://public.example:65536/ http://public.example:-1/ http://public.example:8e1/
    //127.0.0.1:{port}/ ///127.0.0.1:{port}/ http:127.0.0.1:{port}/ http:/127.0.0.1:{port}/ http:///127.0.0.1:{port}/
    HTTP://127.0.0.1:{port}/ https://127.0.0.1:{port}/ file:///etc/passwd file://127.0.0.1/etc/passwd
    gopher://127.0.0.1:{port}/_GET ftp://127.0.0.1:{port}/ data:audio/wav;base64,UklGRg== dict://127.0.0.1:{port}/
    unix:///run/docker.sock jar:http://127.0.0.1:{port}/!/ javascript:alert(1) blob:http://127.0.0.1:{port}/ ws://127.0.0.1:{port}/
""".split()
WITH_BLANKS = [
    "http://127.0.0.1:{port}/\t",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1 :{port}/",
    "ht\ttp://127.0.0.1:{port}/",
    "http://127.0.0.1\r\n:{port}/",
    "http://public.example/\r\nHost: 127.0.0.1",
    "http://127.\t0.0.1:{port}/",
    "http://127.0.0.1:{port}/\x00",
]
FORMS = [*dict.fromkeys(DIRECT), *WITH_BLANKS]

RELATIVE = [
    "//127.0.0.1:{port}/",
    "\\\\127.0.0.1:{port}\\",
    "/\\127.0.0.1:{port}/",
    "\\/127.0.0.1:{port}/",
    "/\t/127.0.0.1:{port}/",
    "///127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/",
    "http://127.0.0.1:{port}#@public.example/",
    "http://127.0.0.1:{port}?@public.example/",
]

ANSWERS = (
    "127.0.0.1 127.0.0.53 0.0.0.0 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 224.0.0.1 "
    "255.255.255.255 240.0.0.1 ::1 :: ::ffff:127.0.0.1 ::127.0.0.1 fe80::1 fe80::1%lo fc00::1 ff02::1 "
    "64:ff9b::7f00:1 2002:7f00:1:: 2001:0:7f00:1::1 fec0::1"
).split()


@contextlib.asynccontextmanager
async def canary() -> AsyncIterator[Server]:
    """Listen on every address of this machine, of both families, and serve a recording to every client."""
    state = Server()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 1)
            writer.write(reply())
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()

    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", 0))
    server = await asyncio.start_server(handle, sock=listener)
    state.port = listener.getsockname()[1]
    try:
        yield state
    finally:
        server.close()


async def to_loopback(host: str, port: int) -> Sequence[str]:
    """Resolve every name to loopback."""
    return ("127.0.0.1",)


def fetcher(resolver: object = to_loopback, **options: object) -> Fetcher:
    return Fetcher(tuned(FetchOptions, **{"connect_seconds": 2, "read_seconds": 2, **options}), resolver)  # type: ignore[arg-type]


async def refused(client: Fetcher, url: str, folder: Path) -> None:
    with pytest.raises(AddressForbidden) as refusal:
        await client.fetch(url, 0, folder.as_uri())
    assert not refusal.value.retryable
    assert refusal.value.message.endswith(".")


async def test_an_allowed_address_reaches_the_canary(tmp_path: Path) -> None:
    """Proves that the canary is reachable, without which the other tests would mean nothing."""
    async with canary() as bird:
        for host in ("127.0.0.1", "[::1]", "localhost"):
            client = fetcher(allowed_hosts=("127.0.0.1", "::1", "localhost"))
            recording = await client.fetch(f"http://{host}:{bird.port}/a.wav", 0, tmp_path.as_uri())
            assert recording.size_bytes == len(AUDIO)
    assert bird.connections == 3


async def test_a_client_without_our_guard_is_led_to_the_canary_by_many_of_the_forms() -> None:
    reached = set()
    async with canary() as bird:
        for form in FORMS:
            before = bird.connections
            with contextlib.suppress(Exception):
                url = httpx.URL(form.format(port=bird.port))
                if url.scheme == "http" and url.port == bird.port and not url.host.startswith(("10.", "172.", "192.")):
                    async with asyncio.timeout(0.3):
                        _, writer = await asyncio.open_connection(url.host, url.port)
                        writer.write(b"\r\n\r\n")
                        await asyncio.sleep(0.01)
                        writer.close()
            if bird.connections > before:
                reached.add(form)
    print(f"{len(reached)} of {len(FORMS)} forms lead an unguarded client to the canary")
    assert len(reached) >= 20


async def test_no_form_of_a_forbidden_address_is_connected_to(tmp_path: Path) -> None:
    async with canary() as bird:
        for form in FORMS:
            await refused(fetcher(), form.format(port=bird.port), tmp_path)
    print(f"{len(FORMS)} forms in the sender's URL, {bird.connections} connections")
    assert len(FORMS) >= 120
    assert bird.connections == 0


async def test_names_of_this_machine_are_refused_by_what_the_system_resolves_them_to(tmp_path: Path) -> None:
    async with canary() as bird:
        for name in ("localhost", "LOCALHOST", "localhost."):
            with pytest.raises(AddressForbidden):
                await Fetcher(FetchOptions()).fetch(f"http://{name}:{bird.port}/", 0, tmp_path.as_uri())
    assert bird.connections == 0


async def test_no_redirect_leads_to_a_forbidden_address(tmp_path: Path) -> None:
    """Every form as a Location from an allowed server, also after two harmless hops."""
    locations: list[str] = []

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"", "302 Found", Location=locations[0]))
        await writer.drain()

    forms = [form for form in [*FORMS, *RELATIVE] if form.isascii() and not set(form) & set("\r\n\x00")]
    # Within the server that redirects, these are paths or ports of that server.
    forms = [form for form in forms if not form.startswith(("http:127", "http:/127", "http:///", "///"))]
    async with canary() as bird, serving(answer) as hop:
        client = fetcher(allowed_hosts=(f"127.0.0.1:{hop.port}",))
        for form in forms:
            locations[:] = [form.format(port=bird.port)]
            await refused(client, hop.url(), tmp_path)
        async with serving(reply(b"", "301 Moved", Location=hop.url())) as first:
            client = fetcher(allowed_hosts=(f"127.0.0.1:{hop.port}", f"127.0.0.1:{first.port}"))
            locations[:] = [f"http://127.0.0.1:{bird.port}/"]
            await refused(client, first.url(), tmp_path)
        assert hop.connections == len(forms) + 1
    print(f"{len(forms) + 1} forms in a redirect, {bird.connections} connections")
    assert len(forms) >= 100
    assert bird.connections == 0


async def test_no_answer_of_dns_leads_to_a_forbidden_address(tmp_path: Path) -> None:
    """Alone and after a public address, in either order."""
    tried = 0
    async with canary() as bird:
        for bad, public in itertools.product(ANSWERS, ((), ("93.184.216.34",), ("2606:2800:220:1::1",))):
            for answers in {(*public, bad), (bad, *public)}:

                async def resolver(host: str, port: int, answers: Sequence[str] = answers) -> Sequence[str]:
                    return answers

                await refused(fetcher(resolver), f"http://recordings.example:{bird.port}/a.wav", tmp_path)
                tried += 1
    print(f"{tried} answers of a resolver, {bird.connections} connections")
    assert bird.connections == 0


async def test_a_name_that_is_bound_anew_between_requests_is_checked_at_each_connection(tmp_path: Path) -> None:
    """First an allowed server, which redirects to the same name; by then the name has another address."""
    async with canary() as bird:
        turns = [0]

        async def resolver(host: str, port: int) -> Sequence[str]:
            turns[0] += 1
            return ("127.0.0.5",) if turns[0] == 1 else ("127.0.0.1",)

        async def moved(writer: asyncio.StreamWriter) -> None:
            writer.write(reply(b"", "302 Found", Location=f"http://rebound.example:{bird.port}/a.wav"))
            await writer.drain()

        server = await asyncio.start_server(_once(moved), "127.0.0.5", 0)
        port = server.sockets[0].getsockname()[1]
        client = fetcher(resolver, allowed_hosts=("127.0.0.5",))
        await refused(client, f"http://rebound.example:{port}/a.wav", tmp_path)
        server.close()
    assert turns == [2]
    assert bird.connections == 0


def _once(answer):  # type: ignore[no-untyped-def]
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await answer(writer)
        writer.close()

    return handle


def test_a_redirect_that_leaves_tls_is_never_followed() -> None:
    from pipeline.fetch.address import AddressGuard
    from pipeline.fetch.outcomes import follow

    target = AddressGuard().check("https://pbx.example/rec/1")
    for location in ("http://pbx.example/rec/1", "HTTP://other.example/", "http:\u002f\u002fpbx.example/x"):
        with pytest.raises(RedirectInsecure, match="from https to http"):
            follow("https://pbx.example/rec/1", target, location)
    assert follow("https://pbx.example/rec/1", target, "2?x=y") == "https://pbx.example/rec/2?x=y"
