"""Refusals, and how they become RFC 9457 answers.

The docstring of a class is its default detail. No refusal repeats anything that was sent.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import uuid4

from fastapi import FastAPI
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
    """The request cannot be taken."""

    status: ClassVar[int] = 400
    kind: ClassVar[str] = "refused"
    title: ClassVar[str] = "Request refused"

    def __init__(
        self, detail: str | None = None, headers: dict[str, str] | None = None, faults: list[Fault] | None = None
    ) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        super().__init__(self.detail)
        self.headers = headers or {}
        self.faults = faults or []  # all that is wrong with what was sent
        self.more: dict[str, Any] = {}  # further members of the problem


class BodyRefused(Refusal):
    """The body is not a submission; every fault is listed under errors."""

    status, kind, title = 400, "invalid-body", "The body is not a submission"

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults=faults)


class NotAuthenticated(Refusal):
    """The API key is not one that is in use."""

    status, kind, title = 401, "not-authenticated", "An API key is needed"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, {"WWW-Authenticate": "Bearer"})


class ScopeMissing(Refusal):
    """The API key may not submit calls."""

    status, kind, title = 403, "scope-missing", "The key does not allow this"


class WrongTeam(Refusal):
    """The call belongs to another team than the API key; nothing was changed."""

    status, kind, title = 403, "wrong-team", "The call belongs to another team"


class NoSuchRoute(Refusal):
    """Only POST {base_url}/submit answers here."""

    status, kind, title = 404, "no-such-route", "There is nothing here"


class MethodNotAllowed(Refusal):
    """Calls are submitted with POST."""

    status, kind, title = 405, "method-not-allowed", "Method not allowed"

    def __init__(self) -> None:
        super().__init__(None, {"Allow": "POST"})


class BodyTooSlow(Refusal):
    """The body did not arrive in time."""

    status, kind, title = 408, "body-too-slow", "The body did not arrive in time"


class BodyTooLarge(Refusal):
    """The body is larger than the limit."""

    status, kind, title = 413, "body-too-large", "The body is too large"


class MediaTypeRefused(Refusal):
    """Content-Type must be application/json or application/*+json, without a content coding."""

    status, kind, title = 415, "media-type-refused", "The body must be JSON"


class TooManyRequests(Refusal):
    """The API key has sent more submissions than its limit allows; retry later, nothing was recorded."""

    status, kind, title = 429, "too-many-requests", "Too many requests"

    def __init__(self, retry_after: int, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(None, {"Retry-After": str(retry_after), **headers})


class BacklogFull(Refusal):
    """Too many recordings of this workspace wait to be worked on; retry later, nothing was recorded."""

    status, kind, title = 429, "backlog-full", "Too many calls wait"

    def __init__(self, retry_after: int) -> None:
        super().__init__(None, {"Retry-After": str(retry_after)})


class Broken(Refusal):
    """The service failed on this request. Retrying with the same callId is safe."""

    status, kind, title = 500, "internal", "The service failed"


class Unavailable(Refusal):
    """The call cannot be taken at the moment. Retrying with the same callId is safe."""

    status, kind, title = 503, "unavailable", "The service cannot take the call now"

    def __init__(self, retry_after: int) -> None:
        super().__init__(None, {"Retry-After": str(retry_after)})


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
    Broken,
    Unavailable,
)


def of_call_error(error: CallError, retry_after: int) -> Refusal:
    """The answer to what the state store says about a submission."""
    match error:
        case UnknownTeam():
            return BodyRefused([Fault("/teamId", "teamId does not name a team of this workspace.")])
        case CallOfOtherTeam():
            return WrongTeam()
        case KeyRevoked():
            return NotAuthenticated()
        case StateUnavailable():
            return Unavailable(retry_after)
        case _:
            return Broken()


def problem_type(refusal: type[Refusal]) -> str:
    """The stable URI of a kind of problem."""
    return f"urn:switchboard:problem:{refusal.kind}"


def answer(refusal: Refusal) -> Response:
    """RFC 9457 problem details."""
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
    api: FastAPI,
    stamp: bool = True,
    no_such_route: Callable[[], Refusal] = NoSuchRoute,
    method_not_allowed: Callable[[], Refusal] = MethodNotAllowed,
) -> None:
    """Every answer of `api` that is not a success becomes problem details; `stamp`: see `RequestIds`."""
    unrouted = {404: no_such_route, 405: method_not_allowed}

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return answer(error)

    async def body_refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, InvalidBody)
        return answer(BodyRefused(error.faults))

    async def not_routed(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        refusal = unrouted.get(error.status_code, Broken)()
        if allowed := (error.headers or {}).get("Allow"):
            refusal.headers["Allow"] = ", ".join(sorted(part.strip() for part in allowed.split(",")))
        return answer(refusal)

    api.add_exception_handler(Refusal, refused)
    api.add_exception_handler(InvalidBody, body_refused)
    api.add_exception_handler(HTTPException, not_routed)
    api.add_middleware(RequestIds, stamp=stamp)


REQUEST_ID = re.compile(rb"[A-Za-z0-9._~+/=:-]{1,128}")


class RequestIds:
    """Gives every request an id, which answer, log and submission keep, and turns a crash into a silent 500.

    An id that the sender or a proxy brought along in X-Request-Id is kept if it is a plain token. Handlers find it in
    `request.state.request_id`; lines of the log have it, and the trace of a `traceparent` header. `stamp`: False where
    the server in front writes the header itself (Ray Serve does).
    """

    def __init__(self, app: ASGIApp, stamp: bool = True) -> None:
        self._app = app
        self._stamp = stamp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _brought_along(scope) or uuid4().hex.encode()
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        started = False

        async def stamped(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if self._stamp:
                    message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        brought = _header(scope, b"traceparent")
        work = WorkContext(
            {"request_id": request_id.decode()}, traceparent(brought.decode("latin-1")) if brought else None
        )
        try:
            with work_context(work):
                await self._app(scope, receive, stamped)
        except Exception as error:
            log.error("request %s crashed: %s", request_id.decode(), logs.places(error))
            if started:
                raise
            await answer(Broken())(scope, receive, stamped)


def _brought_along(scope: Scope) -> bytes | None:
    value = _header(scope, b"x-request-id")
    return value if REQUEST_ID.fullmatch(value) else None


def _header(scope: Scope, wanted: bytes) -> bytes:
    for name, value in scope["headers"]:
        if name == wanted:
            return bytes(value)
    return b""
