"""The API as an ASGI application with its routes. This module does not import Ray."""

import asyncio
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
from pipeline.domain.voices import VoicePolicy
from pipeline.embedding import EmbeddingOptions
from serve_app.api import administration, audio, calibrations, calls, editing, erasure, export, questions, runs, stream
from serve_app.api.access import Authorizer, CheckRun, Route, no_runs
from serve_app.api.calls import CallListPage
from serve_app.api.editing import CallEdit, EditBody, TaskMark
from serve_app.api.errors import MethodNotAllowed, NoSuchPath
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
from serve_app.api.sound import SoundFolder
from serve_app.http import problems
from serve_app.http.auth import source_of
from serve_app.http.options import Work
from serve_app.http.worker import Worker
from serve_app.records.query_embedding import QueryEmbedder

OpenDatabase = Callable[[], AbstractAsyncContextManager[Database]]


CALL = "/calls/{call_id:uuid}"
DONE = CALL + "/tasks/{task_id:uuid}/done"
ROUTES = (
    Route("/calls", calls.list_calls, CallListQuery, "List calls, the latest first", CallListPage),
    Route(CALL, calls.show_call, VersionQuery, "Show the record of a call", CallRecord),
    Route(f"{CALL}/transcript.json", calls.show_transcript, VersionQuery, "Transcript as JSON", Transcript),
    Route(
        f"{CALL}/transcript.txt",
        calls.show_transcript,
        VersionQuery,
        "Transcript as plain text",
        media=("text/plain",),
        operation="showTranscriptText",
    ),
    Route(
        f"{CALL}/transcript.srt",
        calls.show_transcript,
        VersionQuery,
        "Transcript as SubRip subtitles",
        media=("application/x-subrip",),
        operation="showSubRip",
    ),
    Route(
        f"{CALL}/transcript.vtt",
        calls.show_transcript,
        VersionQuery,
        "Transcript as WebVTT subtitles",
        media=("text/vtt",),
        operation="showWebVtt",
    ),
    Route(
        CALL,
        erasure.erase_call,
        NoQuery,
        "Delete a call permanently, with its recordings and results; idempotent",
        method="DELETE",
        admin=True,
        operation="deleteCall",
    ),
    Route(
        f"{CALL}/audio",
        audio.play_call,
        AudioQuery,
        "Recording as fetched, or one channel as WAV; supports Range requests",
        media=("audio/*", "application/octet-stream"),
        work=Work.SOUND,
    ),
    Route(
        f"{CALL}/events",
        calls.list_call_events,
        NoQuery,
        "List the history of a call, the earliest first",
        Page[CallMoment],
    ),
    Route(f"{CALL}/edits", editing.list_edits, NoQuery, "List edits, the earliest first", Page[CallEdit]),
    Route(f"{CALL}/edits", editing.edit_call, NoQuery, "Correct a call", CallEdit, method="POST", body=EditBody),
    Route(f"{CALL}/edits/{{edit_id:uuid}}", editing.undo_edit, NoQuery, "Undo an edit", CallEdit, method="DELETE"),
    Route(DONE, editing.mark_task_done, NoQuery, "Mark a task as done", TaskMark, method="PUT"),
    Route(DONE, editing.unmark_task, NoQuery, "Reopen a task", TaskMark, method="DELETE"),
    Route(
        "/tasks",
        calls.list_tasks,
        TaskListQuery,
        "List tasks across calls, the earliest due date first",
        Page[TaskLine],
    ),
    Route("/contacts", calls.list_contacts, ContactListQuery, "List contacts by name", Page[ContactLine]),
    Route("/members", calls.list_members, MemberListQuery, "List members by name", Page[MemberLine]),
    Route("/queue", calls.show_queue, NoQuery, "Show the queue by team", Page[TeamQueue]),
    Route(
        "/export",
        export.export_calls,
        ExportQuery,
        "Export all calls that match a filter",
        media=("application/x-ndjson", "text/csv", PARQUET),
        work=Work.EXPORT,
    ),
    Route(
        "/events/stream",
        stream.stream_changes,
        StreamQuery,
        "Stream changes and deletions of calls as server-sent events, each at least once",
        media=("text/event-stream",),
        work=Work.STREAM,
    ),
)

EVERY_ROUTE = ROUTES + administration.ROUTES + runs.ROUTES + questions.ROUTES + calibrations.ROUTES


@cache
def _openapi() -> bytes:
    return Path(__file__).with_name("openapi.json").read_bytes()


async def _show_openapi(_: Request) -> Response:
    """Serve the OpenAPI document without a key; it is public."""
    return Response(_openapi(), media_type="application/json", headers={"Cache-Control": "public, max-age=3600"})


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
) -> FastAPI:
    """Return an application of `EVERY_ROUTE` and openapi.json.

    `stamp`, `source_header`: see `serve_app.intake.submit`. `embedding`, `store`: model and checkpoints for search by
    meaning; None: switched off. `check_run`: validates the settings of a run. `scratch_root`: see `SoundFolder`.
    `voices`: computes voice profiles without the voice of an erased call.
    """
    authorizers: list[Authorizer] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database())
            sounds = SoundFolder(scratch_root, decode, options.SOUND_BYTES, options.DECODERS)
            stack.push_async_callback(sounds.close)
            stack.callback(asyncio.create_task(sounds.remove_unused_forever(database)).cancel)
            embedder = QueryEmbedder(embedding or EmbeddingOptions(), store)
            embedder.start()
            stack.callback(embedder.close)
            worker = Worker()
            stack.push_async_callback(worker.close)
            source = partial(source_of, header=source_header)
            authorizers[:] = [Authorizer(database, options, embedder, sounds, source, check_run, worker, voices)]
            yield

    def endpoint(routes: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            (authorizer,) = authorizers
            return await authorizer.enter(request, routes["GET" if request.method == "HEAD" else request.method])

        return answer

    api = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    by_path: defaultdict[str, dict[str, Route]] = defaultdict(dict)
    for route in EVERY_ROUTE:
        by_path[route.path][route.method] = route
    for path, routes in by_path.items():
        api.router.add_route(path, endpoint(routes), methods=list(routes))
    api.router.add_route("/openapi.json", _show_openapi, methods=["GET"], name="openapi")
    problems.install(api, stamp, NoSuchPath, MethodNotAllowed)
    return api


__all__ = ["EVERY_ROUTE", "ROUTES", "CallLine", "Route", "build_api"]
