import asyncio
from collections.abc import AsyncIterator

import pytest

from pipeline.errors import RecordingTruncated
from pipeline.fetch.framing import unframed

AUDIO = b"RIFF\x24\x00\x01\x00WAVEfmt " + bytes(range(256)) * 80
SIGNED = b";chunk-signature=" + b"0a" * 32


def framed(size: int, mark: bytes = SIGNED, trailer: bytes = b"x-amz-checksum-crc32:sOO8/Q==\r\n") -> bytes:
    pieces = [AUDIO[at : at + size] for at in range(0, len(AUDIO), size)]
    frames = b"".join(b"%x%s\r\n%s\r\n" % (len(piece), mark, piece) for piece in pieces)
    return frames + b"0" + mark + b"\r\n" + trailer + b"\r\n"


def read(body: bytes, declared: bool = False, step: int = 1000) -> bytes:
    async def sent() -> AsyncIterator[bytes]:
        for at in range(0, len(body), step):
            yield body[at : at + step]

    async def joined() -> bytes:
        return b"".join([piece async for piece in unframed(sent(), declared)])

    return asyncio.run(joined())


@pytest.mark.parametrize("size", [10, 8192, 100_000])
@pytest.mark.parametrize("step", [1, 97, 1 << 20])
def test_signed_frames_are_taken_off_whoever_names_them(size: int, step: int) -> None:
    assert read(framed(size), step=step) == AUDIO


def test_unsigned_frames_are_taken_off_where_the_server_names_them() -> None:
    body = framed(8192, b"")
    assert read(body, declared=True) == AUDIO
    assert read(body) == body


@pytest.mark.parametrize("body", [AUDIO, b"", b"5", b"fade", b"f" * 200])
def test_a_body_without_frames_stays_as_it_is(body: bytes) -> None:
    assert read(body, declared=True) == body


@pytest.mark.parametrize(
    "body", [framed(8192)[:15_000], framed(8192)[:-200], framed(8192).replace(b"\r\n2000;", b"\r\nhello;", 1),
             framed(8192).replace(b"\r\n2000;", b"..2000;", 1), framed(8192)[:8000] + b"0" * 90_000]
)  # fmt: skip
def test_frames_that_are_damaged_or_cut_are_no_recording(body: bytes) -> None:
    with pytest.raises(RecordingTruncated):
        read(body)
