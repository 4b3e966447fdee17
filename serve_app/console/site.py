import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote
from uuid import UUID

from jinja2 import ChainableUndefined, Environment, PackageLoader
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from db.core.database import OUTAGES, Database, Reader
from db.workspace import directory
from db.workspace import sessions as console_sessions
from db.workspace.directory import DirectoryMember
from db.workspace.sessions import Viewer
from serve_app.console import charts, labels, sentences
from serve_app.console.guard import drop_session, session_of
from serve_app.console.wording import Wording, choose_language, choose_zone, languages
from serve_app.http.admission import Admission, Watch
from serve_app.http.auth import source_of
from serve_app.http.options import Places, Work
from serve_app.http.problems import BodyTooSlow
from serve_app.records.transcripts import clock
from serve_app.settings import Settings

if TYPE_CHECKING:
    from serve_app.api.read_tools import ReadTools

STATIC = Path(__file__).with_name("static")
LANGUAGE, ZONE = "switchboard_language", "switchboard_zone"  # cookies
VISITORS = Places(total=64, per_workspace=4, per_key=4, waiting=8, seconds=2.0)  # per address, without a session
LOOKUPS = Places(total=4, per_workspace=2, per_key=2, waiting=64, seconds=2.0)  # per address: of unknown sessions
SEARCHED = ("text", "name")  # parameters that search for words
FORM_SECONDS = 5.0  # max. time to receive a form of a visitor; then 408
LONG_FORM_SECONDS = 15.0  # of a session
RETRY_SECONDS = 5
MAX_FORM_BYTES, MAX_FORM_FIELDS = 16 * 1024, 50
MAX_LONG_FORM_BYTES = 512 * 1024  # a long turn before and after, or the answers of a review
MAX_SEEN_SESSIONS = 4096  # recently valid sessions, whose look-ups are not limited


class SignInNeeded(Exception):
    """The request has no valid session."""


class PageProblem(Exception):
    """An error page: title and advice, each a text of the catalog, and a status."""

    def __init__(self, text: tuple[str, str], status: int) -> None:
        super().__init__(text, status)
        self.text, self.status = text, status


class NotFound(PageProblem):
    """The page does not exist, or the viewer may not see it."""

    def __init__(self) -> None:
        super().__init__(sentences.NOT_FOUND, 404)


class NotAllowed(PageProblem):
    """The session lacks a permission."""

    def __init__(self, text: tuple[str, str] = sentences.NOT_ALLOWED) -> None:
        super().__init__(text, 403)


class NotUnderstood(PageProblem):
    """An address or a form has an invalid value."""

    def __init__(self) -> None:
        super().__init__(sentences.NOT_UNDERSTOOD, 400)


@dataclass
class Site:
    """State shared by all pages of a replica. Fields without a default are set when the application starts."""

    settings: Settings
    source_header: str | None = None
    database: Database = field(init=False)
    places: dict[Work, Admission] = field(init=False)
    visitors: Admission = field(default_factory=lambda: Admission(VISITORS, RETRY_SECONDS))
    lookups: Admission = field(default_factory=lambda: Admission(LOOKUPS, RETRY_SECONDS))
    templates: Environment = field(init=False)
    tools: "ReadTools" = field(init=False)
    _seen: OrderedDict[bytes, None] = field(default_factory=OrderedDict)  # digests of recently valid sessions

    def __post_init__(self) -> None:
        self.places = {work: Admission(places, RETRY_SECONDS) for work, places in self.settings.api.PLACES.items()}
        self.templates = Environment(
            loader=PackageLoader("serve_app.console"),
            autoescape=True,
            undefined=ChainableUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {"translated": _translated, "options": _as_options}
        self.templates.globals |= {
            "clock": clock,
            "asset": asset,
            "charts": charts,
            "labels": labels,
            "languages": languages(),
        }

    def route(self, path: str, page: "Page", method: str = "GET", work: Work = Work.READ) -> Route:
        """Create a route that needs a session. `work`: whose places it takes; a form has one while it is received."""

        async def answer(request: Request) -> Response:
            viewer = await self._viewer(request)
            reader = (viewer.workspace_id, viewer.key_id or viewer.session_id)
            if method == "POST":
                async with self.places[Work.WRITE].place(*reader):
                    await receive_form(request, MAX_LONG_FORM_BYTES, LONG_FORM_SECONDS)
            visit = Visit(self, request, self.wording(request, viewer.time_zone), viewer)
            searches = work is Work.READ and any(request.query_params.get(name) for name in SEARCHED)
            async with AsyncExitStack() as stack:
                places = self.places[Work.SEARCH if searches else work]
                await stack.enter_async_context(places.place(*reader))
                response = await page(visit)
                if isinstance(response, StreamingResponse):
                    options = self.settings.api
                    watch = Watch(visit.may_still_read, options.EXPORT_SECONDS, options.KEY_SECONDS)
                    return watch.over(response, stack.pop_all())
            return response

        return Route(path, answer, methods=[method], name=page.__name__)

    def open_route(self, path: str, page: "OpenPage", method: str = "GET") -> Route:
        """Create a public route. Its places are of the client's address, and apart from those of sessions."""

        async def answer(request: Request) -> Response:
            source = self.source(request)
            async with self.visitors.place(source, source):
                if method == "POST":
                    await receive_form(request, MAX_FORM_BYTES, FORM_SECONDS)
                return await page(Visitor(self, request, self.wording(request)))

        return Route(path, answer, methods=[method], name=page.__name__)

    async def _viewer(self, request: Request) -> Viewer:
        """Return the viewer. Raises `SignInNeeded`.

        Unknown sessions are looked up a few at a time, in turns by address: secrets have 256 bits, so no one guesses
        them, and a limit on failures would lock out others behind the same address.
        """
        secret = session_of(request)
        if secret is None:
            raise SignInNeeded
        source, digest = self.source(request), hashlib.sha256(secret.encode()).digest()
        async with AsyncExitStack() as stack:
            if digest not in self._seen:
                await stack.enter_async_context(self.lookups.place(source, source))
            viewer = await console_sessions.find(self.database, secret)
        if viewer is None:
            self._seen.pop(digest, None)
            raise SignInNeeded
        self._seen[digest] = None
        while len(self._seen) > MAX_SEEN_SESSIONS:
            self._seen.popitem(last=False)
        return viewer

    def wording(self, request: Request, zone: str = "UTC") -> Wording:
        language = choose_language(request.cookies.get(LANGUAGE), request.headers.get("accept-language", ""))
        return Wording(language, choose_zone(request.cookies.get(ZONE), zone))

    def source(self, request: Request) -> str:
        return source_of(request, self.source_header)

    def to_sign_in(self, request: Request) -> Response:
        """Redirect to the sign-in page, and back afterwards; for htmx requests, redirect the whole page."""
        root = request.scope.get("root_path", "")
        path = request.url.path.removeprefix(root) or "/"
        if request.headers.get("hx-request"):
            response: Response = Response(status_code=401, headers={"HX-Redirect": f"{root}/sign-in"})
        elif request.method == "GET" and "text/html" in request.headers.get("accept", "text/html"):
            back = path + (f"?{request.url.query}" if request.url.query else "")
            response = RedirectResponse(f"{root}/sign-in?next={quote(back, safe='')}", 303)
        else:
            response = Response("Sign in first.", 401, media_type="text/plain")
        if session_of(request):
            drop_session(request, response)
        return response


@dataclass(frozen=True)
class Visitor:
    """A request, signed in or not."""

    site: Site
    request: Request
    wording: Wording

    @property
    def root(self) -> str:
        """Path prefix of the console, without a trailing slash."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def database(self) -> Database:
        return self.site.database

    def lookup(self) -> AbstractAsyncContextManager[None]:
        """Take a place for a look-up of a secret."""
        source = self.site.source(self.request)
        return self.site.lookups.place(source, source)

    def page(self, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        text = self.site.templates.get_template(template).render(self._context() | context)
        return HTMLResponse(text, status)

    def problem(self, text: tuple[str, str], status: int) -> HTMLResponse:
        """Render a page with a problem and what to do about it."""
        return self.page("problem.html", status, title=text[0], advice=text[1])

    def go(self, path: str) -> RedirectResponse:
        """Redirect to a page of the console."""
        return RedirectResponse(self.root + path, 303)

    def _context(self) -> dict[str, Any]:
        wording = self.wording
        return {
            "root": self.root,
            "path": self.request.url.path.removeprefix(self.root) or "/",
            "w": wording,
            "_": wording.say,
            "language": wording.language,
            "viewer": None,
            "nonce": self.request.state.nonce,
        }


@dataclass(frozen=True)
class Visit(Visitor):
    """A request with a session."""

    viewer: Viewer

    def _context(self) -> dict[str, Any]:
        return super()._context() | {"viewer": self.viewer}

    @property
    def home(self) -> UUID:
        return self.viewer.workspace_id

    @property
    def reader(self) -> Reader:
        """Scope of the data that the viewer may see."""
        return Reader(self.home, self.viewer.team_id)

    def sees(self, team_id: UUID | None) -> bool:
        """Return whether the viewer may see what belongs to a team; None: to the workspace."""
        return self.viewer.team_id in (None, team_id)

    async def members(self) -> list[DirectoryMember]:
        """Return the members of the viewer's teams, and those without a team."""
        members = await directory.list_members(self.database, self.home)
        return [member for member in members if member.team_id is None or self.sees(member.team_id)]

    async def may_still_read(self) -> bool:
        """Return whether the session of a long response is still valid."""
        try:
            viewer = await console_sessions.find(self.database, session_of(self.request) or "")
        except OUTAGES:
            return True
        return viewer is not None and viewer.team_id == self.viewer.team_id

    def id(self, name: str = "id") -> UUID:
        """Return the id in the path. Raises `NotFound`."""
        try:
            return UUID(self.request.path_params[name])
        except ValueError:
            raise NotFound from None

    def part(self, template: str, **context: Any) -> Response:
        """Render a part of a page with an ETag, so that a poll without news returns 304."""
        page = self.page(template, **context)
        page.headers["ETag"] = etag_of(bytes(page.body).decode())
        return self.unchanged(page.headers["ETag"]) or page

    def unchanged(self, etag: str) -> Response | None:
        """Return a 304 if the browser has this version."""
        etag_seen = self.request.headers.get("if-none-match")
        return Response(status_code=304, headers={"ETag": etag}) if etag_seen == etag else None


Page = Callable[[Visit], Awaitable[Response]]
OpenPage = Callable[[Visitor], Awaitable[Response]]


def _translated(items: Iterable[tuple[str, str]], say: Callable[[str], str]) -> list[tuple[str, str]]:
    return [(value, say(name)) for value, name in items]


def _as_options(items: Iterable[Any], id_: str) -> list[tuple[str, str]]:
    return [(str(getattr(item, id_)), item.name) for item in items]


def etag_of(text: str) -> str:
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"'


@cache
def asset(name: str) -> str:
    """Return the path of a static file with a digest of its content, so that it can be cached permanently."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
    return f"/static/{name}?v={digest}"


class FormRefused(NotUnderstood):
    """The body is not a form, or too large."""


async def receive_form(request: Request, max_bytes: int, seconds: float) -> None:
    """Receive the body before the request takes a place of those that read. Raises `FormRefused`, `BodyTooSlow`."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise FormRefused
    except TimeoutError:
        raise BodyTooSlow from None
    except ClientDisconnect:
        raise FormRefused from None
    request._body = bytes(body)  # where Starlette keeps it for the page


async def read_form(request: Request, most: int = MAX_FORM_BYTES, fields: int = MAX_FORM_FIELDS) -> dict[str, str]:
    """Return the fields of a URL-encoded form; the last one for repeated names. Raises `FormRefused`."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise FormRefused
    body = await request.body()
    if len(body) > most:
        raise FormRefused
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=fields))
    except ValueError:
        raise FormRefused from None
