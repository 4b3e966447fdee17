import logging

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from db.core.database import OUTAGES
from db.experiments.calibrations import NoSuchCalibration, NotInCalibration
from db.experiments.runs import NoSuchRun
from db.records import correct
from db.records.erase import CallNotFound
from db.records.erasures import NoSuchTarget
from db.secrets.encryption import SecretSealed
from db.voices.voiceprints import NoVoiceprint
from db.workspace.admin_log import NotAdmin, NotInDirectory
from serve_app.console import sentences
from serve_app.console.site import RETRY_SECONDS, PageProblem, SignInNeeded, Site, Visitor
from serve_app.experiments.comparison_cache import ComparisonQueueFull, ComparisonTimeout
from serve_app.http.problems import BodyTooSlow, TooManyAtOnce, Unavailable
from serve_app.http.worker import WorkerLost

log = logging.getLogger("switchboard.console")

NOT_FOUND: tuple[type[Exception], ...] = (
    NotInDirectory,
    CallNotFound,
    correct.NotFound,
    NoSuchTarget,
    NoVoiceprint,
    NoSuchRun,
    NoSuchCalibration,
    NotInCalibration,
)
FIXED: dict[type[Exception], tuple[int, tuple[str, str]]] = {
    **dict.fromkeys(NOT_FOUND, (404, sentences.NOT_FOUND)),
    NotAdmin: (403, sentences.ADMIN_ONLY),
    BodyTooSlow: (408, sentences.REFUSED),
    SecretSealed: (503, sentences.SEALED),
    ModuleNotFoundError: (503, sentences.NOT_MEASURED),
    ComparisonTimeout: (503, sentences.MEASURED_TOO_LONG),
    Exception: (500, sentences.CRASHED),
}
"""Status and text of errors from elsewhere."""


def install(console: FastAPI, site: Site) -> None:
    """Render every error of `console` as a page in the viewer's language."""
    pages = _ProblemPages(site)
    handlers = {
        **dict.fromkeys(FIXED, pages.fixed),
        **dict.fromkeys((Unavailable, TooManyAtOnce, ComparisonQueueFull, WorkerLost, *OUTAGES), pages.unavailable),
        PageProblem: pages.problem,
        SignInNeeded: pages.sign_in_needed,
        HTTPException: pages.refused_by_framework,
    }
    for kind, handler in handlers.items():
        console.add_exception_handler(kind, handler)


class _ProblemPages:
    def __init__(self, site: Site) -> None:
        self._site = site

    def _page(self, request: Request, status: int, text: tuple[str, str]) -> Response:
        return Visitor(self._site, request, self._site.wording(request)).problem(text, status)

    async def fixed(self, request: Request, error: Exception) -> Response:
        return self._page(request, *next(FIXED[kind] for kind in type(error).__mro__ if kind in FIXED))

    async def problem(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, PageProblem)
        return self._page(request, error.status, error.text)

    async def sign_in_needed(self, request: Request, _: Exception) -> Response:
        return self._site.to_sign_in(request)

    async def unavailable(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, Unavailable | ComparisonQueueFull | TooManyAtOnce):
            log.warning("PostgreSQL or the worker is unavailable: %s", type(error).__name__)
        response = self._page(request, 429 if isinstance(error, TooManyAtOnce) else 503, sentences.UNAVAILABLE)
        response.headers["Retry-After"] = str(RETRY_SECONDS)
        return response

    async def refused_by_framework(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        root = str(request.scope.get("root_path", ""))
        if root and request.url.path == root:  # without a trailing slash
            return RedirectResponse(f"{root}/calls", 303)
        text = sentences.NOT_FOUND if error.status_code == 404 else sentences.REFUSED
        return self._page(request, error.status_code, text)
