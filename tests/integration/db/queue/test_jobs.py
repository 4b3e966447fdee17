import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from db.intake import group_commit
from db.queue import jobs, stage_results
from db.search import passages
from pipeline.domain.speech import AudioAnalysis, Layout, LayoutKind, Recognized, Recording
from pipeline.domain.stage import Stage
from pipeline.errors import EngineError, LeaseLost, NotAudio, RecordingGone, RecordingNotReady, RecordingUnreachable
from tests.postgres import World

A = "https://store.example/a.wav"


async def submit_many(world: World, count: int, **fields: object) -> list[group_commit.Accepted]:
    accepted = []
    for _ in range(count):
        world.call_id = uuid4()
        accepted.append(await world.submit(recording_url=A, **fields))
    return accepted


async def expire(world: World) -> None:
    await world.execute("UPDATE jobs SET lease_until = now() - interval '1 s' WHERE state = 'running'")


async def taken_over(world: World, **more: Any) -> list[jobs.Lease]:
    """Claim by a worker with leases shorter than the uptime of the test's server."""
    await world.all_fetched()
    return await jobs.claim(world.database, "w2", 10, 0.05, **more)


async def test_a_lease_carries_the_job_and_the_merged_call(world: World) -> None:
    answer = await world.submit(recording_url=A, duration=7)
    lease = await world.claim_one()
    assert lease.job.job_id == answer.job_id
    assert (lease.job.kind, lease.job.run, lease.job.attempts) == ("process", 1, 1)
    assert lease.call == await world.call()
    assert lease.workspace_id == world.workspace_id
    assert lease.metadata_version == 1


async def test_jobs_are_taken_up_in_the_order_they_were_queued(world: World) -> None:
    accepted = await submit_many(world, 3)
    taken = [lease.job.job_id for lease in (*await world.claim(1), *await world.claim(5))]
    assert taken == [answer.job_id for answer in accepted]


async def test_no_job_goes_to_two_workers_that_claim_at_once(world: World) -> None:
    await submit_many(world, 30)
    claims = await asyncio.gather(*(world.claim(5, worker=f"w{n}") for n in range(8)))
    claims.append(await world.claim(30))
    taken = [lease.job.job_id for leases in claims for lease in leases]
    assert len(taken) == len(set(taken)) == 30


async def test_a_job_is_not_taken_up_while_its_lease_holds(world: World) -> None:
    await submit_many(world, 1)
    await world.claim_one()
    assert await world.claim() == []


async def test_a_job_whose_lease_ran_out_is_taken_over_and_counts_a_crash(world: World) -> None:
    await submit_many(world, 1)
    dead = await world.claim_one()
    await expire(world)
    (taken,) = await taken_over(world)
    assert taken.job.job_id == dead.job.job_id
    assert (taken.job.run, taken.job.attempts, taken.job.crashes, taken.job.failures) == (2, 2, 1, 0)


async def test_after_a_start_of_the_server_and_an_outage_holders_have_the_time_of_a_lease_to_renew(
    world: World,
) -> None:
    await submit_many(world, 1)
    lease = await world.claim_one()
    await expire(world)
    assert await world.claim(ttl=1e6) == [], "the server has not run for the time of a lease yet"
    assert await taken_over(world, take_over=False) == [], "the claimer has just found the server again"
    assert await jobs.renew(world.database, [lease], 60) == set()
    (row,) = await world.rows("SELECT * FROM jobs")
    assert (row["run"], row["crashes"]) == (1, 0)


async def crash(world: World, times: int) -> None:
    await world.execute("UPDATE jobs SET crashes = :times", times=times)


async def test_a_job_that_saw_its_worker_die_twice_is_claimed_as_a_suspect_only(world: World) -> None:
    await submit_many(world, 1)
    await crash(world, 2)
    assert await taken_over(world, quarantine_after=2) == []
    (suspect,) = await taken_over(world, quarantine_after=2, suspects=True)
    assert suspect.job.crashes == 2
    await crash(world, 1)
    await expire(world)
    assert await taken_over(world, quarantine_after=2, suspects=True) == []


async def test_the_death_of_a_worker_counts_against_a_suspect_only_once_it_is_worked_on(world: World) -> None:
    await submit_many(world, 1)
    await crash(world, 2)
    await taken_over(world, quarantine_after=2, suspects=True)
    await expire(world)
    (waiting,) = await taken_over(world, quarantine_after=2, suspects=True)
    assert waiting.job.crashes == 2
    await jobs.stage(world.database, waiting, "alone")
    await expire(world)
    (begun,) = await taken_over(world, quarantine_after=2, suspects=True)
    assert begun.job.crashes == 3


async def test_a_job_that_gets_further_than_before_is_not_what_its_worker_died_of(world: World) -> None:
    await submit_many(world, 1)

    async def crashes_after(stage: str, result: Any) -> int:
        """Return the crashes of a job with three crashes once an attempt has recorded `stage`."""
        await crash(world, 3)
        await expire(world)
        (lease,) = await taken_over(world, quarantine_after=2, suspects=True)
        await stage_results.record(world.database, lease, stage, result)
        (row,) = await world.rows("SELECT crashes FROM jobs")
        return int(row["crashes"])

    first = Recording(0, "file:///a", "ab", 7)
    audio = AudioAnalysis(Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, ""), 33.0, ((), ()), ())
    assert await crashes_after(Stage.LEG, first) == 0
    assert await crashes_after(Stage.LEG, first) == 3, "it had been there before"
    assert await crashes_after(Stage.FETCH, (first,)) == 3
    assert await crashes_after(Stage.AUDIO, audio) == 0
    assert await crashes_after(Stage.AUDIO, audio) == 3
    assert await crashes_after(Stage.RECOGNITION, Recognized((), "e")) == 0


async def test_the_former_holder_of_a_lease_can_write_nothing(world: World) -> None:
    await submit_many(world, 1)
    dead = await world.claim_one()
    await expire(world)
    (taken,) = await taken_over(world)
    for attempt in (
        jobs.stage(world.database, dead, Stage.RECOGNITION),
        jobs.fail(world.database, dead, NotAudio()),
        jobs.retry(world.database, dead, NotAudio(), 0, counts_as_failure=True),
    ):
        with pytest.raises(LeaseLost):
            await attempt
    assert await jobs.renew(world.database, [dead], 60) == {dead.job.job_id}
    assert await jobs.renew(world.database, [taken], 60) == set()
    await jobs.release(world.database, [dead])
    assert await world.jobs() == [("process", "running")]


async def test_a_renewed_lease_holds_on(world: World) -> None:
    await submit_many(world, 2)
    leases = await world.claim(2, ttl=0.05)
    assert await jobs.renew(world.database, leases, 60) == set()
    await asyncio.sleep(0.1)
    assert await world.claim(2) == []
    assert await jobs.renew(world.database, [], 60) == set()


async def test_a_passing_failure_brings_the_job_back_after_its_delay_with_the_reason(world: World) -> None:
    await submit_many(world, 1)
    await jobs.retry(
        world.database, await world.claim_one(), RecordingUnreachable("no route"), 0.2, counts_as_failure=True
    )
    assert await world.claim() == []
    (row,) = await world.rows("SELECT * FROM jobs")
    assert (row["error_code"], row["error_message"], row["error_retryable"]) == (
        "recording_unreachable",
        "no route",
        True,
    )
    await asyncio.sleep(0.25)
    assert (await world.claim_one()).job.failures == 1


async def test_a_recording_that_is_not_ready_does_not_count_as_a_failure(world: World) -> None:
    await submit_many(world, 1)
    await jobs.retry(world.database, await world.claim_one(), RecordingNotReady(), 0, counts_as_failure=False)
    lease = await world.claim_one()
    assert (lease.job.attempts, lease.job.failures, lease.job.crashes) == (2, 0, 0)


SIGNED_ANEW = A + "?Signature=new"


async def test_an_address_that_comes_while_the_old_one_is_tried_is_tried_at_once(world: World) -> None:
    await world.submit(recording_url=A)
    lease = await world.claim_one()
    await world.submit(recording_url=SIGNED_ANEW)
    await jobs.retry(world.database, lease, RecordingNotReady(), 600, counts_as_failure=False)
    assert (await world.claim_one()).call.recording_url == SIGNED_ANEW


async def test_an_address_that_comes_while_the_old_one_fails_for_good_saves_the_call(world: World) -> None:
    await world.submit(recording_url=A)
    lease = await world.claim_one()
    await world.submit(recording_url=SIGNED_ANEW)
    await jobs.fail(world.database, lease, RecordingGone())
    again = await world.claim_one()
    assert (again.job.job_id, again.call.recording_url) == (lease.job.job_id, SIGNED_ANEW)
    await jobs.fail(world.database, again, RecordingGone())
    assert (await world.row())["state"] == "failed"


async def test_a_failure_that_is_not_about_the_address_waits_whatever_the_address(world: World) -> None:
    await world.submit(recording_url=A)
    lease = await world.claim_one()
    await world.submit(recording_url=SIGNED_ANEW)
    await jobs.retry(world.database, lease, EngineError(), 600, counts_as_failure=True)
    assert await world.claim() == []


async def test_a_job_remembers_when_it_was_first_tried(world: World) -> None:
    await submit_many(world, 1)
    first = await world.claim_one()
    await jobs.release(world.database, [first])
    again = await world.claim_one()
    assert first.job.created_at < first.job.tried_since == again.job.tried_since


async def test_a_worker_that_leaves_gives_its_jobs_back_at_once_and_nothing_is_counted(world: World) -> None:
    await submit_many(world, 2)
    await jobs.release(world.database, await world.claim(2))
    again = await world.claim(2)
    assert [(lease.job.failures, lease.job.crashes) for lease in again] == [(0, 0), (0, 0)]


async def test_a_job_that_is_given_up_takes_its_call_to_failed_with_code_sentence_and_whether_a_retry_could_help(
    world: World,
) -> None:
    await world.submit(recording_url=A)
    await jobs.fail(world.database, await world.claim_one(), NotAudio("It is a web page."))
    row = await world.row()
    assert (row["state"], row["failure_code"], row["failure_message"]) == ("failed", "not_audio", "It is a web page.")
    assert row["failure_retryable"] is False
    assert row["failed_at"] is not None
    assert await world.jobs() == [("process", "failed")]
    assert await world.claim() == []


async def test_the_stage_of_a_job_can_be_read_while_it_runs(world: World) -> None:
    await submit_many(world, 1)
    await jobs.stage(world.database, await world.claim_one(), Stage.RECOGNITION)
    (row,) = await world.rows("SELECT stage FROM jobs")
    assert row["stage"] == "asr"


async def test_jobs_of_a_worker_known_to_be_dead_are_claimed_without_waiting_for_their_lease(world: World) -> None:
    await world.submit(recording_url="https://pbx.example.com/1.wav")
    (lease,) = await world.claim(ttl=600, worker="host:1:a")
    assert await jobs.workers(world.database) == ["host:1:a"]
    await jobs.abandon(world.database, ["host:2:b"])
    assert await world.claim(worker="host:3:c") == []
    await jobs.abandon(world.database, ["host:1:a"])
    (taken,) = await world.claim(worker="host:3:c")
    assert (taken.job.job_id, taken.job.run, taken.job.crashes) == (lease.job.job_id, lease.job.run + 1, 1)


def empty_in_statistics(world: World, table: str) -> None:
    """Make the planner assume that a table is empty, as after the removal of a workspace. Its rows stay."""
    with psycopg.connect(world.database.url, autocommit=True) as admin:
        admin.execute("SET session_replication_role = replica")
        admin.execute(f"CREATE TEMPORARY TABLE rows AS SELECT * FROM {table}".encode())
        admin.execute(f"DELETE FROM {table}".encode())
        admin.execute(f"VACUUM (ANALYZE, TRUNCATE false) {table}".encode())
        admin.execute(f"INSERT INTO {table} SELECT * FROM rows".encode())


@pytest.mark.parametrize("claim", ["fetch", "fetch again", "work", "work again", "suspect"])
async def test_a_claim_of_one_job_takes_one_whatever_the_statistics_say(world: World, claim: str) -> None:
    """A plan that ran the locking subquery once for each job locked another job each time."""
    await submit_many(world, 6)
    if not claim.startswith("fetch"):
        await world.all_fetched()
    if claim.endswith("again"):
        state = "fetching" if claim.startswith("fetch") else "running"
        await world.execute(f"UPDATE jobs SET state = '{state}', lease_until = now() - interval '1 s'")
    if claim == "suspect":
        await world.execute("UPDATE jobs SET crashes = 2")
    empty_in_statistics(world, "jobs")
    if claim.startswith("fetch"):
        leases = await jobs.claim_fetches(world.database, "w", 1, 0.05, 9, 9)
    else:
        leases = await jobs.claim(world.database, "w", 1, 0.05, 2, suspects=claim == "suspect")
    assert len(leases) == 1
    assert len(await world.rows("SELECT FROM jobs WHERE worker = 'w'")) == 1


async def test_a_claim_of_passages_takes_as_many_as_it_may_whatever_the_statistics_say(world: World) -> None:
    await submit_many(world, 6)
    await world.execute(
        "INSERT INTO passages_due (call_pk, workspace_id, changed_at, not_before)"
        " SELECT id, workspace_id, now(), now() FROM calls"
    )
    empty_in_statistics(world, "passages_due")
    assert len(await passages.claim(world.database, 2, 60)) == 2
