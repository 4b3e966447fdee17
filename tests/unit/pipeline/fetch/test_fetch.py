import asyncio
import hashlib
import logging
from pathlib import Path
from typing import Any

import fsspec
import httpx
import pytest

from pipeline.domain import sniff
from pipeline.errors import (
    NotAudio,
    RecordingEmpty,
    RecordingError,
    RecordingGone,
    RecordingNotReady,
    RecordingTooLarge,
    RecordingTruncated,
    RecordingUnreachable,
    StorageError,
)
from pipeline.fetch.fetcher import fetch
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.storage import INCOMING, Store
from pipeline.net.post import retry_after
from tests.recording_server import AUDIO, failing, options, reply, serving, stored_files


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
    ("status", "headers"),
    [
        ("203 Non-Authoritative Information", {}),
        ("206 Partial Content", {"Content_Range": f"bytes 0-{len(AUDIO) - 1}/{len(AUDIO)}"}),
    ],
)
async def test_a_response_with_the_whole_recording_counts(status: str, headers: dict[str, str], tmp_path: Path) -> None:
    async with serving(reply(AUDIO, status, **headers)) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).sha256 == hashlib.sha256(AUDIO).hexdigest()


@pytest.mark.parametrize("content_range", ["bytes 1-{last}/{size}", "bytes 0-{before}/{size}", "bytes 0-{last}/*"])
async def test_a_part_of_a_recording_is_truncated(content_range: str, tmp_path: Path) -> None:
    size = len(AUDIO)
    value = content_range.format(last=size - 1, before=size - 2, size=size)
    error = await failing(reply(AUDIO, "206 Partial Content", Content_Range=value), tmp_path)
    assert isinstance(error, RecordingTruncated)


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
    """A date is compared with the server's clock, which is decades behind here."""
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
    assert sniff.detect_type(head) == "plain text"


@pytest.mark.parametrize("declared", [True, False])
async def test_a_recording_over_the_size_limit_is_refused(declared: bool, tmp_path: Path) -> None:
    answer = reply() if declared else b"HTTP/1.1 200 OK\r\n\r\n" + AUDIO
    error = await failing(answer, tmp_path, max_bytes=len(AUDIO) - 1)
    assert isinstance(error, RecordingTooLarge)
    assert not error.retryable


async def test_a_recording_of_exactly_the_size_limit_is_taken(tmp_path: Path) -> None:
    async with serving(reply()) as server:
        await fetch(server.url(), 0, tmp_path.as_uri(), options(max_bytes=len(AUDIO)))


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

    leftover = tmp_path / INCOMING / "left"
    leftover.parent.mkdir()
    leftover.write_bytes(b"half")
    os.utime(leftover, (0, 0))
    with Store(tmp_path.as_uri()).receive() as incoming:
        incoming.write(b"something")
        assert not leftover.exists()


@pytest.mark.parametrize(
    "changes", [{"allowed_hosts": ("a b",)}, {"ports": ("http",)}, {"max_bytes": 0}, {"unknown": 1}]
)
def test_options_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        FetchOptions(**changes)
