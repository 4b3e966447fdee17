import hashlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

import psycopg
from sqlalchemy.exc import DBAPIError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from db.core.database import OUTAGES, Database, Reader
from db.core.pages import InvalidCursor
from db.workspace import access_log, keys
from pipeline.domain.call import Sender
from serve_app.api.errors import Busy, InvalidQuery, TooManyReads, TooSlow
from serve_app.api.options import ApiOptions
from serve_app.api.queries import QueryParameters, read_query
from serve_app.api.sound import SoundFolder
from serve_app.experiments.comparison_cache import ComparisonCache
from serve_app.experiments.configuration import Set, SettingRefused
from serve_app.http.auth import READ, Authenticator, UnknownKeyLimiter
from serve_app.http.camel_json import to_camel_json
from serve_app.http.json_body import Fault
from serve_app.http.limits import Buckets, Gate
from serve_app.http.problems import TooManyRequests
from serve_app.records.query_embedding import QueryEmbedder

Q = TypeVar("Q", bound=QueryParameters)
UNAVAILABLE: tuple[type[Exception], ...] = (*OUTAGES, OSError)


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[Q]):
    """An authorized request of the API, with the parsed query and what handlers need."""

    request: Request
    query: Q
    database: Database
    reader: Reader
    sender: Sender
    options: ApiOptions
    questions: QueryEmbedder
    sounds: SoundFolder
    check_run: "CheckRun"
    comparisons: ComparisonCache

    @property
    def call_id(self) -> UUID:
        """The call id in the URL path."""
        call_id: UUID = self.request.path_params["call_id"]
        return call_id

    async def note(self, what: str, call_ids: Sequence[UUID], detail: str = "") -> None:
        """Record in the access log that words or audio of these calls are about to be read."""
        key, request_id = self.sender.key_id, self.request.state.request_id
        await access_log.note(self.database, self.reader, key, call_ids, what, detail, request_id)

    async def may_still_read(self) -> bool:
        """Return whether the key of a long-lived request is still valid."""
        try:
            secret = self.request.headers["authorization"].split()[-1]
            return await keys.find(self.database, secret) is not None
        except UNAVAILABLE:
            return True


CheckRun = Callable[[Set], Set]
"""Validates the settings of a run. Raises `SettingRefused`."""


def no_runs(changes: Set) -> Set:
    """Reject all settings of a run: the settings of the service are not available here."""
    if changes:
        raise SettingRefused("This service accepts no settings for runs.")
    return changes


Handler = Callable[[ApiRequest[Any]], Awaitable[Response]]


class Authorizer:
    """Authorizes requests, and limits their rate per key and their number at a time."""

    def __init__(
        self,
        database: Database,
        options: ApiOptions,
        questions: QueryEmbedder,
        sounds: SoundFolder,
        source: Callable[[Request], str],
        check_run: "CheckRun",
    ) -> None:
        self._database = database
        self._options = options
        self._shared = (options, questions, sounds, check_run, ComparisonCache())
        self._source = source
        self._gate = Gate(options.CONCURRENCY, options.RETRY_AFTER_SECONDS)
        self._streams = Gate(options.STREAMS, options.RETRY_AFTER_SECONDS)
        self._buckets = Buckets(options.per_minute, options.burst)
        self._keys = Authenticator(
            self._find,
            remember_seconds=0.0,  # a revoked key stops working immediately
            limiter=UnknownKeyLimiter(options.UNKNOWN_KEYS_PER_SECOND, options.RETRY_AFTER_SECONDS),
            is_malformed=keys.is_malformed,
        )

    async def enter(
        self, request: Request, model: type[QueryParameters], handle: Handler, lasts: bool = False, scope: str = READ
    ) -> Response:
        """Return the response of `handle` if the key has the scope. `lasts`: the response is a stream, which counts
        against the limit of streams until it ends."""
        with self._gate.passage():
            sender = await self._keys.sender(request.headers.getlist("authorization"), self._source(request), scope)
            try:
                allowance = self._buckets.take(sender.key_id)
            except TooManyRequests as refused:
                raise TooManyReads(refused.headers) from None
            query = read_query(request.query_params, model)
            reader = Reader(sender.workspace_id, sender.team_id, self._options.QUERY_SECONDS)
            reading = ApiRequest(request, query, self._database, reader, sender, *self._shared)
            async with self._answered():
                answer = await handle(reading)
        if lasts and isinstance(answer, StreamingResponse):
            answer.body_iterator = self._within(answer.body_iterator)
        if request.method == "HEAD" and isinstance(answer, StreamingResponse):
            answer = Response(None, answer.status_code, dict(answer.headers))  # HEAD: do not generate the body
        for name, value in allowance.headers().items():
            answer.headers[name] = value
        answer.headers.setdefault("Cache-Control", "private, no-cache")
        answer.headers.setdefault("X-Content-Type-Options", "nosniff")
        return answer

    async def _within(self, body: Any) -> AsyncIterator[Any]:
        """Yield the stream, counted against the limit of streams."""
        with self._streams.passage():
            async for part in body:
                yield part

    def refuse_streams(self) -> None:
        """Raise `Busy` if the limit of streams is reached."""
        if self._streams.inside >= self._options.STREAMS:
            raise Busy(self._options.RETRY_AFTER_SECONDS, "Too many open streams. Retry later.")

    async def _find(self, secret: str) -> Sender | None:
        async with self._answered():
            return await keys.find(self._database, secret)

    @asynccontextmanager
    async def _answered(self) -> AsyncIterator[None]:
        """Convert database errors to refusals."""
        retry = self._options.RETRY_AFTER_SECONDS
        try:
            yield
        except InvalidCursor as error:
            fault = Fault("/cursor", f"cursor is {error}. Omit it to start from the first page.")
            raise InvalidQuery([fault]) from None
        except UNAVAILABLE as error:
            raise (TooSlow(retry) if _canceled(error) else Busy(retry)) from error


def _canceled(error: Exception) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, psycopg.errors.QueryCanceled)


def json_answer(reading: ApiRequest[Any], data: Any, same: Any = None) -> Response:
    """Return data as JSON, or 304 if the ETag matches. `same`: the part that the ETag covers; None: all."""
    body = to_json(data)
    return tagged(reading, body, "application/json", same=body if same is None else to_json(same))


def to_json(data: Any) -> bytes:
    """Return data as one line of JSON with names in camelCase; NaN and infinity become null."""
    shown = to_camel_json(data)
    try:
        text = json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(shown), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _finite(shown: Any) -> Any:
    if isinstance(shown, dict):
        return {key: _finite(value) for key, value in shown.items()}
    if isinstance(shown, list):
        return [_finite(value) for value in shown]
    return None if isinstance(shown, float) and not math.isfinite(shown) else shown


def tagged(
    reading: ApiRequest[Any],
    body: bytes,
    media_type: str,
    headers: dict[str, str] | None = None,
    same: bytes | None = None,
) -> Response:
    """Return the body with its ETag, or 304 if the client has it."""
    tag = f'"{hashlib.sha256(body if same is None else same).hexdigest()[:32]}"'
    all_headers = {**(headers or {}), "ETag": tag}
    if etag_matches(reading.request, tag):
        return Response(None, 304, all_headers)
    return Response(body, 200, all_headers, media_type)


def etag_matches(request: Request, tag: str) -> bool:
    """Return whether If-None-Match contains the ETag."""
    tags = [value.strip().removeprefix("W/") for value in request.headers.get("if-none-match", "").split(",")]
    return tag in tags or tags == ["*"]
