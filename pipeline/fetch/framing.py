"""The frames of `aws-chunked`, removed from a body that still has them.

Uploads to S3 are signed piece by piece: a line with the size of a piece (hexadecimal) and its signature, the piece, and
so on to a piece of size 0 and trailers. Stores that do not know this keep what was sent, lines and all, and serve it as
the object.
"""

import re
from collections.abc import AsyncIterator

from pipeline.errors import RecordingTruncated

NAME = "aws-chunked"
MAX_LINE_BYTES = 1024
_SIGNED = re.compile(rb"[0-9a-fA-F]{1,8};chunk-signature=[0-9a-f]{64}\r\n")
_PLAIN = re.compile(rb"[0-9a-fA-F]{1,8}\r\n")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})(?:;[^\r\n]*)?")
HEAD = 96  # bytes that show whether there are frames


async def unframed(sent: AsyncIterator[bytes], declared: bool) -> AsyncIterator[bytes]:
    """Yield the body without frames; a body that does not begin with a frame is passed through.

    `declared`: whether the server declares the encoding; unsigned frames are recognized only then. Raises
    `RecordingTruncated` if frames are damaged or end too early.
    """
    head = b""
    async for data in sent:
        head += data
        if len(head) >= HEAD:
            break
    source = _Source(head, sent)
    if _SIGNED.match(head) or (declared and _PLAIN.match(head)):
        while remaining := await _size(source):
            while remaining:
                piece = await source.some(remaining)
                remaining -= len(piece)
                yield piece
            if await source.line():
                raise _damaged()
        async for _ in source.rest():  # trailers
            pass
    else:
        async for data in source.rest():
            yield data


class _Source:
    """A body whose first bytes have been read."""

    def __init__(self, head: bytes, sent: AsyncIterator[bytes]) -> None:
        self._buffer, self._sent = head, sent

    async def line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise _damaged()
            await self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    async def some(self, max_bytes: int) -> bytes:
        """Return between 1 and `max_bytes` bytes."""
        if not self._buffer:
            await self._more()
        chunk, self._buffer = self._buffer[:max_bytes], self._buffer[max_bytes:]
        return chunk

    async def rest(self) -> AsyncIterator[bytes]:
        if self._buffer:
            yield self._buffer
        async for data in self._sent:
            yield data

    async def _more(self) -> None:
        async for data in self._sent:
            self._buffer += data
            if data:
                return
        raise RecordingTruncated("The recording's aws-chunked frames end too early.")


async def _size(source: _Source) -> int:
    match = _SIZE.fullmatch(await source.line())
    if match is None:
        raise _damaged()
    return int(match[1], 16)


def _damaged() -> RecordingTruncated:
    return RecordingTruncated("The recording's aws-chunked frames are damaged.")
