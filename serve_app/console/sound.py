import asyncio
import io
import struct
from collections.abc import Awaitable
from functools import partial

from starlette.responses import Response

from db.records.views import CallRecord
from db.voices import voiceprints
from db.workspace.keys import UNREDACTED
from pipeline.domain.speech import Recording
from pipeline.errors import RecordingError, StorageError
from pipeline.sealed_files import open_stored
from serve_app.api.audio import Stored, answer
from serve_app.api.errors import NoSuchRange
from serve_app.api.sound import SoundRequest
from serve_app.console.call import note, read, what_is_read
from serve_app.console.conversation import Conversation
from serve_app.console.site import NotFound, NotUnderstood, Visit
from serve_app.records.decoding import CHANNELS

_PLAIN = 1  # WAVE_FORMAT_PCM
MIXED = "mixed"
MAX_VOICE_SECONDS = 60.0


async def audio(visit: Visit) -> Response:
    """Return the recording or a range of it; `channel`: only rep or customer, if channels are separated.

    `unredacted`: the sealed original, for viewers who may see it.
    """
    channel = visit.request.query_params.get("channel", MIXED)
    if channel not in (MIXED, *CHANNELS):
        raise NotUnderstood
    what = what_is_read(visit, "audio")
    record = await read(visit, what if what == UNREDACTED else None)
    if not record.recordings or record.layout is None:
        raise NotFound
    if channel != MIXED and not record.layout.kind.separated:
        raise NotFound
    if what != UNREDACTED:  # `read` has logged it
        await note(visit, record.call.call_id, what, channel)
    return await _sound(visit, _stored(visit, record, channel))


async def voice(visit: Visit) -> Response:
    """Return the agent's speech in a call, from which the voiceprint was computed, without pauses and other parties.

    Voiceprints are workspace-wide: viewers limited to one team get 404.
    """
    if visit.viewer.team_id is not None:
        raise NotFound
    await voiceprints.show(visit.database, visit.id(), visit.home)
    record = await read(visit, None, machine=True)  # the voiceprint is of the detected agent
    spans = voice_spans(Conversation.of(record))
    if not record.recordings or record.layout is None or not spans:
        raise NotFound
    channel = "rep" if record.layout.kind.separated else MIXED
    await note(visit, record.call.call_id, "audio", "voice")
    return await _sound(visit, _decoded(visit, SoundRequest(record.recordings, record.layout, channel, spans), "voice"))


def voice_spans(conversation: Conversation | None) -> tuple[tuple[float, float], ...]:
    """Return the first spans of the agent's speech, up to `MAX_VOICE_SECONDS`."""
    spans, remaining = [], MAX_VOICE_SECONDS
    for turn in conversation.transcript.turns if conversation else ():
        if remaining > 0 and not turn.machine and conversation and conversation.sides.get(turn.speaker) == "rep":
            spans.append((turn.start, min(turn.end, turn.start + remaining)))
            remaining -= turn.end - turn.start
    return tuple(spans)


async def _sound(visit: Visit, finding: Awaitable[Stored | None]) -> Response:
    try:
        stored = await finding
        if stored is None:  # being decoded; the player retries
            return Response(status_code=503, headers={"Retry-After": "2"})
        return await answer(visit.request, stored, partial(visit.site.tools.pace.wait, visit.home))
    except NoSuchRange as error:
        return Response(status_code=416, headers=error.headers)
    except (RecordingError, StorageError, OSError):
        raise NotFound from None


async def _stored(visit: Visit, record: CallRecord, channel: str) -> Stored | None:
    call_id = record.call.call_id
    if channel == MIXED and len(record.recordings) == 1:
        (recording,) = record.recordings
        if await asyncio.to_thread(_plays, recording):
            return Stored(recording.uri, f'"{recording.sha256}"', str(call_id), recording.key)
    assert record.layout is not None
    return await _decoded(visit, SoundRequest(record.recordings, record.layout, channel), channel)


async def _decoded(visit: Visit, request: SoundRequest, name: str) -> Stored | None:
    """Return the decoded sound; None while it is being decoded."""
    seconds = visit.site.settings.api.SOUND_WAIT_SECONDS
    path = await visit.site.tools.sounds.get(request, visit.home, seconds)
    return None if path is None else Stored(path.as_uri(), f'"{request.name}"', f"{visit.id()}-{name}")


def _plays(recording: Recording) -> bool:
    """Return whether every browser plays a stored file: PCM in WAV with one or two channels, or FLAC.

    Seeking in other compressed files is too inexact to highlight words, so they are decoded. Raises `StorageError`.
    """
    with open_stored(recording.uri, recording.key) as file:
        head, size = file.read(64), file.seek(0, io.SEEK_END)
    if head[:4] == b"RIFF" and head[8:16] == b"WAVEfmt " and len(head) >= 36:
        declared, form, channels, _, _, _, bits = struct.unpack_from("<IHHIIHH", head, 16)
        whole = struct.unpack_from("<I", head, 4)[0] + 8 <= size  # players trust the length in the header
        return form == _PLAIN and channels in (1, 2) and bits in (8, 16) and declared in (16, 18) and whole
    return head.startswith(b"fLaC")
