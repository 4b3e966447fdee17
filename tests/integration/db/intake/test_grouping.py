"""Submissions that are committed together: each fares as if it had been alone."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.core.database import Database
from db.intake import group_commit as calls
from db.intake.group_commit import GroupCommitter
from db.workspace import keys
from pipeline.domain.call import CallState, Sender
from pipeline.errors import CallOfOtherTeam, KeyRevoked, StateUnavailable, UnknownTeam
from tests.postgres import World, new_world
from tests.submission_model import merge

A = "https://store.example/a.wav"
B = "https://store.example/b.wav"


class Sending:
    """Submissions that are sent in one turn of the event loop, so that they go in one group."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.grouping = GroupCommitter(world.database, **options)
        self.sent: list[asyncio.Task[calls.Accepted]] = []

    def add(self, sender: Sender | None = None, **fields: Any) -> None:
        sent = self.grouping.submit(
            sender or self.world.scoped, self.world.submission(**fields), {"place": len(self.sent)}
        )
        self.sent.append(asyncio.create_task(sent))

    async def answers(self) -> list[Any]:
        """What each was told, or the error it got."""
        return await asyncio.gather(*self.sent, return_exceptions=True)


async def blocked(holder: "psycopg.AsyncConnection[Any]") -> None:
    """Return when a transaction waits for a lock of `holder`."""
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    async with asyncio.timeout(60):
        while not (await holder.execute(waiting)).rowcount:
            await asyncio.sleep(0.01)


async def groups(world: World) -> list[int]:
    """How many submissions each transaction wrote."""
    rows = await world.rows("SELECT count(*) AS n FROM submissions GROUP BY xmin ORDER BY min(id)")
    return [row["n"] for row in rows]


async def test_what_comes_while_a_commit_is_under_way_is_committed_together(world: World) -> None:
    sending = Sending(world)
    ids = [uuid4() for _ in range(20)]
    async with await psycopg.AsyncConnection.connect(world.database.url) as holder:
        await holder.execute("LOCK TABLE calls")
        for number, call_id in enumerate(ids):
            sending.add(call_id=call_id, recording_url=f"https://store.example/{number}.wav" if number % 2 else None)
            if number == 4:
                await blocked(holder)
            elif number == 12:
                await asyncio.sleep(0)
    answers = await sending.answers()
    assert await groups(world) == [5, 15]
    for number, (call_id, answer) in enumerate(zip(ids, answers, strict=True)):
        row = await world.row(call_id)
        assert answer == calls.Accepted(CallState(row["state"]), row["job_id"])
        assert (row["job_id"] is not None) == bool(number % 2)
        assert (row["recording_url"] or "").endswith(f"/{number}.wav" if number % 2 else "")
    assert await world.jobs() == [("process", "fetching")] * 10
    kept = await world.rows("SELECT body, call_id FROM submissions s JOIN calls c ON c.id = s.call_pk")
    assert {row["call_id"]: row["body"]["place"] for row in kept} == dict(zip(ids, range(20), strict=True))


async def test_no_group_is_larger_than_allowed(world: World) -> None:
    sending = Sending(world, max_batch=4)
    for _ in range(10):
        sending.add(call_id=uuid4())
    await sending.answers()
    assert await groups(world) == [4, 4, 2]


async def test_one_at_a_time_is_not_grouped_and_not_kept_waiting(world: World) -> None:
    sending = Sending(world)
    for _ in range(3):
        sending.add(call_id=uuid4())
        await sending.answers()
    assert await groups(world) == [1, 1, 1]


async def test_the_first_of_many_leaves_with_those_of_its_turn(world: World) -> None:
    sending = Sending(world)
    for together in (5, 3):
        for _ in range(together):
            sending.add(call_id=uuid4())
        await sending.answers()
    assert await groups(world) == [5, 3]


async def test_in_one_group_the_submissions_of_a_call_count_in_the_order_in_which_they_came(world: World) -> None:
    sending = Sending(world)
    calls_ = [uuid4() for _ in range(3)]
    for duration in range(5):
        for call_id in calls_:
            sending.add(call_id=call_id, duration=duration, recording_url=A if duration > 1 else None)
    answers = await sending.answers()
    assert not [answer for answer in answers if isinstance(answer, BaseException)]
    assert await groups(world) == [15]
    for call_id in calls_:
        row = await world.row(call_id)
        assert (row["duration"], row["state"], row["metadata_version"]) == (4, "transcribing", 5)
    assert await world.jobs() == [("process", "fetching")] * 3


async def test_a_refused_submission_leaves_its_companions_alone(world: World) -> None:
    theirs = uuid4()
    world.call_id = theirs
    await world.submit(world.other_scoped)
    revoked = (await keys.create(world.database, world.workspace_id, world.team_id, ["submit"], "k"))[0]
    await keys.revoke(world.database, revoked.key_id)
    stranger = (await new_world(world.database)).scoped
    sending = Sending(world)
    good = [uuid4() for _ in range(4)]
    sending.add(call_id=good[0])
    sending.add(replace(world.scoped, key_id=revoked.key_id), call_id=uuid4())
    sending.add(call_id=good[1], recording_url=A)
    sending.add(world.wide, call_id=uuid4(), team_id=uuid4())
    sending.add(call_id=theirs, duration=9)
    sending.add(replace(stranger, workspace_id=world.workspace_id), call_id=uuid4())
    sending.add(call_id=good[2])
    sending.add(world.wide, call_id=good[3], team_id=world.other_team_id)
    answers = await sending.answers()
    kinds = [type(answer) for answer in answers]
    fine = calls.Accepted
    assert kinds == [fine, KeyRevoked, fine, UnknownTeam, CallOfOtherTeam, KeyRevoked, fine, fine]
    assert await groups(world) == [1, 4]
    assert (await world.row(good[3]))["team_id"] == world.other_team_id
    assert (await world.row(theirs))["duration"] is None
    assert len(await world.rows("SELECT FROM calls")) == 5


async def test_in_one_group_erased_refused_and_new_calls_are_told_apart(world: World) -> None:
    sending, (erased, refused, new) = Sending(world), (uuid4() for _ in range(3))
    digest = "call_digest(:workspace, :call), :workspace, :team"
    await world.execute(
        f"INSERT INTO erased_calls (digest, workspace_id, team_id) VALUES ({digest})",
        call=erased,
        workspace=world.workspace_id,
        team=world.team_id,
    )
    sending.add(call_id=erased, recording_url=A)
    sending.add(call_id=erased)  # is sent alone, since the row of the first is gone
    sending.add(world.wide, call_id=refused, team_id=uuid4())
    sending.add(world.wide, call_id=refused, team_id=world.team_id, recording_url=A)
    sending.add(call_id=new)
    sending.add(call_id=new, recording_url=B)
    first, second, unknown, *others = await sending.answers()
    assert (first.decision, second.decision) == ("erased", "erased") and first.job_id is not None
    assert isinstance(unknown, UnknownTeam)
    assert [answer.decision for answer in others] == ["new", "new", "recording"]
    assert {row["call_id"] for row in await world.rows("SELECT call_id FROM calls")} == {refused, new}
    assert await world.rows("SELECT submissions FROM erased_calls") == [{"submissions": 2}]
    assert len(await world.rows("SELECT FROM submissions")) == 3
    assert len(await world.rows("SELECT FROM jobs WHERE kind = 'process'")) == 2


async def test_the_first_job_of_a_call_comes_with_what_other_jobs_look_up(world: World) -> None:
    """Alone and in a group, over what a sender may leave out, and a call of long ago."""
    sending = Sending(world)
    long_ago = datetime(2020, 2, 3, tzinfo=UTC)
    several: list[dict[str, Any]] = [
        {"recording_url": A, "duration": None},
        {"recording_url": "https://Other.example:8443/a.wav", "recording_url2": B, "duration": 86_400},
        {"recording_url": B, "duration": 184, "start_time": long_ago},
        {"recording_url": B, "duration": 0, "start_time": datetime.now(UTC)},
    ]
    for fields in several:
        sending.add(call_id=uuid4(), **fields)
        await sending.answers()
    for fields in several:
        sending.add(call_id=uuid4(), **fields)
    await sending.answers()
    assert await groups(world) == [1, 1, 1, 1, 4]
    known = "call_pk, team_id, audio_seconds, live, hosts"
    given = await world.rows(f"SELECT {known} FROM jobs ORDER BY call_pk")
    assert {row["live"] for row in given} == {True, False}
    await world.rows("INSERT INTO jobs (call_pk, kind) SELECT id, 'analyze' FROM calls RETURNING id")
    assert given == await world.rows(f"SELECT {known} FROM jobs WHERE kind = 'analyze' ORDER BY call_pk")


async def read_in_passing(world: World) -> dict[str, int]:
    """Rows of the tables of a submission that were read without an index, ever."""
    await world.database.fetch_all("SELECT pg_stat_force_next_flush()", ())  # on the connection of submissions
    await world.database.fetch_all("SELECT 1", ())
    rows = await world.rows(
        "SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE relname IN ('calls', 'jobs', 'submissions')"
    )
    return {row["relname"]: row["seq_tup_read"] for row in rows}


async def test_a_submission_costs_no_more_where_there_are_many(world: World, postgres_url: str) -> None:
    """Plans are made while the tables are empty, without statistics, and then kept by their connection."""
    # As new: a vacuum of an empty table, here of one that an earlier test emptied, leaves "no rows" as a statistic.
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # submissions are append-only
        connection.execute("TRUNCATE calls CASCADE")
    database = await Database.open(postgres_url, pool_size=1)  # another connection would plan again
    narrow = replace(world, database=database)
    sending = Sending(narrow)
    for number in range(12):  # a new call alone and three together, then the same again, merged
        for call_id in [uuid4() for _ in range(4)]:
            sending.add(call_id=call_id, recording_url=A)
            if number % 2:
                await sending.answers()
                sending.add(call_id=call_id, recording_url=B)
                await sending.answers()
        await sending.answers()
    before = await read_in_passing(narrow)
    for _ in range(12):
        sending.add(call_id=uuid4(), recording_url=A)
        await sending.answers()
        for _ in range(5):
            sending.add(call_id=uuid4(), recording_url=A)
        await sending.answers()
    assert {type(answer) for answer in await sending.answers()} == {calls.Accepted}
    assert await read_in_passing(narrow) == before
    await database.close()


async def test_each_group_is_of_one_workspace(world: World) -> None:
    other = await new_world(world.database)
    sending = Sending(world)
    for _ in range(4):
        sending.add(call_id=(call_id := uuid4()))
        sending.add(other.scoped, call_id=call_id)
    answers = await sending.answers()
    assert not [answer for answer in answers if isinstance(answer, BaseException)]
    assert sorted(await groups(world)) == [4, 4]
    rows = await world.rows("SELECT workspace_id, count(*) AS n FROM calls GROUP BY 1")
    assert {row["workspace_id"]: row["n"] for row in rows} == {world.workspace_id: 4, other.workspace_id: 4}


async def test_what_postgresql_does_not_take_fails_by_itself(world: World) -> None:
    """No sender gets so far: a number that no column holds, after everything that looks at bodies."""
    sending = Sending(world)
    sending.add(call_id=uuid4())
    good = [uuid4() for _ in range(3)]
    for call_id in good[:2]:
        sending.add(call_id=call_id)
    sending.add(call_id=uuid4(), duration=2**70)
    sending.add(call_id=good[2])
    answers = await sending.answers()
    assert isinstance(answers.pop(3), psycopg.Error)
    assert [type(answer) for answer in answers] == [calls.Accepted] * 4
    assert {row["call_id"] for row in await world.rows("SELECT call_id FROM calls")} >= set(good)


async def test_a_call_that_somebody_holds_delays_only_its_own_submissions(world: World) -> None:
    await world.submit()
    held, free = world.call_id, uuid4()
    sending = Sending(world)
    async with await psycopg.AsyncConnection.connect(world.database.url) as holder:
        await holder.execute("SELECT FROM calls WHERE call_id = %s FOR UPDATE", [held])
        sending.add(call_id=uuid4())
        for duration in (1, 2):
            sending.add(call_id=held, duration=duration)
        sending.add(call_id=free)
        sending.add(call_id=free, duration=7)
        first, *waiting, third, fourth = sending.sent
        async with asyncio.timeout(30):
            await asyncio.gather(first, third, fourth)
        assert not any(task.done() for task in waiting)
        sending.add(call_id=uuid4())  # nor does it keep those waiting who come later
        async with asyncio.timeout(30):
            await sending.sent[-1]
    await sending.answers()
    assert (await world.row(held))["duration"] == 2
    assert (await world.row(free))["duration"] == 7


async def test_nobody_waits_behind_the_only_submission_of_a_call_that_somebody_holds(world: World) -> None:
    await world.submit()
    sending = Sending(world)
    async with await psycopg.AsyncConnection.connect(world.database.url) as holder:
        await holder.execute("SELECT FROM calls WHERE call_id = %s FOR UPDATE", [world.call_id])
        sending.add(call_id=world.call_id, duration=3)
        await blocked(holder)
        sending.add(call_id=uuid4())
        async with asyncio.timeout(20):
            await sending.sent[1]
        assert not sending.sent[0].done()
    await sending.answers()
    assert (await world.row())["duration"] == 3


async def test_groups_of_two_replicas_with_the_same_calls_do_not_lock_each_other_out(world: World) -> None:
    ids = [uuid4() for _ in range(12)]
    replicas = [Sending(world, max_batch=8) for _ in range(2)]
    for turn in range(6):
        for sending, order in zip(replicas, (ids, ids[::-1]), strict=True):
            for call_id in order:
                sending.add(call_id=call_id, duration=turn, recording_url=(A, B)[turn % 2])
    answers = [answer for sending in replicas for answer in await sending.answers()]
    assert {type(answer) for answer in answers} == {calls.Accepted}
    live = await world.rows("SELECT call_pk FROM jobs WHERE state = 'fetching'")
    assert len(live) == len({row["call_pk"] for row in live}) == 12
    for row in await world.rows("SELECT state, job_id FROM calls"):
        assert row["state"] == "transcribing"
    (row,) = await world.rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert row["deadlocks"] == 0


async def test_a_submission_that_is_given_up_leaves_the_line_and_no_other_with_it(world: World) -> None:
    sending = Sending(world)
    async with await psycopg.AsyncConnection.connect(world.database.url) as holder:
        await holder.execute("LOCK TABLE calls")
        sending.add(call_id=uuid4())
        await blocked(holder)
        for _ in range(3):
            sending.add(call_id=uuid4())
        await asyncio.sleep(0)
        sending.sent[2].cancel()
    answers = await sending.answers()
    assert [type(answer) for answer in answers] == [
        calls.Accepted,
        calls.Accepted,
        asyncio.CancelledError,
        calls.Accepted,
    ]
    assert len(await world.rows("SELECT FROM calls")) == 3


async def test_a_submission_that_is_given_up_at_any_moment_is_in_nobodys_way(world: World) -> None:
    """In each turn of the event loop one joins the line or leaves it, so also in that in which a transaction ends."""
    sending = Sending(world, max_waiting=1)
    for _ in range(20):
        sending.add(call_id=uuid4())
        first = sending.sent[-1]
        for _ in range(2):
            await asyncio.sleep(0)  # its transaction begins
        async with asyncio.timeout(60):
            while not first.done():
                sending.add(call_id=uuid4())
                await asyncio.sleep(0)
                sending.sent[-1].cancel()
                await asyncio.sleep(0)
        assert isinstance(await first, calls.Accepted)


async def test_a_transaction_that_all_have_given_up_is_in_nobodys_way(world: World) -> None:
    sending = Sending(world)
    async with await psycopg.AsyncConnection.connect(world.database.url) as holder:
        await holder.execute("LOCK TABLE calls")
        sending.add(call_id=uuid4())
        await blocked(holder)
        sending.sent[0].cancel()
        sending.add(call_id=uuid4())
        await asyncio.wait(sending.sent[:1], timeout=60)
    (given_up, accepted) = await sending.answers()
    assert isinstance(given_up, asyncio.CancelledError)
    assert isinstance(accepted, calls.Accepted)


async def test_more_than_may_wait_are_refused_at_once_and_leave_nothing_behind(world: World) -> None:
    sending = Sending(world, max_waiting=5)
    async with await psycopg.AsyncConnection.connect(world.database.url) as holder:
        await holder.execute("LOCK TABLE calls")
        sending.add(call_id=uuid4())
        await blocked(holder)
        for _ in range(8):
            sending.add(call_id=uuid4())
        async with asyncio.timeout(60):
            while len(refused := [task for task in sending.sent if task.done()]) < 3:
                await asyncio.sleep(0.01)
        assert [type(task.exception()) for task in refused] == [StateUnavailable] * 3
    answers = await sending.answers()
    assert sum(isinstance(answer, calls.Accepted) for answer in answers) == 6
    for _ in range(5):
        sending.add(call_id=uuid4())
    assert {type(answer) for answer in (await sending.answers())[-5:]} == {calls.Accepted}


async def test_in_a_foreign_scope_a_group_reaches_nothing(world: World) -> None:
    other = await new_world(world.database)
    call = '{"call_id": "%s", "from_number": "1", "to_number": "2", "start_time": "2026-11-02T09:30Z"}'
    items = f'[{{"key": "%s", "call": {call}, "body": {{}}}}]'
    submit = sa.text("SELECT outcome FROM submit_calls(CAST(:workspace AS uuid), CAST(:items AS jsonb))")

    async def outcome(scope: UUID, workspace: UUID, key: UUID) -> str:
        values = {"workspace": workspace, "items": items % (key, uuid4())}
        async with world.database.transaction(scope) as connection:
            return str((await connection.execute(submit, values)).scalar_one())

    mine, theirs = world.workspace_id, other.workspace_id
    assert await outcome(mine, theirs, other.scoped.key_id) == "key_revoked"
    assert await outcome(mine, mine, other.scoped.key_id) == "key_revoked"
    assert await outcome(theirs, theirs, world.scoped.key_id) == "key_revoked"
    assert await world.rows("SELECT FROM calls") == []


fields = st.fixed_dictionaries(
    {
        "call": st.integers(0, 2),
        "duration": st.sampled_from([None, 1, 2]),
        "outgoing": st.sampled_from([None, True, False]),
        "recording_url": st.sampled_from([None, A, B]),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(fields, min_size=1, max_size=8), min_size=1, max_size=3))
async def test_groups_give_the_records_that_one_after_the_other_would(world: World, rounds: list[Any]) -> None:
    ids = [uuid4() for _ in range(3)]
    records: dict[UUID, Any] = {}
    for sent in rounds:
        sending = Sending(world)
        for one in sent:
            call_id = ids[one["call"]]
            fields = {name: value for name, value in one.items() if name != "call"} | {"call_id": call_id}
            sending.add(**fields)
            records[call_id] = merge(records.get(call_id), world.submission(**fields, team_id=world.team_id))
        assert all(isinstance(answer, calls.Accepted) for answer in await sending.answers())
    for call_id, record in records.items():
        world.call_id = call_id
        assert await world.call() == record
        assert (await world.row())["state"] == ("transcribing" if record.recording_url else "received")
