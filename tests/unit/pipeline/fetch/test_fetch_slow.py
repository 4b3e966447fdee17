import asyncio
import time
from pathlib import Path

import pytest

from pipeline.errors import (
    RecordingTooSlow,
    RecordingUnreachable,
)
from pipeline.fetch import transport
from pipeline.fetch.fetcher import fetch
from pipeline.fetch.storage import INCOMING
from pipeline.fetch.transport import CountedStream
from tests.recording_server import AUDIO, failing, options, reply, serving, stored_files


async def test_a_head_with_bare_line_feeds_is_not_taken_for_a_head_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    class Watched(CountedStream):
        def _count(self, data: bytes) -> None:
            super()._count(data)
            sizes.append(len(self._head or b""))

    monkeypatch.setattr(transport, "CountedStream", Watched)
    body = AUDIO[:20] + bytes(1 << 20)
    async with serving(f"HTTP/1.1 200 OK\nContent-Length: {len(body)}\n\n".encode() + body) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).size_bytes == len(body)
    assert max(sizes) < 1000


async def test_a_head_that_does_not_end_or_comes_in_drips_is_abandoned(tmp_path: Path) -> None:
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


async def test_a_body_that_comes_too_slowly_is_abandoned_for_now(tmp_path: Path) -> None:
    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(reply(length=10_000)[:200])
        while True:
            writer.write(b"\x00")
            await writer.drain()
            await asyncio.sleep(0.02)

    error = await failing(dripping, tmp_path, slow_seconds=0.3, min_bytes_per_second=2000)
    assert type(error) is RecordingTooSlow
    assert error.retryable


async def test_a_server_that_falls_silent_is_abandoned(tmp_path: Path) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        writer.write(reply()[:500])
        await writer.drain()
        await asyncio.sleep(600)

    started = time.monotonic()
    error = await failing(silent, tmp_path, read_seconds=0.2)
    assert isinstance(error, RecordingUnreachable)
    assert time.monotonic() - started < 60


async def test_a_server_that_drips_is_abandoned_after_the_whole_time(tmp_path: Path) -> None:
    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(reply(length=10_000)[:200])
        for _ in range(600):
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
        await asyncio.sleep(600)

    async with serving(slow) as server:
        task = asyncio.create_task(fetch(server.url(), 0, tmp_path.as_uri(), options()))
        while not (tmp_path / INCOMING).exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert stored_files(tmp_path) == []
