import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from starlette.responses import Response, StreamingResponse

from db.search import call_list
from db.search.call_list import Change, Deletion
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
    changes, is_full = await _changes_after(reading, since)
    times = {change.call_id: _time_of(change) for change in changes}
    while is_full:
        changes, is_full = await _changes_after(reading, _time_of(changes[-1]))
        times |= {change.call_id: _time_of(change) for change in changes}
    return times


async def _changes_after(reading: ApiRequest[StreamQuery], at: datetime) -> tuple[list[Change | Deletion], bool]:
    """Return the changes and deletions after `at`, the earliest first, and whether there may be more."""
    parts: list[Sequence[Change | Deletion]] = [
        await call_list.changes_since(reading.database, reading.reader, at),
        await call_list.deletions_since(reading.database, reading.reader, at),
    ]
    ends = [_time_of(part[-1]) for part in parts if len(part) == call_list.MAX_CHANGES]
    changes = sorted((change for part in parts for change in part), key=_time_of)
    return [change for change in changes if not ends or _time_of(change) <= min(ends)], bool(ends)


def _time_of(change: Change | Deletion) -> datetime:
    return change.deleted_at if isinstance(change, Deletion) else change.updated_at


def _event(change: Change | Deletion) -> bytes:
    kind = "call.deleted" if isinstance(change, Deletion) else "call"
    return f"id: {_time_of(change).isoformat()}\nevent: {kind}\ndata: ".encode() + to_json(change) + b"\n\n"


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
            changes, is_full = await _changes_after(reading, begin)
        except UNAVAILABLE:
            return  # the client reconnects and resumes
        fresh = [change for change in changes if sent.get(change.call_id) != _time_of(change)]
        for change in fresh:
            sent[change.call_id] = _time_of(change)
            latest = max(latest, _time_of(change))
            yield _event(change)
        sent = {call_id: at for call_id, at in sent.items() if at > latest - 2 * OVERLAP}
        if fresh:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > HEARTBEAT_SECONDS:
            quiet_since = time.monotonic()
            yield b": still here\n\n"
        if is_full:
            begin = _time_of(changes[-1])
        else:
            begin = max(latest - OVERLAP, since)
            await asyncio.sleep(reading.options.POLL_SECONDS)
