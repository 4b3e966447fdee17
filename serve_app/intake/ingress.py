"""503 instead of 404 while a proxy of Serve has no routes yet: senders treat a 404 as final.

A proxy receives its routes shortly after it starts or restarts. `deploy/haproxy.sh` does the same for HAProxy.
"""

import json
import os
from typing import Any

from starlette.middleware import Middleware

from serve_app.http.auth import SOURCE_HEADER
from serve_app.http.problems import REQUEST_ID

CHECK = "/-/healthz"  # health check of HAProxy
RETRY_AFTER = b"2"
APPLICATION_TYPES = (b"application/problem+json", b"text/html")  # media types of a 404 of the applications
STARTING = json.dumps(
    {
        "type": "urn:switchboard:problem:unavailable",
        "title": "The service is starting",
        "status": 503,
        "detail": "Retry in a moment.",
    }
).encode()


def middlewares() -> list[Middleware]:
    """Return the middleware that Serve installs in each of its proxies."""
    return [Middleware(RetryUntilRoutesKnown, prefix=os.environ.get("SWITCHBOARD_ROUTE_PREFIX", "/"))]


class RetryUntilRoutesKnown:
    """ASGI middleware that replaces a plain-text 404 of the proxy below `prefix` by 503."""

    def __init__(self, app: Any, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not self._is_below_prefix(scope["path"]):
            await self._app(scope, receive, send)
            return
        scope = scope | {"headers": [header for header in scope["headers"] if not _is_bad_request_id(*header)]}
        replaced = False

        async def answer(message: Any) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == 404:
                kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
                if not any(kind.startswith(APPLICATION_TYPES) for kind in kinds):
                    replaced = True
                    await _starting(send)
            if not replaced:
                await send(message)

        await self._app(scope, receive, answer)

    def _is_below_prefix(self, path: str) -> bool:
        return not path.startswith("/-/") and path.startswith(self._prefix.rstrip("/") + "/")


class SubmitOnlyMiddleware:
    """ASGI middleware that forwards `PATHS` below `prefix` to `app` and returns 503 for all other paths.

    Behind HAProxy `SOURCE_HEADER` has the address of the sender; otherwise this sets it, as HAProxy would.
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
        """Return the headers with the source: the last address of the trusted header, or that of the connection."""
        values = [value for name, value in scope["headers"] if name == self._source_header]
        source = values[-1].rpartition(b",")[2].strip() if values else (scope.get("client") or ("",))[0].encode()
        others = [(name, value) for name, value in scope["headers"] if name != SOURCE_HEADER.encode()]
        return [*others, (SOURCE_HEADER.encode(), source)]


def _is_bad_request_id(name: bytes, value: bytes) -> bool:
    """Return whether the proxy would use an invalid id that the service replaces."""
    return name == b"x-request-id" and not REQUEST_ID.fullmatch(value)


async def _starting(send: Any) -> None:
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(STARTING)).encode()),
        (b"retry-after", RETRY_AFTER),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": STARTING})
