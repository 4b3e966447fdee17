"""Refusals as RFC 9457 problem details.

The docstring of a class is its default detail. Refusals never contain sent values.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import CallError, CallOfOtherTeam, KeyRevoked, StateUnavailable, UnknownTeam
from pipeline.observability import logs
from pipeline.observability.context import WorkContext, work_context
from pipeline.observability.tracing import traceparent
from serve_app.http.json_body import Fault, InvalidBody

PROBLEM = "application/problem+json"
log = logging.getLogger("switchboard.intake")


class Refusal(Exception):
    """The request was refused."""

    status: ClassVar[int] = 400
    kind: ClassVar[str] = "refused"
    title: ClassVar[str] = "Request refused"

    def __init__(
        self, detail: str | None = None, headers: dict[str, str] | None = None, faults: list[Fault] | None = None
    ) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        super().__init__(self.detail)
        self.headers = headers or {}
        self.faults = faults or []  # every fault of the request
        self.more: dict[str, Any] = {}  # further members of the problem


class RetryLater(Refusal):
    """The request may succeed later."""

    def __init__(self, retry_after: int, detail: str | None = None) -> None:
        super().__init__(detail, {"Retry-After": str(retry_after)})


class ResponseCut(Exception):
    """A response that has begun is cut off, so that its reader notices: the reason."""


class BodyRefused(Refusal):
    """The request body is invalid; errors lists every fault."""

    status, kind, title = 400, "invalid-body", "The request body is invalid"

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults=faults)


class NotAuthenticated(Refusal):
    """Invalid API key."""

    status, kind, title = 401, "not-authenticated", "Invalid API key"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, {"WWW-Authenticate": "Bearer"})


class ScopeMissing(Refusal):
    """The API key lacks the scope submit."""

    status, kind, title = 403, "scope-missing", "The API key lacks a scope"


class WrongTeam(Refusal):
    """The call belongs to another team than the API key; nothing was changed."""

    status, kind, title = 403, "wrong-team", "The call belongs to another team"


class NoSuchRoute(Refusal):
    """Not found. Submit: POST /submit, API: /api/v1, console: /console."""

    status, kind, title = 404, "no-such-route", "Not found"


class MethodNotAllowed(Refusal):
    """Use POST to submit calls."""

    status, kind, title = 405, "method-not-allowed", "Method not allowed"

    def __init__(self) -> None:
        super().__init__(None, {"Allow": "POST"})


class BodyTooSlow(Refusal):
    """The body was not received in time."""

    status, kind, title = 408, "body-too-slow", "Request timeout"


class BodyTooLarge(Refusal):
    """The body is larger than the limit."""

    status, kind, title = 413, "body-too-large", "The body is too large"


class MediaTypeRefused(Refusal):
    """Content-Type must be application/json or application/*+json, without a content coding."""

    status, kind, title = 415, "media-type-refused", "The media type is not accepted"


class TooManyRequests(Refusal):
    """The API key exceeded its limit of submissions. Nothing was recorded; retry later."""

    status, kind, title = 429, "too-many-requests", "Too many requests"

    def __init__(self, retry_after: int, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(None, {"Retry-After": str(retry_after), **headers})


class TooManyAtOnce(TooManyRequests):
    """Too many requests of this key or address at the same time. Retry later."""


class BacklogFull(RetryLater):
    """Too many recordings of this workspace are queued. Nothing was recorded; retry later."""

    status, kind, title = 429, "backlog-full", "The backlog is full"


class InternalError(Refusal):
    """The service failed to process the request. Retrying with the same callId is safe."""

    status, kind, title = 500, "internal", "Internal error"


class Unavailable(RetryLater):
    """The call cannot be recorded now. Retrying with the same callId is safe."""

    status, kind, title = 503, "unavailable", "Temporarily unavailable"


REFUSALS: tuple[type[Refusal], ...] = (
    BodyRefused,
    NotAuthenticated,
    ScopeMissing,
    WrongTeam,
    NoSuchRoute,
    MethodNotAllowed,
    BodyTooSlow,
    BodyTooLarge,
    MediaTypeRefused,
    TooManyRequests,
    BacklogFull,
    InternalError,
    Unavailable,
)


def from_call_error(error: CallError, retry_after: int) -> Refusal:
    """Return the refusal for an error of the submission store."""
    match error:
        case UnknownTeam():
            return BodyRefused([Fault("/teamId", "teamId is not a team of this workspace.")])
        case CallOfOtherTeam():
            return WrongTeam()
        case KeyRevoked():
            return NotAuthenticated()
        case StateUnavailable():
            return Unavailable(retry_after)
        case _:
            return InternalError()


def problem_type(refusal: type[Refusal]) -> str:
    """Return the stable URI of a kind of problem."""
    return f"urn:switchboard:problem:{refusal.kind}"


def answer(refusal: Refusal) -> Response:
    """Return RFC 9457 problem details."""
    problem = {
        "type": problem_type(type(refusal)),
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
    }
    if refusal.faults:
        problem["errors"] = [{"pointer": fault.pointer, "detail": fault.detail} for fault in refusal.faults]
    return Response(json.dumps(problem | refusal.more), refusal.status, refusal.headers, PROBLEM)


def install(
    api: Starlette,
    stamp: bool = True,
    no_such_route: Callable[[], Refusal] = NoSuchRoute,
    method_not_allowed: Callable[[], Refusal] = MethodNotAllowed,
) -> None:
    """Return every error of `api` as problem details; `stamp`: see `RequestIds`."""
    unrouted = {404: no_such_route, 405: method_not_allowed}

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return answer(error)

    async def body_refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, InvalidBody)
        return answer(BodyRefused(error.faults))

    async def not_routed(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        refusal = unrouted.get(error.status_code, InternalError)()
        if allowed := (error.headers or {}).get("Allow"):
            refusal.headers["Allow"] = ", ".join(sorted(part.strip() for part in allowed.split(",")))
        return answer(refusal)

    api.add_exception_handler(Refusal, refused)
    api.add_exception_handler(InvalidBody, body_refused)
    api.add_exception_handler(HTTPException, not_routed)
    api.add_middleware(RequestIds, stamp=stamp)


REQUEST_ID = re.compile(rb"[A-Za-z0-9._~+/=:-]{1,128}")


class RequestIds:
    """Middleware that assigns a request id for response, log and submission, and converts a crash to a plain 500.

    An X-Request-Id of the client or a proxy is used if it is a plain token. Handlers find the id in
    `request.state.request_id`; log lines contain it and the trace of a `traceparent` header. `stamp`: False if the
    server in front adds the header (Ray Serve does).
    """

    def __init__(self, app: ASGIApp, stamp: bool = True) -> None:
        self._app = app
        self._stamp = stamp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _client_request_id(scope) or uuid4().hex.encode()
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        started = False

        async def stamped(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if self._stamp:
                    message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        header = _header(scope, b"traceparent")
        work = WorkContext(
            {"request_id": request_id.decode()}, traceparent(header.decode("latin-1")) if header else None
        )
        try:
            with work_context(work):
                await self._app(scope, receive, stamped)
        except ResponseCut as reason:
            log.warning("request %s was cut off: %s", request_id.decode(), reason)
            raise
        except Exception as error:
            log.error("request %s crashed: %s", request_id.decode(), logs.places(error))
            if started:
                raise
            await answer(InternalError())(scope, receive, stamped)


def _client_request_id(scope: Scope) -> bytes | None:
    value = _header(scope, b"x-request-id")
    return value if REQUEST_ID.fullmatch(value) else None


def _header(scope: Scope, field: bytes) -> bytes:
    for name, value in scope["headers"]:
        if name == field:
            return bytes(value)
    return b""
