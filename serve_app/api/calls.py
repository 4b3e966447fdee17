"""Handlers: lists and single calls as JSON and text."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from starlette.responses import Response

from db.core.database import ANSWER_SECONDS
from db.core.pages import Page
from db.queue import backlog
from db.records import views
from db.records.views import CallRecord
from db.search import call_list, people_list, semantic, task_list
from db.search.call_list import CallLine
from db.search.semantic import OtherModel
from serve_app.api.access import ReadRequest, json_answer, tagged
from serve_app.api.errors import Busy, MeaningOff, NoSuchCall, NotReady
from serve_app.api.queries import CallListQuery, ContactListQuery, MemberListQuery, NoQuery, TaskListQuery, VersionQuery
from serve_app.records import transcripts
from serve_app.records.query_embedding import EmbedderNotReady, SwitchedOff


def told_of_another(stored: str | None) -> str:
    """What to do where the passages are not of the model that questions are asked with."""
    if stored is None:
        return "No call has passages yet: the Conductor has not found the embedding model, or has not started since."
    return f"The passages are of {stored}, which is not the model of the settings: run `switchboard search index`."


TEXT_TYPES: Final = {"txt": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}


@dataclass(frozen=True, slots=True)
class CallListPage:
    """A page of calls. `as_of`: pass it as `updatedAfter` later, and no change is missed."""

    items: tuple[CallLine, ...]
    next: str | None
    as_of: datetime


async def list_calls(reading: ReadRequest[CallListQuery]) -> Response:
    """Calls, the latest first."""
    query = reading.query
    # No transaction that was under way at that moment lasts any longer, and so changes nothing from before it.
    as_of = await now(reading) - timedelta(seconds=ANSWER_SECONDS)
    page = (
        await call_list.list_calls(reading.database, reading.reader, query.wanted(), query.cursor, query.limit)
        if query.meaning is None
        else await _by_meaning(reading, query.meaning)
    )
    quoted = [line.call.call_id for line in page.items if line.hits]
    await reading.note("search", quoted)
    return json_answer(reading, CallListPage(page.items, page.next, as_of), same=page)


async def _by_meaning(reading: ReadRequest[CallListQuery], question: str) -> Page[CallLine]:
    """The calls most like a question. Raises `MeaningOff`, and `Busy` where it cannot be compared now."""
    query, retry = reading.query, reading.options.RETRY_AFTER_SECONDS
    try:
        model, vector = await reading.questions.vector(question)
        wanted = query.wanted()
        return Page(await semantic.closest_calls(reading.database, reading.reader, vector, model, wanted, query.limit))
    except SwitchedOff:
        raise MeaningOff from None
    except OtherModel as error:
        raise MeaningOff(told_of_another(error.stored)) from None
    except EmbedderNotReady as error:
        raise Busy(retry, str(error)) from None


async def now(reading: ReadRequest[Any]) -> datetime:
    """The database's time."""
    async with reading.database.transaction(reading.reader) as connection:
        at: datetime = (await connection.execute(sa.select(sa.func.now()))).scalar_one()
        return at


async def record(reading: ReadRequest[Any]) -> CallRecord:
    """The record of the path's call, in the version that was asked for. Raises `NoSuchCall`."""
    machine = getattr(reading.query, "version", None) == "machine"
    async with reading.database.transaction(reading.reader, snapshot=True) as connection:
        found = await views.read_call(connection, reading.call_id, machine)
    if found is None:
        raise NoSuchCall
    return found


async def show_call(reading: ReadRequest[VersionQuery]) -> Response:
    """Everything known of a call."""
    found = await record(reading)
    if found.transcript is not None:
        await reading.note("record", [reading.call_id])
    return json_answer(reading, found)


async def show_transcript(reading: ReadRequest[VersionQuery]) -> Response:
    """What was said, as JSON, plain text or subtitles."""
    form = reading.request.url.path.rpartition(".")[2]
    found = (await record(reading)).transcript
    if found is None:
        raise NotReady
    await reading.note("transcript", [reading.call_id], form)
    if form == "json":
        return json_answer(reading, found)
    body = transcripts.FORMATS[form](found).encode("utf-8", "replace")
    headers = {
        "Content-Disposition": f'inline; filename="{reading.call_id}.{form}"',
        "X-Content-Type-Options": "nosniff",
    }
    return tagged(reading, body, f"{TEXT_TYPES[form]}; charset=utf-8", headers)


async def list_call_events(reading: ReadRequest[NoQuery]) -> Response:
    """What happened to a call, the earliest first."""
    return json_answer(reading, Page((await record(reading)).timeline))


async def list_tasks(reading: ReadRequest[TaskListQuery]) -> Response:
    """Tasks across calls, the earliest due first."""
    query = reading.query
    page = await task_list.list_tasks(reading.database, reading.reader, query.wanted(), query.cursor, query.limit)
    return json_answer(reading, page)


async def list_contacts(reading: ReadRequest[ContactListQuery]) -> Response:
    """Contacts by name."""
    query = reading.query
    page = await people_list.list_contacts(reading.database, reading.reader, query.text, query.cursor, query.limit)
    return json_answer(reading, page)


async def list_members(reading: ReadRequest[MemberListQuery]) -> Response:
    """Members by name."""
    query = reading.query
    page = await people_list.list_members(reading.database, reading.reader, query.team_id, query.cursor, query.limit)
    return json_answer(reading, page)


async def show_queue(reading: ReadRequest[NoQuery]) -> Response:
    """What waits and runs, by team."""
    return json_answer(reading, Page(tuple(await backlog.team_queues(reading.database, reading.reader))))
