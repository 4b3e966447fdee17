"""What waits and runs, by team."""

from starlette.responses import HTMLResponse, Response

from db import queue_view
from serve_app.console.site import Visit, etag_of


async def queue(visit: Visit) -> Response:
    """The page; it looks for news by itself."""
    teams = await queue_view.team_queues(visit.database, visit.reader)
    busy = any(one.fetching or one.queued or one.running for one in teams)
    if not visit.request.headers.get("hx-request"):
        return visit.page("queue.html", teams=teams, busy=busy)
    body = bytes(visit.page("_queue.html", teams=teams, busy=busy).body).decode()
    return visit.unchanged(etag_of(body)) or HTMLResponse(body, headers={"ETag": etag_of(body)})
