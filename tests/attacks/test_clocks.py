"""Clocks that jump or disagree: nothing is lost or done twice, nothing is valid for longer than the database says."""

import asyncio
import re
import time
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import func, select

from db.core.database import EVERY_WORKSPACE
from db.queue import jobs
from db.records.complete import complete as complete_call
from db.workspace import keys, sessions
from pipeline.errors import LeaseLost, RecordingNotReady
from tests.finished import findings, finished, transcript
from tests.paths import ROOT
from tests.postgres import World
from tests.reading_api import Api

URL = "https://store.example/a.wav"
AHEAD, BACK = 1, -1  # hours
JUMP = """
DO $$
DECLARE
    changed record;
BEGIN
    PERFORM set_config('session_replication_role', 'replica', true);
    FOR changed IN
        SELECT table_name, string_agg(format('%1$I = %1$I - interval ''{} hours''', column_name), ', ') AS moments
        FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
        WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND is_generated = 'NEVER'
            AND data_type = 'timestamp with time zone'
        GROUP BY table_name
    LOOP
        EXECUTE format('UPDATE %I SET %s', changed.table_name, changed.moments);
    END LOOP;
END $$
"""
"""Moves every stored moment, which is what a jump of the database's clock does to them."""


async def jump(world: World, hours: int) -> None:
    """Set the clock of the database ahead."""
    await world.execute(JUMP.format(hours))


async def now(world: World) -> datetime:
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        at: datetime = (await connection.execute(select(func.now()))).scalar_one()
        return at


async def completed(world: World, lease: jobs.Lease) -> None:
    words = transcript(("rep", "Good morning."))
    assert await complete_call(world.database, lease, words, findings(), None, []) is None


@pytest.mark.parametrize("hours", [AHEAD, BACK])
async def test_a_running_job_is_done_once(hours: int, world: World) -> None:
    await world.submit(recording_url=URL)
    first = await world.claim_one()
    await jump(world, hours)
    others = await jobs.claim(world.database, "w2", 1, 0.1)
    if hours == AHEAD:
        (second,) = others
        with pytest.raises(LeaseLost):
            await completed(world, first)
        await completed(world, second)
    else:
        assert others == []
        assert await jobs.renew(world.database, [first], 60.0) == set()
        await completed(world, first)
    assert (await world.row())["state"] == "completed"
    assert len(await world.rows("SELECT 1 FROM transcripts")) == 1
    assert await jobs.claim(world.database, "w3", 1, 0.1) == []


async def test_a_lost_job_is_taken_over_when_the_clock_has_caught_up(world: World) -> None:
    await world.submit(recording_url=URL)
    await world.claim_one()  # by a process that dies
    await jump(world, BACK)
    assert await jobs.claim(world.database, "w2", 1, 0.1) == []
    await jump(world, 2 * AHEAD)
    (lease,) = await jobs.claim(world.database, "w2", 1, 0.1)
    await completed(world, lease)


@pytest.mark.parametrize("hours", [AHEAD, BACK])
async def test_a_retry_comes_at_the_latest_when_the_clock_has_caught_up(hours: int, world: World) -> None:
    await world.submit(recording_url=URL)
    await jobs.retry(world.database, await world.claim_one(), RecordingNotReady(), 600, counts_as_failure=True)
    await jump(world, hours)
    if hours == BACK:
        assert await jobs.claim(world.database, "w2", 1, 60.0) == []
        await jump(world, 2 * AHEAD)
    assert len(await jobs.claim(world.database, "w2", 1, 60.0)) == 1


@pytest.mark.parametrize("hours", [AHEAD, BACK])
async def test_calls_of_after_the_jump_are_not_kept_waiting(hours: int, world: World) -> None:
    for _ in range(3):
        await finished(world)
    await world.submit(recording_url=URL)  # waits for longer, if the clock was set back
    await world.all_fetched()
    await jump(world, hours)
    later = uuid4()
    world.call_id = later
    await world.submit(recording_url=URL)
    claimed: set[Any] = set()
    until = time.monotonic() + 60
    while later not in claimed and time.monotonic() < until:
        claimed |= {lease.call.call_id for lease in await world.claim(5)}
        await asyncio.sleep(0.1)
    assert later in claimed


async def test_keys_and_sessions_end_by_the_clock_of_the_database(world: World) -> None:
    end = await now(world) + timedelta(minutes=30)
    _, secret = await keys.create(world.database, world.workspace_id, None, ["read"], "reader", end)
    sender = await keys.find(world.database, secret)
    assert sender is not None
    session = await sessions.open_by_key(world.database, sender, "a browser")
    link, _ = await sessions.issue_link(world.database, world.workspace_id, None, "a link", timedelta(minutes=30))
    await jump(world, BACK)
    assert await keys.find(world.database, secret) is not None
    assert await sessions.find(world.database, session) is not None
    await jump(world, 2 * AHEAD)
    assert await keys.find(world.database, secret) is None
    assert await sessions.find(world.database, session) is None
    assert await sessions.open_by_link(world.database, link, "a browser") is None


class WrongClock(datetime):
    """The clock of a machine that is `hours` ahead."""

    hours = 0

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(hours=cls.hours)


@pytest.mark.parametrize("hours", [AHEAD, BACK])
async def test_the_end_of_a_key_is_compared_with_the_clock_of_the_database(
    hours: int, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WrongClock, "hours", hours)
    monkeypatch.setattr("serve_app.api.administration.datetime", WrongClock, raising=False)
    _, admin = await keys.create(api.world.database, api.world.workspace_id, None, ["admin", "read"], "admin")
    for minutes, status in ((30, 201), (-30, 400)):
        body = {
            "name": "short",
            "scopes": ["read"],
            "expiresAt": str(await now(api.world) + timedelta(minutes=minutes)),
        }
        body["expiresAt"] = body["expiresAt"].replace(" ", "T")  # type: ignore[union-attr]
        answer = api.client.post(f"{api.base}/keys", json=body, headers={"Authorization": f"Bearer {admin}"})
        assert answer.status_code == status, answer.text


async def test_a_stream_that_is_resumed_after_the_clock_was_set_back_misses_nothing(api: Api) -> None:
    await finished(api.world)
    last = await now(api.world) + timedelta(hours=1)  # the id of an event of the earlier clock
    await jump(api.world, BACK)
    call_id = await finished(api.world, minutes=5)
    headers = {"Authorization": f"Bearer {api.wide}", "Last-Event-ID": last.isoformat()}
    async with (
        asyncio.timeout(60),
        httpx.AsyncClient(timeout=60) as client,
        client.stream("GET", f"{api.base}/events/stream", headers=headers) as stream,
    ):
        assert stream.status_code == 200
        async for line in stream.aiter_lines():
            if str(call_id) in line:
                return
    pytest.fail("The stream ended without the call.")


OF_THIS_MACHINE = {
    "pipeline/backfill/output.py": "who writes into a folder; silence of another machine's owner ends after a minute",
    "pipeline/backfill/actors.py": "shown with a row",
    "pipeline/fetch/handed_in.py": "the age of files on the same disk, in days",
    "pipeline/fetch/storage.py": "the age of a file that is deleted; one that is missed is fetched again",
    "pipeline/fetch/uploads.py": "the age of uploads, in minutes and days",
    "pipeline/net/post.py": "Retry-After of a server that sends no Date",
    "serve_app/backup/ledger_copies.py": "the name of a folder that is set aside",
    "serve_app/cli/calls/calls.py": "shown",
    "serve_app/cli/calls/process.py": "start of a call that has none",
    "serve_app/cli/calls/submit.py": "start of a call that has none",
    "serve_app/cli/run/backup.py": "the age of backups, which have the time of the machine that made them",
    "serve_app/cli/watch/state.py": "the age of what was submitted, in days",
    "serve_app/cli/watch/watcher.py": "the age of files; one that seems young is finished when it no longer changes",
    "serve_app/cli/workspace/keys.py": "shown; refuses an end in the past, which the database does not accept either",
    "serve_app/cli/workspace/runs.py": "shown",
    "serve_app/console/calls.py": "shown",
    "serve_app/console/runs.py": "shown",
    "serve_app/console/tasks.py": "today, in the reader's time zone",
    "serve_app/console/trends.py": "today, in the reader's time zone",
    "serve_app/console/wording.py": "today, in the reader's time zone",
    "serve_app/conductor/erasure.py": "the age of uploads, in minutes and days",
    "serve_app/experiments/comparison_cache.py": "shown",
    "serve_app/records/person_archive.py": "shown",
    "serve_app/service/log_stream.py": "the time of a line that has none",
    "serve_app/service/service.py": "the age of a process on this machine",
    "serve_app/service/supervisor.py": "the age of a process on this machine",
    "serve_app/service/standby_app.py": "the age of a process on this machine",
}


def test_no_other_file_reads_the_clock_of_its_machine() -> None:
    """Moments that the database wrote are compared with its own clock: `db.core.database.Clock`, or now() in SQL."""
    reads = re.compile(r"\btime\.time\(|\bdatetime\.(now|utcnow)\(|\bdate\.today\(")
    files = [path for package in ("serve_app", "db", "pipeline") for path in (ROOT / package).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in files if reads.search(path.read_text())} == OF_THIS_MACHINE.keys()
