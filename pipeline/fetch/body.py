"""The body of a response: decoded, as long as declared, no slower and no larger than allowed."""

import time
import zlib
from collections.abc import AsyncIterator

import httpcore
import httpx

from pipeline.errors import RecordingEncoded, RecordingTooLarge, RecordingTooSlow, RecordingTruncated
from pipeline.fetch import framing
from pipeline.fetch.transport import CountedStream

INFLATED_BYTES = 1 << 20  # per step of decompression
SURPLUS_WAIT = 0.2  # seconds to wait for bytes beyond the declared length
SUPPORTED = frozenset({"gzip", "x-gzip", "deflate"})
UNSUPPORTED = frozenset(
    {"br", "zstd", "dcb", "dcz", "compress", "x-compress", "bzip2", "x-bzip2", "xz", "lzma", "lz4", "snappy", "exi",
     "pack200-gzip", "aes128gcm"}
)  # fmt: skip
GZIP = b"\x1f\x8b"


class SpeedCheck:
    """Bytes per second over periods of `seconds`: a very slow server would hold a connection forever."""

    def __init__(self, min_rate: float, seconds: float) -> None:
        self._min_rate, self._seconds = min_rate, seconds
        self._since, self._bytes = time.monotonic(), 0

    def count(self, size: int) -> None:
        """Raise `RecordingTooSlow` if the last period was too slow."""
        self._bytes += size
        elapsed = time.monotonic() - self._since
        if elapsed < self._seconds:
            return
        if self._bytes < self._min_rate * elapsed:
            raise RecordingTooSlow(
                f"The server sends the recording too slowly: {self._bytes} bytes in {elapsed:.0f} s."
            )
        self._since, self._bytes = time.monotonic(), 0


def check_encoding(headers: httpx.Headers) -> bool:
    """Return whether the body is compressed.

    Names that are no compression (a character set, a transfer encoding, `none`) are ignored: the body shows whether it
    is audio. Raises `RecordingEncoded` for a compression that cannot be decoded.
    """
    encodings = headers.get("content-encoding", "").lower().split(",")
    compressions = [name for name in map(str.strip, encodings) if name in SUPPORTED or name in UNSUPPORTED]
    if not compressions:
        return False
    if len(compressions) == 1 and compressions[0] in SUPPORTED:
        return True  # not requested, but object stores send objects as uploaded
    raise RecordingEncoded(
        f"The server sent the recording in a compression that was not requested: {', '.join(compressions)}."
    )


async def plain(
    response: httpcore.Response, headers: httpx.Headers, limit: int, speed: SpeedCheck
) -> AsyncIterator[bytes]:
    """Yield the body without transfer encoding, content encoding and `aws-chunked` frames.

    Receives at most `limit` bytes and decompresses to at most `limit` bytes. Raises the errors of
    `check_encoding` and `SpeedCheck.count`, `RecordingTooLarge`, and `RecordingTruncated` for a wrong length.
    """
    declares_frames = framing.NAME in headers.get("content-encoding", "").lower()
    sent = framing.unframed(_as_sent(response, headers, limit, speed), declares_frames)
    if not check_encoding(headers):
        async for data in sent:
            yield data
        return
    inflated_bytes = 0
    async for data in _inflated(sent):
        inflated_bytes += len(data)
        if inflated_bytes > limit:
            raise RecordingTooLarge(f"The recording unpacks to more than the limit of {limit} bytes.").with_facts(
                limit=limit
            )
        yield data


async def _inflated(sent: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decompress in bounded steps against decompression bombs; a gzip file may have several members."""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    async for data in sent:
        rest = data
        while rest:
            if inflate.eof:
                if not GZIP.startswith(rest[:2]):
                    raise RecordingTruncated("The recording's compressed data is damaged.")
                inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
            yield inflate.decompress(rest, INFLATED_BYTES)
            rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail  # at the end both hold the rest
    if not inflate.eof:
        raise RecordingTruncated("The recording's compressed data ended early.")


async def _as_sent(
    response: httpcore.Response, headers: httpx.Headers, limit: int, speed: SpeedCheck
) -> AsyncIterator[bytes]:
    declared = declared_length(headers)
    if declared is not None and declared > limit:
        raise too_large(limit).with_facts(size=declared)
    received = 0
    async for data in response.aiter_stream():
        received += len(data)
        if received > limit:
            raise too_large(limit)
        speed.count(len(data))
        yield data
        if received == declared and await _more_comes(response.extensions["network_stream"], declared):
            raise LongerThanDeclared("The server sent more than the length it declared for the recording.")


class LongerThanDeclared(RecordingTruncated):
    """More bytes arrived than declared: the length of the recording is unknown."""

    code = RecordingTruncated.code


def declared_length(headers: httpx.Headers) -> int | None:
    """Return Content-Length if it applies (RFC 9112, 6.3)."""
    return None if "transfer-encoding" in headers or "content-length" not in headers else int(headers["content-length"])


def too_large(limit: int) -> RecordingTooLarge:
    return RecordingTooLarge(f"The recording is larger than the limit of {limit} bytes.").with_facts(limit=limit)


async def _more_comes(stream: CountedStream, declared: int) -> bool:
    if stream.body_bytes > declared:
        return True
    try:
        return bool(await stream.read(1, timeout=SURPLUS_WAIT))
    except (httpcore.NetworkError, httpcore.TimeoutException):
        return False
