import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.errors import (
    AddressForbidden,
    RecordingUnreachable,
    TooManyRedirects,
)
from pipeline.fetch.fetcher import Fetcher, fetch
from pipeline.fetch.options import FetchOptions
from tests.recording_server import failing, options, reply, serving


async def test_redirects_are_followed_up_to_the_limit(tmp_path: Path) -> None:
    async with serving(reply()) as last:
        url = last.url()
        async with contextlib.AsyncExitStack() as stack:
            for status in ("301 Moved Permanently", "302 Found", "307 Temporary Redirect"):
                hop = await stack.enter_async_context(serving(reply(b"", status, Location=url)))
                url = hop.url()
            await fetch(url, 0, tmp_path.as_uri(), options())
            with pytest.raises(TooManyRedirects):
                await fetch(url, 0, tmp_path.as_uri(), options(max_redirects=2))


async def test_a_redirect_to_something_that_is_no_url_fails_for_good(tmp_path: Path) -> None:
    answer = reply(b"", "302 Found", Location="http://[::1/call.wav")
    assert isinstance(await failing(answer, tmp_path), AddressForbidden)


async def test_a_relative_redirect_is_resolved(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        moved = len(server.requests) == 1
        writer.write(reply(b"", "302 Found", Location="other.wav?b=1") if moved else reply())

    async with serving(answer) as server:
        await fetch(server.url(), 0, tmp_path.as_uri(), options())
    assert server.requests[1].startswith(b"GET /other.wav?b=1 HTTP/1.1\r\n")


async def test_a_server_gets_back_the_cookie_of_its_redirect_and_no_other_server_does(tmp_path: Path) -> None:
    async def gate(writer: asyncio.StreamWriter) -> None:
        if b"Cookie: session=a1; seen=yes\r\n" in server.requests[-1]:
            writer.write(reply(b"", "302 Found", Location=elsewhere.url()))
        else:
            first = b"HTTP/1.1 302 Found\r\nLocation: /call.wav\r\nContent-Length: 0\r\nConnection: close\r\n"
            cookies = b"Set-Cookie: session=a1; HttpOnly; Domain=example.com\r\nSet-Cookie: seen=yes\r\n"
            writer.write(first + cookies + b"Set-Cookie: broken\r\nSet-Cookie: gone=1; Max-Age=0\r\n\r\n")

    async with serving(reply()) as elsewhere, serving(gate) as server:
        await fetch(server.url(), 0, tmp_path.as_uri(), options())
    assert (len(server.requests), len(elsewhere.requests)) == (2, 1)
    assert b"cookie" not in server.requests[0].lower() + elsewhere.requests[0].lower()


async def test_a_server_that_redirects_to_itself_with_new_cookies_forever_ends_at_the_limit(tmp_path: Path) -> None:
    large = {"Set-Cookie": f"a={'x' * 5000}", "Location": "/call.wav"}
    async with serving(reply(b"", "302 Found", **large)) as server:
        with pytest.raises(TooManyRedirects):
            await fetch(server.url(), 0, tmp_path.as_uri(), options())
    assert not any(b"Cookie" in request for request in server.requests)


@pytest.mark.parametrize(
    "location", ["http://127.0.0.2:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://a:b@localhost:{port}/"]
)
async def test_a_redirect_to_a_forbidden_address_makes_no_connection(location: str, tmp_path: Path) -> None:
    async with (
        serving(reply()) as canary,
        serving(reply(b"", "302 Found", Location=location.format(port=canary.port))) as hop,
    ):
        with pytest.raises(AddressForbidden):
            await fetch(hop.url(), 0, tmp_path.as_uri(), options(allowed_hosts=(f"127.0.0.1:{hop.port}",)))
    assert (hop.connections, canary.connections) == (1, 0)


async def test_a_loopback_address_is_refused_without_a_connection(tmp_path: Path) -> None:
    async with serving(reply()) as canary:
        for host in ("127.0.0.1", "localhost", "127.1", "2130706433", "0.0.0.0", "[::ffff:7f00:1]", "127.0.0.1."):
            with pytest.raises(AddressForbidden) as refusal:
                await fetch(canary.url(host), 0, tmp_path.as_uri(), FetchOptions())
            assert not refusal.value.retryable
            assert "do-not-tell" not in refusal.value.message
    assert canary.connections == 0


async def test_one_forbidden_dns_answer_among_good_ones_makes_no_connection(tmp_path: Path) -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        return ("127.0.0.1", "10.0.0.1")

    async with serving(reply()) as canary:
        with pytest.raises(AddressForbidden):
            await Fetcher(options(allowed_hosts=("127.0.0.1",)), resolver).fetch(
                canary.url("recordings.example"), 0, tmp_path.as_uri()
            )
    assert canary.connections == 0


async def test_a_name_that_changes_its_address_after_the_check_gains_nothing(tmp_path: Path) -> None:
    """DNS rebinding: the name is resolved once, and the connection uses the checked address."""
    asked = []

    async def resolver(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ("127.0.0.1",) if len(asked) == 1 else ("127.0.0.3",)

    async with serving(reply()) as server:
        fetcher = Fetcher(options(allowed_hosts=("127.0.0.1",)), resolver)
        await fetcher.fetch(server.url("recordings.example"), 0, tmp_path.as_uri())
    assert asked == ["recordings.example"]
    assert f"Host: recordings.example:{server.port}".encode() in server.requests[0]


async def test_the_next_address_is_tried_when_one_does_not_answer(tmp_path: Path) -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        return ("127.0.0.9", "127.0.0.1")

    async with serving(reply()) as server:
        fetcher = Fetcher(options(allowed_hosts=("127.0.0.9", "127.0.0.1")), resolver)
        await fetcher.fetch(server.url("recordings.example"), 0, tmp_path.as_uri())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a file with a key and a certificate for recordings.example."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=recordings.example"
    )
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=DNS:recordings.example", "-keyout", path, "-out", f"{path}.crt"],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


async def test_tls_is_verified_against_the_host_name_while_the_address_is_pinned(
    certificate: Path, tmp_path: Path
) -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        return ("127.0.0.1",)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    trusting = options(ca_file=f"{certificate}.crt")
    async with serving(reply(), tls=context) as server:
        await Fetcher(trusting, resolver).fetch(server.url("recordings.example", "https"), 0, tmp_path.as_uri())
        for fetcher, host in (
            (Fetcher(trusting, resolver), "other.example"),
            (Fetcher(options(), resolver), "recordings.example"),
        ):
            with pytest.raises(RecordingUnreachable, match="TLS could not be negotiated"):
                await fetcher.fetch(server.url(host, "https"), 0, tmp_path.as_uri())


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with serving(reply()) as server, serving(reply()) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "")
        await fetch(server.url(), 0, tmp_path.as_uri(), options())
    assert (server.connections, proxy.connections) == (1, 0)
