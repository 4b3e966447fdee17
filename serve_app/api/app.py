"""The API as an ASGI application with its routes. This module does not import Ray."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from db.core.database import Database
from db.core.pages import Page
from db.queue.backlog import TeamQueue
from db.records.correct import TaskMark
from db.records.corrections import CallEdit
from db.records.views import CallMoment, CallRecord
from db.search.call_list import CallLine
from db.search.people_list import ContactLine, MemberLine
from db.search.task_list import TaskLine
from db.secrets.encryption import Sealer
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import Transcript
from pipeline.domain.voices import VoicePolicy
from pipeline.embedding import EmbeddingOptions
from serve_app.answers.asking import AnsweringModel
from serve_app.api import (
    administration,
    ask,
    audio,
    calibrations,
    calls,
    editing,
    erasure,
    export,
    queries,
    questions,
    recording_servers,
    reference,
    runs,
    saved_views,
    statistics,
    stream,
    uploads,
    voices,
    webhooks,
)
from serve_app.api.access import Authorizer, CheckRun, Route, no_runs
from serve_app.api.audio import Waveform
from serve_app.api.calls import CallBatch, CallListPage, RetriedCall
from serve_app.api.editing import EditBody
from serve_app.api.errors import MethodNotAllowed, NoSuchPath
from serve_app.api.options import ApiOptions
from serve_app.api.parquet import MEDIA_TYPE as PARQUET
from serve_app.api.read_tools import open_tools
from serve_app.api.uploads import ReceiveOptions, Receiver
from serve_app.http import problems
from serve_app.http.auth import source_of
from serve_app.http.options import Work
from serve_app.webhooks.post import Poster

OpenDatabase = Callable[[], AbstractAsyncContextManager[Database]]


CALL = "/calls/{call_id:uuid}"
DONE = CALL + "/tasks/{task_id:uuid}/done"


def _transcript(suffix: str, summary: str, operation: str) -> Route:
    path, media = f"{CALL}/transcript.{suffix}", (calls.TEXT_TYPES[suffix],)
    return Route(path, calls.show_transcript, summary, query=queries.TranscriptQuery, media=media, operation=operation)


ROUTES = (
    Route("/calls", calls.list_calls, "List calls, the latest first", CallListPage, queries.CallListQuery),
    Route("/calls/batch", calls.show_calls, "Show the records of several calls", CallBatch, queries.BatchQuery),
    Route(CALL, calls.show_call, "Show the record of a call", CallRecord, queries.RecordQuery),
    Route(f"{CALL}/retry", calls.retry_call, "Process a failed or waiting call again", RetriedCall, method="POST"),
    Route(f"{CALL}/waveform", audio.show_waveform, "Peaks of the recording", Waveform, work=Work.SOUND),
    Route(f"{CALL}/transcript.json", calls.show_transcript, "Transcript as JSON", Transcript, queries.TranscriptQuery),
    _transcript("txt", "Transcript as plain text", "showTranscriptText"),
    _transcript("srt", "Transcript as SubRip subtitles", "showSubRip"),
    _transcript("vtt", "Transcript as WebVTT subtitles", "showWebVtt"),
    Route(
        CALL,
        erasure.erase_call,
        "Delete a call permanently, with its recordings and results; idempotent",
        method="DELETE",
        admin=True,
        operation="deleteCall",
    ),
    Route(
        f"{CALL}/audio",
        audio.play_call,
        "Recording as fetched, or one channel as WAV; supports Range requests",
        query=queries.AudioQuery,
        media=("audio/*", "application/octet-stream"),
        work=Work.SOUND,
    ),
    Route(
        f"{CALL}/events",
        calls.list_call_events,
        "List the history of a call, the earliest first",
        Page[CallMoment],
    ),
    Route(f"{CALL}/edits", editing.list_edits, "List edits, the earliest first", Page[CallEdit]),
    Route(f"{CALL}/edits", editing.edit_call, "Correct a call", CallEdit, method="POST", body=EditBody),
    Route(f"{CALL}/edits/{{edit_id:uuid}}", editing.undo_edit, "Undo an edit", CallEdit, method="DELETE"),
    Route(DONE, editing.mark_task_done, "Mark a task as done", TaskMark, method="PUT"),
    Route(DONE, editing.unmark_task, "Reopen a task", TaskMark, method="DELETE"),
    Route(
        "/tasks",
        calls.list_tasks,
        "List tasks across calls, the earliest due date first",
        Page[TaskLine],
        queries.TaskListQuery,
    ),
    Route("/contacts", calls.list_contacts, "List contacts by name", Page[ContactLine], queries.ContactListQuery),
    Route("/members", calls.list_members, "List members by name", Page[MemberLine], queries.MemberListQuery),
    Route("/queue", calls.show_queue, "Show the queue by team", Page[TeamQueue]),
    Route(
        "/export",
        export.export_calls,
        "Export all calls that match a filter",
        query=queries.ExportQuery,
        media=("application/x-ndjson", "text/csv", PARQUET),
        work=Work.EXPORT,
    ),
    Route(
        "/events/stream",
        stream.stream_changes,
        "Stream changes and deletions of calls as server-sent events, each at least once",
        query=queries.StreamQuery,
        media=("text/event-stream",),
        work=Work.STREAM,
    ),
)

EVERY_ROUTE = (
    *ROUTES,
    *ask.ROUTES,
    *uploads.ROUTES,
    *statistics.ROUTES,
    *saved_views.ROUTES,
    *erasure.ROUTES,
    *administration.ROUTES,
    *voices.ROUTES,
    *webhooks.ROUTES,
    *recording_servers.ROUTES,
    *runs.ROUTES,
    *questions.ROUTES,
    *calibrations.ROUTES,
)


def _add_routes(api: FastAPI, authorizers: list[Authorizer]) -> None:
    """Add all routes. `authorizers` contains the only one once the application has started."""
    by_path: defaultdict[str, dict[str, Route]] = defaultdict(dict)
    for route in EVERY_ROUTE:
        by_path[route.path][route.method] = route

    def endpoint(routes: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            (authorizer,) = authorizers
            return await authorizer.enter(request, routes["GET" if request.method == "HEAD" else request.method])

        return answer

    for path, routes in by_path.items():
        api.router.add_route(path, endpoint(routes), methods=list(routes))
    api.router.add_route("/openapi.json", reference.show_openapi, methods=["GET"], name="openapi")
    api.router.add_route("/docs", reference.show_reference, methods=["GET"], name="docs")


def build_api(
    options: ApiOptions,
    decode: DecodeOptions,
    open_database: OpenDatabase,
    *,
    voices: VoicePolicy,
    stamp: bool = True,
    source_header: str | None = None,
    embedding: EmbeddingOptions | None = None,
    store: Path | None = None,
    check_run: CheckRun = no_runs,
    scratch_root: str | None = None,
    poster: Poster | None = None,
    sealer: Sealer | None = None,
    receive: ReceiveOptions | None = None,
    answering: AnsweringModel | None = None,
) -> FastAPI:
    """Return an application of `EVERY_ROUTE`, openapi.json and docs.

    `stamp`, `source_header`: see `serve_app.intake.submit`. `embedding`, `store`: model and checkpoints for search by
    meaning; None: switched off. `scratch_root`: see `SoundFolder`. `voices`: computes voice profiles. `poster` checks
    addresses of webhooks, `sealer` seals secrets; None: only public ones, unsealed. `receive`: for uploads.
    `answering`: the language model that answers questions about calls.
    """
    authorizers: list[Authorizer] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database())
            model = (embedding or EmbeddingOptions(), store)
            tools = open_tools(database, options, decode, scratch_root, *model, poster, sealer, answering)
            opened = await stack.enter_async_context(tools)
            source = partial(source_of, header=source_header)
            receiver = Receiver(database, receive) if receive is not None else None
            authorizers[:] = [Authorizer(database, options, opened, source, check_run, voices, receiver)]
            yield

    api = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    _add_routes(api, authorizers)
    problems.install(api, stamp, NoSuchPath, MethodNotAllowed)
    return api


__all__ = ["EVERY_ROUTE", "ROUTES", "CallLine", "Route", "build_api"]
