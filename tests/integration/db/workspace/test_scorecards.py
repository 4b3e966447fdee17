import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from db.records import roster
from db.workspace import admin_log, questions
from db.workspace.questions import ScorecardUnfit
from pipeline.domain.questions import Scorecard, ScorecardItem
from serve_app.webhooks import payload
from tests import commands
from tests.integration.serve_app.api.test_api_admin import key_of
from tests.integration.serve_app.webhooks.test_delivery import delivering, endpoint
from tests.postgres import World, new_world
from tests.questions import NOTICE, OFFERED, WHY, analyzed, define, record
from tests.reading_api import asking
from tests.receiver import receiving

SERVICE = Scorecard(
    "service",
    title="Service quality",
    pass_mark=60.0,
    items=(ScorecardItem("offered", "Talk", 3.0), ScorecardItem("why"), ScorecardItem("notice", weight=2.0)),
)


async def scored(world: World, *cards: Scorecard) -> None:
    await questions.set_questions(world.database, world.workspace_id, [OFFERED, WHY, NOTICE, *(cards or (SERVICE,))])


async def test_the_record_has_the_score_by_the_card_as_it_was(world: World) -> None:
    await scored(world)
    call_id = await analyzed(world)
    (result,) = (await record(world, call_id)).scorecards
    assert (result.key, result.version, result.score, result.passed) == ("service", 1, 66.7, True)
    assert [(item.question, item.outcome, item.earned) for item in result.items] == [
        ("offered", "yes", 1.0),
        ("why", "said", 1.0),
        ("notice", "not said", 0.0),
    ]
    await scored(world, replace(SERVICE, pass_mark=90.0))
    assert (await record(world, call_id)).scorecards == (result,)
    assert (await record(world, await analyzed(world))).scorecards[0].version == 2


async def test_they_come_with_the_roster_and_are_no_questions(world: World) -> None:
    await scored(world)
    await world.submit(recording_url="https://s.example/a")
    call_roster = await roster.load(world.database, await world.claim_one())
    assert call_roster.scorecards == (replace(SERVICE, version=1),)
    listed = await questions.list_questions(world.database, world.workspace_id, world.workspace_id)
    assert [item.question.key for item in listed] == ["offered", "why", "notice"]
    (card,) = await questions.list_scorecards(world.database, world.workspace_id, world.workspace_id)
    assert card.scorecard.key == "service"
    log = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)
    assert [(item.action, item.name) for item in log.items if item.kind == "scorecard"] == [("created", "service")]
    other = await new_world(world.database)
    assert await questions.list_scorecards(world.database, other.workspace_id, world.workspace_id) == []


async def test_a_question_on_a_scorecard_stays_while_the_scorecard_does(world: World) -> None:
    await scored(world)
    with pytest.raises(ScorecardUnfit, match=r"'service', items.1..question: there is no question or tracker 'why'"):
        await questions.remove(world.database, world.workspace_id, "why")
    with pytest.raises(ScorecardUnfit):
        await questions.set_questions(world.database, world.workspace_id, [OFFERED, SERVICE], only=True)
    listed = await questions.list_questions(world.database, world.workspace_id, world.workspace_id)
    assert len(listed) == 3, "nothing has changed"
    await questions.remove(world.database, world.workspace_id, "service")
    await questions.remove(world.database, world.workspace_id, "why")


async def test_the_event_of_a_call_carries_its_score(world: World) -> None:
    await scored(world)
    async with receiving() as receiver, delivering(world):
        await endpoint(world, receiver, event_types=["call.completed"], include=["record"])
        await analyzed(world)
        (taken,) = await receiver.until(1)
    jsonschema.validate(json.loads(taken.body), payload.schema())
    assert json.loads(taken.body)["data"]["record"]["scorecards"] == [
        {
            "key": "service",
            "version": 1,
            "title": "Service quality",
            "score": 66.7,
            "passMark": 60.0,
            "passed": True,
            "autoFailed": False,
        }
    ]


async def test_over_http_scorecards_are_read_with_read_and_changed_with_admin(world: World, postgres_url: str) -> None:
    await define(world, OFFERED)
    admin, reader = await key_of(world), await key_of(world, None, "read")
    body: dict[str, Any] = {"key": "service", "title": "S", "passMark": 80, "items": [{"question": "offered"}]}
    async with asking(postgres_url) as ask:
        created = await ask("POST", "/scorecards", admin, **body)
        assert created.status_code == 201, created.text
        assert (await ask("POST", "/scorecards", admin, **body)).status_code == 200
        assert (await ask("POST", "/scorecards", reader, **body)).status_code == 403
        nothing = await ask("POST", "/scorecards", admin, **(body | {"items": [{"question": "nothing"}]}))
        assert nothing.status_code == 400 and nothing.json()["errors"][0]["pointer"] == "/items"
        listed = (await ask("GET", "/scorecards", reader)).json()["items"]
        assert [(item["scorecard"]["key"], item["scorecard"]["passMark"]) for item in listed] == [("service", 80)]
        refused = await ask("DELETE", "/questions/offered", admin)
        assert refused.status_code == 409 and refused.json()["type"].endswith("on-scorecard")
        assert (await ask("GET", "/questions/service", reader)).status_code == 404, "it is no question"
        assert (await ask("DELETE", "/scorecards/offered", admin)).status_code == 404
        assert (await ask("DELETE", "/scorecards/service", admin)).json()["retiredAt"] is not None
        assert (await ask("GET", "/scorecards", reader)).json()["items"] == []


async def test_the_command_line_sets_lists_shows_and_tries_scorecards(
    world: World, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    call_id = await analyzed(world)
    file = tmp_path / "q.toml"
    file.write_text(
        '[[questions]]\nkey = "why"\ntype = "text"\nquestion = "Why?"\nphrases = ["because"]\n'
        '[[scorecards]]\nkey = "service"\ntitle = "Service"\nitems = [{question = "why", weight = 2}]\n'
    )

    run = partial(commands.run, "questions")
    assert "scorecard Service: 100 of 100" in run("try", str(file), "--call", str(call_id))
    assert "created: why, service" in run("set", str(file))
    assert "Service: why" in run("list") and json.loads(run("list", "--json"))[1]["scorecard"]["key"] == "service"
    assert '{question = "why", weight = 2}' in run("show", "service")
    assert "is no question or tracker 'why'" in run("delete", "why", code=2)
    assert "Deleted" in run("delete", "service")
