"""What waits and runs, by team, and how long that takes."""

from starlette.responses import HTMLResponse, Response

from db.queue import backlog as backlogs
from db.queue import by_team
from serve_app.console.site import Visit, etag_of
from serve_app.operations.estimates import Estimate


async def queue(visit: Visit) -> Response:
    """The page; it looks for news by itself."""
    teams = await by_team.team_queues(visit.database, visit.reader)
    busy = any(one.fetching or one.queued or one.running for one in teams)
    seconds = await drain_seconds(visit) if busy else None
    if not visit.request.headers.get("hx-request"):
        return visit.page("queue.html", teams=teams, busy=busy, seconds=seconds)
    body = bytes(visit.page("_queue.html", teams=teams, busy=busy, seconds=seconds).body).decode()
    return visit.unchanged(etag_of(body)) or HTMLResponse(body, headers={"ETag": etag_of(body)})


async def drain_seconds(visit: Visit) -> float:
    """Until all that waits is done, of other workspaces too: they share the engines. An estimate from finished work."""
    backlog = await backlogs.backlog(visit.database)
    return Estimate(backlog, visit.site.settings.scaling.assumed_rtfx).drain_time()
