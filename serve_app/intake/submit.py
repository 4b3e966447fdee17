"""POST /submit as an ASGI application without Ray.

A 202 is a promise: it is sent only after the store has committed; everything else is a refusal.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from uuid import UUID

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from db.workspace.keys import is_malformed
from pipeline.domain.call import CallState, Sender, Submission
from pipeline.errors import CallError, KeyRevoked, StateUnavailable
from pipeline.observability import tracing
from serve_app.http import problems
from serve_app.http.admission import Admission
from serve_app.http.auth import Authenticator, UnknownKeyLimiter, source_of
from serve_app.http.json_body import InvalidBody
from serve_app.http.limits import Allowance, Buckets, check_media_type, read_body
from serve_app.http.options import LimitOptions
from serve_app.http.problems import BacklogFull, BodyRefused, InternalError, Refusal, Unavailable
from serve_app.intake.schemas import ParsedBody, parse_body
from serve_app.operations.readiness import Parts


class StoredSubmission(Protocol):
    """A stored submission: `transcribing` with a job, or `received` without one."""

    @property
    def status(self) -> CallState: ...

    @property
    def job_id(self) -> UUID | None: ...

    @property
    def decision(self) -> str: ...


class SubmissionStore(Protocol):
    """Store of keys and calls: PostgreSQL (`serve_app.intake.store`)."""

    async def find_key(self, secret: str) -> Sender | None:
        """Return the sender of an API key; None if it is unknown or revoked."""

    async def submit(
        self, sender: Sender, submission: Submission, body: dict[str, Any], request_id: str
    ) -> StoredSubmission:
        """Merge, record, enqueue and commit. Raises `pipeline.errors.SubmissionError`.

        Returns immediately if canceled, without waiting for the database.
        """

    def is_full(self, workspace_id: UUID) -> bool:
        """Return whether the backlog of a workspace exceeds `LimitOptions.backlog`, from memory."""

    async def parts(self) -> Parts:
        """Return the readiness of each part of the service."""


NO_STORE = {"Cache-Control": "no-store"}
OpenStore = Callable[[], AbstractAsyncContextManager[SubmissionStore]]
Count = Callable[[str], None]
"""Callback that receives the outcome of each request: the decision of the store, or the kind of problem."""


class Submit:
    """Handler of POST /submit."""

    def __init__(self, limits: LimitOptions, source_header: str | None, count: Count) -> None:
        self._limits = limits
        self._count = count
        self._source_header = source_header
        self._places = Admission(limits.PLACES, limits.RETRY_AFTER_SECONDS)
        self._buckets = Buckets(limits.per_minute, limits.burst)
        self._store: SubmissionStore
        self._keys: Authenticator

    def use(self, store: SubmissionStore) -> None:
        self._store = store
        limits = self._limits
        self._keys = Authenticator(
            self._find_key,
            limits.KEY_SECONDS,
            unknown_seconds=limits.UNKNOWN_KEY_SECONDS,
            limiter=UnknownKeyLimiter(limits.UNKNOWN_KEYS_PER_SECOND, limits.RETRY_AFTER_SECONDS),
            is_malformed=is_malformed,
        )

    async def parts(self) -> Parts:
        return await self._store.parts()

    async def handle(self, request: Request) -> Response:
        """Return the response and count its outcome. Raises `Refusal`."""
        outcome = InternalError.kind
        try:
            with tracing.span("POST /submit", "server"):
                response, outcome = await self._accept(request)
            return response
        except Refusal as refusal:
            outcome = refusal.kind
            raise
        except InvalidBody:
            outcome = BodyRefused.kind
            raise
        except asyncio.CancelledError:
            outcome = "aborted"
            raise
        finally:
            self._count(outcome)

    async def _accept(self, request: Request) -> tuple[Response, str]:
        """Return the response and the decision of the store. Checks come before the work that they save."""
        headers = request.headers
        sender = await self._keys.sender(headers.getlist("authorization"), source_of(request, self._source_header))
        allowance = self._buckets.take(sender.key_id)
        check_media_type(headers.getlist("content-type"), headers.getlist("content-encoding"))
        async with self._places.place(sender.workspace_id, sender.key_id):
            parsed = parse_body(await read_body(request, self._limits), sender)
            if parsed.submission.recording_url and self._store.is_full(sender.workspace_id):
                raise BacklogFull(self._limits.BACKLOG_RETRY_SECONDS)
            stored = await self._record(sender, parsed, request.state.request_id)
            return _reply(parsed.submission.call_id, stored, allowance), stored.decision

    async def _find_key(self, secret: str) -> Sender | None:
        """Look up the key. Raises `Unavailable` at the time limit, without waiting for the database."""
        task = asyncio.create_task(self._store.find_key(secret))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._limits.DATABASE_SECONDS)
        except asyncio.CancelledError:  # the sender disconnected
            _abandon(task)
            raise
        if not done:
            _abandon(task)
            raise Unavailable(self._limits.RETRY_AFTER_SECONDS)
        try:
            return task.result()
        except StateUnavailable:
            raise Unavailable(self._limits.RETRY_AFTER_SECONDS) from None

    async def _record(self, sender: Sender, parsed: ParsedBody, request_id: str) -> StoredSubmission:
        """Record the call. Raises `Unavailable` at the time limit; the call may be recorded, and a retry finds it."""
        try:
            async with asyncio.timeout(self._limits.DATABASE_SECONDS):
                return await self._store.submit(sender, parsed.submission, parsed.sent, request_id)
        except TimeoutError:
            raise Unavailable(self._limits.RETRY_AFTER_SECONDS) from None
        except CallError as error:
            if isinstance(error, KeyRevoked):
                self._keys.forget(sender)
            raise problems.from_call_error(error, self._limits.RETRY_AFTER_SECONDS) from error


def _abandon(task: asyncio.Task[Any]) -> None:
    """Cancel a task without waiting for its end."""
    # Retrieves the exception: otherwise asyncio warns.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()


def _reply(call_id: UUID, stored: StoredSubmission, allowance: Allowance) -> Response:
    job = f',"jobId":"{stored.job_id}"' if stored.status == CallState.TRANSCRIBING else ""
    text = f'{{"status":"{stored.status.value}","callId":"{call_id}"{job}}}'
    return Response(text, 202, allowance.headers(), "application/json")


async def _alive(_: Request) -> Response:
    return Response('{"alive":true}', 200, NO_STORE, "application/json")


def _readiness(parts: Callable[[], Awaitable[Parts]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler: 200 if every part is ready, else 503; `exclude=Diarizer` ignores a part."""

    async def ready(request: Request) -> Response:
        all_parts = await parts()
        excluded = request.query_params.getlist("exclude")
        if not set(excluded) <= all_parts.keys():
            raise Refusal(f"exclude must be one of: {', '.join(all_parts)}.")
        included = {name: part for name, part in all_parts.items() if name not in excluded}
        body = {
            "ready": all(part.ready for part in included.values()),
            "parts": {
                name: {"ready": part.ready} | ({"why": part.why} if part.why else {}) for name, part in included.items()
            },
        }
        return Response(json.dumps(body), 200 if body["ready"] else 503, NO_STORE, "application/json")

    return ready


def build_api(
    limits: LimitOptions,
    open_store: OpenStore,
    *,
    stamp: bool = True,
    source_header: str | None = None,
    count: Count = lambda _: None,
) -> FastAPI:
    """Return an application with POST /submit, and two routes for probes: no key, and no stored data in the response.

    `open_store` is entered at startup and left at shutdown. `stamp`: add X-Request-Id (see `problems.RequestIds`).
    `source_header`: header of the trusted proxy with the address of the sender; None: use the connection. `count`:
    see `Count`.
    """
    submit = Submit(limits, source_header, count)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with open_store() as store:
            submit.use(store)
            yield

    api = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    api.router.add_route("/submit", submit.handle, methods=["POST"])
    api.router.add_route("/healthz", _alive, methods=["GET"])
    api.router.add_route("/readyz", _readiness(submit.parts), methods=["GET"])
    problems.install(api, stamp)
    return api
