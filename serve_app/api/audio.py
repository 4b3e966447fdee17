"""Handler: the sound of a call, from our own store only, whole or in ranges."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import fsspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from db.records.views import CallRecord
from pipeline.errors import CallError, StorageError
from serve_app.api.access import ReadRequest, has_it
from serve_app.api.calls import record
from serve_app.api.errors import Busy, NoSuchRange, NotReady
from serve_app.api.queries import AudioQuery
from serve_app.api.sound import WantedSound

PIECE = 256 * 1024  # bytes read at once
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_FORMS = (  # first bytes, where, media type: what the sender declared is not believed
    (b"RIFF", 0, "audio/wav"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"ID3", 0, "audio/mpeg"),
    (b"ftyp", 4, "audio/mp4"),
    (b"#!AMR", 0, "audio/amr"),
    (b"\x1aE\xdf\xa3", 0, "audio/webm"),
    (b".snd", 0, "audio/basic"),
)
# The file is whatever somebody sent: a browser must take it for sound, and nothing in it for a page of ours.
HEADERS = {
    "Accept-Ranges": "bytes",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A file to be read from: an fsspec address, its ETag, and a name for people."""

    uri: str
    tag: str
    name: str


async def play_call(reading: ReadRequest[AudioQuery]) -> Response:
    """The original file, or one channel decoded."""
    found = await record(reading)
    if not found.recordings:
        raise NotReady("The call has no stored recording. It has one when its recording was fetched.")
    channel = reading.query.channel or ("original" if len(found.recordings) == 1 else "mixed")
    await reading.note("audio", [reading.call_id], channel)
    try:
        stored = await _stored(reading, found, channel)
        return await answer(reading.request, stored)
    except CallError as error:
        if error.retryable:
            sentence = "The stored recording cannot be read now; send the same request again after Retry-After."
            raise Busy(reading.options.RETRY_AFTER_SECONDS, sentence) from error
        raise NotReady(f"The recording cannot be decoded: {error.message}") from error


async def _stored(reading: ReadRequest[Any], found: CallRecord, channel: str) -> Stored:
    if channel == "original":
        if len(found.recordings) > 1:
            raise NotReady("The call has two files. Ask for channel=mixed, rep or customer.")
        one = found.recordings[0]
        return Stored(one.uri, f'"{one.sha256}"', str(reading.call_id))
    if found.layout is None:
        raise NotReady("What is on which channel is known when the call's state is completed.")
    wanted = WantedSound(found.recordings, found.layout, channel)
    path = await reading.sounds.get(wanted, reading.options.SOUND_WAIT_SECONDS)
    if path is None:
        raise Busy(reading.options.RETRY_AFTER_SECONDS, "The sound is still being decoded; ask again in a moment.")
    return Stored(path.as_uri(), f'"{wanted.name}"', f"{reading.call_id}-{channel}")


async def answer(request: Request, stored: Stored) -> Response:
    """200 with all of a file, 206 with a part, 304 where the reader has it; raises `NoSuchRange`, `StorageError`."""
    file = await asyncio.to_thread(_open, stored.uri)
    try:
        size, head = await asyncio.to_thread(_size_and_head, file)
        media_type = media_type_of(head)
        suffix = media_type.removeprefix("audio/") if media_type.startswith("audio/") else "bin"
        headers = HEADERS | {
            "ETag": stored.tag,
            "Content-Disposition": f'inline; filename="{stored.name}.{suffix}"',
        }
        if has_it(request, stored.tag):
            await asyncio.to_thread(file.close)
            return Response(None, 304, headers)
        part = _part(request, stored.tag, size)
        first, last = part or (0, size - 1)
        headers["Content-Length"] = str(last - first + 1)
        if part:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        body = _pieces(file, first, last)
        return StreamingResponse(body, 206 if part else 200, headers, media_type)
    except BaseException:
        file.close()
        raise


def media_type_of(head: bytes) -> str:
    """By the first bytes of a file."""
    for magic, at, media_type in _FORMS:
        if head[at : at + len(magic)] == magic:
            return media_type
    return "audio/mpeg" if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 else "application/octet-stream"


def _part(request: Request, tag: str, size: int) -> tuple[int, int] | None:
    """The first and last byte that a Range asks for; None: all. Several ranges, and other units, are not served."""
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


def _open(uri: str) -> Any:
    try:
        return fsspec.open(uri, "rb").open()
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A stored recording cannot be read ({type(error).__name__}).") from error


def _size_and_head(file: Any) -> tuple[int, bytes]:
    try:
        head = file.read(16)
        return int(file.seek(0, 2)), head
    except Exception as error:
        raise StorageError(f"A stored recording cannot be read ({type(error).__name__}).") from error


async def _pieces(file: Any, first: int, last: int) -> AsyncIterator[bytes]:
    try:
        await asyncio.to_thread(file.seek, first)
        left = last - first + 1
        while left > 0 and (piece := await asyncio.to_thread(file.read, min(PIECE, left))):
            left -= len(piece)
            yield piece
    finally:
        file.close()
