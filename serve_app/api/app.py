"""The API as an ASGI application: its routes on one screen. Nothing of Ray in here."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from db.core.database import Database
from db.core.pages import Page
from db.queue.backlog import TeamQueue
from db.records.views import CallMoment, CallRecord
from db.search.call_list import CallLine
from db.search.people_list import ContactLine, MemberLine
from db.search.task_list import TaskLine
from pipeline.audio.decode.decoder import DecodeOptions
from pipeline.domain.speech import Transcript
from pipeline.embedding import EmbeddingOptions
from serve_app.api import administration, audio, calibrations, calls, editing, questions, runs, stream
from serve_app.api.access import CheckRun, Door, no_runs
from serve_app.api.calls import CallListPage
from serve_app.api.editing import CallEdit, EditBody, TaskMark
from serve_app.api.errors import NoSuchPath, NotThisWay
from serve_app.api.options import ApiOptions
from serve_app.api.parquet import MEDIA_TYPE as PARQUET
from serve_app.api.queries import (
    AudioQuery,
    CallListQuery,
    ContactListQuery,
    ExportQuery,
    MemberListQuery,
    NoQuery,
    StreamQuery,
    TaskListQuery,
    VersionQuery,
)
from serve_app.api.routing import Route
from serve_app.api.sound import SoundFolder
from serve_app.http import problems
from serve_app.http.auth import source_of
from serve_app.records.query_embedding import Questions

OpenDatabase = Callable[[], AbstractAsyncContextManager[Database]]


CALL = "/calls/{call_id:uuid}"
DONE = CALL + "/tasks/{task_id:uuid}/done"
ROUTES = (
    Route("/calls", calls.list_calls, CallListQuery, "Calls, the latest first", CallListPage),
    Route(CALL, calls.show_call, VersionQuery, "Everything known of a call", CallRecord),
    Route(f"{CALL}/transcript.json", calls.show_transcript, VersionQuery, "What was said", Transcript),
    Route(
        f"{CALL}/transcript.txt",
        calls.show_transcript,
        VersionQuery,
        "What was said, as plain text",
        media=("text/plain",),
        named="showTranscriptText",
    ),
    Route(
        f"{CALL}/transcript.srt",
        calls.show_transcript,
        VersionQuery,
        "Subtitles, SubRip",
        media=("application/x-subrip",),
        named="showSubRip",
    ),
    Route(
        f"{CALL}/transcript.vtt",
        calls.show_transcript,
        VersionQuery,
        "Subtitles, WebVTT",
        media=("text/vtt",),
        named="showWebVtt",
    ),
    Route(
        f"{CALL}/audio",
        audio.play_call,
        AudioQuery,
        "The recording: as it was fetched, or one channel as WAV; whole, or the Range that is asked for",
        media=("audio/*", "application/octet-stream"),
    ),
    Route(
        f"{CALL}/events",
        calls.list_call_events,
        NoQuery,
        "What happened to a call, the earliest first",
        Page[CallMoment],
    ),
    Route(f"{CALL}/edits", editing.list_edits, NoQuery, "What people corrected, the earliest first", Page[CallEdit]),
    Route(f"{CALL}/edits", editing.edit_call, NoQuery, "Correct a call", CallEdit, method="POST", body=EditBody),
    Route(f"{CALL}/edits/{{edit_id:uuid}}", editing.undo_edit, NoQuery, "Take an edit back", CallEdit, method="DELETE"),
    Route(DONE, editing.mark_task_done, NoQuery, "Tick a task off", TaskMark, method="PUT"),
    Route(DONE, editing.unmark_task, NoQuery, "A task is to be done after all", TaskMark, method="DELETE"),
    Route("/tasks", calls.list_tasks, TaskListQuery, "Tasks across calls, the earliest due first", Page[TaskLine]),
    Route("/contacts", calls.list_contacts, ContactListQuery, "Contacts by name", Page[ContactLine]),
    Route("/members", calls.list_members, MemberListQuery, "Members by name", Page[MemberLine]),
    Route("/queue", calls.show_queue, NoQuery, "What waits and runs, by team", Page[TeamQueue]),
    Route(
        "/export",
        stream.export_calls,
        ExportQuery,
        "All calls of a filter, as they are listed",
        media=("application/x-ndjson", "text/csv", PARQUET),
        lasts=True,
    ),
    Route(
        "/events/stream",
        stream.stream_changes,
        StreamQuery,
        "Changes of calls as server-sent events: a change may come twice, and none is missed",
        media=("text/event-stream",),
        lasts=True,
    ),
)

EVERY_ROUTE = ROUTES + administration.ROUTES + runs.ROUTES + questions.ROUTES + calibrations.ROUTES


@cache
def _openapi() -> bytes:
    return Path(__file__).with_name("openapi.json").read_bytes()


async def _show_openapi(_: Request) -> Response:
    """Serve the contract without a key: the repository has it, too."""
    return Response(_openapi(), media_type="application/json", headers={"Cache-Control": "public, max-age=3600"})


def build_api(
    options: ApiOptions,
    decode: DecodeOptions,
    open_database: OpenDatabase,
    *,
    stamp: bool = True,
    source_header: str | None = None,
    embedding: EmbeddingOptions | None = None,
    store: Path | None = None,
    check_run: CheckRun = no_runs,
) -> FastAPI:
    """An application of `EVERY_ROUTE`, and openapi.json. `stamp`, `source_header`: as of `serve_app.intake.submit`;
    `embedding`: how questions are embedded, with the checkpoint store; None: they are not. `check_run`: what a run may
    set, by the service's settings."""
    doors: list[Door] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database())
            sounds = SoundFolder(decode, options.SOUND_BYTES, options.DECODERS)
            stack.push_async_callback(sounds.close)
            asked = Questions(embedding or EmbeddingOptions(), store)
            asked.start()
            stack.callback(asked.close)
            doors[:] = [Door(database, options, asked, sounds, partial(source_of, header=source_header), check_run)]
            yield

    def endpoint(routes: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            (door,) = doors
            route = routes["GET" if request.method == "HEAD" else request.method]
            if route.lasts:
                door.refuse_streams()
            return await door.enter(request, route.query, route.handler, route.lasts, route.scope)

        return answer

    api = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    by_path: defaultdict[str, dict[str, Route]] = defaultdict(dict)
    for route in EVERY_ROUTE:
        by_path[route.path][route.method] = route
    for path, routes in by_path.items():
        api.router.add_route(path, endpoint(routes), methods=list(routes))
    api.router.add_route("/openapi.json", _show_openapi, methods=["GET"], name="openapi")
    problems.install(api, stamp, NoSuchPath, NotThisWay)
    return api


__all__ = ["EVERY_ROUTE", "ROUTES", "CallLine", "Route", "build_api"]
