import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from db.core.database import OUTAGES
from serve_app.console import sentences
from serve_app.console.site import (
    RETRY_SECONDS,
    FormRefused,
    NotAllowed,
    NotFound,
    NotUnderstood,
    PageProblem,
    SignInNeeded,
    Site,
    Visitor,
)
from serve_app.experiments.comparison_cache import ComparisonQueueFull, ComparisonTimeout
from serve_app.http.problems import BodyTooSlow, TooManyAtOnce, Unavailable
from serve_app.http.worker import WorkerLost

log = logging.getLogger("switchboard.console")

Handler = Callable[[Request, Exception], Awaitable[Response]]


def install(console: FastAPI, site: Site) -> None:
    """Render every error of `console` as a page in the viewer's language."""

    def page(request: Request, status: int, text: tuple[str, str]) -> Response:
        visitor = Visitor(site, request, site.wording(request))
        return visitor.page("problem.html", status, title=text[0], advice=text[1])

    def always(status: int, text: tuple[str, str]) -> Handler:
        async def answer(request: Request, _: Exception) -> Response:
            return page(request, status, text)

        return answer

    async def not_allowed(request: Request, error: Exception) -> Response:
        return page(request, 403, error.args[0] if error.args else sentences.NOT_ALLOWED)

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, PageProblem)
        return page(request, error.status, error.text)

    async def sign_in_needed(request: Request, _: Exception) -> Response:
        return site.to_sign_in(request)

    async def unavailable(request: Request, error: Exception) -> Response:
        if not isinstance(error, Unavailable | ComparisonQueueFull | TooManyAtOnce):
            log.warning("PostgreSQL or the worker is unavailable: %s", type(error).__name__)
        response = page(request, 429 if isinstance(error, TooManyAtOnce) else 503, sentences.UNAVAILABLE)
        response.headers["Retry-After"] = str(RETRY_SECONDS)
        return response

    async def other(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        root = str(request.scope.get("root_path", ""))
        if root and request.url.path == root:  # without a trailing slash
            return RedirectResponse(f"{root}/calls", 303)
        return page(request, error.status_code, sentences.NOT_FOUND if error.status_code == 404 else sentences.REFUSED)

    handlers: dict[type[Exception], Handler] = {
        SignInNeeded: sign_in_needed,
        NotFound: always(404, sentences.NOT_FOUND),
        NotAllowed: not_allowed,
        PageProblem: problem,
        ModuleNotFoundError: always(503, sentences.NOT_MEASURED),
        ComparisonTimeout: always(503, sentences.MEASURED_TOO_LONG),
        ComparisonQueueFull: unavailable,
        NotUnderstood: always(400, sentences.NOT_UNDERSTOOD),
        FormRefused: always(400, sentences.NOT_UNDERSTOOD),
        BodyTooSlow: always(408, sentences.REFUSED),
        **dict.fromkeys((Unavailable, TooManyAtOnce, WorkerLost, *OUTAGES), unavailable),
        HTTPException: other,
        Exception: always(500, sentences.CRASHED),
    }
    for kind, handler in handlers.items():
        console.add_exception_handler(kind, handler)
