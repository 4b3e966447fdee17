import json
from datetime import timedelta
from uuid import UUID

import jsonschema
import sqlalchemy as sa

from db.core.database import Reader
from db.records import correct
from db.records.correct import WantedEdit
from db.records.corrections import Editor
from db.search import changes
from pipeline.domain.edits import EditKind
from serve_app.webhooks import payload
from tests.finished import findings, finished, task
from tests.integration.serve_app.webhooks.test_delivery import delivering, endpoint
from tests.postgres import World
from tests.receiver import receiving

EDITED = "call.edited"
SWAP = WantedEdit(EditKind.ROLES, False, True)
BY = Editor(None, None, "Ana")


async def edited(world: World) -> list[UUID]:
    rows = await world.rows(f"SELECT data ->> 'callId' AS call FROM events WHERE type = '{EDITED}' ORDER BY at")
    return [UUID(row["call"]) for row in rows]


async def test_an_edit_is_delivered_as_the_schema_says_and_told_to_streams(world: World) -> None:
    call_id = await finished(world)
    async with receiving() as receiver, delivering(world):
        await endpoint(world, receiver, event_types=[EDITED])
        before = (await world.row(call_id))["updated_at"]
        reader = Reader(world.workspace_id)
        await correct.make(world.database, reader, BY, call_id, SWAP)
        (taken,) = await receiver.until(1)
    assert taken.type == EDITED
    jsonschema.validate(json.loads(taken.body), payload.schema())
    event = payload.adapter().validate_json(taken.body)
    assert (type(event).__name__, event.data.call_id, event.data.status) == ("CallEdited", call_id, "completed")
    assert [change.call_id for change in (await changes.read_changes(world.database, reader, before)).items] == [
        call_id
    ]


async def test_each_edit_undo_and_tick_is_one_event_and_nothing_else_is(world: World) -> None:
    call_id = await finished(world, found=findings(tasks=(task("Send the offer"),)))
    other = await finished(world)
    async with receiving() as receiver:
        await endpoint(world, receiver, event_types=[EDITED])
        reader = Reader(world.workspace_id)
        result = await correct.make(world.database, reader, BY, call_id, SWAP)
        assert await edited(world) == [call_id]
        again = await correct.make(world.database, reader, BY, call_id, SWAP)
        assert not again.created and len(await edited(world)) == 1, "the same request again changes nothing"
        await correct.undo(world.database, reader, BY, call_id, result.edit.edit_id)
        await correct.undo(world.database, reader, BY, call_id, result.edit.edit_id)
        assert len(await edited(world)) == 2
        (row,) = await world.rows("SELECT task_id(call_pk, title, evidence) AS id FROM tasks")
        for _ in range(2):
            await correct.tick(world.database, reader, BY, call_id, row["id"])
        assert len(await edited(world)) == 3
        await correct.untick(world.database, reader, BY, call_id, row["id"])
        assert len(await edited(world)) == 4
        async with world.database.transaction(world.workspace_id) as connection:
            moved = sa.text("UPDATE calls SET updated_at = updated_at + :by WHERE call_id = :call")
            await connection.execute(moved, {"by": timedelta(seconds=1), "call": call_id})
        assert set(await edited(world)) == {call_id} and other not in await edited(world)
        assert len(await edited(world)) == 4


async def test_an_endpoint_of_another_team_is_told_nothing(world: World) -> None:
    call_id = await finished(world)
    async with receiving() as receiver:
        await endpoint(world, receiver, event_types=[EDITED], team_id=world.other_team_id)
        await endpoint(world, receiver, event_types=["call.completed"])
        await correct.make(world.database, Reader(world.workspace_id), BY, call_id, SWAP)
    assert await edited(world) == []
