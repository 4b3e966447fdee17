from uuid import UUID, uuid4

import pytest

from db.intake.group_commit import Accepted
from db.queue import jobs, stage_results
from db.records.job_views import list_jobs
from pipeline.domain.speech import Recording
from pipeline.domain.stage import Stage
from pipeline.errors import LeaseLost, RecordingNotReady
from tests.postgres import World, new_world

SLOW, OTHER = "https://slow.example/{}.wav", "https://other.example/{}.wav"


async def submit(world: World, count: int, url: str = SLOW) -> list[Accepted]:
    call_ids = []
    for _ in range(count):
        world.call_id = uuid4()
        call_ids.append(await world.submit(recording_url=url.format(uuid4())))
    return call_ids


async def fetches(world: World, count: int = 100, ttl: float = 60.0, **limits: int) -> list[jobs.Lease]:
    return await jobs.claim_fetches(
        world.database, "w1", count, ttl, limits.get("workspace", 1000), limits.get("host", 1000)
    )


async def states(world: World) -> list[str]:
    return [state for _, state in await world.jobs()]


async def test_a_job_is_not_worked_on_before_its_recordings_were_fetched(world: World) -> None:
    (call_id,) = await submit(world, 1)
    assert await jobs.claim(world.database, "w1", 10, 60.0) == []
    (lease,) = await fetches(world)
    assert (lease.job.job_id, lease.fetching, lease.job.run, lease.job.attempts) == (call_id.job_id, True, 1, 1)
    assert await fetches(world) == []
    await stage_results.record(world.database, lease, Stage.FETCH, (Recording(0, "file:///a", "00" * 32, 7),))
    await jobs.fetched(world.database, lease, ["One of two."])
    (ready,) = await jobs.claim(world.database, "w1", 10, 60.0)
    assert (ready.job.job_id, ready.fetching, ready.job.run, ready.job.attempts) == (call_id.job_id, False, 1, 1)
    assert ready.warnings == ("One of two.",)
    with pytest.raises(LeaseLost):
        await jobs.stage(world.database, lease, Stage.FETCH)


async def test_a_fetch_that_fails_in_passing_waits_among_the_fetches(world: World) -> None:
    await submit(world, 1)
    (lease,) = await fetches(world)
    await jobs.retry(world.database, lease, RecordingNotReady(), 3600.0, False)
    assert await states(world) == ["fetching"]
    assert await fetches(world) == []
    ((job),) = await list_jobs(world.database, world.workspace_id)
    assert job.next_try is not None


async def test_a_newer_address_of_the_recording_ends_the_wait(world: World) -> None:
    await world.submit(recording_url="https://slow.example/a.wav?X-Amz-Signature=1")
    (lease,) = await fetches(world)
    await jobs.retry(world.database, lease, RecordingNotReady(), 3600.0, False)
    await world.submit(recording_url="https://slow.example/a.wav?X-Amz-Signature=2")
    (again,) = await fetches(world)
    assert (again.job.job_id, again.job.run) == (lease.job.job_id, 2)


async def test_another_recording_supersedes_one_that_is_being_fetched(world: World) -> None:
    await world.submit(recording_url="https://slow.example/a.wav")
    (lease,) = await fetches(world)
    await world.submit(recording_url="https://slow.example/b.wav")
    assert await states(world) == ["superseded", "fetching"]
    assert await jobs.renew(world.database, [lease], 60.0) == {lease.job.job_id}
    with pytest.raises(LeaseLost):
        await jobs.fetched(world.database, lease)


async def test_a_fetch_whose_worker_died_is_taken_over_and_counts_no_crash(world: World) -> None:
    await submit(world, 1)
    (dead,) = await fetches(world)
    assert await jobs.workers(world.database) == ["w1"]
    await jobs.abandon(world.database, ["w1"])
    assert await jobs.claim(world.database, "w2", 10, 60.0) == [], "it is no work yet"
    (taken,) = await fetches(world)
    assert (taken.job.job_id, taken.job.run, taken.job.crashes) == (dead.job.job_id, 2, 0)


async def test_what_is_given_back_waits_where_it_came_from(world: World) -> None:
    await submit(world, 2)
    (first, second) = await fetches(world)
    assert await jobs.renew(world.database, [first, second], 60.0) == set()
    await jobs.fetched(world.database, first)
    (ready,) = await jobs.claim(world.database, "w1", 10, 60.0)
    await jobs.release(world.database, [second, ready])
    assert sorted(await states(world)) == ["fetching", "queued"]
    (ready,) = await jobs.claim(world.database, "w1", 10, 60.0)
    await jobs.fetch_again(world.database, ready)
    assert await states(world) == ["fetching", "fetching"]
    assert len(await fetches(world)) == 2


def of(leases: list[jobs.Lease], workspace: UUID) -> int:
    return sum(lease.workspace_id == workspace for lease in leases)


async def test_a_workspace_holds_no_more_fetches_than_it_may_and_others_come_first(world: World) -> None:
    other = await new_world(world.database)
    await submit(world, 40)
    assert len(await fetches(world, workspace=8)) == 8
    assert await fetches(world, workspace=8) == []
    await submit(other, 5)
    taken = await fetches(world, workspace=10)
    assert (of(taken, other.workspace_id), of(taken, world.workspace_id)) == (5, 2)


async def test_whoever_fetches_nothing_yet_always_finds_room(world: World) -> None:
    """However many hostile workspaces there are, each claims only a part of the remaining room."""
    hostile = [world, *[await new_world(world.database) for _ in range(3)]]
    for sender in hostile:
        await submit(sender, 40)
    room = 32
    for _ in range(10):
        room -= len(await fetches(world, room, workspace=16))
    assert room >= 1
    late = await new_world(world.database)
    await submit(late, 1)
    assert of(await fetches(world, room, workspace=16), late.workspace_id) == 1


async def test_a_host_is_asked_by_no_more_than_it_may_be_and_others_are_not_kept_waiting(world: World) -> None:
    await submit(world, 30)
    await submit(world, 3, OTHER)
    taken = await fetches(world, host=4)
    hosts = [lease.call.recording_url.split("/")[2] for lease in taken if lease.call.recording_url]
    assert (hosts.count("slow.example"), hosts.count("other.example")) == (4, 3)
    assert await fetches(world, host=4) == []


async def test_a_host_that_workspaces_share_is_nobodys_to_block(world: World) -> None:
    """Such as a telephony provider from which one workspace fetches without end."""
    other = await new_world(world.database)
    await submit(world, 10)
    assert len(await fetches(world, host=4)) == 4
    await submit(other, 10)
    assert of(await fetches(world, host=4), other.workspace_id) == 4


async def test_the_second_recordings_host_counts_too(world: World) -> None:
    for number in range(5):
        world.call_id = uuid4()
        await world.submit(recording_url=f"https://{number}.example/a.wav", recording_url2=SLOW.format(uuid4()))
    assert len(await fetches(world, host=2)) == 2


async def test_the_host_of_an_address(world: World, subtests: pytest.Subtests) -> None:
    for identity, host in [
        ("https://a.example/x?y=1", "a.example"),
        ("http://a.example:8088/x", "a.example"),
        ("https://[2001:db8::1]:8443/x", "[2001:db8::1]"),
        ("https://a.example", "a.example"),
        ("not an address", None),
    ]:
        with subtests.test(identity):
            (row,) = await world.rows("SELECT recording_host(:identity) AS host", identity=identity)
            assert row["host"] == host


async def test_jobs_of_before_the_upgrade_are_fetched_when_they_are_taken_up(world: World) -> None:
    await submit(world, 1)
    await world.all_fetched()
    (lease,) = await jobs.claim(world.database, "w1", 10, 60.0)
    await jobs.fetch_again(world.database, lease)
    (again,) = await fetches(world)
    assert again.job.job_id == lease.job.job_id
