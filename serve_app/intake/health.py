"""GET /healthz and GET /readyz, for probes: without a key, and without a word of what is stored."""

import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from serve_app.http.problems import Refusal
from serve_app.operations.readiness import Parts

NEVER_KEPT = {"Cache-Control": "no-store"}


async def alive(_: Request) -> Response:
    """This process answers."""
    return Response('{"alive":true}', 200, NEVER_KEPT, "application/json")


def readiness(parts: Callable[[], Awaitable[Parts]]) -> Callable[[Request], Awaitable[Response]]:
    """200 where every part is ready, else 503; `exclude=Diarizer` leaves a part out."""

    async def ready(request: Request) -> Response:
        found = await parts()
        excluded = request.query_params.getlist("exclude")
        if not set(excluded) <= found.keys():
            raise Refusal(f"exclude names one of the parts: {', '.join(found)}.")
        left = {name: part for name, part in found.items() if name not in excluded}
        body = {
            "ready": all(part.ready for part in left.values()),
            "parts": {
                name: {"ready": part.ready} | ({"why": part.why} if part.why else {}) for name, part in left.items()
            },
        }
        return Response(json.dumps(body), 200 if body["ready"] else 503, NEVER_KEPT, "application/json")

    return ready
