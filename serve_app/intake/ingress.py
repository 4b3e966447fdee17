"""503 instead of 404 while a proxy of Serve has no routes yet: senders treat a 404 as final.

A proxy receives its routes shortly after it starts or restarts. `deploy/haproxy.sh` does the same for HAProxy.
"""

import json
import os
from typing import Any

from starlette.middleware import Middleware

from serve_app.http.problems import REQUEST_ID
from serve_app.http.source import Networks, SourceMiddleware

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

    It sets the address of the sender, as the replicas of Intake do.
    """

    PATHS = ("/submit", "/healthz", "/readyz")

    def __init__(self, app: Any, prefix: str, behind_haproxy: bool, proxies: Networks) -> None:
        self._app = SourceMiddleware(app, behind_haproxy, proxies)
        self._prefix = prefix.rstrip("/")
        self._behind_haproxy = behind_haproxy

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = str(scope["path"])
        if path == CHECK and self._behind_haproxy:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
        elif path.startswith(self._prefix) and path[len(self._prefix) :] in self.PATHS:
            await self._app(scope | {"root_path": self._prefix}, receive, send)
        else:
            await _starting(send)


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
