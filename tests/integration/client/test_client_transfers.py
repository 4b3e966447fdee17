"""The Python client where things take long, or break: waiting, retries, exports and recordings that are cut."""

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pandas as pd
import polars as pl
import pytest
import pytest_asyncio

import switchboard
from db.queue import jobs
from db.records.complete import complete as complete_call
from pipeline.errors import NotAudio
from serve_app.api.options import ApiOptions
from serve_app.http.options import LimitOptions
from switchboard import AsyncClient, Client, errors, models, text_of
from tests.cutting_proxy import Proxy, cutting
from tests.finished import TALK, claimed, findings, finished, received, task, transcript
from tests.integration.client.test_client import AUDIO, PLAIN, Desk, base, desk, new_key  # noqa: F401 (fixtures)
from tests.postgres import World
from tests.reading_api import store, with_sound
from tests.tuned import tuned
from tests.whole_service import served


@pytest_asyncio.fixture
async def cut(desk: Desk) -> AsyncIterator[tuple[Proxy, Client]]:  # noqa: F811
    """A proxy that cuts connections, and a client behind it that opens one for each request."""
    with (
        cutting(desk.base) as proxy,
        httpx.Client(limits=httpx.Limits(max_keepalive_connections=0)) as http,
    ):
        yield proxy, Client(proxy.url, desk.key, http=http)


async def complete(world: World, call_id: UUID) -> None:
    lease = await claimed(world, call_id)
    assert await complete_call(world.database, lease, transcript(*TALK), findings(), None, []) is None


async def until(future: Future[object] | asyncio.Future[object], told: list[models.CallSummary]) -> None:
    """Until who waits has been told of the call as it is so far."""
    while not told and not future.done():
        await asyncio.sleep(0.02)


async def test_a_call_is_waited_for_without_asking_again_and_again(desk: Desk) -> None:  # noqa: F811
    call_id = await received(desk.world, recording_url=AUDIO)
    told: list[models.CallSummary] = []
    asked: list[str] = []
    with (
        httpx.Client(event_hooks={"request": [lambda sent: asked.append(sent.url.path)]}) as http,
        ThreadPoolExecutor(1) as threads,
    ):
        client = Client(desk.base, desk.key, http=http)
        waiting = threads.submit(client.wait, call_id, timeout=30, on_progress=told.append)
        await until(waiting, told)
        await asyncio.sleep(2.5)
        before = list(asked)
        await complete(desk.world, call_id)
        record = await asyncio.wrap_future(waiting)
    assert record.transcript is not None and text_of(record.transcript.turns[0].words) == TALK[0][1]
    assert [one.status for one in (told[0], told[-1])] == ["transcribing", "completed"]
    assert before == ["/api/v1/events/stream", f"/api/v1/calls/{call_id}"], "one look, then the stream says it"
    assert desk.client.wait(call_id, timeout=30) == record, "of a call that has ended, at once"


async def test_a_call_that_fails_raises_with_its_record(desk: Desk) -> None:  # noqa: F811
    call_id = await received(desk.world, recording_url=AUDIO)
    await jobs.fail(desk.world.database, await claimed(desk.world, call_id), NotAudio("It is a web page."))
    with pytest.raises(switchboard.CallFailed, match="It is a web page") as caught:
        desk.client.wait(call_id, timeout=30)
    assert caught.value.record.call.status == "failed"
    (ended,) = desk.client.as_ended([call_id], timeout=30)
    assert ended == caught.value.record, "of many, one that failed is no reason to stop"


async def test_waiting_ends_at_its_time(desk: Desk) -> None:  # noqa: F811
    call_id = await received(desk.world)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=str(call_id)) as caught:
        desk.client.wait(call_id, timeout=1.5)
    assert 1.4 < time.monotonic() - began < 10
    assert isinstance(caught.value, switchboard.WaitTimedOut) and caught.value.pending == {call_id}


async def test_waiting_ends_at_its_time_where_the_record_does_not_arrive(desk: Desk) -> None:  # noqa: F811
    call_id = await received(desk.world)

    def lose(sent: httpx.Request) -> None:
        if sent.url.path.endswith(str(call_id)):
            time.sleep(sent.extensions["timeout"]["read"])
            raise httpx.ReadTimeout("timed out", request=sent)

    with httpx.Client(event_hooks={"request": [lose]}) as http, pytest.raises(switchboard.WaitTimedOut) as caught:
        Client(desk.base, desk.key, http=http).wait(call_id, timeout=1.2)
    assert caught.value.pending == {call_id}


async def test_many_calls_are_waited_for_over_streams_that_are_cut(
    desk: Desk,  # noqa: F811
    cut: tuple[Proxy, Client],
) -> None:
    """The first stream is cut after its headers and a little more, the next ones later: none of the ends is missed."""
    proxy, client = cut
    made = [await received(desk.world, minutes=at, recording_url=AUDIO) for at in range(4)]
    leases = await desk.world.claim(len(made))
    assert {lease.call.call_id for lease in leases} == set(made)
    proxy.cuts = [500]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: [one.call.call_id for one in client.as_ended(made, timeout=120)])
        for lease in leases:
            await asyncio.sleep(0.7)
            assert await complete_call(desk.world.database, lease, transcript(*TALK), findings(), None, []) is None
            proxy.cuts = [900]  # the next connection, whatever it is for
        found = await asyncio.wrap_future(waiting)
    assert sorted(found) == sorted(made)


async def test_changes_are_followed_through_a_cut(desk: Desk) -> None:  # noqa: F811
    seen: list[UUID] = []
    has_begun, made = threading.Event(), threading.Event()

    def hold(answer: httpx.Response) -> None:
        """What changes before the stream is open, and after it was asked where it begins, is told too."""
        if not has_begun.is_set():
            has_begun.set()
            made.wait(60)

    def follow(client: Client, count: int) -> None:
        for change in client.changes():
            seen.append(change.call_id)
            if len(set(seen)) == count:
                return

    with (
        ThreadPoolExecutor(1) as threads,
        cutting(desk.base) as proxy,
        httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), event_hooks={"response": [hold]}) as http,
    ):
        proxy.cuts = [10**9, 0, 900, 0]  # where it begins is asked for; then streams are cut: at once, within, at once
        following = threads.submit(follow, Client(proxy.url, desk.key, http=http), 3)
        assert await asyncio.to_thread(has_begun.wait, 60)
        calls_made = [await received(desk.world) for _ in range(3)]
        made.set()
        await asyncio.wait_for(asyncio.wrap_future(following), 120)
        assert set(seen) == set(calls_made)
        assert proxy.connections >= 5 and not proxy.cuts


async def test_a_submission_whose_answer_is_lost_is_sent_again_and_recorded_once(
    desk: Desk,  # noqa: F811
    cut: tuple[Proxy, Client],
) -> None:
    proxy, client = cut
    proxy.cuts = [0, 20]
    call_id = uuid4()
    assert client.submit(**PLAIN, call_id=call_id, recording_url=AUDIO).status == "transcribing"
    assert proxy.connections == 3
    record = desk.client.read(call_id)
    assert record.submissions >= 2 and len(record.jobs) == 1


async def test_a_correction_whose_answer_is_lost_is_made_once(desk: Desk, cut: tuple[Proxy, Client]) -> None:  # noqa: F811
    proxy, client = cut
    call_id = await finished(desk.world)
    turn = desk.client.transcript(call_id).turns[1]
    proxy.cuts = [10]
    assert client.correct_words(call_id, turn, "invitation", first=3, last=3).status == "applied"
    assert proxy.connections == 2 and len(desk.client.edits(call_id)) == 1


async def test_a_service_that_is_not_there_is_said_after_the_timeout(desk: Desk) -> None:  # noqa: F811
    began = time.monotonic()
    with pytest.raises(switchboard.ConnectionFailed, match=r"attempts within 1 s .*Check the URL"):
        Client("http://127.0.0.1:9", desk.key, timeout=1).read(uuid4())
    assert time.monotonic() - began < 15


async def test_requests_over_the_limit_wait_as_they_are_told(world: World, postgres_url: str) -> None:
    reads = tuned(ApiOptions, per_minute=120, burst_seconds=1)
    key = await new_key(world, "read", team=world.team_id)
    with served(postgres_url, reads) as url, Client(url, key, timeout=20) as client:
        began = time.monotonic()
        for _ in range(5):
            assert list(client.calls()) == []
        assert time.monotonic() - began > 1.0
    slow = tuned(ApiOptions, per_minute=1, burst_seconds=60)
    with served(postgres_url, slow) as url, Client(url, key, timeout=20) as client:
        assert list(client.calls()) == []
        with pytest.raises(errors.TooManyRequests, match="longer timeout") as caught:
            list(client.calls())
    assert caught.value.retry_after and caught.value.retry_after >= 1


@pytest.mark.slow
async def test_a_full_backlog_is_its_own_refusal(world: World, postgres_url: str) -> None:
    key = await new_key(world, "submit", team=world.team_id)
    limits = LimitOptions(per_minute=1e9, backlog=1)
    with (
        served(postgres_url, submissions=limits) as url,
        Client(url, key, timeout=10) as client,
        pytest.raises(errors.BacklogFull),
    ):
        for _ in range(200):
            client.submit(**PLAIN, recording_url=AUDIO)
            await asyncio.sleep(0.05)


async def test_tables_have_every_call_and_its_words(desk: Desk) -> None:  # noqa: F811
    made = [await finished(desk.world, minutes=at, found=findings("negative")) for at in range(3)]
    await received(desk.world, minutes=-1)
    frame = desk.client.to_pandas(status="completed", words=True)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["callId"]) == [str(one) for one in made[::-1]]
    assert str(frame["startTime"].dtype).startswith("datetime64") and set(frame["tone"]) == {"negative"}
    words = frame.explode("words")["words"]
    assert " ".join(one["text"] for one in words[0] if one["turn"] == 0) == TALK[0][1]
    table = desk.client.to_polars(words=True)
    assert isinstance(table, pl.DataFrame) and table.height == 4
    spoken = table.explode("words").unnest("words").filter(pl.col("turn") == 1)
    assert set(spoken["speaker"]) == {"customer"}
    assert desk.client.to_pandas(text="elephant").empty


@pytest.mark.parametrize("form", ["parquet", "ndjson", "csv"])
async def test_a_cut_export_raises_and_leaves_nothing(
    desk: Desk,  # noqa: F811
    cut: tuple[Proxy, Client],
    tmp_path: Path,
    form: str,
) -> None:
    proxy, client = cut
    for at in range(12):
        await finished(desk.world, minutes=at, found=findings(None, (task("Send the offer"),)))
    path = tmp_path / f"calls.{form}"
    path.write_text("the export of before")
    progress: list[int] = []
    for after in (1_000, 1_500, 2_000):
        proxy.cuts = [after]
        with pytest.raises(switchboard.TransferCut):
            client.export(path, format=form, on_progress=lambda count, _: progress.append(count))  # type: ignore[arg-type]
        proxy.cuts = [after]
        with pytest.raises(switchboard.TransferCut):
            client.to_pandas()
    assert path.read_text() == "the export of before" and list(tmp_path.iterdir()) == [path]
    assert client.export(path, format=form) == path  # type: ignore[arg-type]
    rows = {
        "parquet": lambda: len(pd.read_parquet(path)),
        "csv": lambda: len(pd.read_csv(path)),
        "ndjson": lambda: len(path.read_text().splitlines()),
    }
    assert rows[form]() == 12 and list(tmp_path.iterdir()) == [path]


async def test_a_recording_is_resumed_where_it_was_cut(
    desk: Desk,  # noqa: F811
    cut: tuple[Proxy, Client],
    tmp_path: Path,
) -> None:
    proxy, _ = cut
    stored = store(tmp_path, seconds=20)
    call_id = await with_sound(desk.world, stored)
    whole = stored.read_bytes()
    proxy.cuts = [100_000, 5, 250_000]
    progress: list[tuple[int, int | None]] = []
    asked: list[str | None] = []
    hooked = {"request": [lambda sent: asked.append(sent.headers.get("range"))]}
    with httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), event_hooks=hooked) as http:
        client = Client(proxy.url, desk.key, http=http)
        path = client.download_audio(call_id, tmp_path / "call.wav", on_progress=lambda *now: progress.append(now))
        proxy.cuts = [50_000]
        assert client.audio(call_id) == whole
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(whole).digest()
    assert asked[0] is None and len(asked) == 6 and asked[4] is None
    begins = [int(str(one).removeprefix("bytes=").removesuffix("-")) for one in asked[1:4]]
    assert begins == sorted(begins) and begins[0] > 90_000, "nothing is fetched twice"
    assert progress[-1] == (len(whole), len(whole)) and progress == sorted(progress)


async def test_one_party_is_heard_as_wav(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    call_id = await with_sound(desk.world, store(tmp_path))
    sound = desk.client.audio(call_id, channel="customer")
    assert sound[:4] == b"RIFF" and len(sound) == pytest.approx(2 * 16_000 * 2, rel=0.02)
    with pytest.raises(switchboard.NotReady):
        desk.client.audio(await received(desk.world))


async def test_a_recording_that_never_comes_fails_after_the_timeout(
    desk: Desk,  # noqa: F811
    cut: tuple[Proxy, Client],
    tmp_path: Path,
) -> None:
    proxy, _ = cut
    call_id = await with_sound(desk.world, store(tmp_path))
    proxy.cuts = [0] * 1000
    with pytest.raises(switchboard.ConnectionFailed):
        Client(proxy.url, desk.key, timeout=1).download_audio(call_id, tmp_path / "never.wav")
    assert not (tmp_path / "never.wav").exists() and not list(tmp_path.glob(".never*"))


async def test_the_client_with_await_does_the_same(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    async with AsyncClient(desk.base, desk.key) as client:
        promised = await client.submit(**PLAIN, recording_url=AUDIO)
        told: list[models.CallSummary] = []
        waiting = asyncio.create_task(client.wait(promised.call_id, timeout=30, on_progress=told.append))
        await until(waiting, told)
        await complete(desk.world, promised.call_id)
        record = await waiting
        assert record.transcript is not None and record.call.call_id == promised.call_id
        assert [line.call.call_id async for line in client.calls(status="completed")] == [promised.call_id]
        assert [line.call.call_id async for line in client.search("invoice")] == [promised.call_id]
        edit = await client.correct_words(promised.call_id, record.transcript.turns[1], "offer", first=3, last=3)
        assert edit.machine == "invoice"
        with pytest.raises(switchboard.StaleEdit):
            await client.correct_words(promised.call_id, record.transcript.turns[1], "order", first=3, last=3)
        assert (await client.to_polars()).height == 1
        call_id = await with_sound(desk.world, store(tmp_path))
        assert (await client.audio(call_id))[:4] == b"RIFF"
        with pytest.raises(switchboard.WaitTimedOut):
            await client.wait(await received(desk.world), timeout=0.5)
