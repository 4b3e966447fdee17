import pytest

from db.queue import jobs, stage_results
from pipeline.domain.speech import Recording
from pipeline.domain.stage import Stage
from pipeline.errors import LeaseLost
from tests.postgres import World

FIRST, SECOND = (Recording(channel, f"file:///{channel}", f"{channel}" * 64, 7, "audio/wav") for channel in (0, 1))


async def test_a_leg_outlives_the_worker_that_stored_it_and_is_not_taken_for_all(world: World) -> None:
    await world.submit(recording_url="https://a.example/1", recording_url2="https://a.example/2")
    lease = await world.claim_one()
    assert await stage_results.load(world.database, lease) == {}
    await stage_results.record(world.database, lease, Stage.LEG, FIRST)
    await jobs.retry(world.database, lease, LeaseLost("not yet"), 0, False)

    again = await world.claim_one()
    assert await stage_results.load(world.database, again) == {Stage.LEG: (FIRST,)}
    with pytest.raises(ValueError, match="before 'fetch'"):
        await stage_results.record(world.database, again, Stage.PROSODY, None)
    with pytest.raises(LeaseLost):
        await stage_results.record(world.database, lease, Stage.LEG, SECOND)
    await stage_results.record(world.database, again, Stage.LEG, SECOND)
    assert await stage_results.load(world.database, again) == {Stage.LEG: (FIRST, SECOND)}
    await stage_results.record(world.database, again, Stage.FETCH, (FIRST, SECOND))
    assert await stage_results.load(world.database, again) == {Stage.LEG: (FIRST, SECOND), Stage.FETCH: (FIRST, SECOND)}


async def test_a_leg_that_takes_the_place_of_a_lost_one_does_not_open_the_fetch_again(world: World) -> None:
    await world.submit(recording_url="https://a.example/1", recording_url2="https://a.example/2")
    lease = await world.claim_one()
    await stage_results.record(world.database, lease, Stage.FETCH, (FIRST, SECOND))
    await stage_results.record(world.database, lease, Stage.LEG, FIRST)
    assert (await stage_results.load(world.database, lease))[Stage.FETCH] == (FIRST, SECOND)


async def test_another_job_of_the_call_begins_without_legs(world: World) -> None:
    await world.submit(recording_url="https://a.example/1", recording_url2="https://a.example/2")
    lease = await world.claim_one()
    await stage_results.record(world.database, lease, Stage.LEG, FIRST)
    await world.submit(recording_url="https://a.example/other")
    assert await stage_results.load(world.database, await world.claim_one()) == {}
