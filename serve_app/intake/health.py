"""GET /healthz and GET /readyz for probes; they need no key and expose no stored data."""

import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from serve_app.http.problems import Refusal
from serve_app.operations.readiness import Parts

NO_STORE = {"Cache-Control": "no-store"}


async def alive(_: Request) -> Response:
    """Return 200."""
    return Response('{"alive":true}', 200, NO_STORE, "application/json")


def readiness(parts: Callable[[], Awaitable[Parts]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler: 200 if every part is ready, else 503; `exclude=Diarizer` ignores a part."""

    async def ready(request: Request) -> Response:
        states = await parts()
        excluded = request.query_params.getlist("exclude")
        if not set(excluded) <= states.keys():
            raise Refusal(f"exclude must be one of: {', '.join(states)}.")
        included = {name: part for name, part in states.items() if name not in excluded}
        body = {
            "ready": all(part.ready for part in included.values()),
            "parts": {
                name: {"ready": part.ready} | ({"why": part.why} if part.why else {}) for name, part in included.items()
            },
        }
        return Response(json.dumps(body), 200 if body["ready"] else 503, NO_STORE, "application/json")

    return ready
