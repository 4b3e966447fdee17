"""When a call will be done, as far as the queue tells: what `switchboard calls show` says of one on its way."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from db.core.database import Database
    from serve_app.settings import Settings


@dataclass(frozen=True, slots=True)
class Expected:
    """An estimate from measured real-time factors; new submissions and failures change it."""

    at: datetime
    seconds: float  # from now
    audio_seconds_before: float  # processed before the call's turn; 0 while it is running
    measured: bool  # False: on the factors of the settings, because no call has finished yet


async def expected(database: "Database", job_id: UUID | None, settings: "Settings") -> Expected | None:
    """None for a job that has ended, or that is to be tried later."""
    from db.queue import backlog as queue
    from serve_app.operations.estimates import CALL, RUNNING_PART, Estimate, ahead, left_of_running

    place = await queue.place(database, job_id) if job_id else None
    if place is None:
        return None
    backlog, lanes = await queue.lanes(database)
    mine = next((lane for lane in lanes if (lane.team_id, lane.live) == (place.team_id, place.live)), None)
    if place.running:  # running calls share the engines, so all of them may end together
        before, audio = 0.0, max(left_of_running(backlog), place.audio_seconds * RUNNING_PART)
    elif mine is not None:
        before = ahead(mine, place.before, lanes, backlog, settings.processing.BACKFILL_SHARE)
        audio = before + place.audio_seconds
    else:  # it ended between the two looks
        return None
    seconds = Estimate(backlog, settings.scaling.assumed_rtfx).drain_time(audio)
    measured = any(pace.stage == CALL for pace in backlog.paces)
    return Expected(datetime.now(UTC) + timedelta(seconds=seconds), round(seconds, 1), round(before, 1), measured)
