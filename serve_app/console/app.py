import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from db.core.database import Database
from serve_app.api.sound import SoundFolder
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
    views,
    webhooks,
)
from serve_app.console.guard import Guard
from serve_app.console.site import STATIC, Site
from serve_app.console.waveform import WaveformCache
from serve_app.experiments.comparison_cache import ComparisonCache
from serve_app.http.options import Work
from serve_app.records.query_embedding import QueryEmbedder
from serve_app.settings import Settings


def routes(site: Site) -> list[BaseRoute]:
    """Return all routes. All but those for signing in need a session."""
    return [
        site.open_route("/sign-in", sign_in.sign_in),
        site.open_route("/sign-in", sign_in.open_session, "POST"),
        site.open_route("/language", sign_in.set_language, "POST"),
        site.route("/sign-out", sign_in.close_session, "POST"),
        site.route("/sessions", sign_in.sessions),
        site.route("/sessions/{id}/revoke", sign_in.revoke_session, "POST"),
        site.route("/", calls.home),
        site.route("/calls", calls.calls),
        site.route("/views", views.save_view, "POST"),
        site.route("/views/{id}", views.change_view, "POST"),
        site.route("/calls/{id}", call.call),
        site.route("/calls/{id}/turns/{part:int}", call.turns),
        site.route("/calls/{id}/turn/{part:int}", editing.turn),
        site.route("/calls/{id}/turn/{part:int}", editing.edit_turn, "POST"),
        site.route("/calls/{id}/delete", administration.delete_call, "POST"),
        site.route("/calls/{id}/contacts", editing.contacts),
        site.route("/calls/{id}/edit", editing.edit_call, "POST"),
        site.route("/calls/{id}/edits/{edit}/undo", editing.undo, "POST"),
        site.route("/calls/{id}/tasks/{task}/done", editing.mark_task, "POST"),
        site.route("/tasks", tasks.tasks),
        site.route("/trends", trends.trends),
        site.route("/comparison", comparison.comparison),
        site.route("/comparison/runs/{id}", runs.run),
        site.route("/comparison/runs/{id}/{move}", runs.move, "POST"),
        site.route("/calibrations", calibrations.list_calibrations),
        site.route("/calibrations/{id}", calibrations.calibration),
        site.route("/calibrations/{id}/calls/{call}", calibrations.review),
        site.route("/calibrations/{id}/calls/{call}", calibrations.answer, "POST"),
        site.route("/calibrations/{id}/hand-in", calibrations.hand_in, "POST"),
        site.route("/queue", calls.queue),
        site.route("/workspace", administration.workspace),
        site.route("/workspace/keys", administration.create_key, "POST"),
        site.route("/workspace/keys/{id}/revoke", administration.revoke_key, "POST"),
        site.route("/workspace/webhooks", webhooks.create_webhook, "POST"),
        site.route("/workspace/webhooks/{id}", webhooks.edit_webhook),
        site.route("/workspace/webhooks/{id}", webhooks.change_webhook, "POST"),
        site.route("/workspace/webhooks/{id}/replay", administration.replay_failed, "POST"),
        site.route("/workspace/webhooks/{id}/events/{event}/replay", administration.replay_one, "POST"),
        site.route("/workspace/voices/{id}/sound", sound.voice, work=Work.SOUND),
        site.route("/workspace/voices/{id}", administration.judge_voice, "POST"),
        site.route("/people", people.people),
        site.route("/people/teams", people.create_team, "POST"),
        site.route("/people/teams/{id}", people.edit_team),
        site.route("/people/teams/{id}", people.change_team, "POST"),
        site.route("/people/members", people.create_member, "POST"),
        site.route("/people/members/{id}", people.edit_member),
        site.route("/people/members/{id}", people.change_member, "POST"),
        site.route("/calls/{id}/audio", sound.audio, work=Work.SOUND),
        site.route("/calls/{id}/waveform", call.waveform, work=Work.SOUND),
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
    """Build the application. `source_header`: header in which our proxy sends the client address; None: use the
    connection's address."""
    site = Site(settings, source_header)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        process = settings.process_options()
        process.claim_scratch()
        site.waveforms = WaveformCache(process.scratch_folder, settings.decode)
        site.comparisons = ComparisonCache()
        site.sounds = SoundFolder(
            process.scratch_folder, settings.decode, settings.api.SOUND_BYTES, settings.api.DECODERS
        )
        site.questions = QueryEmbedder(settings.embedding, settings.checkpoints)
        site.questions.start()
        try:
            async with await Database.open(
                settings.require_database_url(), pool_size=settings.api.POOL_SIZE
            ) as database:
                site.database = database
                removing = asyncio.create_task(site.sounds.remove_unused_forever(database))
                try:
                    yield
                finally:
                    removing.cancel()
        finally:
            site.questions.close()
            await site.worker.close()
            await site.sounds.close()

    console = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    console.router.routes.extend(routes(site))
    console.add_middleware(Guard)
    problems.install(console, site)
    return console
