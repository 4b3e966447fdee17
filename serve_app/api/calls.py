import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from starlette.responses import Response

from db.core.database import ANSWER_SECONDS
from db.core.off_loop import off_loop, words_of
from db.core.pages import Page
from db.queue import backlog, retries
from db.records import views
from db.records.views import CallRecord
from db.search import call_list, people_list, semantic, task_list
from db.search.call_list import CallLine
from db.search.semantic import OtherModel
from db.workspace.keys import UNREDACTED
from serve_app.api import queries
from serve_app.api.access import ApiRequest, answer_with, json_answer, tagged
from serve_app.api.errors import Busy, Expired, MeaningOff, NoSuchCall, NothingToRetry, NotReady
from serve_app.api.selection import check_fields
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
    total: int | None = None  # of all pages, if requested


@dataclass(frozen=True, slots=True)
class CallBatch:
    """Records of calls, in the order requested. `missing`: calls that do not exist or are not visible to the key."""

    items: tuple[CallRecord, ...]
    missing: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class RetriedCall:
    """A call that is processed again. `job_id`: a new job, or the waiting one, which is tried now."""

    call_id: UUID
    job_id: UUID


async def list_calls(reading: ApiRequest[queries.CallListQuery]) -> Response:
    query = reading.query
    check_fields(query.fields, CallLine)
    # No transaction that was open at that moment is still running, so none can commit an earlier change.
    as_of = await now(reading) - timedelta(seconds=ANSWER_SECONDS)
    page = (
        await call_list.list_calls(
            reading.database, reading.reader, query.to_filter(), query.cursor, query.limit, reading.tools.worker.run
        )
        if query.meaning is None
        else await _by_meaning(reading, query.meaning)
    )
    total = None
    if query.total:
        total = await call_list.count_calls(reading.database, reading.reader, query.to_filter())
    quoted = [line.call.call_id for line in page.items if line.hits]
    await reading.note("search", quoted)
    return json_answer(reading, CallListPage(page.items, page.next, as_of, total), same=(page, total, query.fields))


async def _by_meaning(reading: ApiRequest[queries.CallListQuery], question: str) -> Page[CallLine]:
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
    async with reading.database.transaction(reading.reader) as connection:
        at: datetime = (await connection.execute(sa.select(sa.func.now()))).scalar_one()
        return at


async def record(reading: ApiRequest[Any], machine: bool = False) -> CallRecord:
    """Return the record of the call in the path, in the requested version, or `machine`. Raises `NoSuchCall`."""
    machine = machine or getattr(reading.query, "version", None) == "machine"
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


async def show_calls(reading: ApiRequest[queries.BatchQuery]) -> Response:
    """Show the records of several calls, in the order requested."""
    query = reading.query
    check_fields(query.fields, CallRecord)
    records = {}
    async with reading.database.transaction(reading.reader, snapshot=True) as connection:
        for call_id in dict.fromkeys(query.call_ids):
            if (call_record := await views.read_call(connection, call_id, query.version == "machine")) is not None:
                records[call_id] = call_record
    with_words = [call_id for call_id, call_record in records.items() if call_record.transcript is not None]
    await reading.note("record", with_words)
    missing = tuple(call_id for call_id in query.call_ids if call_id not in records)
    return await asyncio.to_thread(json_answer, reading, CallBatch(tuple(records.values()), missing))


async def retry_call(writing: ApiRequest[queries.NoQuery]) -> Response:
    """Process a call again whose processing failed, or try a waiting one now."""
    await record(writing)  # visible to the key
    database, home, ids = writing.database, writing.home, [writing.call_id]
    for job in await retries.failed(database, home, ids=ids):
        retried = await retries.retry(database, job.job_id, home)
        if retried is not None and retried.new_job_id is not None:
            return answer_with(RetriedCall(writing.call_id, retried.new_job_id), 202)
    for waiting in await retries.waiting(database, home, ids=ids):
        if await retries.try_now(database, waiting.job_id):
            return answer_with(RetriedCall(writing.call_id, waiting.job_id), 202)
    raise NothingToRetry


async def show_call(reading: ApiRequest[queries.RecordQuery]) -> Response:
    check_fields(reading.query.fields, CallRecord)
    call_record = await record(reading)
    if call_record.transcript is not None:
        await reading.note("record", [reading.call_id])
    return await off_loop(words_of(call_record.transcript), json_answer, reading, call_record)


async def show_transcript(reading: ApiRequest[queries.TranscriptQuery]) -> Response:
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
        return await off_loop(words_of(transcript), json_answer, reading, transcript)
    body = (await asyncio.to_thread(transcripts.FORMATS[form], transcript)).encode("utf-8", "replace")
    headers = {
        "Content-Disposition": f'inline; filename="{reading.call_id}.{form}"',
        "X-Content-Type-Options": "nosniff",
    }
    return tagged(reading, body, f"{TEXT_TYPES[form]}; charset=utf-8", headers)


async def list_call_events(reading: ApiRequest[queries.NoQuery]) -> Response:
    return json_answer(reading, Page((await record(reading)).timeline))


async def list_tasks(reading: ApiRequest[queries.TaskListQuery]) -> Response:
    """List tasks across calls, the earliest due date first."""
    query = reading.query
    page = await task_list.list_tasks(reading.database, reading.reader, query.to_filter(), query.cursor, query.limit)
    return json_answer(reading, page)


async def list_contacts(reading: ApiRequest[queries.ContactListQuery]) -> Response:
    query = reading.query
    page = await people_list.list_contacts(reading.database, reading.reader, query.text, query.cursor, query.limit)
    return json_answer(reading, page)


async def list_members(reading: ApiRequest[queries.MemberListQuery]) -> Response:
    query = reading.query
    page = await people_list.list_members(reading.database, reading.reader, query.team_id, query.cursor, query.limit)
    return json_answer(reading, page)


async def show_queue(reading: ApiRequest[queries.NoQuery]) -> Response:
    return json_answer(reading, Page(tuple(await backlog.team_queues(reading.database, reading.reader))))
