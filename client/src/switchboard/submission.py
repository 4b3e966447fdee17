"""Arguments of `submit`. `make generate` writes this file from the OpenAPI documents."""

from datetime import datetime
from typing import NotRequired, TypedDict
from uuid import UUID

WIRE_NAMES = {
    "call_id": "callId",
    "recording_url": "recordingUrl",
    "recording_url2": "recordingUrl2",
    "from_number": "from",
    "to_number": "to",
    "start_time": "startTime",
    "outgoing": "outgoing",
    "duration": "duration",
    "team_id": "teamId",
    "user_id": "userId",
}


class Submission(TypedDict):
    """A call as its sender describes it. Without `call_id` it gets a new one, which the answer holds."""

    call_id: NotRequired[UUID | str]
    """The sender's stable identifier for the call, the same in both phases and in every retry: the idempotency key.
    Hyphenated, in any case."""
    recording_url: NotRequired[str | None]
    """Where the recording can be fetched (http or https). Its presence triggers transcription. Of two files it is
    channel 0, the sender's own line."""
    recording_url2: NotRequired[str | None]
    """Second recording, one file per leg: channel 1, the other party. Only together with recordingUrl. Sent once,
    it stays part of the call when recordingUrl is sent again without it."""
    from_number: str
    """The calling number, kept as sent."""
    to_number: str
    """The number that was called, kept as sent."""
    start_time: datetime
    """When the call started: ISO 8601 with date and time; without an offset it is read as UTC."""
    outgoing: NotRequired[bool | None]
    """true: the sender's side placed the call. false: inbound. Left out: inferred from the talk."""
    duration: NotRequired[int | None]
    """Length of the call in whole seconds."""
    team_id: NotRequired[UUID | str | None]
    """The team that the call belongs to. Required with a workspace-wide key; with a team-scoped key it is ignored,
    whatever it holds."""
    user_id: NotRequired[UUID | str | None]
    """The team member who handled the call. Left out: the service tries to tell from the transcript."""
