"""Fetching from real servers on 127.0.0.1: every outcome, every limit, and connections that must not happen."""

import asyncio
import contextlib
import gzip
import hashlib
import logging
import pickle
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import httpx
import pytest

from pipeline.domain import sniff
from pipeline.domain.access import Credential
from pipeline.errors import (
    AddressForbidden,
    CredentialsRefused,
    NotAudio,
    RecordingEmpty,
    RecordingEncoded,
    RecordingError,
    RecordingGone,
    RecordingNotReady,
    RecordingTooLarge,
    RecordingTooSlow,
    RecordingTruncated,
    RecordingUnreachable,
    StorageError,
    TooManyRedirects,
)
from pipeline.fetch import transport
from pipeline.fetch.address import SERVICE_PORTS
from pipeline.fetch.fetcher import Fetcher, FetchOptions, fetch
from pipeline.fetch.storage import INCOMING, Store
from pipeline.fetch.transport import CountedStream
from pipeline.runtime.retry_after import retry_after
from tests.tuned import tuned

AUDIO = b"RIFF\x24\x00\x01\x00WAVEfmt " + bytes(range(256)) * 300
SECRET = "X-Amz-Signature=do-not-tell"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A TCP server that counts its connections and answers each request with `answer`."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    def url(self, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}/call.wav?{SECRET}"


@contextlib.asynccontextmanager
async def serving(answer: Answer | bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    state = Server()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            state.requests.append(await reader.readuntil(b"\r\n\r\n"))
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    while server.sockets[0].getsockname()[1] in SERVICE_PORTS:  # four of those that the system chooses from
        server.close()
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()


def reply(body: bytes = AUDIO, status: str = "200 OK", length: int | None = None, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def options(**changes: Any) -> FetchOptions:
    return tuned(FetchOptions, **{"allowed_hosts": ("127.0.0.1", "localhost"), "read_seconds": 5.0, **changes})


def stored_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def failing(answer: Answer | bytes, folder: Path, **changes: Any) -> RecordingError:
    """Fetch, expect a RecordingError that tells no secret, survives pickling and leaves nothing behind."""
    async with serving(answer) as server:
        with pytest.raises(RecordingError) as failure:
            await fetch(server.url(), 0, folder.as_uri(), options(**changes))
    assert stored_files(folder) == []
    error = failure.value
    assert "do-not-tell" not in f"{error.message} {error.facts} {error!r}"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.message, copy.facts) == (type(error), error.message, error.facts)
    return error


async def test_a_recording_is_stored_under_its_sha256(tmp_path: Path) -> None:
    async with serving(reply(Content_Type="audio/wav")) as server:
        recording = await fetch(server.url(), 1, tmp_path.as_uri(), options())
    assert recording.channel == 1
    assert recording.sha256 == hashlib.sha256(AUDIO).hexdigest()
    assert recording.size_bytes == len(AUDIO)
    assert recording.media_type == "audio/wav"
    assert recording.uri.endswith(recording.sha256)
    with fsspec.open(recording.uri, "rb") as file:
        assert file.read() == AUDIO


async def test_the_same_content_gives_the_same_file(tmp_path: Path) -> None:
    async with serving(reply()) as server:
        first, second = await asyncio.gather(*(fetch(server.url(), 0, tmp_path.as_uri(), options()) for _ in range(2)))
    assert first == second
    assert len(stored_files(tmp_path)) == 1


async def test_a_recording_goes_to_any_fsspec_folder() -> None:
    async with serving(reply()) as server:
        recording = await fetch(server.url(), 0, "memory://recordings/here", options())
    assert recording.uri.startswith("memory://")
    with fsspec.open(recording.uri, "rb") as file:
        assert file.read() == AUDIO


async def test_a_body_without_declared_length_ends_with_the_connection(tmp_path: Path) -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + AUDIO) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).size_bytes == len(AUDIO)


async def test_a_chunked_body_is_put_together(tmp_path: Path) -> None:
    chunked = b"".join(
        b"%x\r\n%s\r\n" % (len(AUDIO[i : i + 999]), AUDIO[i : i + 999]) for i in range(0, len(AUDIO), 999)
    )
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\n\r\n"
    async with serving(answer) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).sha256 == hashlib.sha256(AUDIO).hexdigest()


async def test_a_body_that_is_compressed_unasked_is_unpacked(tmp_path: Path) -> None:
    async with serving(reply(gzip.compress(AUDIO), Content_Encoding="gzip")) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).sha256 == hashlib.sha256(AUDIO).hexdigest()


@pytest.mark.parametrize(
    "name", ["aws-chunked", "binary", "UTF-8", "none", "identity", "", "chunked", "8bit", "audio/wav", "identity, none"]
)
async def test_what_is_called_an_encoding_and_is_none_costs_no_call(name: str, tmp_path: Path) -> None:
    """Metadata of an object store, set by clients that mistook what it means."""
    async with serving(reply(AUDIO, Content_Encoding=name)) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).sha256 == hashlib.sha256(AUDIO).hexdigest()


async def test_frames_that_a_store_kept_of_an_upload_are_taken_off(tmp_path: Path) -> None:
    body = b"%x;chunk-signature=%s\r\n%s\r\n0;chunk-signature=%s\r\n\r\n" % (len(AUDIO), b"a1" * 32, AUDIO, b"b2" * 32)
    for named in ({}, {"Content_Encoding": "aws-chunked"}):
        async with serving(reply(body, **named)) as server:
            found = await fetch(server.url(), 0, tmp_path.as_uri(), options())
            assert found.sha256 == hashlib.sha256(AUDIO).hexdigest()


async def test_a_compression_is_found_among_names_that_mean_nothing(tmp_path: Path) -> None:
    async with serving(reply(gzip.compress(AUDIO), Content_Encoding="aws-chunked, gzip")) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).sha256 == hashlib.sha256(AUDIO).hexdigest()


@pytest.mark.parametrize("name", ["br", "zstd", "aws-chunked, BR", "gzip, br"])
async def test_a_compression_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    error = await failing(reply(AUDIO, Content_Encoding=name), tmp_path)
    assert type(error) is RecordingEncoded
    assert error.message.endswith(f"{name.lower().removeprefix('aws-chunked, ')}.")


async def test_a_compressed_bomb_is_stopped_at_the_limit_also_one_in_a_bomb(tmp_path: Path) -> None:
    bomb = gzip.compress(b"RIFF" + bytes(50_000_000))
    error = await failing(reply(bomb, Content_Encoding="gzip"), tmp_path / "bomb", max_bytes=1_000_000)
    assert isinstance(error, RecordingTooLarge)
    assert error.message == "The recording unpacks to more than the limit of 1000000 bytes."
    nested = await failing(reply(gzip.compress(gzip.compress(AUDIO)), Content_Encoding="gzip"), tmp_path / "nested")
    assert nested.message == "The server sent a gzip archive instead of a recording."
    twice = await failing(reply(gzip.compress(AUDIO), Content_Encoding="gzip, gzip"), tmp_path / "twice")
    assert type(twice) is RecordingEncoded
    empty = b"\x1f\x8b\x08" + bytes(7) + b"\x03" + bytes(9)  # a member that yields nothing
    for hollow in (gzip.compress(AUDIO) + empty * 50_000, gzip.compress(AUDIO) + b"\x00" * 1_000_000):
        assert isinstance(
            await failing(reply(hollow, Content_Encoding="gzip"), tmp_path / "hollow", max_bytes=200_000),
            RecordingTooLarge | RecordingTruncated,
        )


@pytest.mark.parametrize("rest", [gzip.compress(AUDIO[1000:]), b"garbage", b""])
async def test_what_follows_compressed_data_ends(rest: bytes, tmp_path: Path) -> None:
    """The last piece holds the end and something after it: a second member, or what is none."""
    first = gzip.compress(AUDIO[:1000] + bytes(3 << 20))
    async with asyncio.timeout(60):
        if rest == b"garbage":
            assert isinstance(await failing(reply(first + rest, Content_Encoding="gzip"), tmp_path), RecordingTruncated)
            return
        async with serving(reply(first + rest, Content_Encoding="gzip")) as server:
            held = await fetch(server.url(), 0, tmp_path.as_uri(), options())
    assert held.size_bytes == 1000 + (3 << 20) + (len(AUDIO) - 1000 if rest else 0)


async def test_a_head_with_bare_line_feeds_is_not_taken_for_a_head_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    class Watched(CountedStream):
        def _count(self, data: bytes) -> None:
            super()._count(data)
            held.append(len(self._head or b""))

    monkeypatch.setattr(transport, "CountedStream", Watched)
    body = AUDIO[:20] + bytes(1 << 20)
    async with serving(f"HTTP/1.1 200 OK\nContent-Length: {len(body)}\n\n".encode() + body) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).size_bytes == len(body)
    assert max(held) < 1000


async def test_a_head_that_does_not_end_or_comes_in_drips_is_given_up(tmp_path: Path) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-A: " + b"a" * 60_000 + b"\r\n")
            await writer.drain()

    async def informing(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    for answer in (endless, informing):
        error = await failing(answer, tmp_path, read_seconds=0.3, connect_seconds=0.3)
        assert isinstance(error, RecordingUnreachable)


async def test_a_body_that_comes_too_slowly_is_given_up_for_now(tmp_path: Path) -> None:
    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(reply(length=10_000)[:200])
        while True:
            writer.write(b"\x00")
            await writer.drain()
            await asyncio.sleep(0.02)

    error = await failing(dripping, tmp_path, slow_seconds=0.3, min_bytes_per_second=2000)
    assert type(error) is RecordingTooSlow
    assert error.retryable


def only_for(host: str, port: int, kept: list[tuple[str, int]]) -> Any:
    async def access(asked_host: str, asked_port: int) -> Credential | None:
        kept.append((asked_host, asked_port))
        return Credential("Authorization", "Bearer hush") if (asked_host, asked_port) == (host, port) else None

    return access


async def test_credentials_are_shown_to_their_server_and_to_no_other(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    locations: list[str] = []

    async def moved(writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"", "302 Found", Location=locations[0]))
        await writer.drain()

    async with serving(reply()) as other, serving(reply()) as last, serving(moved) as first:
        access = only_for("127.0.0.1", first.port, asked)
        for target in (other.url(), last.url("localhost")):
            locations[:] = [target]
            await fetch(first.url(), 0, tmp_path.as_uri(), options(), access)
        await fetch(other.url(), 0, tmp_path.as_uri(), options(), access)
    assert all(b"Authorization: Bearer hush" in request for request in first.requests)
    assert not any(b"hush" in request for request in [*other.requests, *last.requests])
    assert asked == [("127.0.0.1", first.port)] * 2 + [("127.0.0.1", other.port)]


async def test_credentials_stay_within_their_server_and_are_refused_by_name(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(
            reply(b"", "302 Found", Location="/other.wav") if len(server.requests) == 1 else reply(b"", "401 No")
        )

    async with serving(answer) as server:
        with pytest.raises(CredentialsRefused) as refusal:
            await fetch(server.url(), 0, tmp_path.as_uri(), options(), only_for("127.0.0.1", server.port, []))
    assert len(server.requests) == 2
    assert all(b"Bearer hush" in request for request in server.requests)
    assert "switchboard credentials" in refusal.value.message
    assert refusal.value.code == "credentials_refused"
    assert refusal.value.retryable
    assert "hush" not in f"{refusal.value!r} {refusal.value.message} {refusal.value.facts}"


async def test_credentials_are_not_sent_without_tls_to_a_host_off_the_allow_list(tmp_path: Path) -> None:
    """Which the guard would refuse here, where every server is on loopback: the address is let in, the name is not."""

    async def resolver(host: str, port: int) -> Sequence[str]:
        return ("127.0.0.1",)

    async with serving(reply(b"", "401 Unauthorized")) as server:
        fetcher = Fetcher(options(allowed_hosts=("127.0.0.1",)), resolver)
        with pytest.raises(RecordingNotReady, match="not sent without TLS"):
            await fetcher.fetch(
                server.url("pbx.example"), 0, tmp_path.as_uri(), only_for("pbx.example", server.port, [])
            )
    assert b"Authorization" not in server.requests[0]


def test_a_credential_neither_shows_nor_leaves_its_process() -> None:
    credential = Credential("Authorization", "Bearer hush")
    assert "hush" not in f"{credential!r} {credential}"
    with pytest.raises(TypeError, match="does not leave its process"):
        pickle.dumps(credential)


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        ("202 Accepted", RecordingNotReady, True),
        ("401 Unauthorized", RecordingNotReady, True),
        ("403 Forbidden", RecordingNotReady, True),
        ("404 Not Found", RecordingNotReady, True),
        ("409 Conflict", RecordingNotReady, True),
        ("425 Too Early", RecordingNotReady, True),
        ("429 Too Many Requests", RecordingNotReady, True),
        ("408 Request Timeout", RecordingUnreachable, True),
        ("500 Internal Server Error", RecordingUnreachable, True),
        ("503 Service Unavailable", RecordingUnreachable, True),
        ("206 Partial Content", RecordingTruncated, True),
        ("410 Gone", RecordingGone, False),
        ("400 Bad Request", RecordingError, False),
        ("304 Not Modified", RecordingError, False),
        ("451 Unavailable For Legal Reasons", RecordingError, False),
    ],
)
async def test_every_status_has_its_meaning(status: str, kind: type, retryable: bool, tmp_path: Path) -> None:
    error = await failing(reply(b"", status, Retry_After="17"), tmp_path)
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.facts == {"status": int(status[:3]), "retry_after": 17.0, "host": "127.0.0.1"}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20),
        ("Thu, 01 Jan 1970 00:02:00", 20),
        ("soon", None),
        ("-5", None),
        ("99999999", 86400),
    ],
)
def test_retry_after_is_read_in_both_its_forms(value: str, seconds: float | None) -> None:
    """A date is the server's and is compared with the server's own clock: ours is decades ahead of this one."""
    headers = httpx.Headers({"Retry-After": value, "Date": "Thu, 01 Jan 1970 00:01:40 GMT"})
    assert retry_after(headers) == seconds


async def test_a_body_shorter_than_declared_is_truncated(tmp_path: Path) -> None:
    assert isinstance(await failing(reply(length=len(AUDIO) + 1), tmp_path), RecordingTruncated)


async def test_a_body_longer_than_declared_is_truncated(tmp_path: Path) -> None:
    assert isinstance(await failing(reply(length=len(AUDIO) - 100), tmp_path), RecordingTruncated)

    async def later(writer: asyncio.StreamWriter) -> None:
        writer.write(reply())
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"more")
        await writer.drain()

    assert isinstance(await failing(later, tmp_path), RecordingTruncated)


async def test_a_chunked_body_that_breaks_off_is_truncated(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(AUDIO), AUDIO)
    assert isinstance(await failing(answer, tmp_path), RecordingTruncated)


async def test_zero_bytes_are_an_empty_recording(tmp_path: Path) -> None:
    assert isinstance(await failing(reply(b""), tmp_path), RecordingEmpty)


@pytest.mark.parametrize(
    ("body", "media_type", "name"),
    [
        (b"<!DOCTYPE html><html><body>Log in</body></html>", "audio/wav", "an HTML page"),
        (b"\n\n  <html>" + b" " * 9000, "text/html", "an HTML page"),
        (b'{"error": "expired"}', "application/json", "a JSON document"),
        (b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>', "application/xml", "an XML document"),
        (b"The recording is being prepared.", "audio/mpeg", "plain text"),
        ("Die Aufnahme ist nicht verfügbar".encode("utf-16"), "audio/mpeg", "plain text"),
        (b"#EXTM3U\nhttp://127.0.0.1/x.ts\n", "audio/mpegurl", "a playlist"),
        (b"%PDF-1.7\n" + bytes(range(256)), "audio/wav", "a PDF document"),
        (b"PK\x03\x04" + bytes(range(256)), "audio/wav", "a ZIP archive"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "audio/wav", "a PNG image"),
        (b"\x00\x01\x02\x03" * 100, "text/html; charset=utf-8", "something the server calls text/html"),
    ],
)
async def test_what_came_in_place_of_audio_is_named(body: bytes, media_type: str, name: str, tmp_path: Path) -> None:
    error = await failing(reply(body, Content_Type=media_type), tmp_path)
    assert isinstance(error, NotAudio)
    assert error.message == f"The server sent {name} instead of a recording."


@pytest.mark.parametrize("media_type", ["text/plain", "application/json", "application/octet-stream", "audio/wav", ""])
async def test_audio_with_a_wrong_type_is_taken_as_audio(media_type: str, tmp_path: Path) -> None:
    async with serving(reply(Content_Type=media_type)) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).size_bytes == len(AUDIO)


def test_a_character_cut_in_two_does_not_hide_that_a_file_is_text() -> None:
    head = ("x" + "ü" * 4096).encode()[: sniff.HEAD_BYTES]
    assert sniff.what_it_is(head) == "plain text"


@pytest.mark.parametrize("declared", [True, False])
async def test_a_recording_over_the_size_limit_is_refused(declared: bool, tmp_path: Path) -> None:
    answer = reply() if declared else b"HTTP/1.1 200 OK\r\n\r\n" + AUDIO
    error = await failing(answer, tmp_path, max_bytes=len(AUDIO) - 1)
    assert isinstance(error, RecordingTooLarge)
    assert not error.retryable


async def test_a_recording_of_exactly_the_size_limit_is_taken(tmp_path: Path) -> None:
    async with serving(reply()) as server:
        await fetch(server.url(), 0, tmp_path.as_uri(), options(max_bytes=len(AUDIO)))


async def test_a_server_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        writer.write(reply()[:500])
        await writer.drain()
        await asyncio.sleep(2)

    started = time.monotonic()
    error = await failing(silent, tmp_path, read_seconds=0.2)
    assert isinstance(error, RecordingUnreachable)
    assert time.monotonic() - started < 1.5


async def test_a_server_that_drips_is_given_up_after_the_whole_time(tmp_path: Path) -> None:
    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(reply(length=10_000)[:200])
        for _ in range(40):
            writer.write(b"\x00")
            await writer.drain()
            await asyncio.sleep(0.05)

    error = await failing(dripping, tmp_path, max_seconds=0.4)
    assert isinstance(error, RecordingUnreachable)
    assert error.retryable


async def test_a_refused_connection_and_a_broken_answer_are_unreachable(tmp_path: Path) -> None:
    async with serving(b"") as server:
        pass
    with pytest.raises(RecordingUnreachable):
        await fetch(server.url(), 0, tmp_path.as_uri(), options())
    assert type(await failing(b"", tmp_path)) is RecordingUnreachable
    assert type(await failing(b"SSH-2.0-OpenSSH\r\n\r\n", tmp_path)) is RecordingUnreachable
    assert type(await failing(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", tmp_path)) is RecordingUnreachable


async def test_a_fetch_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(reply(length=10_000_000))
        await writer.drain()
        await asyncio.sleep(1)

    async with serving(slow) as server:
        task = asyncio.create_task(fetch(server.url(), 0, tmp_path.as_uri(), options()))
        while not (tmp_path / INCOMING).exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert stored_files(tmp_path) == []


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
    """DNS rebinding: the name is resolved once, and the checked answer is the one connected to."""
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
    """A certificate for recordings.example, key and certificate in one file."""
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


async def test_no_log_line_holds_a_query_string(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(reply()) as last, serving(reply(b"", "302 Found", Location=last.url())) as hop:
        await fetch(hop.url(), 0, tmp_path.as_uri(), options())
    assert "do-not-tell" not in caplog.text


async def test_a_store_that_cannot_be_written_is_our_fault_and_passes(tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_bytes(b"")
    async with serving(reply()) as server:
        for folder in (f"{blocked.as_uri()}/below", "nosuchprotocol://bucket/recordings"):
            with pytest.raises(StorageError) as failure:
                await fetch(server.url(), 0, folder, options())
            assert failure.value.retryable


def test_what_a_killed_process_left_in_the_store_is_swept(tmp_path: Path) -> None:
    import os

    left = tmp_path / INCOMING / "left"
    left.parent.mkdir()
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    with Store(tmp_path.as_uri()).receive() as incoming:
        incoming.write(b"something")
        assert not left.exists()


@pytest.mark.parametrize(
    "changes", [{"allowed_hosts": ("a b",)}, {"ports": ("http",)}, {"max_bytes": 0}, {"unknown": 1}]
)
def test_options_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        FetchOptions(**changes)
