"""Request checks and response headers of all pages.

- A request that changes something must come from the console's own pages (Sec-Fetch-Site, or else Origin), so that no
  other site can use the session's cookie or sign a browser in to a different session.
- The cookie is HttpOnly and SameSite=Lax, and Secure if the browser connected by TLS.
- Scripts and styles come from the console's own files only. Nothing is loaded from other hosts.
"""

import secrets
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "switchboard_session"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Guard:
    """ASGI middleware: rejects cross-site requests, sets security headers and creates the page's nonce.

    The nonce is for the waveform's style sheet; handlers read it from `request.state.nonce`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = POLICY.format(nonce=nonce)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        if scope["method"] not in SAFE and not is_same_origin(headers):
            response = PlainTextResponse("Cross-site request rejected.", 403)
            await response(scope, receive, send_secured)
            return
        await self._app(scope, receive, send_secured)


def is_same_origin(headers: Headers) -> bool:
    """Return whether a request came from the console's pages, or from no page (a program, which has no cookie)."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def session_of(request: Request) -> str | None:
    return request.cookies.get(COOKIE) or None


def keep_session(request: Request, response: Response, secret: str, seconds: int) -> None:
    response.set_cookie(
        COOKIE, secret, max_age=seconds, path=_path(request), httponly=True, samesite="lax", secure=_by_tls(request)
    )


def drop_session(request: Request, response: Response) -> None:
    response.delete_cookie(COOKIE, path=_path(request), httponly=True, samesite="lax", secure=_by_tls(request))


def _path(request: Request) -> str:
    return request.scope.get("root_path") or "/"


def _by_tls(request: Request) -> bool:
    """Trust X-Forwarded-Proto too: it can only make the cookie stricter."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"
