"""POST /submit as an ASGI application: key, rate, form, body, record, answer. Nothing of Ray in here.

A 202 is a promise, so it is written only after the store has committed; everything else is a refusal.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from uuid import UUID

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from db.workspace.keys import is_no_key
from pipeline.domain.call import CallState, Sender, Submission
from pipeline.errors import CallError, KeyRevoked, StateUnavailable
from pipeline.observability import tracing
from serve_app.http import problems
from serve_app.http.auth import Authenticator, UnknownKeyLimiter, source_of
from serve_app.http.json_body import InvalidBody
from serve_app.http.limits import Allowance, Buckets, Gate, LimitOptions, check_media_type, read_body
from serve_app.http.problems import BacklogFull, BodyRefused, Broken, Refusal, Unavailable
from serve_app.intake import health
from serve_app.intake.schemas import ParsedBody, parse_body
from serve_app.operations.readiness import Parts


class StoredSubmission(Protocol):
    """What the store promises: `transcribing` with a job, or `received` without one."""

    @property
    def status(self) -> CallState: ...

    @property
    def job_id(self) -> UUID | None: ...

    @property
    def decision(self) -> str: ...


class SubmissionStore(Protocol):
    """Where keys are looked up and calls are written down: PostgreSQL (`serve_app.intake.store`)."""

    async def find_key(self, secret: str) -> Sender | None:
        """Whom an API key speaks for; None when it is unknown or revoked."""

    async def submit(
        self, sender: Sender, submission: Submission, body: dict[str, Any], request_id: str
    ) -> StoredSubmission:
        """Merge, record and enqueue, committed when it returns. Raises `pipeline.errors.SubmissionError`.

        Ends at once when it is canceled, without waiting for the database to notice.
        """

    def is_full(self, workspace_id: UUID) -> bool:
        """Whether more calls of a workspace wait than `LimitOptions.backlog`. Answers at once."""

    async def parts(self) -> Parts:
        """Whether each part of the service is ready."""


OpenStore = Callable[[], AbstractAsyncContextManager[SubmissionStore]]
Count = Callable[[str], None]
"""Told of each request what became of it: what the store decided, or the kind of the problem."""


class Submit:
    """The handler of the one route."""

    def __init__(self, limits: LimitOptions, source_header: str | None, count: Count) -> None:
        self._limits = limits
        self._count = count
        self._source_header = source_header
        self._gate = Gate(limits.CONCURRENCY, limits.RETRY_AFTER_SECONDS)
        self._buckets = Buckets(limits.per_minute, limits.burst)
        self._ledger: SubmissionStore
        self._keys: Authenticator

    def use(self, store: SubmissionStore) -> None:
        self._ledger = store
        limits = self._limits
        self._keys = Authenticator(
            self._find_key,
            limits.KEY_SECONDS,
            unknown_seconds=limits.UNKNOWN_KEY_SECONDS,
            limiter=UnknownKeyLimiter(limits.UNKNOWN_KEYS_PER_SECOND, limits.RETRY_AFTER_SECONDS),
            is_no_key=is_no_key,
        )

    async def parts(self) -> Parts:
        return await self._ledger.parts()

    async def handle(self, request: Request) -> Response:
        """Answer and count it; a refusal is raised."""
        answer = Broken.kind
        try:
            with tracing.span("POST /submit", "server"):
                response, answer = await self._answer(request)
            return response
        except Refusal as refusal:
            answer = refusal.kind
            raise
        except InvalidBody:
            answer = BodyRefused.kind
            raise
        except asyncio.CancelledError:
            answer = "aborted"
            raise
        finally:
            self._count(answer)

    async def _answer(self, request: Request) -> tuple[Response, str]:
        headers = request.headers
        with self._gate.passage():
            sender = await self._keys.sender(headers.getlist("authorization"), source_of(request, self._source_header))
            left = self._buckets.take(sender.key_id)
            check_media_type(headers.getlist("content-type"), headers.getlist("content-encoding"))
            parsed = parse_body(await read_body(request, self._limits), sender)
            if parsed.submission.recording_url and self._ledger.is_full(sender.workspace_id):
                raise BacklogFull(self._limits.BACKLOG_RETRY_SECONDS)
            accepted = await self._record(sender, parsed, request.state.request_id)
            return _reply(parsed.submission.call_id, accepted, left), accepted.decision

    async def _find_key(self, secret: str) -> Sender | None:
        """Raises `Unavailable` at the time limit, without waiting for the database to notice the cancellation."""
        task = asyncio.create_task(self._ledger.find_key(secret))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._limits.DATABASE_SECONDS)
        except asyncio.CancelledError:  # the sender hung up
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
        """Raises `Unavailable` at the time limit. The call may have been recorded all the same: the sender's retry
        with the same callId finds it."""
        try:
            async with asyncio.timeout(self._limits.DATABASE_SECONDS):
                return await self._ledger.submit(sender, parsed.submission, parsed.sent, request_id)
        except TimeoutError:
            raise Unavailable(self._limits.RETRY_AFTER_SECONDS) from None
        except CallError as error:
            if isinstance(error, KeyRevoked):
                self._keys.forget(sender)
            raise problems.of_call_error(error, self._limits.RETRY_AFTER_SECONDS) from error


def _abandon(task: asyncio.Task[Any]) -> None:
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # heard, so that asyncio is silent
    task.cancel()


def _reply(call_id: UUID, accepted: StoredSubmission, left: Allowance) -> Response:
    job = f',"jobId":"{accepted.job_id}"' if accepted.status == CallState.TRANSCRIBING else ""
    text = f'{{"status":"{accepted.status.value}","callId":"{call_id}"{job}}}'
    return Response(text, 202, left.headers(), "application/json")


def build_api(
    limits: LimitOptions,
    open_store: OpenStore,
    *,
    stamp: bool = True,
    source_header: str | None = None,
    count: Count = lambda _: None,
) -> FastAPI:
    """An application with one route, POST /submit, and two for probes: no pages, no schema, no redirects.

    `open_store` is entered when the application starts and left when it stops. `stamp`: write X-Request-Id (see
    `errors.RequestIds`). `source_header`: the header in which our own proxy, and nobody else, tells the
    sender's address; None: it is the connection's. `count`: see `Count`.
    """
    submit = Submit(limits, source_header, count)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with open_store() as store:
            submit.use(store)
            yield

    api = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    api.router.add_route("/submit", submit.handle, methods=["POST"])
    api.router.add_route("/healthz", health.alive, methods=["GET"])
    api.router.add_route("/readyz", health.readiness(submit.parts), methods=["GET"])
    problems.install(api, stamp)
    return api
