"""What every request passes before a page sees it: where it came from, who asks, and what the browser may do.

- A request that changes something must come from our own pages (Sec-Fetch-Site, or else Origin): no other site's form
  or script can use the session's cookie, nor sign a browser in to somebody else's.
- The cookie is HttpOnly and SameSite=Lax, and Secure wherever the browser came by TLS.
- Pages run scripts and styles of our own files only. Nothing is loaded from elsewhere.
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
    """ASGI: refuses requests of other sites, writes the headers that bind the browser, and draws the page's nonce.

    The nonce is for the one style sheet that the waveform brings along; handlers find it in `request.state.nonce`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def bound(message: Message) -> None:
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
        if scope["method"] not in SAFE and not is_ours(headers):
            refused = PlainTextResponse("This request did not come from a page of this console.", 403)
            await refused(scope, receive, bound)
            return
        await self._app(scope, receive, bound)


def is_ours(headers: Headers) -> bool:
    """Whether a request came from a page of ours, or from no page at all (a program, which has no cookie to abuse)."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def session_of(request: Request) -> str | None:
    """The secret that the browser shows, or None."""
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
    """Also where a proxy in front of us ends TLS and says so: believed, since it can only make the cookie stricter."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"
