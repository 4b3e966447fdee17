"""What all pages share: the database, the templates, and who is looking."""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

from jinja2 import ChainableUndefined, Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from db.core.database import Database, Reader
from db.workspace import sessions as console_sessions
from db.workspace.sessions import Viewer
from serve_app.console import charts, labels
from serve_app.console.guard import drop_session, session_of
from serve_app.console.wording import Wording, choose_language, choose_zone, languages
from serve_app.http.auth import UnknownKeyLimiter, source_of
from serve_app.http.problems import Unavailable
from serve_app.records.transcripts import clock
from serve_app.settings import Settings

if TYPE_CHECKING:
    from serve_app.api.sound import SoundFolder
    from serve_app.console.outline import Outliner
    from serve_app.experiments.comparison_cache import ComparisonCache
    from serve_app.records.query_embedding import Questions

STATIC = Path(__file__).with_name("static")
LANGUAGE, ZONE = "switchboard_language", "switchboard_zone"  # cookies: what a viewer chose, where the browser is
UNKNOWN_PER_SECOND = 1.0  # look-ups of sessions, keys and links that do not exist, from one address; ten at once
RETRY_SECONDS = 5
MOST_SEEN = 4096  # sessions whose look-ups are not limited, because they were good


class SignInNeeded(Exception):
    """Nobody is signed in, or not any more."""


class NotFound(Exception):
    """There is no such page, or nothing that this viewer may see."""


class NotAllowed(Exception):
    """The session may not do this. What it says instead of "read only": title and advice, as its argument."""


class PageProblem(Exception):
    """What a page answers instead: title and advice, each a text of the catalog, and a status."""

    def __init__(self, said: tuple[str, str], status: int) -> None:
        super().__init__(said, status)
        self.said, self.status = said, status


class NotUnderstood(Exception):
    """An address or a form holds something that cannot be."""


@dataclass
class Site:
    """One replica's pages. `database` is there once the application has started."""

    settings: Settings
    source_header: str | None = None
    database: Database = field(init=False)
    limiter: UnknownKeyLimiter = field(default_factory=lambda: UnknownKeyLimiter(UNKNOWN_PER_SECOND, RETRY_SECONDS))
    templates: Environment = field(init=False)
    questions: "Questions" = field(init=False)  # there once the application has started
    sounds: "SoundFolder" = field(init=False)  # there once the application has started
    outliner: "Outliner" = field(init=False)
    comparisons: "ComparisonCache" = field(init=False)
    _seen: OrderedDict[bytes, None] = field(default_factory=OrderedDict)  # digests of sessions that were good lately

    def __post_init__(self) -> None:
        self.templates = Environment(
            loader=PackageLoader("serve_app.console"),
            autoescape=True,
            undefined=ChainableUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {"translated": _translated, "pair": _pair}
        self.templates.globals |= {
            "clock": clock,
            "asset": asset,
            "charts": charts,
            "labels": labels,
            "languages": languages(),
        }

    def route(self, path: str, page: "Page", method: str = "GET") -> Route:
        """A route that only who is signed in gets to."""

        async def answer(request: Request) -> Response:
            viewer = await self._viewer(request)
            return await page(Visit(self, request, self.wording(request, viewer.time_zone), viewer))

        return Route(path, answer, methods=[method], name=page.__name__)

    def open_route(self, path: str, page: "OpenPage", method: str = "GET") -> Route:
        """A route for anybody."""

        async def answer(request: Request) -> Response:
            return await page(Visitor(self, request, self.wording(request)))

        return Route(path, answer, methods=[method], name=page.__name__)

    async def _viewer(self, request: Request) -> Viewer:
        """Raises `SignInNeeded`, and `Unavailable` for an address that shows many sessions that do not exist."""
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
        while len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return viewer

    def wording(self, request: Request, zone: str = "UTC") -> Wording:
        language = choose_language(request.cookies.get(LANGUAGE), request.headers.get("accept-language", ""))
        return Wording(language, choose_zone(request.cookies.get(ZONE), zone))

    def source(self, request: Request) -> str:
        """See `source_of`."""
        return source_of(request, self.source_header)

    def to_sign_in(self, request: Request) -> Response:
        """Lead to the sign-in page and back; a part of a page has the whole page led there."""
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
    """One request of somebody, signed in or not."""

    site: Site
    request: Request
    wording: Wording

    @property
    def root(self) -> str:
        """The path that the console lies under, without a slash at its end."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def database(self) -> Database:
        return self.site.database

    def page(self, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        text = self.site.templates.get_template(template).render(self._context() | context)
        return HTMLResponse(text, status)

    def problem(self, said: tuple[str, str], status: int) -> HTMLResponse:
        """A page that says what is wrong, and what to do."""
        return self.page("problem.html", status, title=said[0], advice=said[1])

    def go(self, path: str) -> RedirectResponse:
        """Lead to another page of ours."""
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
    """One request of somebody who is signed in."""

    viewer: Viewer

    def _context(self) -> dict[str, Any]:
        return super()._context() | {"viewer": self.viewer}

    @property
    def reader(self) -> Reader:
        """The scope of all that the viewer may see."""
        return Reader(self.viewer.workspace_id, self.viewer.team_id)

    def id(self, name: str = "id") -> UUID:
        """The id in the path. Raises `NotFound`."""
        try:
            return UUID(self.request.path_params[name])
        except ValueError:
            raise NotFound from None

    def unchanged(self, etag: str) -> Response | None:
        """A 304 where the browser has this version already."""
        known = self.request.headers.get("if-none-match")
        return Response(status_code=304, headers={"ETag": etag}) if known == etag else None


Page = Callable[[Visit], Awaitable[Response]]
OpenPage = Callable[[Visitor], Awaitable[Response]]


def _translated(items: Iterable[tuple[str, str]], say: Callable[[str], str]) -> list[tuple[str, str]]:
    """Values with their names in the viewer's language, for a choice."""
    return [(value, say(name)) for value, name in items]


def _pair(items: Iterable[Any], id_: str) -> list[tuple[str, str]]:
    """Ids with names, for a choice."""
    return [(str(getattr(one, id_)), one.name) for one in items]


def etag_of(text: str) -> str:
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"'


@cache
def asset(name: str) -> str:
    """The path of a static file under the console's, with a mark of its content: it may be kept for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
    return f"/static/{name}?v={digest}"


__all__ = [
    "NotAllowed",
    "NotFound",
    "NotUnderstood",
    "OpenPage",
    "Page",
    "PageProblem",
    "SignInNeeded",
    "Site",
    "Unavailable",
    "Visit",
    "Visitor",
    "asset",
    "etag_of",
]
