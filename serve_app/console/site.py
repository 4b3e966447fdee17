import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote
from uuid import UUID

from jinja2 import ChainableUndefined, Environment, PackageLoader
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from db.core.database import Database, Reader
from db.workspace import sessions as console_sessions
from db.workspace.sessions import Viewer
from serve_app.console import charts, labels
from serve_app.console.guard import drop_session, session_of
from serve_app.console.wording import Wording, choose_language, choose_zone, languages
from serve_app.http.auth import UnknownKeyLimiter, source_of
from serve_app.records.transcripts import clock
from serve_app.settings import Settings

if TYPE_CHECKING:
    from serve_app.api.sound import SoundFolder
    from serve_app.console.waveform import WaveformCache
    from serve_app.experiments.comparison_cache import ComparisonCache
    from serve_app.records.query_embedding import QueryEmbedder

STATIC = Path(__file__).with_name("static")
LANGUAGE, ZONE = "switchboard_language", "switchboard_zone"  # cookies
UNKNOWN_PER_SECOND = 1.0  # failed look-ups of sessions, keys and links per address; bursts of ten
RETRY_SECONDS = 5
MAX_FORM_BYTES, MAX_FORM_FIELDS = 16 * 1024, 50
MAX_SEEN_SESSIONS = 4096  # recently valid sessions, whose look-ups are not limited


class SignInNeeded(Exception):
    """The request has no valid session."""


class NotFound(Exception):
    """The page does not exist, or the viewer may not see it."""


class NotAllowed(Exception):
    """The session lacks a permission. Optional argument: title and advice, instead of "Read-only access"."""


class PageProblem(Exception):
    """An error page: title and advice, each a text of the catalog, and a status."""

    def __init__(self, text: tuple[str, str], status: int) -> None:
        super().__init__(text, status)
        self.text, self.status = text, status


class NotUnderstood(Exception):
    """An address or a form has an invalid value."""


@dataclass
class Site:
    """State shared by all pages of a replica. Fields without a default are set when the application starts."""

    settings: Settings
    source_header: str | None = None
    database: Database = field(init=False)
    limiter: UnknownKeyLimiter = field(default_factory=lambda: UnknownKeyLimiter(UNKNOWN_PER_SECOND, RETRY_SECONDS))
    templates: Environment = field(init=False)
    questions: "QueryEmbedder" = field(init=False)
    sounds: "SoundFolder" = field(init=False)
    waveforms: "WaveformCache" = field(init=False)
    comparisons: "ComparisonCache" = field(init=False)
    _seen: OrderedDict[bytes, None] = field(default_factory=OrderedDict)  # digests of recently valid sessions

    def __post_init__(self) -> None:
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

    def route(self, path: str, page: "Page", method: str = "GET") -> Route:
        """Create a route that needs a session."""

        async def answer(request: Request) -> Response:
            viewer = await self._viewer(request)
            return await page(Visit(self, request, self.wording(request, viewer.time_zone), viewer))

        return Route(path, answer, methods=[method], name=page.__name__)

    def open_route(self, path: str, page: "OpenPage", method: str = "GET") -> Route:
        """Create a public route."""

        async def answer(request: Request) -> Response:
            return await page(Visitor(self, request, self.wording(request)))

        return Route(path, answer, methods=[method], name=page.__name__)

    async def _viewer(self, request: Request) -> Viewer:
        """Return the viewer. Raises `SignInNeeded`, and `Unavailable` for an address with many invalid sessions."""
        secret = session_of(request)
        if secret is None:
            raise SignInNeeded
        source, digest = self.source(request), hashlib.sha256(secret.encode()).digest()
        seen = digest in self._seen
        if not seen:
            self.limiter.charge(source)
        viewer = await console_sessions.find(self.database, secret)
        if viewer is None:
            self._seen.pop(digest, None)
            raise SignInNeeded
        if not seen:
            self.limiter.refund(source)
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
    def reader(self) -> Reader:
        """Scope of the data that the viewer may see."""
        return Reader(self.viewer.workspace_id, self.viewer.team_id)

    def id(self, name: str = "id") -> UUID:
        """Return the id in the path. Raises `NotFound`."""
        try:
            return UUID(self.request.path_params[name])
        except ValueError:
            raise NotFound from None

    def unchanged(self, etag: str) -> Response | None:
        """Return a 304 if the browser has this version."""
        etag_seen = self.request.headers.get("if-none-match")
        return Response(status_code=304, headers={"ETag": etag}) if etag_seen == etag else None


Page = Callable[[Visit], Awaitable[Response]]
OpenPage = Callable[[Visitor], Awaitable[Response]]


def _translated(items: Iterable[tuple[str, str]], say: Callable[[str], str]) -> list[tuple[str, str]]:
    """Translate the names of options."""
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


class FormRefused(Exception):
    """The body is not a form, or too large."""


async def read_form(request: Request, most: int = MAX_FORM_BYTES, fields: int = MAX_FORM_FIELDS) -> dict[str, str]:
    """Return the fields of a URL-encoded form; the last one for repeated names. Raises `FormRefused`."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise FormRefused
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise FormRefused
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=fields))
    except (ValueError, ClientDisconnect):
        raise FormRefused from None
