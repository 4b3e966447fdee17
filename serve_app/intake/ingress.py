"""What is answered while Serve knows of no route yet: a 503, not the 404 that a sender takes for final.

A proxy that starts, or starts again after a crash, hears of its routes a moment later. HAProxy gets the same manners
from `deploy/haproxy.sh`.
"""

import json
import os
from typing import Any

from starlette.middleware import Middleware

from serve_app.http.problems import REQUEST_ID
from serve_app.http.proxy import SOURCE_HEADER

CHECK = "/-/healthz"  # by which HAProxy asks its servers whether they are there
RETRY_AFTER = b"2"
OURS = (b"application/problem+json", b"text/html")  # kinds of a 404 of the applications
STARTING = json.dumps(
    {
        "type": "urn:switchboard:problem:unavailable",
        "title": "The service is starting",
        "status": 503,
        "detail": "Send the same request again in a moment.",
    }
).encode()


def middlewares() -> list[Middleware]:
    """Called by Serve in each of its proxies."""
    return [Middleware(StartingIsNoNotFound, prefix=os.environ.get("SWITCHBOARD_ROUTE_PREFIX", "/"))]


class StartingIsNoNotFound:
    """ASGI: a plain-text 404 below `prefix` is the proxy's own, for ours are problem+json, or pages."""

    def __init__(self, app: Any, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not self._ours(scope["path"]):
            await self._app(scope, receive, send)
            return
        scope = scope | {"headers": [one for one in scope["headers"] if not _is_bad_request_id(*one)]}
        replaced = False

        async def answer(message: Any) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == 404:
                kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
                if not any(kind.startswith(OURS) for kind in kinds):
                    replaced = True
                    await _starting(send)
            if not replaced:
                await send(message)

        await self._app(scope, receive, answer)

    def _ours(self, path: str) -> bool:
        return not path.startswith("/-/") and path.startswith(self._prefix.rstrip("/") + "/")


class OnlySubmissions:
    """ASGI: passes on to `app` what it answers below `prefix`; for all else the service is still starting.

    Only from HAProxy (`behind_haproxy`) is the sender's address taken from `SOURCE_HEADER`; else it is written there,
    as HAProxy would.
    """

    PATHS = ("/submit", "/healthz", "/readyz")

    def __init__(self, app: Any, prefix: str, behind_haproxy: bool) -> None:
        self._app = app
        self._prefix = prefix.rstrip("/")
        self._behind_haproxy = behind_haproxy
        self._source_header = os.environ.get("HAPROXY_SOURCE_HEADER", "").lower().encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = str(scope["path"])
        if path == CHECK and self._behind_haproxy:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
        elif path.startswith(self._prefix) and path[len(self._prefix) :] in self.PATHS:
            headers = scope["headers"] if self._behind_haproxy else self._with_source(scope)
            await self._app(scope | {"root_path": self._prefix, "headers": headers}, receive, send)
        else:
            await _starting(send)

    def _with_source(self, scope: Any) -> list[tuple[bytes, bytes]]:
        """As HAProxy does it: what the connection says, or the last one in the header that is trusted."""
        told = [value for name, value in scope["headers"] if name == self._source_header]
        source = told[-1].rpartition(b",")[2].strip() if told else (scope.get("client") or ("",))[0].encode()
        kept = [(name, value) for name, value in scope["headers"] if name != SOURCE_HEADER.encode()]
        return [*kept, (SOURCE_HEADER.encode(), source)]


def _is_bad_request_id(name: bytes, value: bytes) -> bool:
    """The proxy would answer with it, and the service log another one."""
    return name == b"x-request-id" and not REQUEST_ID.fullmatch(value)


async def _starting(send: Any) -> None:
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(STARTING)).encode()),
        (b"retry-after", RETRY_AFTER),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": STARTING})
