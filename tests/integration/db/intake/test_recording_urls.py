"""Recording URLs on a real PostgreSQL: stored sealed, compared without a key, fetched from as they were sent."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet
from sqlalchemy.exc import ProgrammingError

from db.core.database import EVERY_WORKSPACE
from db.core.rows import dump_json
from db.intake.group_commit import Accepted, GroupCommitter
from db.records import views
from db.secrets import rotate
from db.secrets.recording_urls import UrlSealer
from db.workspace import settings
from pipeline.fetch.options import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.postgres import TABLES, World
from tests.recording_server import Server, reply, serving
from tests.tuned import tuned

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
SEALED, ROTATED, REPLACED = UrlSealer([OLD]), UrlSealer([NEW, OLD]), UrlSealer([NEW])
NONE = UrlSealer()
S3 = "https://bucket.s3.amazonaws.example/a.wav?X-Amz-Expires=60&X-Amz-Signature=5ecr3t"
AZURE = "https://store.blob.example/c/a.wav?sv=2024&sp=5ecr3t&se=2026-11-20&sig=5ecr3t%2B%3D"
PASSWORD = "https://ops:5ecr3t@pbx.example/a.wav"
TICKET = "https://pbx.example/rec?id=4711&pass=5ecr3t"
ODD = "/rec%2Fa/%7e/b%C3%bc.wav?a=%2b+%20&&b=%5B1]&sig=a%2Fb==&c=;:@!$'()*,"


async def submit(world: World, url: str, urls: UrlSealer, **more: Any) -> Accepted:
    submission = world.submission(recording_url=url, **more)
    body = {"recordingUrl": url, "recordingUrl2": more.get("recording_url2")}
    return await GroupCommitter(world.database, urls=urls).submit(world.scoped, submission, body)


async def everything(world: World) -> str:
    """Each row of each table, as text, as a superuser reads it."""
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL ROLE NONE"))
        tables = list((await connection.execute(sa.text(TABLES))).scalars())
        assert {"calls", "submissions", "jobs", "events", "stage_results"} <= set(tables)
        rows = [(await connection.execute(sa.text(f"SELECT t::text FROM {table} t"))).scalars() for table in tables]
        return "\n".join(line for lines in rows for line in lines)


@pytest.mark.parametrize("url", [S3, AZURE, PASSWORD, TICKET])
async def test_no_table_holds_what_opens_the_door(world: World, url: str) -> None:
    await submit(world, url, SEALED, recording_url2=url.replace("a.wav", "b.wav"))
    await submit(world, url, SEALED)
    stored = await everything(world)
    assert "5ecr3t" not in stored
    assert url.partition("?")[0].replace("ops:5ecr3t@", "") + " siv:" in stored
    record = await views.show_call(world.database, world.call_id)
    assert "5ecr3t" not in dump_json(record)
    assert " siv:" not in dump_json(record)


async def test_without_a_key_they_are_stored_as_they_are(world: World) -> None:
    await submit(world, S3, NONE)
    assert (await world.row())["recording_url"] == S3
    assert (await world.rows("SELECT body FROM submissions"))[0]["body"]["recordingUrl"] == S3


@pytest.mark.parametrize(("before", "now"), [(SEALED, SEALED), (SEALED, ROTATED), (NONE, SEALED), (NONE, ROTATED)])
@pytest.mark.parametrize("url", [S3, AZURE, TICKET])
async def test_a_duplicate_starts_nothing_also_across_keys(
    world: World, before: UrlSealer, now: UrlSealer, url: str
) -> None:
    two = {"recording_url2": url + "&leg=2"}
    first = await submit(world, url, before, **two)
    for again in (url, url.replace("sig=", "sig=new").replace("Signature=", "Signature=new"), url):
        assert await submit(world, again, now, **two) == first
    assert await world.jobs() == [("process", "fetching")]
    other = await submit(world, url.replace("/a.wav", "/c.wav").replace("4711", "4712"), now, **two)
    assert other.job_id != first.job_id


async def test_the_newest_url_is_stored_and_wakes_a_job_that_waits(world: World) -> None:
    await submit(world, S3, SEALED)
    await world.execute("UPDATE jobs SET not_before = now() + interval '1 hour'")
    await submit(world, S3, SEALED)
    assert (await world.rows("SELECT not_before > now() AS waits FROM jobs"))[0]["waits"], "nothing is new in it"
    await submit(world, S3.replace("5ecr3t", "new"), SEALED)
    assert not (await world.rows("SELECT not_before > now() AS waits FROM jobs"))[0]["waits"]
    assert SEALED.open((await world.row())["recording_url"]) == S3.replace("5ecr3t", "new")


async def test_hosts_of_the_fetch_queue_are_read_from_what_is_stored(world: World) -> None:
    await submit(world, TICKET, SEALED, recording_url2="https://x:y@[2001:db8::1]:8443/b.wav?k=1")
    assert (await world.rows("SELECT hosts FROM jobs"))[0]["hosts"] == ["pbx.example", "[2001:db8::1]"]


async def test_values_that_went_back_are_still_told(world: World) -> None:
    for url in (S3, AZURE, S3):
        await submit(world, url, SEALED)
    record = await views.show_call(world.database, world.call_id)
    assert record is not None
    assert "set recordingUrl back" in record.warnings[-1]


@pytest.mark.parametrize("before", [NONE, SEALED])
async def test_after_resealing_the_earlier_key_is_needed_no_more(world: World, before: UrlSealer) -> None:
    first = await submit(world, TICKET, before, recording_url2=PASSWORD)
    await world.execute("UPDATE jobs SET not_before = now() + interval '1 hour'")
    assert await rotate.has_stale(world.database, ROTATED)
    done = await rotate.reseal(world.database, ROTATED)
    assert (done.changed, done.unopened) == (2, 0)  # the call, and its submission
    assert not await rotate.has_stale(world.database, ROTATED)
    assert (await rotate.reseal(world.database, ROTATED)).changed == 0
    assert "5ecr3t" not in await everything(world)
    row = await world.row()
    assert [REPLACED.open(row[name]) for name in ("recording_url", "recording_url2")] == [TICKET, PASSWORD]
    (kept,) = await world.rows("SELECT body FROM submissions")
    assert REPLACED.open(kept["body"]["recordingUrl"]) == TICKET
    assert (await world.rows("SELECT not_before > now() AS waits FROM jobs"))[0]["waits"], "no newer URL wakes it"
    assert await submit(world, TICKET, REPLACED, recording_url2=PASSWORD) == first


async def test_paths_are_sealed_where_that_is_asked_for_and_duplicates_known_across_the_change(world: World) -> None:
    paths, url = UrlSealer([OLD], paths=True), "https://store.example/5ecr3t/a.wav"
    first = await submit(world, url, SEALED, recording_url2=S3)
    assert await submit(world, url, paths, recording_url2=S3) == first
    assert await rotate.has_stale(world.database, paths)
    await rotate.reseal(world.database, paths)
    assert not await rotate.has_stale(world.database, paths)
    stored = await everything(world)
    assert "5ecr3t" not in stored and "a.wav" not in stored
    assert await submit(world, url, paths, recording_url2=S3) == first
    assert (await world.rows("SELECT hosts FROM jobs"))[0]["hosts"] == ["store.example", "bucket.s3.amazonaws.example"]
    assert await rotate.has_stale(world.database, SEALED), "and back"
    await rotate.reseal(world.database, SEALED)
    assert not await rotate.has_stale(world.database, SEALED)
    assert (await world.row())["recording_url"] == url
    assert await submit(world, url, SEALED, recording_url2=S3) == first


async def test_resealing_goes_over_all_rows_and_leaves_those_whose_key_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotate, "BATCH", 3)
    for number in range(8):
        await submit(world, TICKET.replace("4711", str(number)), UrlSealer([Fernet.generate_key().decode()]))
        await submit(world, TICKET.replace("4711", str(number)), SEALED)
    done = await rotate.reseal(world.database, ROTATED)
    assert (done.changed, done.unopened) == (1 + 8, 8)
    assert await rotate.has_stale(world.database, ROTATED)


async def test_submissions_are_append_only_also_while_urls_are_sealed_again(world: World) -> None:
    await submit(world, S3, SEALED)
    for change in ("body = body || '{\"duration\": 9}'", "job_id = NULL", "received_at = now()"):
        with pytest.raises(ProgrammingError, match="append-only"):
            await world.execute(
                f"DO $$ BEGIN SET LOCAL switchboard.resealing = 'on'; UPDATE submissions SET {change}; END $$"
            )
    with pytest.raises(ProgrammingError, match="append-only"):
        await world.execute('UPDATE submissions SET body = body || \'{"recordingUrl": ""}\'')


@asynccontextmanager
async def conducting(
    world: World, tmp_path: Path, urls: UrlSealer, patience: float = 3600
) -> AsyncIterator[ConductorLoop]:
    await settings.set_allowed_hosts(world.database, world.workspace_id, ["127.0.0.1"])
    options = tuned(
        ProcessingOptions, lease_seconds=5, poll_seconds=0.1, drain_seconds=0, retry_window_seconds=patience
    )
    storage = ProcessOptions(storage=tmp_path.as_uri(), fetch=FetchOptions())
    conductor = ConductorLoop(world.database, LocalWorkers(None, None), options, storage, urls=urls)
    await conductor.start()
    try:
        yield conductor
    finally:
        await conductor.stop()


async def until(world: World, query: str) -> Any:
    deadline = time.monotonic() + 90
    while not (found := await world.rows(query)):
        assert time.monotonic() < deadline, await world.rows("SELECT * FROM jobs")
        await asyncio.sleep(0.05)
    return found[0]


def asked_for(server: Server) -> str:
    return server.requests[-1].split(b" ")[1].decode()


@pytest.mark.parametrize("urls", [NONE, SEALED])
async def test_the_recordings_server_is_asked_for_what_was_sent(
    world: World, tmp_path: Path, urls: UrlSealer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with serving(reply()) as server, conducting(world, tmp_path, urls):
        await submit(world, f"http://127.0.0.1:{server.port}{ODD}", urls)
        await until(world, "SELECT FROM recordings")
    assert asked_for(server) == ODD
    assert "sig=a%2Fb" not in caplog.text


async def test_after_a_key_was_put_first_what_waits_is_still_fetched(world: World, tmp_path: Path) -> None:
    async with serving(reply()) as server:
        await submit(world, f"http://127.0.0.1:{server.port}{ODD}", SEALED)
        async with conducting(world, tmp_path, ROTATED):
            await until(world, "SELECT FROM recordings")
    assert asked_for(server) == ODD


@pytest.mark.cases(2)
@pytest.mark.parametrize("urls", [NONE, REPLACED])
async def test_without_its_key_the_call_says_what_to_set_and_fails_when_window_ends(
    world: World, tmp_path: Path, urls: UrlSealer
) -> None:
    async with serving(reply()) as server:
        await submit(world, f"http://127.0.0.1:{server.port}{ODD}", SEALED)
        async with conducting(world, tmp_path, urls):
            await until(world, "SELECT FROM jobs WHERE error_code = 'secret_sealed' AND state = 'fetching'")
            async with asyncio.timeout(60):  # until it waits: an attempt may be going on
                while (record := await views.show_call(world.database, world.call_id)) is None or (
                    record.jobs[0].next_try is None
                ):
                    await asyncio.sleep(0.02)
            assert record.jobs[0].error is not None and "SWITCHBOARD_SECRETS_KEYS" in record.jobs[0].error.message
        await world.execute("UPDATE jobs SET not_before = now()")
        async with conducting(world, tmp_path, urls, patience=0):
            failed = await until(world, "SELECT * FROM calls WHERE state = 'failed'")
            assert (failed["failure_code"], failed["failure_retryable"]) == ("secret_sealed", True)
        assert server.connections == 0
        async with conducting(world, tmp_path, SEALED):  # the key is there again
            assert (await submit(world, f"http://127.0.0.1:{server.port}{ODD}", SEALED)).job_id is not None
            await until(world, "SELECT FROM recordings")
    assert asked_for(server) == ODD
