import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from db.records.views import CallRecord
from pipeline.domain.sniff import media_type_of, suffix_of
from pipeline.errors import CallError, StorageError
from pipeline.sealed_files import open_stored
from serve_app.api.access import ApiRequest, etag_matches, json_answer
from serve_app.api.calls import record
from serve_app.api.errors import Busy, Expired, NoSuchRange, NotReady
from serve_app.api.queries import AudioQuery, NoQuery
from serve_app.api.sound import SoundRequest

PIECE = 256 * 1024  # bytes read at once
WAIT_SECONDS = 2.0  # for a waveform, which is computed at low priority
Wait = Callable[[int], Awaitable[None]]
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
# The file is untrusted: browsers must treat it as audio and never as a page of this site.
HEADERS = {
    "Accept-Ranges": "bytes",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored file: fsspec URI, ETag, download name, and the key of a sealed one."""

    uri: str
    tag: str
    name: str
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Waveform:
    """The loudest sample of each slice of the recording, 0 to 255, by channel; the slices are equally long."""

    channels: tuple[tuple[int, ...], ...]
    duration: float  # seconds


async def play_call(reading: ApiRequest[AudioQuery]) -> Response:
    """Return the original file or one decoded channel."""
    call_record = await record(reading)
    if call_record.recordings_expired:
        raise Expired("The recording was deleted after its retention period. The rest of the call remains.")
    if not call_record.recordings:
        raise NotReady("The call has no stored recording yet. Retry when its recording has been fetched.")
    channel = reading.query.channel or ("original" if len(call_record.recordings) == 1 else "mixed")
    await reading.note("audio", [reading.call_id], channel)
    try:
        stored = await _stored(reading, call_record, channel)
        return await answer(reading.request, stored, partial(reading.tools.pace.wait, reading.sender.workspace_id))
    except CallError as error:
        if error.retryable:
            sentence = "The stored recording cannot be read now. Retry after Retry-After."
            raise Busy(reading.options.RETRY_AFTER_SECONDS, sentence) from error
        raise NotReady(f"The recording cannot be decoded: {error.message}") from error


async def show_waveform(reading: ApiRequest[NoQuery]) -> Response:
    """Return the peaks of the recording, one list per channel; they are computed on the first request."""
    call_record = await record(reading)
    if call_record.recordings_expired:
        raise Expired("The recording was deleted after its retention period. The rest of the call remains.")
    if call_record.transcript is None or not call_record.recordings or call_record.job_id is None:
        raise NotReady("The waveform is available when the status of the call is completed.")
    await reading.note("audio", [reading.call_id], "waveform")
    try:
        machine = await record(reading, machine=True)  # peaks are stored in the order of the detected channels
        peaks = await reading.tools.waveforms.get(reading.database, reading.reader, machine, WAIT_SECONDS)
    except TimeoutError:
        detail = "The waveform is still being computed. Retry in a moment."
        raise Busy(reading.options.RETRY_AFTER_SECONDS, detail) from None
    if peaks is None:
        raise NotReady("The recording cannot be decoded.")
    lanes = tuple(tuple(map(int, lane)) for lane in (reversed(peaks) if call_record.swapped else peaks))
    return await asyncio.to_thread(json_answer, reading, Waveform(lanes, call_record.transcript.duration))


async def _stored(reading: ApiRequest[Any], call_record: CallRecord, channel: str) -> Stored:
    if channel == "original":
        if len(call_record.recordings) > 1:
            raise NotReady("The call has two files. Use channel=mixed, rep or customer.")
        recording = call_record.recordings[0]
        return Stored(recording.uri, f'"{recording.sha256}"', str(reading.call_id), recording.key)
    if call_record.layout is None:
        raise NotReady("Channels are available when the status of the call is completed.")
    sound = SoundRequest(call_record.recordings, call_record.layout, channel)
    path = await reading.tools.sounds.get(sound, reading.sender.workspace_id, reading.options.SOUND_WAIT_SECONDS)
    if path is None:
        raise Busy(reading.options.RETRY_AFTER_SECONDS, "The audio is still being decoded. Retry in a moment.")
    return Stored(path.as_uri(), f'"{sound.name}"', f"{reading.call_id}-{channel}")


async def answer(request: Request, stored: Stored, wait: Wait) -> Response:
    """Return 200 with the file, 206 with a part, or 304 if the ETag matches. Raises `NoSuchRange`, `StorageError`.

    `wait` returns when a number of bytes may be sent.
    """
    file = await asyncio.to_thread(open_stored, stored.uri, stored.key)
    try:
        size, head = await asyncio.to_thread(_size_and_head, file)
        media_type = media_type_of(head)
        headers = HEADERS | {
            "ETag": stored.tag,
            "Content-Disposition": f'inline; filename="{stored.name}.{suffix_of(media_type)}"',
        }
        if etag_matches(request, stored.tag):
            await asyncio.to_thread(file.close)
            return Response(None, 304, headers)
        part = _part(request, stored.tag, size)
        first, last = part or (0, size - 1)
        headers["Content-Length"] = str(last - first + 1)
        if part:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        body = _pieces(file, first, last, wait)
        return StreamingResponse(body, 206 if part else 200, headers, media_type)
    except BaseException:
        file.close()
        raise


def _part(request: Request, tag: str, size: int) -> tuple[int, int] | None:
    """Return the first and last byte of a Range header; None: all. Multiple ranges and other units are ignored."""
    condition = request.headers.get("if-range")
    asked = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if asked is None or asked.group(1) == asked.group(2) == "" or (condition is not None and condition != tag):
        return None
    begin, end = asked.groups()
    if begin == "":  # the last bytes
        first, last = max(0, size - int(end)), size - 1
    else:
        first, last = int(begin), min(int(end or size), size - 1)
        if end and int(end) < first:
            return None  # not a range
    if first >= size or first > last:
        raise NoSuchRange(size)
    return first, last


def _size_and_head(file: Any) -> tuple[int, bytes]:
    try:
        head = file.read(16)
        return int(file.seek(0, 2)), head
    except Exception as error:
        raise StorageError(f"The stored recording cannot be read ({type(error).__name__}).") from error


async def _pieces(file: Any, first: int, last: int, wait: Wait) -> AsyncIterator[bytes]:
    try:
        await asyncio.to_thread(file.seek, first)
        sent, size = 0, last - first + 1
        while sent < size and (piece := await asyncio.to_thread(file.read, min(PIECE, size - sent))):
            sent += len(piece)
            await wait(len(piece))
            yield piece
    finally:
        file.close()
