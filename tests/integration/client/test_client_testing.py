"""The fake of `switchboard.testing` answers as the service does: the same programs run against both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from db.workspace import keys
from pipeline.fetch.options import FetchOptions
from serve_app.api.uploads import ReceiveOptions
from switchboard import CallFailed, Client, NoSuchCall, NotReady, Refusal, WaitTimedOut, text_of
from switchboard.errors import Conflict, NotFound, Unavailable
from switchboard.models import CallRecord, CallTask, SubmitReply
from switchboard.testing import FakeService
from tests.finished import START, TALK, findings, finished, task
from tests.postgres import World
from tests.whole_service import served

CALL: dict[str, Any] = {"from_number": "+4930123456", "to_number": "+4940987654", "start_time": START}
AUDIO = "https://pbx.example.com/a.wav"


@dataclass
class Site:
    """A client, and a way to have a completed call with `TALK` and one task."""

    client: Client
    finish: Callable[[], Awaitable[UUID]]


@pytest_asyncio.fixture(params=["service", "fake"])
async def site(request: pytest.FixtureRequest, postgres_url: str, world: World, tmp_path: Path) -> AsyncIterator[Site]:
    if request.param == "fake":
        yield _fake_site(FakeService())
        return
    _, key = await keys.create(
        world.database, world.workspace_id, world.team_id, ["submit", "read", "edit", "admin"], "test"
    )
    receive = ReceiveOptions((tmp_path / "uploads").as_uri(), FetchOptions())
    with served(postgres_url, receive=receive) as base, Client(base, key, timeout=60) as client:
        yield Site(client, lambda: finished(world, found=findings(tasks=(task("Send the invoice"),)), outgoing=True))


def _fake_site(service: FakeService) -> Site:
    async def finish() -> UUID:
        client = service.client()
        reply = client.submit(**CALL, recording_url=AUDIO, outgoing=True)
        service.complete(reply.call_id, TALK, tasks=["Send the invoice"])
        return reply.call_id

    return Site(service.client(), finish)


async def test_a_call_is_submitted_again_read_and_listed(site: Site) -> None:
    first = site.client.submit(**CALL)
    assert (first.status, first.job_id) == ("received", None)
    second = site.client.submit(**CALL, call_id=first.call_id, recording_url=AUDIO, duration=61)
    again = site.client.submit(**CALL, call_id=first.call_id, recording_url=AUDIO)
    assert second.status == "transcribing" and again.job_id == second.job_id
    record = site.client.read(first.call_id)
    assert (record.call.status, record.call.declared_duration, record.call.start_time) == ("transcribing", 61, START)
    assert record.submissions == 3 and record.transcript is None
    with pytest.raises(NotReady):
        site.client.transcript(first.call_id)
    with pytest.raises(NoSuchCall):
        site.client.read(uuid4())
    with pytest.raises(Conflict) as refusal:
        site.client.retry(first.call_id)
    assert refusal.value.kind == "nothing-to-retry"


async def test_lists_filter_count_and_have_pages(site: Site) -> None:
    starts = [START + timedelta(minutes=minute) for minute in range(3)]
    calls = [site.client.submit(**(CALL | {"start_time": start})).call_id for start in starts]
    assert [line.call.call_id for line in site.client.calls()] == calls[::-1]
    page = site.client.call_page(limit=2)
    assert len(page.items) == 2 and page.next
    assert len(site.client.call_page(limit=2, cursor=page.next).items) == 1
    assert site.client.count(started_from=starts[1]) == 2
    assert site.client.count(status="completed") == 0
    assert [record.call.call_id for record in site.client.read_many([calls[2], uuid4(), calls[0]])] == [
        calls[2],
        calls[0],
    ]


async def test_a_completed_call_has_words_and_tasks_that_are_ticked_off(site: Site) -> None:
    call_id = await site.finish()
    record = await asyncio.to_thread(site.client.wait, call_id, timeout=10)
    assert record.transcript is not None
    assert [(turn.speaker, text_of(turn.words)) for turn in record.transcript.turns] == list(TALK)
    assert TALK[0][1] in site.client.transcript_text(call_id)
    (line,) = site.client.tasks(done=False)
    assert (line.title, line.call_id, line.owner) == ("Send the invoice", call_id, "rep")
    assert site.client.mark_done(call_id, line.task_id).done_at is not None
    assert [task.title for task in site.client.tasks(done=True)] == ["Send the invoice"]
    assert site.client.unmark_done(call_id, line.task_id).done_at is None
    assert [line.call.call_id for line in site.client.search("invoice")] == [call_id]
    assert site.client.count(outgoing=False) == 0


async def test_a_recording_is_uploaded_and_a_deleted_call_stays_deleted(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    path.write_bytes(b"RIFF" + (36).to_bytes(4, "little") + b"WAVEfmt " + bytes(1 << 20))
    reply = site.client.submit(**CALL)
    progress: list[int] = []
    uploaded = site.client.upload_recording(reply.call_id, path, on_progress=lambda sent, _: progress.append(sent))
    assert (uploaded.status, uploaded.call_id) == ("transcribing", reply.call_id) and uploaded.job_id
    assert progress[-1] == path.stat().st_size
    site.client.delete_call(reply.call_id)
    site.client.delete_call(reply.call_id)
    with pytest.raises(NoSuchCall):
        site.client.read(reply.call_id)
    assert site.client.submit(**CALL, call_id=reply.call_id).status == "received"
    with pytest.raises(NoSuchCall):
        site.client.read(reply.call_id)
    with pytest.raises(NotFound):
        site.client.delete_call(uuid4())


def test_the_fake_completes_fails_and_refuses_when_it_is_told() -> None:
    service = FakeService(on_submit=lambda record: service.complete(record.call.call_id, TALK))
    client = service.client()
    reply = client.submit(**CALL, recording_url=AUDIO)
    assert client.wait(reply.call_id).call.status == "completed"
    service.fail(reply.call_id, "recording_missing", "There is no recording.")
    with pytest.raises(CallFailed, match="recording_missing"):
        client.wait(reply.call_id)
    service.refuse_next(times=2)
    assert client.read(reply.call_id).call.status == "failed", "retried"
    service.refuse_next("too-slow")
    with pytest.raises(Unavailable):
        client.read(reply.call_id)
    service.refuse_next("scope-missing", 403)
    with pytest.raises(Refusal, match="scope-missing"):
        client.read(reply.call_id)
    with pytest.raises(ValueError, match="no kind of error"):
        service.refuse_next("out-of-coffee")
    with pytest.raises(NotImplementedError, match="listRuns"):
        client.runs()
    with pytest.raises(NotImplementedError, match="tone"):
        list(client.calls(tone="negative"))
    waiting = client.submit(**CALL).call_id
    with pytest.raises(WaitTimedOut):
        client.wait(waiting, timeout=0.1)
    assert service.requests[0].url.path == "/submit"


async def test_the_asynchronous_client_and_types() -> None:
    service = FakeService()
    async with service.async_client() as client:
        reply = await client.submit(**CALL, recording_url=AUDIO)
        assert_type(reply, SubmitReply)
        service.complete(reply.call_id, TALK, tasks=["Send the invoice"])
        record = await client.wait(reply.call_id)
        assert_type(record, CallRecord)
        assert_type(record.tasks, list[CallTask])
        assert [line.call.call_id async for line in client.calls(status="completed")] == [reply.call_id]
