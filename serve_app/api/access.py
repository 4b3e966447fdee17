"""From a request to who reads or writes: gate, key, rate, parameters; and from what was read to an answer."""

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
from serve_app.http.camel_json import written
from serve_app.http.json_body import Fault
from serve_app.http.limits import Buckets, Gate
from serve_app.http.problems import TooManyRequests
from serve_app.records.query_embedding import Questions

Q = TypeVar("Q", bound=QueryParameters)
UNAVAILABLE: tuple[type[Exception], ...] = (*OUTAGES, OSError)


@dataclass(frozen=True, slots=True)
class ReadRequest(Generic[Q]):
    """One request that may read, or write: who, what, and where from."""

    request: Request
    query: Q
    database: Database
    reader: Reader
    sender: Sender
    options: ApiOptions
    questions: Questions
    sounds: SoundFolder
    check_run: "CheckRun"
    comparisons: ComparisonCache

    @property
    def call_id(self) -> UUID:
        """Of the path."""
        found: UUID = self.request.path_params["call_id"]
        return found

    async def note(self, what: str, call_ids: Sequence[UUID], detail: str = "") -> None:
        """Keep that these calls' words or sound are read, before they are."""
        key, request_id = self.sender.key_id, self.request.state.request_id
        await access_log.note(self.database, self.reader, key, call_ids, what, detail, request_id)

    async def may_still_read(self) -> bool:
        """Whether the key of a request that lasts is still in use."""
        try:
            secret = self.request.headers["authorization"].split()[-1]
            return await keys.find(self.database, secret) is not None
        except UNAVAILABLE:
            return True


CheckRun = Callable[[Set], Set]
"""What a run sets, as it came and as it may be. Raises `SettingRefused`."""


def no_runs(changes: Set) -> Set:
    """Take nothing that a run sets: the settings of the service are not known here."""
    if changes:
        raise SettingRefused("A run sets nothing here.")
    return changes


Handler = Callable[[ReadRequest[Any]], Awaitable[Response]]


class Door:
    """Lets requests in that may read: a bounded number at once, each key at its rate."""

    def __init__(
        self,
        database: Database,
        options: ApiOptions,
        questions: Questions,
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
            remember_seconds=0.0,  # a revoked key reads nothing more
            limiter=UnknownKeyLimiter(options.UNKNOWN_KEYS_PER_SECOND, options.RETRY_AFTER_SECONDS),
            is_no_key=keys.is_no_key,
        )

    async def enter(
        self, request: Request, model: type[QueryParameters], handle: Handler, lasts: bool = False, scope: str = READ
    ) -> Response:
        """The answer of `handle`, to a key that has the scope. `lasts`: its answer is a stream, and has a place of its
        own until it ends."""
        with self._gate.passage():
            sender = await self._keys.sender(request.headers.getlist("authorization"), self._source(request), scope)
            try:
                left = self._buckets.take(sender.key_id)
            except TooManyRequests as refused:
                raise TooManyReads(refused.headers) from None
            query = read_query(request.query_params, model)
            reader = Reader(sender.workspace_id, sender.team_id, self._options.QUERY_SECONDS)
            reading = ReadRequest(request, query, self._database, reader, sender, *self._shared)
            async with self._answered():
                answer = await handle(reading)
        if lasts and isinstance(answer, StreamingResponse):
            answer.body_iterator = self._within(answer.body_iterator)
        if request.method == "HEAD" and isinstance(answer, StreamingResponse):
            answer = Response(None, answer.status_code, dict(answer.headers))  # nothing is read for nobody
        for name, value in left.headers().items():
            answer.headers[name] = value
        answer.headers.setdefault("Cache-Control", "private, no-cache")
        answer.headers.setdefault("X-Content-Type-Options", "nosniff")
        return answer

    async def _within(self, body: Any) -> AsyncIterator[Any]:
        """The stream, while there is a place for it."""
        with self._streams.passage():
            async for part in body:
                yield part

    def refuse_streams(self) -> None:
        """Raise `Busy` while no place is left for one more stream."""
        if self._streams.inside >= self._options.STREAMS:
            raise Busy(self._options.RETRY_AFTER_SECONDS, "Too many streams are open; open this one again later.")

    async def _find(self, secret: str) -> Sender | None:
        async with self._answered():
            return await keys.find(self._database, secret)

    @asynccontextmanager
    async def _answered(self) -> AsyncIterator[None]:
        """What the database could not do becomes a refusal."""
        retry = self._options.RETRY_AFTER_SECONDS
        try:
            yield
        except InvalidCursor as error:
            fault = Fault("/cursor", f"cursor is {error}: leave it out to begin again.")
            raise InvalidQuery([fault]) from None
        except UNAVAILABLE as error:
            raise (TooSlow(retry) if _canceled(error) else Busy(retry)) from error


def _canceled(error: Exception) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, psycopg.errors.QueryCanceled)


def json_answer(reading: ReadRequest[Any], data: Any, same: Any = None) -> Response:
    """Data as JSON, names in camelCase; 304 where the reader has it. `same`: the part that says so, if not all."""
    body = to_json(data)
    return tagged(reading, body, "application/json", same=body if same is None else to_json(same))


def to_json(data: Any) -> bytes:
    """Data as one line of JSON, names in camelCase. A figure that is no number there (NaN, infinity) is null."""
    shown = written(data)
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
    reading: ReadRequest[Any],
    body: bytes,
    media_type: str,
    headers: dict[str, str] | None = None,
    same: bytes | None = None,
) -> Response:
    """A body with its ETag; 304 where the reader has it already."""
    tag = f'"{hashlib.sha256(body if same is None else same).hexdigest()[:32]}"'
    found = {**(headers or {}), "ETag": tag}
    if has_it(reading.request, tag):
        return Response(None, 304, found)
    return Response(body, 200, found, media_type)


def has_it(request: Request, tag: str) -> bool:
    """Whether If-None-Match names what would be answered."""
    told = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return tag in told or told == ["*"]
