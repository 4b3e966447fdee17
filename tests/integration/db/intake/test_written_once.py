"""A statement that is sent again because its connection was lost writes nothing twice."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio

from db.core.database import Database
from db.intake.group_commit import Accepted, GroupCommitter
from db.records import views
from tests.chaos.wire import Wire
from tests.postgres import World

A, B = "https://store.example/a.wav", "https://store.example/b.wav"


@pytest.fixture
def wire(postgres_url: str) -> Wire:
    return Wire(Path(postgres_url.partition("host=")[2]))


@pytest_asyncio.fixture
async def through(world: World, wire: Wire, postgres_url: str) -> AsyncIterator[World]:
    """The same workspace over the wire."""
    async with wire.strung():
        opened = await Database.open(wire.through(postgres_url))
        yield replace(world, database=opened)
        await opened.close()


async def submit(world: World, url: str) -> Accepted:
    return await GroupCommitter(world.database).submit(
        world.scoped, world.submission(recording_url=url), {"recordingUrl": url}
    )


@pytest.mark.parametrize("earlier", [False, True])
async def test_a_submission_whose_answer_was_lost_behind_its_commit_is_written_once(
    world: World, through: World, wire: Wire, earlier: bool
) -> None:
    if earlier:
        await submit(through, B)
    wire.arm("after")
    answer = await submit(through, A)
    assert wire.cuts == {"after": 1}
    rows = await world.rows("SELECT job_id, token FROM submissions ORDER BY id")
    assert len(rows) == 1 + earlier
    assert rows[-1]["job_id"] == answer.job_id
    assert len({row["token"] for row in rows}) == 1 + earlier
    assert await world.jobs() == [("process", "superseded")] * earlier + [("process", "fetching")]


async def test_the_database_itself_refuses_a_token_twice(world: World) -> None:
    await world.submit()
    with pytest.raises(psycopg.errors.UniqueViolation) as refused:
        try:
            await world.execute(
                "INSERT INTO submissions (call_pk, key_id, body, token)"
                " SELECT call_pk, key_id, body, token FROM submissions"
            )
        except Exception as error:
            raise getattr(error, "orig", error) from None
    assert re.search(r"submissions_(\d+_)?token_key", str(refused.value))


async def test_the_same_submission_sent_twice_by_its_sender_is_kept_twice(world: World) -> None:
    for _ in range(2):
        await world.submit(recording_url=A)
    assert len(await world.rows("SELECT FROM submissions")) == 2


async def test_a_late_older_body_is_named_in_the_record(world: World) -> None:
    for duration in (60, 61, 60):
        submission = world.submission(duration=duration)
        body = {"duration": duration, "callId": str(uuid4())}
        await GroupCommitter(world.database).submit(world.scoped, submission, body)
    record = await views.show_call(world.database, world.call_id)
    assert record is not None and record.call.declared_duration == 60
    (warning,) = record.warnings
    assert "set duration back" in warning
