import asyncio
import base64
import binascii
import hmac
import re
import time
from collections.abc import AsyncIterator, Mapping

from starlette.requests import ClientDisconnect, Request

from pipeline.domain import sniff
from pipeline.errors import RecordingTooSlow
from pipeline.fetch.body import SpeedCheck
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.storage import Incoming
from serve_app.api.errors import DigestMismatch, NotRecording
from serve_app.api.upload_form import MAX_OTHER_BYTES, Form
from serve_app.http.problems import BodyTooLarge, BodyTooSlow, MediaTypeRefused, Refusal

WRITE_BYTES = 1 << 20  # buffered in memory before a thread writes them
DIGESTS = ("content-digest", "repr-digest")
_SHA256 = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/]{43}=):")
_NUMBER = re.compile(r"[0-9]{1,15}")


class UploadBody:
    """The body of a request, with the digests of its headers (RFC 9530), hexadecimal.

    In a form they are those of the file or, as libraries compute them, of the form.
    """

    def __init__(self, request: Request, options: FetchOptions) -> None:
        """Raise `Refusal` for headers that are invalid."""
        self._request, self._options = request, options
        headers = request.headers
        self.digests = {name: _digest(name, ", ".join(headers.getlist(name))) for name in DIGESTS if name in headers}
        self._media_type = headers.get("content-type", "")
        is_form = self._media_type.lower().startswith("multipart/")
        self.form = Form(self._media_type, bool(self.digests)) if is_form else None

    def require_raw(self) -> None:
        """Raise `MediaTypeRefused` for a form."""
        if self.form is not None:
            raise MediaTypeRefused("The body is a form. Send the bytes of the part as the body: a form is one upload.")

    async def receive(self, incoming: Incoming, limit: int, offset: int = 0) -> None:
        """Receive at most `limit` bytes into a file, with the limits and checks of a fetched recording.

        What has arrived is in the file even if the rest does not.
        """
        headers, form = self._request.headers, self.form
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise MediaTypeRefused("The body is compressed. Send the recording as it is, without Content-Encoding.")
        if _NUMBER.fullmatch(declared := headers.get("content-length", "")):
            check_size(int(declared) - (MAX_OTHER_BYTES if form else 0), limit)
        pending, is_checked = bytearray(), offset > 0
        body = _stream(self._request, self._options)
        try:
            async for data in form.file(body) if form else body:
                pending += data
                check_size(incoming.size + len(pending), limit)
                if not is_checked and len(pending) >= sniff.HEAD_BYTES:
                    is_checked = self._is_audio(pending)
                if len(pending) >= WRITE_BYTES:
                    piece = bytes(pending)
                    pending.clear()
                    await _write(incoming, piece)
        except (ClientDisconnect, BodyTooSlow, asyncio.CancelledError):
            if is_checked and pending:
                incoming.write(bytes(pending))
            raise
        if not incoming.size and not pending:
            raise Refusal("The recording has no bytes. Send its file.")
        if is_checked or self._is_audio(pending):
            await _write(incoming, bytes(pending))

    def check(self, incoming: Incoming, names: tuple[str, ...] = DIGESTS) -> str:
        """Return the SHA-256 of what was received. Raises `DigestMismatch` if a declared one of `names` is another."""
        sha256 = incoming.finish()
        declared = [self.digests[name] for name in names if name in self.digests]
        if self.form is not None:
            declared = [digest for digest in declared if digest != self.form.sha256]
            declared += [_digest(name, self.form.headers[name]) for name in DIGESTS if name in self.form.headers]
        if not all(hmac.compare_digest(digest, sha256) for digest in declared):
            raise DigestMismatch
        return sha256

    def _is_audio(self, head: bytearray) -> bool:
        """Return True. Raises `NotRecording` for what is certainly no audio."""
        media_type = self.form.headers.get("content-type", "") if self.form else self._media_type
        if kind := sniff.detect_type(bytes(head[: sniff.HEAD_BYTES]), media_type):
            raise NotRecording(f"The body is {kind} instead of a recording.")
        return True


def number(headers: Mapping[str, str], name: str) -> int:
    """Return the number of bytes of a header. Raises `Refusal`."""
    value = headers.get(name, "")
    if not _NUMBER.fullmatch(value):
        raise Refusal(f"{name.title()} must be a number of bytes.")
    return int(value)


def check_size(size: int, limit: int) -> None:
    """Raise `BodyTooLarge` above the limit."""
    if size > limit:
        raise BodyTooLarge(f"The recording is larger than the limit of {limit} bytes.")


def _digest(name: str, value: str) -> str:
    """Return the SHA-256 of a header, hexadecimal. Raises `Refusal` without one."""
    try:
        if match := _SHA256.search(value):
            return base64.b64decode(match[1], validate=True).hex()
    except binascii.Error:
        pass
    raise Refusal(f"{name.title()} must have a SHA-256 digest: sha-256=:BASE64:.")


async def _write(incoming: Incoming, data: bytes) -> None:
    """Write in a thread; if the request is canceled, after the write: what has arrived is kept."""
    writing = asyncio.ensure_future(asyncio.to_thread(incoming.write, data))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await writing
        raise


async def _stream(request: Request, options: FetchOptions) -> AsyncIterator[bytes]:
    """Yield the body. Raises `BodyTooSlow` by the deadlines and the minimum rate of fetched recordings."""
    speed = SpeedCheck(options.MIN_BYTES_PER_SECOND, options.slow_seconds)
    ends, stream = time.monotonic() + options.max_seconds, aiter(request.stream())
    while True:
        silence = min(options.READ_SECONDS, options.slow_seconds, max(0.0, ends - time.monotonic()))
        try:
            async with asyncio.timeout(silence):
                data = await anext(stream, None)
            if data is None:
                return
            speed.count(len(data))
        except TimeoutError:
            raise BodyTooSlow from None
        except RecordingTooSlow as error:
            raise BodyTooSlow from error
        if data:
            yield data
