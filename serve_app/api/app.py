"""The read API, and what people write, as an ASGI application: its routes on one screen. Nothing of Ray in here."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from ipaddress import ip_network
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from db.call_list import CallLine
from db.database import Database
from db.people_list import ContactLine, MemberLine
from db.queue_view import TeamQueue
from db.reading import Page
from db.task_list import TaskLine
from db.views import CallMoment, CallRecord
from pipeline.audio.decode.decoder import DecodeOptions
from pipeline.domain.speech import Transcript
from pipeline.embedding import EmbeddingOptions
from serve_app.api import administration, calls, editing, openapi_file, questions, runs, stream
from serve_app.api.access import CheckRun, Door, Handler, no_runs
from serve_app.api.audio import AudioHandler
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
from serve_app.intake import errors
from serve_app.questions import Questions

OpenDatabase = Callable[[], AbstractAsyncContextManager[Database]]


CALL = "/calls/{call_id:uuid}"
DONE = CALL + "/tasks/{task_id:uuid}/done"
ROUTES = (
    Route("/calls", "listCalls", CallListQuery, "Calls, the latest first", CallListPage),
    Route(CALL, "showCall", VersionQuery, "Everything known of a call", CallRecord),
    Route(f"{CALL}/transcript.json", "showTranscript", VersionQuery, "What was said", Transcript),
    Route(
        f"{CALL}/transcript.txt",
        "showTranscriptText",
        VersionQuery,
        "What was said, as plain text",
        media=("text/plain",),
    ),
    Route(f"{CALL}/transcript.srt", "showSubRip", VersionQuery, "Subtitles, SubRip", media=("application/x-subrip",)),
    Route(f"{CALL}/transcript.vtt", "showWebVtt", VersionQuery, "Subtitles, WebVTT", media=("text/vtt",)),
    Route(
        f"{CALL}/audio",
        "playCall",
        AudioQuery,
        "The recording: as it was fetched, or one channel as WAV; whole, or the Range that is asked for",
        media=("audio/*", "application/octet-stream"),
    ),
    Route(f"{CALL}/events", "listCallEvents", NoQuery, "What happened to a call, the earliest first", Page[CallMoment]),
    Route(f"{CALL}/edits", "listEdits", NoQuery, "What people corrected, the earliest first", Page[CallEdit]),
    Route(f"{CALL}/edits", "editCall", NoQuery, "Correct a call", CallEdit, method="POST", body=EditBody),
    Route(f"{CALL}/edits/{{edit_id:uuid}}", "undoEdit", NoQuery, "Take an edit back", CallEdit, method="DELETE"),
    Route(DONE, "markTaskDone", NoQuery, "Tick a task off", TaskMark, method="PUT"),
    Route(DONE, "unmarkTask", NoQuery, "A task is to be done after all", TaskMark, method="DELETE"),
    Route("/tasks", "listTasks", TaskListQuery, "Tasks across calls, the earliest due first", Page[TaskLine]),
    Route("/contacts", "listContacts", ContactListQuery, "Contacts by name", Page[ContactLine]),
    Route("/members", "listMembers", MemberListQuery, "Members by name", Page[MemberLine]),
    Route("/queue", "showQueue", NoQuery, "What waits and runs, by team", Page[TeamQueue]),
    Route(
        "/export",
        "exportCalls",
        ExportQuery,
        "All calls of a filter, as they are listed",
        media=("application/x-ndjson", "text/csv", PARQUET),
        lasts=True,
    ),
    Route(
        "/events/stream",
        "streamChanges",
        StreamQuery,
        "Changes of calls as server-sent events: a change may come twice, and none is missed",
        media=("text/event-stream",),
        lasts=True,
    ),
)

EVERY_ROUTE = ROUTES + administration.ROUTES + runs.ROUTES + questions.ROUTES


def handlers(audio: AudioHandler) -> dict[str, Handler]:
    """What answers on each route, by its name."""
    transcript = ("showTranscript", "showTranscriptText", "showSubRip", "showWebVtt")
    return (
        dict.fromkeys(transcript, calls.show_transcript)
        | dict(administration.HANDLERS)
        | dict(runs.HANDLERS)
        | dict(questions.HANDLERS)
        | {
            "listCalls": calls.list_calls,
            "showCall": calls.show_call,
            "playCall": audio.show,
            "listCallEvents": calls.show_events,
            "listEdits": editing.list_edits,
            "editCall": editing.edit,
            "undoEdit": editing.undo,
            "markTaskDone": editing.tick,
            "unmarkTask": editing.untick,
            "listTasks": calls.list_tasks,
            "listContacts": calls.list_contacts,
            "listMembers": calls.list_members,
            "showQueue": calls.show_queue,
            "exportCalls": stream.export,
            "streamChanges": stream.stream_events,
        }
    )


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
    sounds: list[AudioHandler] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database())
            folder = SoundFolder(decode, options.SOUND_BYTES, options.DECODERS)
            stack.push_async_callback(folder.close)
            sounds[:] = [AudioHandler(folder)]
            asked = Questions(embedding or EmbeddingOptions(), store)
            asked.start()
            stack.callback(asked.close)
            doors[:] = [Door(database, options, asked, partial(source_of, header=source_header), check_run)]
            yield

    def endpoint(routes: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            (door,), (audio,) = doors, sounds
            route = routes["GET" if request.method == "HEAD" else request.method]
            if route.lasts:
                door.refuse_streams()
            return await door.enter(request, route.query, handlers(audio)[route.name], route.lasts, route.scope)

        return answer

    api = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    by_path: defaultdict[str, dict[str, Route]] = defaultdict(dict)
    for route in EVERY_ROUTE:
        by_path[route.path][route.method] = route
    for path, routes in by_path.items():
        api.router.add_route(path, endpoint(routes), methods=list(routes))
    api.router.add_route("/openapi.json", openapi_file.show, methods=["GET"], name="openapi")
    errors.install(api, stamp, NoSuchPath, NotThisWay)
    return api


def source_of(request: Request, header: str | None) -> str:
    """The address that the request came from; of IPv6 the network, of which one sender has all addresses."""
    told = request.headers.get(header) if header else None
    address = told or (request.client.host if request.client else "")
    try:
        return str(ip_network((address, 64 if ":" in address else 32), strict=False).network_address)
    except ValueError:
        return address


__all__ = ["EVERY_ROUTE", "ROUTES", "CallLine", "Route", "build_api"]
