import asyncio
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
from db.workspace.keys import UNREDACTED
from serve_app.api.access import ApiRequest, json_answer, tagged
from serve_app.api.errors import Busy, Expired, MeaningOff, NoSuchCall, NotReady
from serve_app.api.queries import CallListQuery, ContactListQuery, MemberListQuery, NoQuery, TaskListQuery, VersionQuery
from serve_app.http.problems import ScopeMissing
from serve_app.records import transcripts
from serve_app.records.query_embedding import EmbedderNotReady, SwitchedOff


def embedding_model_mismatch(stored: str | None) -> str:
    """Return how to fix passages that are not of the embedding model in use."""
    if stored is None:
        return (
            "No call is indexed yet: the Conductor has no embedding model, or has not been restarted since it was set."
        )
    return f"The index is of {stored}, which is not the configured model. Run `switchboard search index`."


TEXT_TYPES: Final = {"txt": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}


@dataclass(frozen=True, slots=True)
class CallListPage:
    """A page of calls. `as_of`: pass it as `updatedAfter` later to miss no change."""

    items: tuple[CallLine, ...]
    next: str | None
    as_of: datetime


async def list_calls(reading: ApiRequest[CallListQuery]) -> Response:
    """List calls, the latest first."""
    query = reading.query
    # No transaction that was open at that moment is still running, so none can commit an earlier change.
    as_of = await now(reading) - timedelta(seconds=ANSWER_SECONDS)
    page = (
        await call_list.list_calls(
            reading.database, reading.reader, query.to_filter(), query.cursor, query.limit, reading.tools.worker.run
        )
        if query.meaning is None
        else await _by_meaning(reading, query.meaning)
    )
    quoted = [line.call.call_id for line in page.items if line.hits]
    await reading.note("search", quoted)
    return json_answer(reading, CallListPage(page.items, page.next, as_of), same=page)


async def _by_meaning(reading: ApiRequest[CallListQuery], question: str) -> Page[CallLine]:
    """Return the calls most similar to a text. Raises `MeaningOff`, and `Busy` if the model is not ready."""
    query, retry = reading.query, reading.options.RETRY_AFTER_SECONDS
    try:
        model, vector = await reading.tools.questions.vector(question)
        filters = query.to_filter()
        run = reading.tools.worker.run
        return Page(
            await semantic.closest_calls(reading.database, reading.reader, vector, model, filters, query.limit, run)
        )
    except SwitchedOff:
        raise MeaningOff from None
    except OtherModel as error:
        raise MeaningOff(embedding_model_mismatch(error.stored)) from None
    except EmbedderNotReady as error:
        raise Busy(retry, str(error)) from None


async def now(reading: ApiRequest[Any]) -> datetime:
    """Return the time of the database."""
    async with reading.database.transaction(reading.reader) as connection:
        at: datetime = (await connection.execute(sa.select(sa.func.now()))).scalar_one()
        return at


async def record(reading: ApiRequest[Any]) -> CallRecord:
    """Return the record of the call in the path, in the requested version. Raises `NoSuchCall`."""
    machine = getattr(reading.query, "version", None) == "machine"
    unredacted = getattr(reading.query, "unredacted", False)
    if unredacted and UNREDACTED not in reading.sender.scopes:
        raise ScopeMissing(f"The API key does not have the scope {UNREDACTED!r}.")
    read = views.read_unredacted if unredacted else views.read_call
    async with reading.database.transaction(reading.reader, snapshot=True) as connection:
        call_record = await read(connection, reading.call_id, machine)
    if call_record is None:
        raise NoSuchCall
    if unredacted:
        await reading.note(UNREDACTED, [reading.call_id])
    return call_record


async def show_call(reading: ApiRequest[VersionQuery]) -> Response:
    """Show the record of a call."""
    call_record = await record(reading)
    if call_record.transcript is not None:
        await reading.note("record", [reading.call_id])
    return await asyncio.to_thread(json_answer, reading, call_record)


async def show_transcript(reading: ApiRequest[VersionQuery]) -> Response:
    """Return the transcript as JSON, plain text or subtitles."""
    form = reading.request.url.path.rpartition(".")[2]
    call_record = await record(reading)
    transcript = call_record.transcript
    if call_record.content_expired:
        raise Expired("The transcript was deleted after its retention period. The metadata of the call remains.")
    if transcript is None:
        raise NotReady
    await reading.note("transcript", [reading.call_id], form)
    if form == "json":
        return await asyncio.to_thread(json_answer, reading, transcript)
    body = (await asyncio.to_thread(transcripts.FORMATS[form], transcript)).encode("utf-8", "replace")
    headers = {
        "Content-Disposition": f'inline; filename="{reading.call_id}.{form}"',
        "X-Content-Type-Options": "nosniff",
    }
    return tagged(reading, body, f"{TEXT_TYPES[form]}; charset=utf-8", headers)


async def list_call_events(reading: ApiRequest[NoQuery]) -> Response:
    """List the history of a call, the earliest first."""
    return json_answer(reading, Page((await record(reading)).timeline))


async def list_tasks(reading: ApiRequest[TaskListQuery]) -> Response:
    """List tasks across calls, the earliest due date first."""
    query = reading.query
    page = await task_list.list_tasks(reading.database, reading.reader, query.to_filter(), query.cursor, query.limit)
    return json_answer(reading, page)


async def list_contacts(reading: ApiRequest[ContactListQuery]) -> Response:
    """List contacts by name."""
    query = reading.query
    page = await people_list.list_contacts(reading.database, reading.reader, query.text, query.cursor, query.limit)
    return json_answer(reading, page)


async def list_members(reading: ApiRequest[MemberListQuery]) -> Response:
    """List members by name."""
    query = reading.query
    page = await people_list.list_members(reading.database, reading.reader, query.team_id, query.cursor, query.limit)
    return json_answer(reading, page)


async def show_queue(reading: ApiRequest[NoQuery]) -> Response:
    """Show the queue by team."""
    return json_answer(reading, Page(tuple(await backlog.team_queues(reading.database, reading.reader))))
