import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
from pydantic.alias_generators import to_camel
from sqlalchemy.exc import DBAPIError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from db.core.database import OUTAGES, Database, Reader
from db.records.corrections import Editor
from db.secrets.encryption import SecretSealed
from db.workspace import access_log, directory, keys
from db.workspace.admin_log import ADMIN, Actor
from pipeline.domain.call import Sender
from pipeline.domain.voices import VoicePolicy
from serve_app.api.bodies import MAX_BODY_BYTES
from serve_app.api.errors import REFUSED, Busy, OutsideTeam, TooManyReads, TooSlow, refusal_of
from serve_app.api.options import ApiOptions
from serve_app.api.queries import NoQuery, QueryParameters, read_query
from serve_app.api.read_tools import ReadTools
from serve_app.api.selection import select
from serve_app.experiments.configuration import Changes, SettingRefused
from serve_app.http.admission import Admission, Watch
from serve_app.http.auth import EDIT, READ, Authenticator, UnknownKeyLimiter
from serve_app.http.camel_json import dump, to_camel_json, to_json
from serve_app.http.limits import Buckets, LateRefusals, read_body
from serve_app.http.options import LimitOptions, Work
from serve_app.http.problems import TooManyRequests, Unavailable
from serve_app.http.worker import WorkerLost

if TYPE_CHECKING:
    from serve_app.api.uploads import Receiver

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
    tools: ReadTools
    check_run: "CheckRun"
    voices: VoicePolicy
    receiver: "Receiver | None"

    @property
    def call_id(self) -> UUID:
        call_id: UUID = self.request.path_params["call_id"]
        return call_id

    @property
    def actor(self) -> Actor:
        """The key as the author of a change."""
        return Actor("", self.sender.key_id, self.sender.team_id, None, self.request.state.request_id)

    @property
    def home(self) -> UUID:
        return self.reader.workspace_id

    @property
    def editor(self) -> Editor:
        """The key as the author of corrections and reviews."""
        return Editor(self.sender.key_id)

    def require_workspace_key(self, what: str) -> None:
        """Raise `OutsideTeam` for a key of a team."""
        if self.sender.team_id is not None:
            raise OutsideTeam(f"The API key is limited to a team. Use a key of the workspace for {what}.")

    def own_team(self, team_id: UUID | None) -> UUID | None:
        """Return the team of the request; by default that of the key. Raises `OutsideTeam` for another team."""
        key_team = self.sender.team_id
        if key_team is not None and team_id not in (None, key_team):
            raise OutsideTeam("The API key is bound to another team.")
        return key_team or team_id

    async def note(self, what: str, call_ids: Sequence[UUID], detail: str = "") -> None:
        """Record in the access log that words or audio of these calls are about to be read."""
        key, request_id = self.sender.key_id, self.request.state.request_id
        await access_log.note(self.database, self.reader, key, call_ids, what, detail, request_id)

    async def may_still_read(self, scope: str) -> bool:
        """Return whether the key of a long response still has its scope and team."""
        try:
            secret = self.request.headers["authorization"].split()[-1]
            sender = await keys.find(self.database, secret)
        except UNAVAILABLE:
            return True
        return sender is not None and scope in sender.scopes and sender.team_id == self.sender.team_id


CheckRun = Callable[[Changes], Changes]
"""Validates the settings of a run. Raises `SettingRefused`."""


def no_runs(changes: Changes) -> Changes:
    """Reject all settings of a run: the settings of the service are not available here."""
    if changes:
        raise SettingRefused("This service accepts no settings for runs.")
    return changes


def answer_with(data: Any, status: int = 200) -> Response:
    return Response(to_json(data), status, media_type="application/json")


Handler = Callable[[ApiRequest[Any]], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path and method. `answer`: type of the JSON response; `media`: other media types; `body`: type of the body.

    `work`: whose places it takes; `cost`: how many requests it counts as. Reads need the scope `read`, writes `edit`;
    with `admin`, only the scope `admin` is accepted. `also`: another scope that suffices; `needs`: the scope in their
    place.
    """

    path: str
    handler: Handler
    summary: str
    answer: Any = None
    query: type[QueryParameters] = NoQuery
    media: tuple[str, ...] = ()
    work: Work = Work.READ
    method: str = "GET"
    body: Any = None
    admin: bool = False
    cost: int = 1
    operation: str | None = None
    also: str | None = None
    needs: str | None = None

    @property
    def name(self) -> str:
        """The operation id, by default the name of the handler in camelCase: listCalls."""
        return self.operation or to_camel(self.handler.__name__)

    @property
    def scope(self) -> str:
        if self.admin or self.needs:
            return self.needs or ADMIN
        return READ if self.method == "GET" else EDIT


def admin_route(
    method: str, path: str, handler: Handler, summary: str, answer: Any, body: Any = None, cost: int = 1
) -> Route:
    """Return a route without query parameters that needs the scope `admin`."""
    return Route(path, handler, summary, answer, method=method, body=body, admin=True, cost=cost)


class Authorizer:
    """Authorizes requests, limits their rate per key, and shares the places of each kind of work."""

    def __init__(
        self,
        database: Database,
        options: ApiOptions,
        tools: ReadTools,
        source: Callable[[Request], str],
        check_run: "CheckRun",
        voices: VoicePolicy,
        receiver: "Receiver | None" = None,
    ) -> None:
        self._database = database
        self._options = options
        self._shared = (options, tools, check_run, voices, receiver)
        self._source = source
        self._places = {work: Admission(places, options.retry_after(work)) for work, places in options.PLACES.items()}
        self._buckets = Buckets(options.per_minute, options.burst)
        self._late_refusals = LateRefusals(options.LATE_REFUSALS)
        self._keys = Authenticator(
            self._find,
            remember_seconds=0.0,  # a revoked key stops working immediately
            limiter=UnknownKeyLimiter(options.UNKNOWN_KEYS_PER_SECOND, options.RETRY_AFTER_SECONDS),
            is_malformed=keys.is_malformed,
        )

    async def enter(self, request: Request, route: Route) -> Response:
        """Return the response of a route's handler if the key has the scope.

        A place is held while the handler runs, and by a stream until it ends.
        """
        headers = request.headers.getlist("authorization")
        sender = await self._keys.sender(headers, self._source(request), route.scope, route.also)
        try:
            return await self._answer(request, route, sender)
        except TooManyRequests as refusal:
            await self._late_refusals.delay(sender.key_id, refusal)
            raise

    async def _answer(self, request: Request, route: Route, sender: Sender) -> Response:
        try:
            allowance = self._buckets.take(sender.key_id, cost=route.cost)
        except TooManyRequests as refused:
            raise TooManyReads(refused.headers) from None
        query = read_query(request.query_params, route.query)
        if request.method not in ("GET", "HEAD") and route.work is not Work.UPLOAD:
            await self._receive(request, sender)
        seconds = self._options.SEARCH_SECONDS if query.searches else self._options.QUERY_SECONDS
        reader = Reader(sender.workspace_id, sender.team_id, seconds)
        work = Work.SEARCH if query.searches and route.work is Work.READ else route.work
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._place(work, sender))
            async with self._answered():
                query = await with_times(self._database, query, sender.workspace_id)
                reading = ApiRequest(request, query, self._database, reader, sender, *self._shared)
                answer = await route.handler(reading)
            if request.method == "HEAD" and isinstance(answer, StreamingResponse):
                answer = Response(None, answer.status_code, dict(answer.headers))  # HEAD: do not generate the body
            for name, value in allowance.headers().items():
                answer.headers[name] = value
            answer.headers.setdefault("Cache-Control", "private, no-cache")
            answer.headers.setdefault("X-Content-Type-Options", "nosniff")
            if isinstance(answer, StreamingResponse):
                answer = self._watch(reading, route).over(answer, stack.pop_all())
        return answer

    def _watch(self, reading: ApiRequest[Any], route: Route) -> Watch:
        may_read = partial(reading.may_still_read, route.scope)
        options = self._options
        return Watch(may_read, options.EXPORT_SECONDS, options.KEY_SECONDS, route.work is Work.STREAM)

    async def _receive(self, request: Request, sender: Sender) -> None:
        """Read the body before the request takes a place of those that read: a slow body keeps no one waiting."""
        async with self._place(Work.WRITE, sender):
            body = await read_body(request, LimitOptions(), MAX_BODY_BYTES)
        request._body = body  # where Starlette keeps it for the handler

    @asynccontextmanager
    async def _place(self, work: Work, sender: Sender) -> AsyncIterator[None]:
        try:
            place = self._places[work].place(sender.workspace_id, sender.key_id)
            await place.__aenter__()
        except Unavailable:
            raise Busy(self._options.RETRY_AFTER_SECONDS) from None
        try:
            yield
        finally:
            await place.__aexit__(None, None, None)

    async def _find(self, secret: str) -> Sender | None:
        async with self._answered():
            return await keys.find(self._database, secret)

    @asynccontextmanager
    async def _answered(self) -> AsyncIterator[None]:
        retry = self._options.RETRY_AFTER_SECONDS
        try:
            yield
        except tuple(REFUSED) as error:
            raise refusal_of(error) from None
        except WorkerLost as error:
            raise TooSlow(retry) from error
        except SecretSealed as error:
            raise Busy(retry, f"The call cannot be read: {error.message}") from error
        except UNAVAILABLE as error:
            raise (TooSlow(retry) if _canceled(error) else Busy(retry)) from error


def _canceled(error: Exception) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, psycopg.errors.QueryCanceled)


async def with_times(database: Database, query: Q, workspace_id: UUID) -> Q:
    """Return the query with times in place of dates, in the time zone of the workspace."""
    if not query.days():
        return query
    workspace = await directory.find_workspace(database, workspace_id)
    return query.in_zone(ZoneInfo(workspace.time_zone))


def json_answer(reading: ApiRequest[Any], data: Any, same: Any = None) -> Response:
    """Return data as JSON, or 304 if the ETag matches. `same`: the part that the ETag covers; None: all.

    Only the `fields` of the query are returned, in a page of each of its items.
    """
    shown = to_camel_json(data)
    if paths := getattr(reading.query, "fields", ()):
        shown = {**shown, "items": select(shown["items"], paths)} if "items" in shown else select(shown, paths)
    body = dump(shown)
    return tagged(reading, body, "application/json", same=body if same is None else to_json(same))


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
    tags = [value.strip().removeprefix("W/") for value in request.headers.get("if-none-match", "").split(",")]
    return tag in tags or tags == ["*"]
