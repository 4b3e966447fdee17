import asyncio
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.core.database import Reader
from db.search.call_list import CallFilter, CallLine, list_calls
from db.search.full_text import is_named, names_query
from db.workspace import directory
from tests.finished import findings, finished
from tests.postgres import World, new_world

GERMAN = (("rep", "Guten Tag, hier ist die Werkstatt."), ("customer", "Die Rechnungen sind noch nicht bezahlt."))


async def search(world: World, text: str | None = None, **more: object) -> list[CallLine]:
    filters = CallFilter(text=text, **more)  # type: ignore[arg-type]
    page = await list_calls(world.database, Reader(world.workspace_id), filters)
    assert page.next is None
    return list(page.items)


def of(lines: list[CallLine]) -> list[UUID]:
    return [line.call.call_id for line in lines]


async def test_words_are_found_in_the_forms_of_their_language(world: World) -> None:
    english = await finished(world, ("customer", "We were charged twice for two deliveries."), minutes=1)
    german = await finished(world, *GERMAN, language="de", minutes=2)
    other = await finished(world, ("customer", "Sprijiniți-mă, factura este greșită"), language="ro", minutes=3)
    expected = [
        ("delivery", [english]),
        ("charge", [english]),
        ("CHARGED twice", [english]),
        ("Rechnung", [german]),
        ("bezahlt Werkstatt", [german]),
        ("factura", [other]),
        ("delivery or Rechnung", [german, english]),
        ("charged -twice", []),
        ('"two deliveries"', [english]),
        ('"deliveries two"', []),
        ("the", []),
        ("nothing like it", []),
        ("''\"\"&|!():*<->", []),
        ("\\", []),
    ]
    for text, calls in expected:
        assert of(await search(world, text)) == calls, text
    assert of(await search(world, "delivery", language="de")) == []
    assert of(await search(world, "delivery", language="en")) == [english]


async def test_a_hit_is_the_words_as_said_and_their_second(world: World) -> None:
    await finished(world, minutes=1)
    (line,) = await search(world, "invoices amount")
    assert [(hit.words, hit.speaker, hit.turn) for hit in line.hits] == [
        ("invoice", "customer", 1),
        ("amount", "customer", 1),
        ("invoice", "rep", 2),
    ]
    for hit in line.hits:
        assert hit.words in hit.quote
        assert 3.5 * hit.turn <= hit.start < hit.end <= 3.5 * hit.turn + 3.0
    (phrase,) = await search(world, '"corrected invoice"')
    assert "corrected invoice" in [hit.words for hit in phrase.hits]


async def test_names_numbers_and_a_wrong_letter(world: World) -> None:
    ana = uuid4()
    await directory.add_member(world.database, world.workspace_id, "Ana Lindqvist", ana)
    contact = {
        "name": "Jörg Müller",
        "company": "Miller & Sons",
        "email": "jm@miller.example",
        "number": "+491761234567",
    }
    call_id = await finished(world, user_id=ana, from_number="+491761234567", found=findings(heard=contact))
    await finished(world, found=findings(heard={"name": "Petra Kowalski", "number": "+4915199"}), minutes=5)
    for name in (
        *("Lindqvist", "lindquist", "Ana Lindqvist", "müller", "Jörg", "miller & sons", "sons", "jm@miller.example"),
        *("+491761234567", "1761234", "Lindqvst", "Lindkvist"),
    ):
        assert of(await search(world, name=name)) == [call_id], name
    for name in ("Lindbergh", "99", "Müllerin Jörgensen", "1761239", "&", "Xu"):
        assert of(await search(world, name=name)) == [], name
    assert of(await search(world, "invoice", name="Lindqvist")) == [call_id]
    assert of(await search(world, "nothing", name="Lindqvist")) == []


async def test_other_filters_hold_for_what_is_found(world: World) -> None:
    positive = await finished(world, found=findings("positive"), minutes=1, outgoing=True)
    negative = await finished(world, found=findings("negative"), minutes=2)
    assert of(await search(world, "invoice")) == [negative, positive]
    assert of(await search(world, "invoice", tone="positive")) == [positive]
    assert of(await search(world, "invoice", outgoing=True)) == [positive]
    assert of(await search(world, "invoice", team_id=world.other_team_id)) == []


async def test_pages_of_what_is_found_stay_where_they_are(world: World) -> None:
    call_ids = [await finished(world, minutes=at // 2) for at in range(5)]
    seen: list[UUID] = []
    cursor = None
    filters = CallFilter(text="invoice")
    for _ in range(3):
        page = await list_calls(world.database, Reader(world.workspace_id), filters, cursor, 2)
        seen += of(list(page.items))
        cursor = page.next
        await finished(world, minutes=60)
    assert (seen, cursor) == ([call_ids[4], *reversed(call_ids[:4])], None)


async def test_a_call_of_another_workspace_is_never_found(world: World) -> None:
    other = await new_world(world.database)
    mine, theirs = await finished(world), await finished(other)
    assert of(await search(world, "invoice")) == [mine]
    assert of(await search(other, "invoice")) == [theirs]
    async with world.database.transaction(world.workspace_id) as connection:  # the index itself, past the join
        rows = await connection.execute(
            sa.text("SELECT count(*) FROM search_calls(NULL, 'invoice', NULL, NULL, NULL, NULL, NULL, 100, NULL)")
        )
        assert rows.scalar_one() == 1
        assert (await connection.execute(sa.text("SELECT count(*) FROM call_search"))).scalar_one() == 1


async def test_a_call_is_found_where_it_was_moved_to(world: World) -> None:
    early, late = await finished(world, minutes=0), await finished(world, minutes=10)
    assert of(await search(world, "invoice")) == [late, early]
    await world.execute("UPDATE calls SET start_time = start_time + interval '1 hour' WHERE call_id = :id", id=early)
    assert of(await search(world, "invoice")) == [early, late]


async def test_a_call_is_found_by_the_team_that_has_it_now(world: World) -> None:
    call_id = await finished(world)
    teams = {team: Reader(world.workspace_id, team) for team in (world.team_id, world.other_team_id)}

    async def finders() -> list[UUID]:
        pages = {
            team: await list_calls(world.database, reader, CallFilter(text="invoice")) for team, reader in teams.items()
        }
        return [team for team, page in pages.items() if of(list(page.items)) == [call_id]]

    assert await finders() == [world.team_id]
    await world.execute("UPDATE calls SET team_id = :team WHERE call_id = :id", id=call_id, team=world.other_team_id)
    assert await finders() == [world.other_team_id]


async def test_a_record_is_kept_whatever_cannot_be_indexed(world: World) -> None:
    unlike = [f"{at:x}" + "ü" * 60 for at in range(12_000)]  # more than a tsvector holds
    call_id = await finished(world, ("rep", " ".join(unlike)))
    lines = (await list_calls(world.database, Reader(world.workspace_id))).items
    assert [(line.call.call_id, line.call.state) for line in lines] == [(call_id, "completed")]
    assert await world.rows("SELECT FROM call_search") == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=30), name=st.text(max_size=30))
async def test_any_text_may_be_searched_for(world: World, text: str, name: str) -> None:
    asked = text.replace("\x00", "").encode("utf-8", "ignore").decode()
    await search(world, asked)
    await search(world, name=name.replace("\x00", "").encode("utf-8", "ignore").decode())


@pytest.mark.parametrize("name", ["Lindqvist", "Ann", "Li", "030 99", "van der Berg"])
def test_a_name_is_in_itself(name: str) -> None:
    assert is_named(name, name.lower())
    assert names_query(name)


async def test_searches_at_the_same_time_as_calls_complete(world: World) -> None:
    await finished(world)
    call_id, lines = await asyncio.gather(finished(world, minutes=1), search(world, "invoice"))
    assert len(lines) in (1, 2)
    assert of(await search(world, "invoice"))[0] == call_id
