import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from starlette.responses import Response, StreamingResponse

from db.search import call_list
from serve_app.api.access import UNAVAILABLE, ApiRequest
from serve_app.api.calls import now
from serve_app.api.errors import InvalidQuery
from serve_app.api.queries import StreamQuery, parse_timestamp
from serve_app.http.camel_json import to_json
from serve_app.http.json_body import Fault

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)  # before any call
OVERLAP = timedelta(seconds=10)  # a transaction may commit this long after its timestamps
HEARTBEAT_SECONDS = 15.0


async def stream_changes(reading: ApiRequest[StreamQuery]) -> Response:
    """Stream changes of calls."""
    last_event_id = reading.request.headers.get("last-event-id")
    since = reading.query.since
    sent: dict[UUID, datetime] = {}
    if last_event_id is not None:
        last = parse_timestamp(last_event_id)
        if last is None:
            raise InvalidQuery([Fault("", "Last-Event-ID is not an id of this stream. Omit it to start now.")])
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
    changes = await call_list.changes_since(reading.database, reading.reader, since)
    updated_at = {change.call_id: change.updated_at for change in changes}
    while len(changes) == call_list.MAX_CHANGES:
        changes = await call_list.changes_since(reading.database, reading.reader, changes[-1].updated_at)
        updated_at |= {change.call_id: change.updated_at for change in changes}
    return updated_at


async def _changes(
    reading: ApiRequest[StreamQuery], since: datetime, sent: dict[UUID, datetime]
) -> AsyncIterator[bytes]:
    """Yield each change once. The overlap between polls finds changes that were committed late.

    `sent`: time of the last change per call that was already sent.
    """
    ends = time.monotonic() + reading.options.STREAM_SECONDS
    quiet_since = time.monotonic()
    yield b"retry: 2000\n\n"
    latest = begin = since
    while time.monotonic() < ends:
        try:
            changes = await call_list.changes_since(reading.database, reading.reader, begin)
        except UNAVAILABLE:
            return  # the client reconnects and resumes
        fresh = [change for change in changes if sent.get(change.call_id) != change.updated_at]
        for change in fresh:
            sent[change.call_id] = change.updated_at
            latest = max(latest, change.updated_at)
            yield f"id: {change.updated_at.isoformat()}\nevent: call\ndata: ".encode() + to_json(change) + b"\n\n"
        sent = {call_id: at for call_id, at in sent.items() if at > latest - 2 * OVERLAP}
        if fresh:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > HEARTBEAT_SECONDS:
            quiet_since = time.monotonic()
            yield b": still here\n\n"
        if len(changes) == call_list.MAX_CHANGES:
            begin = changes[-1].updated_at
        else:
            begin = max(latest - OVERLAP, since)
            await asyncio.sleep(reading.options.POLL_SECONDS)
