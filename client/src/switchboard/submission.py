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
    """Stable id of the call, the same in both phases and in every retry: the idempotency key. Hyphenated, in any
    case."""
    recording_url: NotRequired[str | None]
    """URL of the recording (http or https). Its presence triggers transcription. With two files it is channel 0,
    the sender's line."""
    recording_url2: NotRequired[str | None]
    """Second recording if each leg has a file: channel 1, the other party. Requires recordingUrl. Kept if
    recordingUrl is sent again without it."""
    from_number: str
    """The calling number, stored as sent."""
    to_number: str
    """The called number, stored as sent."""
    start_time: datetime
    """Start of the call: ISO 8601 date and time; UTC if it has no offset."""
    outgoing: NotRequired[bool | None]
    """true: outbound call; false: inbound call; omitted: inferred from the conversation."""
    duration: NotRequired[int | None]
    """Duration of the call in whole seconds."""
    team_id: NotRequired[UUID | str | None]
    """Team of the call. Required with a workspace-wide key; ignored with a team-scoped key."""
    user_id: NotRequired[UUID | str | None]
    """Member who handled the call. Omitted: inferred from the transcript."""
