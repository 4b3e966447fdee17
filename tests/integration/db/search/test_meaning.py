import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Reader
from db.search import passages, semantic
from db.search.call_list import CallFilter, CallLine
from db.search.semantic import OtherModel, closest_calls
from pipeline import embedding
from pipeline.domain.passages import Passage
from pipeline.embedding import DIMENSION, EmbeddingOptions, Engine
from pipeline.errors import CheckpointMissing
from serve_app.conductor.passages import PassageLoop
from tests.erased import erased_workspace
from tests.finished import finished
from tests.postgres import World, new_world

E5 = EmbeddingOptions(engine="e5")
CANCEL = (("rep", "How can I help you?"), ("customer", "I would like to end my subscription at the end of the month."))
LATE = (("customer", "Mein Paket ist seit einer Woche nicht angekommen und niemand sagt mir, wo es ist."),)
WEATHER = (("customer", "It has been raining here for the whole day, and it is cold."),)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return embedding.load(E5)


async def in_a_thread(work: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(work, *args)


async def worked_off(world: World, compute: Callable[..., Any] = in_a_thread) -> None:
    """Process every due call by the loop of the Conductor."""
    loop = PassageLoop(world.database, compute, E5, None)
    await loop.start()
    try:
        async with asyncio.timeout(60):
            while (await passages.state(world.database)).due:
                await asyncio.sleep(0.05)
    finally:
        await loop.stop(5.0)


async def switched_on(world: World) -> None:
    await passages.switch_on(world.database, E5.model)


async def search(
    world: World, engine: Engine, question: str, team: UUID | None = None, limit: int = 10, **more: Any
) -> list[CallLine]:
    vector = engine.query(question)[0].tolist()
    reader = Reader(world.workspace_id, team)
    return list(await closest_calls(world.database, reader, vector, engine.name, CallFilter(**more), limit))


def of(lines: Sequence[CallLine]) -> list[UUID]:
    return [line.call.call_id for line in lines]


async def test_calls_are_found_by_what_was_meant(world: World, engine: Engine) -> None:
    await switched_on(world)
    cancel, late = await finished(world, *CANCEL, minutes=1), await finished(world, *LATE, language="de", minutes=2)
    weather = await finished(world, *WEATHER, minutes=3)
    await worked_off(world)
    assert of(await search(world, engine, "Who wants to cancel a contract?"))[0] == cancel
    assert of(await search(world, engine, "ein verlorenes Paket"))[0] == late
    lines = await search(world, engine, "bad weather")
    assert of(lines)[0] == weather
    assert set(of(lines)) == {cancel, late, weather}
    similarities = [line.hits[0].similarity or 0 for line in lines]
    assert similarities == sorted(similarities, reverse=True)
    (hit,) = lines[0].hits
    assert (hit.words, hit.speaker, hit.start, hit.turn) == (WEATHER[0][1], "customer", 0.0, 0)
    assert of(await search(world, engine, "bad weather", limit=1)) == [weather]
    assert of(await search(world, engine, "bad weather", language="de")) == [late]


async def test_nothing_is_made_while_it_is_switched_off(world: World, engine: Engine) -> None:
    await finished(world, *CANCEL)
    assert await passages.state(world.database) == passages.IndexState(None, 0, 0, 0)
    with pytest.raises(OtherModel) as refused:
        await search(world, engine, "anything")
    assert refused.value.stored is None
    loop = PassageLoop(world.database, in_a_thread, EmbeddingOptions(), None)
    await loop.start()
    assert loop.alive
    await loop.stop()
    assert (await passages.state(world.database)).model is None


async def test_corrected_words_are_found_and_the_old_ones_not(world: World, engine: Engine) -> None:
    await switched_on(world)
    call_id, other = await finished(world, *WEATHER), await finished(world, *CANCEL, minutes=3)
    await worked_off(world)
    before = {line.call.call_id: line.hits[0].similarity for line in await search(world, engine, "an invoice")}
    pk = (await world.row(call_id))["id"]
    await world.execute(
        "INSERT INTO corrections (call_pk, workspace_id, edits, agent_set, contact_set, swapped, turns, written_at)"
        " SELECT t.call_pk, :workspace, 1, false, false, false,"
        " jsonb_set(t.content -> 'turns', '{0,words}', CAST(:words AS jsonb)), t.written_at"
        " FROM transcripts t WHERE t.call_pk = :pk",
        pk=pk,
        workspace=world.workspace_id,
        words='[{"text": "The", "start": 0, "end": 1, "confidence": 1}, {"text": "invoice", "start": 1, "end": 2,'
        ' "confidence": 1}]',
    )
    await world.execute("SELECT index_call(:pk)", pk=pk)
    assert of(await search(world, engine, "an invoice")) == [other]  # the words are present, their vectors are not
    await worked_off(world)
    (line, _) = await search(world, engine, "an invoice")
    assert (line.call.call_id, line.hits[0].words) == (call_id, "The invoice")
    assert (line.hits[0].similarity or 0) > (before[call_id] or 0)


async def test_words_that_change_meanwhile_win(world: World, engine: Engine) -> None:
    await switched_on(world)
    call_id = await finished(world, *WEATHER)
    (due,) = await passages.claim(world.database, 5, 60.0)
    assert await passages.claim(world.database, 5, 60.0) == []
    await world.execute("SELECT index_call(:pk)", pk=(await world.row(call_id))["id"])
    passages_ = [Passage(0, 0, 0, 0, 0.0, 1.0, "It")]
    assert not await passages.store(world.database, due, engine.name, passages_, engine.passages(["It"]).tolist())
    assert await world.rows("SELECT FROM call_passages") == []
    (again,) = await passages.claim(world.database, 5, 60.0)
    assert again.changed_at > due.changed_at
    assert not await passages.store(world.database, again, "another model", passages_, [[0.0] * DIMENSION])


async def test_a_workspace_and_a_team_find_their_own(world: World, engine: Engine) -> None:
    await switched_on(world)
    other = await new_world(world.database)
    theirs = await finished(other, *CANCEL)
    sales = await finished(world, *CANCEL, sender=world.scoped)
    support = await finished(world, *LATE, sender=world.other_scoped, minutes=2)
    await worked_off(world)
    assert set(of(await search(world, engine, "cancel"))) == {sales, support}
    assert of(await search(world, engine, "cancel", team=world.other_team_id)) == [support]
    assert of(await search(world, engine, "cancel", team_id=world.team_id)) == [sales]
    assert of(await search(other, engine, "cancel")) == [theirs]
    for scope in (Reader(world.workspace_id, world.team_id), Reader(other.workspace_id)):
        async with world.database.transaction(scope) as connection:  # the table itself
            assert await connection.scalar(sa.text("SELECT count(*) FROM call_passages")) == 1
            assert await connection.scalar(sa.text("SELECT count(*) FROM passages_due")) == 0


async def test_a_small_workspace_loses_nothing_to_a_large_one(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both methods, and if the index scan ends before it reaches the small one."""
    await switched_on(world)
    large = await new_world(world.database)
    crowd, mine = await finished(large, *WEATHER), await finished(world, *CANCEL)
    await worked_off(world)
    near = engine.query("Who wants to cancel?")[0].tolist()
    await world.execute("DELETE FROM call_passages WHERE workspace_id = :id", id=large.workspace_id)
    # 2,000 passages of the large one, all of them more like the question than the small one's
    await world.execute(
        "INSERT INTO call_passages SELECT (SELECT id FROM calls WHERE call_id = :crowd), n, :large, :model, 0, 0, 0, 0,"
        " CAST(:vector AS halfvec) FROM generate_series(1, 2000) AS n",
        crowd=crowd,
        large=large.workspace_id,
        model=engine.name,
        vector=str(near),
    )
    assert of(await search(world, engine, "Who wants to cancel?")) == [mine]
    monkeypatch.setattr(semantic, "MAX_EXACT", 0)
    assert of(await search(world, engine, "Who wants to cancel?")) == [mine]
    monkeypatch.setattr(semantic, "SCAN_INDEX", semantic.SCAN_INDEX.replace("'200000'", "'1'"))
    assert of(await search(world, engine, "Who wants to cancel?")) == [mine]


async def explained(connection: AsyncConnection, query: sa.Select[Any]) -> str:
    plain = str(query.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True}))
    plan = await connection.exec_driver_sql(f"EXPLAIN {plain.replace('%', '%%')}")
    return "\n".join(row[0] for row in plan)


async def test_the_walk_takes_the_index(world: World, engine: Engine) -> None:
    await switched_on(world)
    call_id = await finished(world, *CANCEL)
    await world.execute(
        "INSERT INTO call_passages"
        " SELECT (SELECT id FROM calls WHERE call_id = :call), n, :workspace, :model, 0, 0, 0, 0,"
        " (SELECT array_agg(random() - 0.5 + n * 0 * i)::real[] FROM generate_series(1, 384) AS i)::vector::halfvec"
        " FROM generate_series(1, 400) AS n",
        call=call_id,
        workspace=world.workspace_id,
        model=engine.name,
    )
    await world.execute("DELETE FROM passages_due")
    await world.execute("ANALYZE call_passages")
    reader = Reader(world.workspace_id)
    async with world.database.transaction(reader) as connection:
        passages_query = await semantic._passages(connection, reader, CallFilter())
        query = semantic._nearest(passages_query, engine.query("cancel")[0].tolist(), 40, exact=False)
        await connection.execute(sa.text(semantic.SCAN_INDEX))
        plan = await explained(connection, query)
        assert "call_passages_embedding_idx" in plan, plan


async def test_another_model_is_told_and_made_by_itself_only_when_asked(world: World, engine: Engine) -> None:
    await passages.switch_on(world.database, "yesterday's")
    call_id = await finished(world, *CANCEL)
    (due,) = await passages.claim(world.database, 1, 60.0)
    assert await passages.store(world.database, due, "yesterday's", [], [])
    loop = PassageLoop(world.database, in_a_thread, E5, None)
    assert not await loop._is_ours()
    with pytest.raises(OtherModel) as refused:
        await search(world, engine, "cancel")
    assert refused.value.stored == "yesterday's"
    assert await passages.switch_on(world.database, E5.model, replace=True) == E5.model
    last = await passages.make_due(world.database)
    assert await passages.make_due(world.database, last or 0) is None
    await worked_off(world)
    assert of(await search(world, engine, "cancel")) == [call_id]
    assert await passages.make_due(world.database) == last  # nothing is left to be made
    assert (await passages.state(world.database)).due == 0


async def test_passages_go_with_their_call_and_with_the_switch(world: World) -> None:
    await switched_on(world)
    await finished(world, *CANCEL)
    await finished(world, *LATE, minutes=2)
    await worked_off(world)
    assert (await passages.state(world.database)).calls == 2
    await erased_workspace(world)
    assert (await passages.state(world.database)).passages == 0
    assert await passages.switch_off(world.database) == 0
    assert (await passages.state(world.database)).model is None


async def test_a_missing_model_keeps_calls_due(world: World) -> None:
    async def missing(*_: Any) -> Any:
        raise CheckpointMissing("No embedding model.")

    await switched_on(world)
    await finished(world, *CANCEL)
    loop = PassageLoop(world.database, missing, E5, None)
    await loop.start()
    await asyncio.sleep(0.5)
    assert loop.alive
    await loop.stop()
    state = await passages.state(world.database)
    assert (state.due, state.passages) == (1, 0)
