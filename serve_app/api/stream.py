import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from starlette.responses import Response, StreamingResponse

from db.search.changes import OVERLAP, Change, Deletion, read_changes
from serve_app.api.access import UNAVAILABLE, ApiRequest
from serve_app.api.calls import now
from serve_app.api.errors import InvalidQuery
from serve_app.api.queries import StreamQuery, parse_timestamp
from serve_app.http.camel_json import to_json
from serve_app.http.json_body import Fault

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)  # before any call
HEARTBEAT_SECONDS = 15.0


async def stream_changes(reading: ApiRequest[StreamQuery]) -> Response:
    last_event_id = reading.request.headers.get("last-event-id")
    since = reading.query.since
    sent: dict[UUID, datetime] = {}
    if last_event_id is not None:
        last = parse_timestamp(last_event_id)
        if last is None:
            raise InvalidQuery([Fault("", "Last-Event-ID is not an id of this stream. Omit it to start now.")])
        present = await now(reading)
        # An id of the future: the database's clock was set back, and an earlier stream sent nothing from then on.
        last = last if last <= present else present - timedelta(seconds=reading.options.STREAM_SECONDS)
        since = max(last, BEGINNING) - OVERLAP
    if since is None:  # also include changes that are not committed yet
        since = await now(reading) - OVERLAP
        sent = await _known(reading, since)
    return StreamingResponse(
        _changes(reading, max(since, BEGINNING), sent),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _known(reading: ApiRequest[StreamQuery], since: datetime) -> dict[UUID, datetime]:
    """Return the calls with a committed change after `since`, and its time."""
    times: dict[UUID, datetime] = {}
    is_full = True
    while is_full:
        changes = await read_changes(reading.database, reading.reader, since)
        times |= {change.call_id: change.at for change in changes.items}
        since, is_full = changes.end, changes.is_full
    return times


def _event(change: Change | Deletion) -> bytes:
    kind = "call.deleted" if isinstance(change, Deletion) else "call"
    return f"id: {change.at.isoformat()}\nevent: {kind}\ndata: ".encode() + to_json(change) + b"\n\n"


async def _changes(
    reading: ApiRequest[StreamQuery], since: datetime, sent: dict[UUID, datetime]
) -> AsyncIterator[bytes]:
    """Yield each change once. The overlap between polls finds changes that were committed late.

    `sent`: time of the last change per call that was already sent.
    """
    ends = time.monotonic() + reading.options.STREAM_SECONDS
    quiet_since = time.monotonic()
    yield b"retry: 2000\n\n"
    begin, has_caught_up = since, False
    while time.monotonic() < ends:
        try:
            if has_caught_up:
                changes = await reading.tools.latest.read(reading.reader, begin)
            else:
                changes = await read_changes(reading.database, reading.reader, begin)
        except UNAVAILABLE:
            return  # the client reconnects and resumes
        fresh = [change for change in changes.items if sent.get(change.call_id) != change.at]
        for change in fresh:
            sent[change.call_id] = change.at
            yield _event(change)
        begin = max(changes.end, since)
        sent = {call_id: at for call_id, at in sent.items() if at > begin - OVERLAP}
        if fresh:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > HEARTBEAT_SECONDS:
            quiet_since = time.monotonic()
            yield b": still here\n\n"
        has_caught_up = not changes.is_full
        if has_caught_up:
            await asyncio.sleep(reading.options.POLL_SECONDS)
