"""Each of two recordings is kept by itself, so that a crash between the two costs nothing."""

import pytest

from db import jobs, results
from db.results import LEGS
from pipeline.domain.speech import Recording
from pipeline.errors import LeaseLost
from pipeline.legs import LEGS as AS_THE_PIPELINE_CALLS_IT
from tests.postgres import World

FIRST, SECOND = (Recording(channel, f"file:///{channel}", f"{channel}" * 64, 7, "audio/wav") for channel in (0, 1))


async def test_a_leg_outlives_the_worker_that_stored_it_and_is_not_taken_for_all(world: World) -> None:
    assert LEGS == AS_THE_PIPELINE_CALLS_IT
    await world.submit(recording_url="https://a.example/1", recording_url2="https://a.example/2")
    lease = await world.one()
    assert await results.load(world.database, lease) == {}
    await results.record(world.database, lease, LEGS, FIRST)
    await jobs.retry(world.database, lease, LeaseLost("not yet"), 0, False)

    again = await world.one()
    assert await results.load(world.database, again) == {LEGS: (FIRST,)}
    with pytest.raises(ValueError, match="before 'fetch'"):
        await results.record(world.database, again, "prosody", None)
    with pytest.raises(LeaseLost):
        await results.record(world.database, lease, LEGS, SECOND)
    await results.record(world.database, again, LEGS, SECOND)
    assert await results.load(world.database, again) == {LEGS: (FIRST, SECOND)}
    await results.record(world.database, again, "fetch", (FIRST, SECOND))
    assert await results.load(world.database, again) == {LEGS: (FIRST, SECOND), "fetch": (FIRST, SECOND)}


async def test_a_leg_that_takes_the_place_of_a_lost_one_does_not_open_the_fetch_again(world: World) -> None:
    await world.submit(recording_url="https://a.example/1", recording_url2="https://a.example/2")
    lease = await world.one()
    await results.record(world.database, lease, "fetch", (FIRST, SECOND))
    await results.record(world.database, lease, LEGS, FIRST)
    assert (await results.load(world.database, lease))["fetch"] == (FIRST, SECOND)


async def test_another_job_of_the_call_begins_without_legs(world: World) -> None:
    """The sender may have mended what lies behind the same address."""
    await world.submit(recording_url="https://a.example/1", recording_url2="https://a.example/2")
    lease = await world.one()
    await results.record(world.database, lease, LEGS, FIRST)
    await world.submit(recording_url="https://a.example/other")
    assert await results.load(world.database, await world.one()) == {}
