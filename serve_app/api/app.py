"""The read API as an ASGI application: its routes on one screen. Nothing of Ray in here."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

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
from serve_app.api import calls, openapi_file, stream
from serve_app.api.access import Door, Handler, Reading
from serve_app.api.audio import Audio
from serve_app.api.calls import CallListPage
from serve_app.api.errors import NoSuchPath, ReadOnly
from serve_app.api.options import ApiOptions
from serve_app.api.queries import (
    AudioQuery,
    CallListQuery,
    ContactListQuery,
    ExportQuery,
    MemberListQuery,
    NoQuery,
    Query,
    StreamQuery,
    TaskListQuery,
)
from serve_app.api.sound import SoundFolder
from serve_app.intake import errors

OpenDatabase = Callable[[], AbstractAsyncContextManager[Database]]


@dataclass(frozen=True, slots=True)
class Route:
    """One path that is read with GET. `answer`: what JSON it answers with; `media`: what else."""

    path: str
    name: str
    query: type[Query]
    summary: str
    answer: Any = None
    media: tuple[str, ...] = ()
    lasts: bool = False


CALL = "/calls/{call_id:uuid}"
ROUTES = (
    Route("/calls", "listCalls", CallListQuery, "Calls, the latest first", CallListPage),
    Route(CALL, "showCall", NoQuery, "Everything known of a call", CallRecord),
    Route(f"{CALL}/transcript.json", "showTranscript", NoQuery, "What was said", Transcript),
    Route(
        f"{CALL}/transcript.txt", "showTranscriptText", NoQuery, "What was said, as plain text", media=("text/plain",)
    ),
    Route(f"{CALL}/transcript.srt", "showSubRip", NoQuery, "Subtitles, SubRip", media=("application/x-subrip",)),
    Route(f"{CALL}/transcript.vtt", "showWebVtt", NoQuery, "Subtitles, WebVTT", media=("text/vtt",)),
    Route(
        f"{CALL}/audio",
        "playCall",
        AudioQuery,
        "The recording: as it was fetched, or one channel as WAV; whole, or the Range that is asked for",
        media=("audio/*", "application/octet-stream"),
    ),
    Route(f"{CALL}/events", "listCallEvents", NoQuery, "What happened to a call, the earliest first", Page[CallMoment]),
    Route("/tasks", "listTasks", TaskListQuery, "Tasks across calls, the earliest due first", Page[TaskLine]),
    Route("/contacts", "listContacts", ContactListQuery, "Contacts by name", Page[ContactLine]),
    Route("/members", "listMembers", MemberListQuery, "Members by name", Page[MemberLine]),
    Route("/queue", "showQueue", NoQuery, "What waits and runs, by team", Page[TeamQueue]),
    Route(
        "/export",
        "exportCalls",
        ExportQuery,
        "All calls of a filter, as they are listed",
        media=("application/x-ndjson", "text/csv"),
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


def handlers(audio: Audio) -> dict[str, Handler]:
    """What answers on each route, by its name."""
    transcript = ("showTranscript", "showTranscriptText", "showSubRip", "showWebVtt")
    return dict.fromkeys(transcript, calls.show_transcript) | {
        "listCalls": calls.list_calls,
        "showCall": calls.show_call,
        "playCall": audio.show,
        "listCallEvents": calls.show_events,
        "listTasks": calls.list_tasks,
        "listContacts": calls.list_contacts,
        "listMembers": calls.list_members,
        "showQueue": calls.show_queue,
        "exportCalls": stream.export,
        "streamChanges": stream.stream_events,
    }


def build_api(
    options: ApiOptions,
    decode: DecodeOptions,
    open_database: OpenDatabase,
    *,
    stamp: bool = True,
    source_header: str | None = None,
) -> FastAPI:
    """An application of `ROUTES`, and openapi.json. `stamp`, `source_header`: as of `serve_app.intake.submit`."""
    doors: list[Door] = []
    sounds: list[Audio] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database())
            folder = SoundFolder(decode, options.sound_bytes, options.DECODERS)
            stack.push_async_callback(folder.close)
            sounds[:] = [Audio(folder)]
            doors[:] = [Door(database, options, lambda request: source_of(request, source_header))]
            yield

    def endpoint(route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            (door,), (audio,) = doors, sounds
            if route.lasts:
                door.refuse_streams()
            return await door.enter(request, route.query, handlers(audio)[route.name], route.lasts)

        return answer

    api = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for route in ROUTES:
        api.router.add_route(route.path, endpoint(route), methods=["GET"], name=route.name)
    api.router.add_route("/openapi.json", openapi_file.show, methods=["GET"], name="openapi")
    errors.install(api, stamp, NoSuchPath, ReadOnly)
    return api


def source_of(request: Request, header: str | None) -> str:
    """The address that the request came from; of IPv6 the network, of which one sender has all addresses."""
    told = request.headers.get(header) if header else None
    address = told or (request.client.host if request.client else "")
    try:
        return str(ip_network((address, 64 if ":" in address else 32), strict=False).network_address)
    except ValueError:
        return address


__all__ = ["ROUTES", "CallLine", "Reading", "Route", "build_api"]
