import asyncio
from dataclasses import replace
from datetime import date, timedelta
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from db.core.database import OUTAGES, Reader
from db.core.pages import InvalidCursor
from db.queue import backlog
from db.records import views
from db.search import people_list
from db.search.call_list import CallFilter, list_calls
from db.search.task_list import TaskFilter, list_tasks
from db.workspace import access_log, directory
from tests.finished import START, findings, finished, mark_done, received, task
from tests.postgres import World, new_world


@pytest.fixture
def everybody(world: World) -> Reader:
    return Reader(world.workspace_id)


async def ids(world: World, reader: Reader, limit: int = 50, **conditions: object) -> list[UUID]:
    page = await list_calls(world.database, reader, CallFilter(**conditions), limit=limit)  # type: ignore[arg-type]
    assert page.next is None
    return [line.call.call_id for line in page.items]


async def test_the_call_that_started_last_comes_first(world: World, everybody: Reader) -> None:
    later, earlier = await received(world, minutes=5), await received(world, minutes=1)
    assert await ids(world, everybody) == [later, earlier]


async def test_pages_stay_where_they_are_while_calls_come_in(world: World, everybody: Reader) -> None:
    call_ids = [await received(world, minutes=at // 2) for at in range(7)]  # two start at the same moment each
    seen: list[UUID] = []
    cursor = None
    for _ in range(4):
        page = await list_calls(world.database, everybody, cursor=cursor, limit=2)
        seen += [line.call.call_id for line in page.items]
        cursor = page.next
        await received(world, minutes=100)  # later than all of them
    assert cursor is None
    assert seen == sorted(call_ids, key=call_ids.index, reverse=True)


async def test_a_cursor_is_of_its_list_and_its_filters(world: World, everybody: Reader) -> None:
    for minutes in range(3):
        await received(world, minutes=minutes)
    page = await list_calls(world.database, everybody, limit=1)
    assert page.next is not None
    for cursor in ("", "x", "W10", page.next[:-2], "WyJ4IiwxLCJ5Il0"):
        with pytest.raises(InvalidCursor):
            await list_calls(world.database, everybody, cursor=cursor)
    with pytest.raises(InvalidCursor):
        await list_calls(world.database, everybody, CallFilter(outgoing=True), page.next)
    with pytest.raises(InvalidCursor):
        await list_tasks(world.database, everybody, cursor=page.next)


async def test_each_filter_finds_its_calls(world: World, everybody: Reader) -> None:
    ana, ben = uuid4(), uuid4()
    for user_id, name in ((ana, "Ana Berg"), (ben, "Ben Ruiz")):
        await directory.add_member(world.database, world.workspace_id, name, user_id)
    waiting = await received(world, minutes=1, outgoing=True, from_number="101", to_number="030 998877")
    happy = await finished(
        world,
        minutes=2,
        user_id=ana,
        outgoing=False,
        found=findings(
            "positive", (task("Send the offer", date(2026, 11, 9)),), {"name": "Eve Stone", "number": "+4917612345"}
        ),
    )
    identified = await finished(
        world, minutes=3, language="de", found=findings("negative", agent=ben), sender=world.other_scoped
    )
    contact = (await list_calls(world.database, everybody, CallFilter(tone="positive"))).items[0].contact
    assert contact is not None and contact.name == "Eve Stone"
    expected: list[tuple[dict[str, object], list[UUID]]] = [
        ({"states": ("completed",)}, [identified, happy]),
        ({"states": ("received", "transcribing")}, [waiting]),
        ({"started_from": START + timedelta(minutes=2)}, [identified, happy]),
        ({"started_before": START + timedelta(minutes=2)}, [waiting]),
        ({"outgoing": True}, [waiting]),
        ({"team_id": world.other_team_id}, [identified]),
        ({"user_id": ana}, [happy]),
        ({"user_id": ben}, [identified]),
        ({"contact_id": UUID(contact.contact_id)}, [happy]),
        ({"number": "+49 30 998877"}, [waiting]),
        ({"number": "030/998877"}, [waiting]),
        ({"number": "101"}, [waiting]),
        ({"language": "de"}, [identified]),
        ({"tone": "negative"}, [identified]),
        ({"open_tasks": True}, [happy]),
        ({"open_tasks": False}, [identified, waiting]),
        ({"user_id": uuid4()}, []),
    ]
    for conditions, matches in expected:
        assert await ids(world, everybody, **conditions) == matches, conditions
    await mark_done(world, "Send the offer")
    assert await ids(world, everybody, open_tasks=True) == []


async def test_calls_of_a_number_come_in_order_whatever_became_of_them(world: World, everybody: Reader) -> None:
    """Completed calls are in an index that the others are not in."""
    number = "+4917612345678"
    call_ids = []
    for minutes in range(6):
        make = received if minutes % 2 else finished
        call_ids.append(await make(world, minutes=minutes, from_number=number))  # type: ignore[operator]
        await received(world, minutes=minutes, from_number="+4917699999999")
    assert await ids(world, everybody, number=number) == call_ids[::-1]
    seen: list[UUID] = []
    cursor = None
    for _ in range(3):
        page = await list_calls(world.database, everybody, CallFilter(number="0176 12345678"), cursor, 2)
        seen += [line.call.call_id for line in page.items]
        cursor = page.next
    assert (seen, cursor) == (call_ids[::-1], None)


async def test_a_line_says_what_people_look_for_first(world: World, everybody: Reader) -> None:
    ana = uuid4()
    await directory.add_member(world.database, world.workspace_id, "Ana Berg", ana)
    await finished(world, user_id=ana, found=findings("neutral", (task("One"), task("Two"))))
    await mark_done(world, "One")
    (line,) = (await list_calls(world.database, everybody)).items
    assert (line.agent, line.tone, line.summary, line.tasks, line.open_tasks) == (
        "Ana Berg",
        "neutral",
        "They talked.",
        2,
        1,
    )
    assert line.call.state == "completed" and line.call.language == "en"


async def test_what_changed_since_comes_in_the_order_of_the_changes(world: World, everybody: Reader) -> None:
    first, second = await received(world), await received(world)
    (since,) = await world.rows("SELECT max(updated_at) AS at FROM calls")
    assert await ids(world, everybody, updated_after=since["at"]) == []
    await asyncio.sleep(0.01)
    await world.submit(call_id=first, duration=60)
    assert await ids(world, everybody, updated_after=since["at"]) == [first]
    await world.submit(call_id=second, duration=60)
    assert await ids(world, everybody, updated_after=since["at"]) == [first, second]


async def test_a_recording_that_was_replaced_is_neither_shown_nor_found(world: World, everybody: Reader) -> None:
    call_id = await finished(world, found=findings("positive", (task("Send the offer"),)))
    await world.submit(call_id=call_id, recording_url="https://s.example/another")
    assert await ids(world, everybody, text="invoice") == []
    assert await ids(world, everybody, open_tasks=True) == []
    assert (await list_tasks(world.database, everybody)).items == ()
    (line,) = (await list_calls(world.database, everybody)).items
    assert (line.summary, line.tasks, line.tone) == (None, 0, None)


async def test_tasks_across_calls_come_by_their_date(world: World, everybody: Reader) -> None:
    await finished(
        world,
        minutes=1,
        found=findings(tasks=(task("Later", date(2026, 12, 1)), task("Sometime"), task("Pay", owner="customer"))),
    )
    await finished(
        world, minutes=2, found=findings(tasks=(task("Soon", date(2026, 11, 3)),)), sender=world.other_scoped
    )

    async def titles(**conditions: object) -> list[str]:
        page = await list_tasks(world.database, everybody, TaskFilter(**conditions))  # type: ignore[arg-type]
        return [line.title for line in page.items]

    async def open_tasks() -> list[int]:
        page = await list_calls(world.database, everybody, CallFilter(open_tasks=True))
        return [line.open_tasks for line in page.items]

    assert await titles() == ["Soon", "Later", "Sometime", "Pay"]
    assert await titles(owner="customer") == ["Pay"]
    assert await titles(due_from=date(2026, 11, 4)) == ["Later"]
    assert await titles(due_before=date(2026, 11, 4)) == ["Soon"]
    assert await titles(team_id=world.other_team_id) == ["Soon"]
    await mark_done(world, "Later")
    assert await titles(done=True) == ["Later"]
    assert await titles(done=False) == ["Soon", "Sometime", "Pay"]
    assert await open_tasks() == [1, 2]
    await world.execute("DELETE FROM task_marks")
    assert await titles(done=True) == []
    assert await open_tasks() == [1, 3]
    seen, cursor = [], None
    for _ in range(4):
        page = await list_tasks(world.database, everybody, cursor=cursor, limit=1)
        seen += [line.title for line in page.items]
        cursor = page.next
    assert (seen, cursor) == (["Soon", "Later", "Sometime", "Pay"], None)


async def test_a_task_that_is_found_again_keeps_its_id_and_its_mark(world: World, everybody: Reader) -> None:
    call_id = await finished(world, found=findings(tasks=(task("Send the offer"), task("Call back"))))
    before = {line.title: line.task_id for line in (await list_tasks(world.database, everybody)).items}
    await mark_done(world, "Call back")
    again = findings(tasks=(task("Call back"), task("Send the offer")))
    await finished(world, call_id=call_id, recording_url="https://s.example/other", found=again)
    lines = (await list_tasks(world.database, everybody)).items
    assert {line.title: line.task_id for line in lines} == before
    assert {line.title for line in lines if line.done_at} == {"Call back"}


async def test_people_and_the_queue(world: World, everybody: Reader) -> None:
    ana = await directory.add_member(world.database, world.workspace_id, "Ana", team_id=world.team_id)
    await directory.add_member(world.database, world.workspace_id, "Ben", team_id=world.other_team_id)
    await directory.add_contact(world.database, world.workspace_id, "Zoe", "Zebra Ltd", phone="+4930111")
    await finished(world, found=findings(heard={"name": "Eve", "number": "+4917612345"}))
    await received(world, recording_url="https://s.example/b")
    contacts = (await people_list.list_contacts(world.database, everybody)).items
    assert [(c.name, c.calls, c.source) for c in contacts] == [("Eve", 1, "call"), ("Zoe", 0, "directory")]
    assert contacts[0].last_call == START
    assert [c.name for c in (await people_list.list_contacts(world.database, everybody, "zebra")).items] == ["Zoe"]
    first = await people_list.list_contacts(world.database, everybody, limit=1)
    second = await people_list.list_contacts(world.database, everybody, cursor=first.next, limit=1)
    assert [c.name for c in (*first.items, *second.items)] == ["Eve", "Zoe"] and second.next is None
    members = (await people_list.list_members(world.database, everybody, team_id=world.team_id)).items
    assert [(m.name, m.user_id) for m in members] == [("Ana", ana.user_id)]
    queues = await backlog.team_queues(world.database, everybody)
    assert [(q.team, q.fetching, q.running) for q in queues] == [("Sales", 1, 0), ("Support", 0, 0)]


async def test_a_team_reads_its_own_calls_whatever_the_query_forgets(world: World) -> None:
    other_world = await new_world(world.database)
    await finished(other_world, found=findings("positive"))
    mine = await finished(world, found=findings(tasks=(task("Ours"),), heard={"name": "Eve", "number": "+4917612345"}))
    theirs = await finished(
        world,
        sender=world.other_scoped,
        found=findings(tasks=(task("Theirs"),), heard={"name": "Tom", "number": "+4917699999"}),
    )
    await directory.add_member(world.database, world.workspace_id, "Ben", team_id=world.other_team_id)
    reader = Reader(world.workspace_id, world.team_id)
    assert await ids(world, reader) == [mine]
    assert await ids(world, reader, text="invoice") == [mine]
    assert await ids(world, reader, name="Tom") == []
    assert await ids(world, reader, team_id=world.other_team_id) == []
    assert [line.title for line in (await list_tasks(world.database, reader)).items] == ["Ours"]
    assert [c.name for c in (await people_list.list_contacts(world.database, reader)).items] == ["Eve"]
    assert (await people_list.list_members(world.database, reader)).items == ()
    assert [q.team for q in await backlog.team_queues(world.database, reader)] == ["Sales"]
    async with world.database.transaction(reader) as connection:
        assert await views.read_call(connection, mine) is not None
        assert await views.read_call(connection, theirs) is None
        for table, rows in (
            ("calls", 1),
            ("transcripts", 1),
            ("tasks", 1),
            ("contacts", 1),
            ("call_search", 1),
            ("jobs", 1),
        ):
            count = await connection.scalar(sa.text(f"SELECT count(*) FROM {table}"))
            assert count == rows, table
        for table in ("host_credentials", "voice_centroids"):
            assert await connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) == 0
        for table in ("teams", "api_keys"):
            assert await connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) == 1, table
    async with world.database.transaction(Reader(world.workspace_id)) as connection:
        assert await views.read_call(connection, theirs) is not None


async def test_a_statement_that_takes_too_long_ends(world: World, everybody: Reader) -> None:
    with pytest.raises(OUTAGES, match="statement timeout"):
        async with world.database.transaction(replace(everybody, seconds=0.05)) as connection:
            await connection.execute(sa.text("SELECT pg_sleep(5)"))
    async with world.database.transaction(world.workspace_id) as connection:  # the next one has no such end
        await connection.execute(sa.text("SELECT pg_sleep(0.1)"))


async def test_who_read_a_call_is_kept(world: World, everybody: Reader) -> None:
    mine, theirs = await received(world), await received(world, sender=world.other_scoped)
    key = world.wide.key_id
    await access_log.note(world.database, everybody, key, [mine, theirs], "audio", "channel 0", "r-1")
    team = Reader(world.workspace_id, world.team_id)
    (access,) = await access_log.list_reads(world.database, team, mine)
    assert (access.key_id, access.what, access.detail, access.request_id) == (key, "audio", "channel 0", "r-1")
    assert await access_log.list_reads(world.database, team, theirs) == []
    assert len(await access_log.list_reads(world.database, everybody, theirs)) == 1
    with pytest.raises(sa.exc.DBAPIError, match="row-level security"):
        await access_log.note(world.database, team, key, [theirs], "audio")
