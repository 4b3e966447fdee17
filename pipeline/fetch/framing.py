"""The frames of `aws-chunked`, removed from a body that still has them.

Uploads to S3 are signed piece by piece: a line with the size of a piece (hexadecimal) and its signature, the piece, and
so on to a piece of size 0 and trailers. Stores that do not know this keep what was sent, lines and all, and serve it as
the object.
"""

import re
from collections.abc import AsyncIterator

from pipeline.errors import RecordingTruncated

NAME = "aws-chunked"
MOST_LINE = 1024  # bytes of a line
_SIGNED = re.compile(rb"[0-9a-fA-F]{1,8};chunk-signature=[0-9a-f]{64}\r\n")
_PLAIN = re.compile(rb"[0-9a-fA-F]{1,8}\r\n")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})(?:;[^\r\n]*)?")
HEAD = 96  # bytes that show whether there are frames


async def unframed(sent: AsyncIterator[bytes], named: bool) -> AsyncIterator[bytes]:
    """The body without frames, or as it is where it begins with none.

    `named`: whether the server names the encoding; unsigned frames are looked for only then. Raises
    `RecordingTruncated` where frames are damaged or end too early.
    """
    held = b""
    async for data in sent:
        held += data
        if len(held) >= HEAD:
            break
    source = _Source(held, sent)
    if _SIGNED.match(held) or (named and _PLAIN.match(held)):
        while left := await _size(source):
            while left:
                piece = await source.some(left)
                left -= len(piece)
                yield piece
            if await source.line():
                raise _damaged()
        async for _ in source.rest():  # trailers
            pass
    else:
        async for data in source.rest():
            yield data


class _Source:
    """A body of which the beginning was read."""

    def __init__(self, held: bytes, sent: AsyncIterator[bytes]) -> None:
        self._held, self._sent = held, sent

    async def line(self) -> bytes:
        """Up to the next end of a line."""
        while b"\r\n" not in self._held:
            if len(self._held) > MOST_LINE:
                raise _damaged()
            await self._more()
        line, _, self._held = self._held.partition(b"\r\n")
        return line

    async def some(self, most: int) -> bytes:
        """What is there, at least a byte and at most so many."""
        if not self._held:
            await self._more()
        found, self._held = self._held[:most], self._held[most:]
        return found

    async def rest(self) -> AsyncIterator[bytes]:
        if self._held:
            yield self._held
        async for data in self._sent:
            yield data

    async def _more(self) -> None:
        async for data in self._sent:
            self._held += data
            if data:
                return
        raise RecordingTruncated("The recording's aws-chunked frames end too early.")


async def _size(source: _Source) -> int:
    found = _SIZE.fullmatch(await source.line())
    if found is None:
        raise _damaged()
    return int(found[1], 16)


def _damaged() -> RecordingTruncated:
    return RecordingTruncated("The recording's aws-chunked frames are damaged.")
