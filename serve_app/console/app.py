from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from db.core.database import Database
from serve_app.api.read_tools import open_tools
from serve_app.console import (
    administration,
    calibrations,
    call,
    calls,
    comparison,
    editing,
    people,
    problems,
    runs,
    sign_in,
    sound,
    tasks,
    trends,
)
from serve_app.console.guard import Guard
from serve_app.console.site import STATIC, OpenPage, Page, Site
from serve_app.http.options import Work
from serve_app.settings import Settings

OPEN_PAGES: dict[str, OpenPage] = {"/sign-in": sign_in.sign_in}
OPEN_FORMS: dict[str, OpenPage] = {"/sign-in": sign_in.open_session, "/language": sign_in.set_language}
PAGES: dict[str, Page] = {
    "/": calls.home,
    "/calls": calls.calls,
    "/calls/{id}": call.call,
    "/calls/{id}/turns/{part:int}": call.turns,
    "/calls/{id}/turn/{part:int}": editing.turn,
    "/calls/{id}/contacts": editing.contacts,
    "/tasks": tasks.tasks,
    "/trends": trends.trends,
    "/comparison": comparison.comparison,
    "/comparison/runs/{id}": runs.run,
    "/calibrations": calibrations.list_calibrations,
    "/calibrations/{id}": calibrations.calibration,
    "/calibrations/{id}/calls/{call}": calibrations.review,
    "/queue": calls.queue,
    "/people": people.people,
    "/people/teams/{id}": people.edit_team,
    "/people/members/{id}": people.edit_member,
    "/workspace": administration.workspace,
    "/workspace/webhooks/{id}": administration.edit_webhook,
    "/sessions": sign_in.sessions,
}
FORMS: dict[str, Page] = {
    "/sign-out": sign_in.close_session,
    "/sessions/{id}/revoke": sign_in.revoke_session,
    "/views": calls.save_view,
    "/views/{id}": calls.change_view,
    "/calls/{id}/turn/{part:int}": editing.edit_turn,
    "/calls/{id}/delete": administration.delete_call,
    "/contacts/{id}/delete": administration.delete_contact,
    "/calls/{id}/edit": editing.edit_call,
    "/calls/{id}/edits/{edit}/undo": editing.undo,
    "/calls/{id}/tasks/{task}/done": editing.mark_task,
    "/comparison/runs/{id}/{move}": runs.move,
    "/calibrations/{id}/calls/{call}": calibrations.answer,
    "/calibrations/{id}/hand-in": calibrations.hand_in,
    "/people/teams": people.create_team,
    "/people/teams/{id}": people.change_team,
    "/people/members": people.create_member,
    "/people/members/{id}": people.change_member,
    "/workspace/keys": administration.create_key,
    "/workspace/keys/{id}/revoke": administration.revoke_key,
    "/workspace/webhooks": administration.create_webhook,
    "/workspace/webhooks/{id}": administration.change_webhook,
    "/workspace/webhooks/{id}/replay": administration.replay_failed,
    "/workspace/webhooks/{id}/events/{event}/replay": administration.replay_one,
    "/workspace/voices/{id}": administration.judge_voice,
}
SOUNDS: dict[str, Page] = {
    "/calls/{id}/audio": sound.audio,
    "/calls/{id}/waveform": call.waveform,
    "/workspace/voices/{id}/sound": sound.voice,
}


def routes(site: Site) -> list[BaseRoute]:
    """Return all routes. All but the open ones need a session."""
    return [
        *(site.open_route(path, page) for path, page in OPEN_PAGES.items()),
        *(site.open_route(path, page, "POST") for path, page in OPEN_FORMS.items()),
        *(site.route(path, page) for path, page in PAGES.items()),
        *(site.route(path, page, "POST") for path, page in FORMS.items()),
        *(site.route(path, page, work=Work.SOUND) for path, page in SOUNDS.items()),
        Mount("/static", Files(directory=STATIC), name="static"),
    ]


class Files(StaticFiles):
    """Static files; a URL with a version can be cached permanently."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code == 200:
            is_versioned = b"v=" in scope.get("query_string", b"")
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_versioned else "no-cache"
        return response


def build_console(settings: Settings, source_header: str | None = None) -> FastAPI:
    """Build the application. `source_header`: the proxy's header with the client address; None: the connection's."""
    site = Site(settings, source_header)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        process = settings.process_options()
        process.claim_scratch()
        url, pool_size, call_keys = settings.require_database_url(), settings.api.POOL_SIZE, settings.call_keys()
        model = (settings.embedding, settings.checkpoints)
        async with (
            await Database.open(url, pool_size=pool_size, call_keys=call_keys) as database,
            open_tools(database, settings.api, settings.decode, process.scratch_folder, *model) as tools,
        ):
            site.database, site.tools = database, tools
            yield

    console = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    console.router.routes.extend(routes(site))
    console.add_middleware(Guard)
    problems.install(console, site)
    return console
