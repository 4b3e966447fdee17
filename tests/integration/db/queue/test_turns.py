from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE
from db.queue import backlog, charges, jobs
from db.queue.backlog import MeasuredRtfx
from pipeline.errors import RecordingNotReady
from tests.postgres import World

A = "https://store.example/a.wav"


async def queue(world: World, team: UUID, count: int, seconds: int | None = 60, live: bool = False) -> None:
    """Submit calls of a team, ended a minute or a day ago, one after the other."""
    await world.execute(
        "INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, duration, state)"
        " SELECT :workspace, gen_random_uuid(), :team, 'a', 'b', now() - make_interval(secs => :ago), :seconds,"
        " 'transcribing' FROM generate_series(1, :count)",
        workspace=world.workspace_id,
        team=team,
        ago=60 + (seconds or 0) if live else 86400,
        seconds=seconds,
        count=count,
    )
    await world.execute(
        "INSERT INTO jobs (call_pk, kind, created_at)"
        " SELECT id, 'process', now() + id * interval '1 us' FROM calls"
        " WHERE NOT EXISTS (SELECT FROM jobs WHERE call_pk = calls.id) ORDER BY id"
    )


async def taken(world: World, count: int, one_by_one: bool = True, backfill: float = 0.1) -> list[str]:
    """Claim the next calls: "A" or "B" by team, lower case for calls that are not live."""
    claimed: list[UUID] = []
    for _ in range(count if one_by_one else 1):
        await world.all_fetched()
        leases = await jobs.claim(world.database, "w", 1 if one_by_one else count, 60, backfill=backfill)
        claimed += [lease.job.job_id for lease in leases]
    rows = {row["id"]: row for row in await world.rows("SELECT id, team_id, live FROM jobs")}
    letters = ["A" if rows[id_]["team_id"] == world.team_id else "B" for id_ in claimed]
    return [letter if rows[id_]["live"] else letter.lower() for letter, id_ in zip(letters, claimed, strict=True)]


async def priority(world: World, team: UUID, value: float) -> None:
    await world.execute("UPDATE teams SET priority = :value WHERE id = :team", value=value, team=team)


async def test_three_calls_behind_another_teams_flood_are_taken_up_within_the_next_few(world: World) -> None:
    await queue(world, world.team_id, 5000)
    assert await taken(world, 20, one_by_one=False) == ["a"] * 20
    await queue(world, world.other_team_id, 3)
    assert (await taken(world, 7)).count("b") == 3


async def test_the_same_where_many_are_claimed_at_once(world: World) -> None:
    await queue(world, world.team_id, 200)
    await queue(world, world.other_team_id, 3)
    assert sorted(await taken(world, 8, one_by_one=False)) == ["a"] * 5 + ["b"] * 3


async def test_turns_are_by_seconds_of_audio_and_not_by_calls(world: World) -> None:
    await queue(world, world.team_id, 50, seconds=600)
    await queue(world, world.other_team_id, 50, seconds=100)
    order = await taken(world, 28)
    assert 3 <= order.count("a") <= 5


async def test_a_team_of_higher_priority_gets_more_turns_and_starves_nobody(world: World) -> None:
    await queue(world, world.team_id, 60)
    await queue(world, world.other_team_id, 60)
    await priority(world, world.team_id, 4)
    order = await taken(world, 40)
    assert 7 <= order.count("b") <= 9
    assert "b" in order[:6]


async def test_a_team_that_was_alone_is_neither_charged_for_it_nor_saves_up_for_later(world: World) -> None:
    await queue(world, world.other_team_id, 5)
    await queue(world, world.team_id, 5)
    await taken(world, 10)  # both have had turns
    await queue(world, world.team_id, 40)
    await taken(world, 20)
    await queue(world, world.other_team_id, 20)
    assert 9 <= (await taken(world, 20)).count("b") <= 11


async def test_live_calls_go_before_backfill_which_keeps_its_share(world: World) -> None:
    await queue(world, world.team_id, 100)
    await taken(world, 5)
    await queue(world, world.other_team_id, 60, live=True)
    order = await taken(world, 40)
    assert order[0] == "B"
    assert 3 <= order.count("a") <= 5, "a tenth of the audio"


async def test_live_is_who_ended_less_than_the_workspaces_setting_before_the_submission(world: World) -> None:
    await world.execute("UPDATE workspaces SET live_seconds = 900")
    now = datetime.now(UTC)
    for ago, seconds, live in ((600, None, True), (2000, None, False), (2000, 1500, True), (2500, 1500, False)):
        world.call_id = uuid4()
        await world.submit(recording_url=A, start_time=now - timedelta(seconds=ago), duration=seconds)
        (row,) = await world.rows(
            "SELECT live, audio_seconds FROM jobs JOIN calls ON calls.id = call_pk WHERE call_id = :id",
            id=world.call_id,
        )
        assert (row["live"], row["audio_seconds"]) == (live, seconds)


async def test_what_a_later_submission_says_moves_the_queued_job_along(world: World) -> None:
    await world.submit(world.wide, recording_url=A, team_id=world.team_id)
    await world.submit(world.wide, team_id=world.other_team_id, duration=2_000_000_000, start_time=datetime.now(UTC))
    (row,) = await world.rows("SELECT team_id, audio_seconds, live FROM jobs")
    assert (row["team_id"], row["live"]) == (world.other_team_id, True)
    assert row["audio_seconds"] == 21600, "what is declared starts no cluster"


async def test_a_job_pays_for_its_first_attempt_only(world: World) -> None:
    await queue(world, world.team_id, 30)
    await queue(world, world.other_team_id, 30)
    for _ in range(10):
        for lease in await world.claim(2):
            await jobs.retry(world.database, lease, RecordingNotReady(), 0, counts_as_failure=False)
    (row,) = await world.rows("SELECT max(ended) AS ended FROM turns")
    assert row["ended"] <= 11 * 60


async def worked(world: World, count: int, **seconds: float) -> list[str]:
    """Process the next calls one by one, each for the seconds of its team (a, b)."""
    order = []
    for _ in range(count):
        (lease,) = await world.claim()
        assert lease.slot is not None
        order.append("a" if lease.slot.team_id == world.team_id else "b")
        await charges.settle_lost(world.database, [charges.UsedSlot(lease.slot, seconds[order[-1]])])
    return order


async def test_a_call_that_held_its_place_for_longer_than_others_is_charged_for_it(world: World) -> None:
    """Ten times as long, as with a damaged file that the sender declared as one minute."""
    await backlog.record_rtfx(world.database, [MeasuredRtfx("call", 2, 10, 600.0, 60.0)])
    await queue(world, world.team_id, 40)
    await queue(world, world.other_team_id, 40)
    order = await worked(world, 33, a=60.0, b=6.0)
    assert 2 <= order.count("a") <= 4


async def test_what_was_declared_too_long_is_given_back(world: World) -> None:
    await backlog.record_rtfx(world.database, [MeasuredRtfx("call", 2, 10, 600.0, 60.0)])
    await queue(world, world.team_id, 40, seconds=6000)
    await queue(world, world.other_team_id, 40)
    assert 14 <= (await worked(world, 30, a=6.0, b=6.0)).count("a") <= 16


async def test_whoever_holds_places_while_nobody_else_waits_pays_nothing_for_it(world: World) -> None:
    await backlog.record_rtfx(world.database, [MeasuredRtfx("call", 2, 10, 600.0, 60.0)])
    await queue(world, world.other_team_id, 2)
    await worked(world, 2, b=6.0)
    await world.execute("UPDATE jobs SET state = 'done', lease_until = NULL")
    await queue(world, world.team_id, 30)
    await worked(world, 5, a=600.0)
    await queue(world, world.other_team_id, 20)
    assert 9 <= (await worked(world, 20, a=6.0, b=6.0)).count("a") <= 11


async def test_before_any_call_was_done_nothing_is_charged_afterwards(world: World) -> None:
    await queue(world, world.team_id, 20)
    await queue(world, world.other_team_id, 20)
    assert 9 <= (await worked(world, 20, a=600.0, b=6.0)).count("a") <= 11


async def test_a_lane_whose_calls_wait_for_later_holds_up_nobody(world: World) -> None:
    await queue(world, world.team_id, 5)
    await world.execute("UPDATE jobs SET not_before = now() + interval '1 hour'")
    await queue(world, world.other_team_id, 2)
    assert await taken(world, 5, one_by_one=False) == ["b", "b"]


async def test_a_claim_reads_a_few_index_entries_of_a_long_queue(world: World) -> None:
    """Also right after a burst, before the planner's statistics are updated."""
    await queue(world, world.team_id, 3000)
    await queue(world, world.other_team_id, 3000)
    await world.all_fetched()
    read = sa.text(
        "SELECT sum(seq_tup_read)::int, sum(idx_tup_fetch)::int FROM pg_stat_xact_user_tables"
        " WHERE relname IN ('jobs', 'calls')"
    )
    claim = {
        "worker": "w",
        "count": 5,
        "ttl": 60,
        "quarantine_after": 2,
        "take_over": True,
        "quarantine": jobs.QUARANTINE,
    }
    claim |= {"backfill": 0.1, "guests": 1}
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        scanned_before, fetched_before = (await connection.execute(read)).one()
        ids = await connection.execute(jobs._CLAIM, claim | {"suspects": False})
        assert len(list(ids)) == 5
        ids = await connection.execute(jobs._CLAIM, claim | {"suspects": False, "count": 0})
        assert len(list(ids)) == 0
        await connection.execute(jobs._CLAIM, claim | {"suspects": True})
        scanned, fetched = (await connection.execute(read)).one()
    assert scanned == scanned_before
    assert 5 <= fetched - fetched_before <= 40
