"""Claims begin where the last one ended, whatever a snapshot keeps of what lies before; and no job is passed over."""

from uuid import uuid4

import psycopg
import pytest

from tests.postgres import World

A = "https://store.example/a.wav"
LATER = "UPDATE turns SET look_at = now() + interval '1 hour' WHERE team_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff'"
NOW = LATER.replace("interval '1 hour'", "interval '0'")


async def queued(world: World, count: int = 1) -> None:
    for _ in range(count):
        world.call_id = uuid4()
        await world.submit(recording_url=A, user_id=world.call_id)
    await world.all_fetched()


async def finish(world: World) -> None:
    await world.execute("UPDATE jobs SET state = 'done', lease_until = NULL WHERE state = 'running'")


async def entries_read(world: World) -> int:
    """Index entries of the queue that this session's claims have come past, dead ones too."""
    await world.rows("SELECT pg_stat_force_next_flush()")
    (row,) = await world.rows(
        "SELECT idx_tup_read AS n FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_queue_idx'"
    )
    return int(row["n"])


@pytest.mark.parametrize("held", [False, True])
async def test_a_claim_reads_as_little_beside_a_snapshot_as_without(
    world: World, postgres_url: str, held: bool
) -> None:
    await queued(world, 60)
    await world.execute("UPDATE jobs SET not_before = created_at - interval '1 minute'")
    with psycopg.connect(postgres_url) as reader:
        if held:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1 FROM workspaces")
        await world.claim()
        await world.execute(LATER)
        for _ in range(50):
            await world.claim()
            await finish(world)
        before = await entries_read(world)
        for _ in range(5):
            assert len(await world.claim()) == 1
        assert await entries_read(world) - before <= 5 * 6, "two for the lane, a few for what was claimed this moment"


async def test_what_comes_to_lie_before_a_mark_is_found_when_everything_is_looked_through(world: World) -> None:
    """A submission that committed long after it began, or a claim that was undone."""
    await queued(world)
    assert len(await world.claim()) == 1
    await world.execute("UPDATE turns SET seen_not_before = now() - interval '5 s' WHERE seen_id IS NOT NULL")
    await queued(world)
    await world.execute("UPDATE jobs SET not_before = now() - interval '6 s' WHERE state = 'queued'")
    await world.execute(LATER)
    assert await world.claim() == []
    await world.execute(NOW)
    assert len(await world.claim()) == 1
    looks = "SELECT look_at - now() AS due FROM turns WHERE look_at IS NOT NULL ORDER BY generation DESC"
    look, *_ = await world.rows(looks)
    assert 8 < look["due"].total_seconds() < 30


async def test_what_commits_up_to_three_seconds_late_waits_for_no_such_look(world: World) -> None:
    await queued(world)
    assert len(await world.claim()) == 1
    await world.execute(LATER)
    await queued(world)
    await world.execute("UPDATE jobs SET not_before = now() - interval '2 s' WHERE state = 'queued'")
    assert len(await world.claim()) == 1


async def test_a_clock_that_was_set_back_hides_nothing(world: World) -> None:
    await queued(world)
    assert len(await world.claim()) == 1
    await world.execute(
        "UPDATE turns SET seen_not_before = seen_not_before + interval '10 min',"
        " looked_at = looked_at + interval '10 min', look_at = look_at + interval '10 min'"
    )
    for _ in range(3):
        await queued(world)
        assert len(await world.claim()) == 1


async def test_a_lease_that_ran_out_before_the_mark_is_taken_over_when_everything_is_looked_through(
    world: World,
) -> None:
    await queued(world, 2)
    assert len(await world.claim(ttl=0.001)) == 1
    await world.execute(LATER)
    await world.execute("UPDATE turns SET seen_not_before = now() WHERE look_at IS NOT NULL")
    await world.execute("UPDATE jobs SET lease_until = now() - interval '1 min' WHERE state = 'running'")
    (other,) = await world.claim(2, ttl=0.001)
    assert other.job.attempts == 1
    await world.execute(NOW)
    await world.execute("UPDATE jobs SET lease_until = now() + interval '1 min' WHERE id = :id", id=other.job.job_id)
    (lease,) = await world.claim(2, ttl=0.001)
    assert (lease.job.attempts, lease.job.crashes) == (2, 1)


async def test_the_rows_that_change_with_each_claim_move_on_and_take_along_what_they_say(world: World) -> None:
    """One claim in fifty moves them on, by chance: so many claims as it takes, 2,000 at most."""
    for _ in range(2000):
        await queued(world)
        assert len(await world.claim()) == 1
        await finish(world)
        rows = await world.rows("SELECT generation, max(seen_id::text) AS seen FROM turns GROUP BY generation")
        assert len(rows) <= 2, "the present one, and the one before it for those who are at it"
        newest = max(rows, key=lambda row: row["generation"])
        if newest["generation"] > 1:
            break
    assert newest["generation"] > 1
    assert newest["seen"] is not None
