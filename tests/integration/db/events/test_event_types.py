import asyncio
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from db.events import types
from db.events.types import EventType
from db.server import migrate
from serve_app.webhooks import payload
from tests.integration.db.server.test_upgrade import code_of
from tests.integration.serve_app.webhooks.test_delivery import delivering, endpoint
from tests.postgres import World
from tests.receiver import receiving

MOVED = EventType(
    "call.moved",
    "The call belongs to another team.",
    "old.team_id IS DISTINCT FROM new.team_id AND old.id IS NOT NULL",
)
HELP = f"""
from db.events import types as event_types
event_types.EVENT_TYPES += (event_types.EventType({MOVED.name!r}, {MOVED.description!r}, {MOVED.condition!r}),)
from typer.testing import CliRunner
from serve_app.cli.workspace.webhooks import app
print(CliRunner().invoke(app, ["create", "--help"]).output)
"""


@pytest.fixture
def another_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(types, "EVENT_TYPES", (*types.EVENT_TYPES, MOVED))


async def test_one_entry_makes_a_type_that_is_stored_and_delivered_as_its_schema_says(
    world: World, another_type: None, tmp_path: Path
) -> None:
    with code_of(tmp_path, {"v9901": "pass"}, ""):
        await asyncio.to_thread(migrate.migrate, world.database.url)
    async with receiving() as receiver, delivering(world):
        await endpoint(world, receiver, event_types=[MOVED.name])
        await world.submit(world.wide, team_id=world.team_id)
        await world.submit(world.wide, team_id=world.team_id)  # sent again: no event
        await world.submit(world.wide, team_id=world.other_team_id)
        (taken,) = await receiver.until(1)
    stored = await world.rows("SELECT type, data FROM events")
    assert [(row["type"], row["data"]["teamId"]) for row in stored] == [(MOVED.name, str(world.other_team_id))]
    assert taken.type == MOVED.name
    event = payload.adapter().validate_json(taken.body)
    assert (type(event).__name__, event.data.team_id) == ("CallMoved", world.other_team_id)
    jsonschema.validate(json.loads(taken.body), payload.schema())
    assert payload.schema()["$defs"]["CallMoved"]["description"] == MOVED.description


def test_one_entry_documents_the_type(another_type: None) -> None:
    assert f"| `{MOVED.name}` | {MOVED.description} |" in payload.documented()


def test_one_entry_makes_a_type_that_the_command_line_names() -> None:
    shown = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True).stdout
    assert MOVED.name in shown
