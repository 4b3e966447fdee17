import asyncio
import gzip
import hashlib
from pathlib import Path

import pytest

from pipeline.errors import (
    RecordingEncoded,
    RecordingTooLarge,
    RecordingTruncated,
)
from pipeline.fetch.fetcher import fetch
from tests.recording_server import AUDIO, failing, options, reply, serving


async def test_a_body_that_is_compressed_unasked_is_unpacked(tmp_path: Path) -> None:
    async with serving(reply(gzip.compress(AUDIO), Content_Encoding="gzip")) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).sha256 == hashlib.sha256(AUDIO).hexdigest()


@pytest.mark.parametrize(
    "name", ["aws-chunked", "binary", "UTF-8", "none", "identity", "", "chunked", "8bit", "audio/wav", "identity, none"]
)
async def test_what_is_called_an_encoding_and_is_none_costs_no_call(name: str, tmp_path: Path) -> None:
    """Object stores return metadata that clients set by mistake."""
    async with serving(reply(AUDIO, Content_Encoding=name)) as server:
        assert (await fetch(server.url(), 0, tmp_path.as_uri(), options())).sha256 == hashlib.sha256(AUDIO).hexdigest()


async def test_frames_that_a_store_kept_of_an_upload_are_taken_off(tmp_path: Path) -> None:
    body = b"%x;chunk-signature=%s\r\n%s\r\n0;chunk-signature=%s\r\n\r\n" % (len(AUDIO), b"a1" * 32, AUDIO, b"b2" * 32)
    for extra in ({}, {"Content_Encoding": "aws-chunked"}):
        async with serving(reply(body, **extra)) as server:
            recording = await fetch(server.url(), 0, tmp_path.as_uri(), options())
            assert recording.sha256 == hashlib.sha256(AUDIO).hexdigest()


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
    first = gzip.compress(AUDIO[:1000] + bytes(3 << 20))
    async with asyncio.timeout(60):
        if rest == b"garbage":
            assert isinstance(await failing(reply(first + rest, Content_Encoding="gzip"), tmp_path), RecordingTruncated)
            return
        async with serving(reply(first + rest, Content_Encoding="gzip")) as server:
            recording = await fetch(server.url(), 0, tmp_path.as_uri(), options())
    assert recording.size_bytes == 1000 + (3 << 20) + (len(AUDIO) - 1000 if rest else 0)
