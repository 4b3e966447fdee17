"""The file of a form is passed on as it is, wherever its body is cut into pieces, and is not collected in memory."""

import tracemalloc
from collections.abc import AsyncIterator

import pytest

from serve_app.api.errors import AdminBodyRefused
from serve_app.api.upload_form import MAX_OTHER_BYTES, Form

BOUNDARY = b"------------------------d74496d66958873e"
DISPOSITION = b'Content-Disposition: form-data; name="file"; filename="a \\"b\\".wav"'
HEAD = b"--" + BOUNDARY + b"\r\n" + DISPOSITION + b"\r\nContent-Type: audio/wav\r\n\r\n"
DELIMITER = b"\r\n--" + BOUNDARY
NEAR = b"".join(DELIMITER[:length] for length in range(len(DELIMITER))) + b"\r\r\n\n--" + BOUNDARY + DELIMITER + b"y"


async def pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def form() -> Form:
    return Form(f"multipart/form-data; boundary={BOUNDARY.decode()}", digested=True)


async def test_every_cut_of_the_body_gives_the_same_file() -> None:
    content = b"RIFF" + NEAR + bytes(range(256)) + NEAR
    body = b"\r\n" + HEAD + content + DELIMITER + b"--\r\nepilogue"
    for size in (*range(1, 60), len(body)):
        reading = form()
        assert b"".join([piece async for piece in reading.file(pieces(body, size))]) == content, size
        assert reading.headers["content-type"] == "audio/wav"


async def test_a_form_that_ends_at_any_byte_is_refused() -> None:
    body = HEAD + b"RIFF" + DELIMITER + b"--"
    for length in range(1, len(body)):
        with pytest.raises(AdminBodyRefused):
            [piece async for piece in form().file(pieces(body[:length], 7))]


async def test_a_large_form_is_not_collected_in_memory() -> None:
    block = bytes(1 << 16)

    async def body() -> AsyncIterator[bytes]:
        yield HEAD
        for _ in range(512):
            yield block
        yield DELIMITER + b"--"

    size = 0
    tracemalloc.start()
    try:
        async for piece in form().file(body()):
            size += len(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size == 512 * len(block)
    assert peak < 16 * len(block)


async def test_a_file_of_boundaries_does_not_keep_the_parser_busy() -> None:
    reading, block = Form("multipart/form-data; boundary=x"), b"\r\n--xy" * 10_000
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + block
    with pytest.raises(AdminBodyRefused):
        [piece async for piece in reading.file(pieces(body, 1 << 16))]


async def test_what_is_not_the_file_is_limited() -> None:
    sent = 0

    async def endless(piece: bytes) -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += len(piece)
            yield piece

    for piece in (b"\r\n" * 500, b"\r" * 999):
        sent = 0
        with pytest.raises(AdminBodyRefused):
            [_ async for _ in form().file(endless(piece))]
        assert sent < MAX_OTHER_BYTES + 2 * len(piece)
