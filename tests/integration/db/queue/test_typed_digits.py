from dataclasses import replace
from uuid import UUID

import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE
from db.queue import jobs, stage_results
from db.records import roster
from db.records.complete import complete
from db.workspace import settings
from pipeline.domain.speech import Label, LabelKind
from pipeline.domain.stage import Stage
from tests.integration.db.records.test_complete import FETCHED, STAGE_RESULTS, TRANSCRIPT, taken
from tests.postgres import TABLES, World, new_world

LABELS = ((Label(0.0, 1.0, LabelKind.BEEP, 0.9, "440 Hz"), Label(1.0, 2.0, LabelKind.DTMF, 0.9, "4711", 4)), ())


async def complete_call(world: World) -> jobs.Lease:
    lease = await taken(world)
    audio, spoken = replace(STAGE_RESULTS[Stage.AUDIO], labels=LABELS), replace(TRANSCRIPT, labels=LABELS)  # type: ignore[type-var]
    for stage, result in ((Stage.FETCH, FETCHED), (Stage.AUDIO, audio), (Stage.SPEAKERS, spoken)):
        await stage_results.record(world.database, lease, stage, result)
    assert await complete(world.database, lease, spoken, (), None) is None
    return lease


async def everything(world: World, workspace_id: UUID) -> str:
    """Return all rows of all tables of a workspace as text."""
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        names = await connection.execute(sa.text(f"{TABLES} AND relrowsecurity"))
        tables = [name for (name,) in names]
    stored = []
    async with world.database.transaction(workspace_id) as connection:
        for table in tables:
            rows = await connection.execute(sa.text(f"SELECT row_to_json(t)::text FROM {table} t"))
            stored += [row for (row,) in rows]
    return "\n".join(stored)


async def test_a_workspace_keeps_no_digits_until_it_asks(world: World) -> None:
    lease = await taken(world)
    assert (await roster.load(world.database, lease)).keep_digits is False
    await settings.set_keep_digits(world.database, world.workspace_id, True)
    assert (await roster.load(world.database, lease)).keep_digits is True


async def test_what_was_kept_is_removed_everywhere_when_it_asks_no_longer(world: World) -> None:
    other = await new_world(world.database)
    for place in (world, other):
        await settings.set_keep_digits(world.database, place.workspace_id, True)
        await complete_call(place)
        assert '"4711"' in await everything(world, place.workspace_id)
    await settings.set_keep_digits(world.database, world.workspace_id, False)
    assert "4711" not in await everything(world, world.workspace_id)
    assert '"4711"' in await everything(world, other.workspace_id), "another's affair"
    pressed = {"end": 2.0, "keys": 4, "kind": "dtmf", "start": 1.0, "detail": None, "confidence": 0.9}
    (row,) = await world.rows(
        "SELECT content -> 'labels' AS labels FROM transcripts t JOIN calls c ON c.id = t.call_pk"
        " WHERE workspace_id = :id",
        id=world.workspace_id,
    )
    assert row["labels"][0][1] == pressed
    assert row["labels"][0][0]["detail"] == "440 Hz"
