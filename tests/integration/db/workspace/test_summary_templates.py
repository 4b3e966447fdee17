import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from typer.testing import CliRunner

from db.core.database import Reader
from db.records import roster
from db.workspace import admin_log, directory
from pipeline.domain.call import Sender
from pipeline.domain.summaries import SummaryTemplate, TemplatePart
from serve_app.cli import app
from tests.finished import claimed
from tests.integration.db.workspace.test_questions import analyzed, record
from tests.integration.serve_app.api.test_api_admin import key_of
from tests.postgres import World, new_world
from tests.reading_api import served

OPEN = SummaryTemplate((TemplatePart("open", "To do", 5),))
WHY = SummaryTemplate((TemplatePart("reason", "Why", 1), TemplatePart("open")))


async def of_workspace(world: World, template: SummaryTemplate | None) -> None:
    await directory.update_workspace(world.database, world.workspace_id, {"summary": template})


async def of_team(world: World, team_id: UUID, template: SummaryTemplate | None) -> None:
    team = await directory.find_team(world.database, Reader(world.workspace_id), team_id)
    assert team is not None
    await directory.update_team(world.database, team, {"summary": template})


async def template_of_call(world: World, sender: Sender | None = None) -> SummaryTemplate | None:
    call_id = uuid4()
    await world.submit(sender, call_id=call_id, recording_url="https://s.example/a")
    return (await roster.load(world.database, await claimed(world, call_id))).summary


async def test_a_teams_template_comes_before_that_of_its_workspace(world: World) -> None:
    assert await template_of_call(world) is None
    await of_workspace(world, WHY)
    assert await template_of_call(world) == WHY
    await of_team(world, world.team_id, OPEN)
    assert await template_of_call(world) == OPEN
    assert await template_of_call(world, sender=world.other_scoped) == WHY, "of another team"
    await of_team(world, world.team_id, None)
    assert await template_of_call(world) == WHY
    home = await directory.find_workspace(world.database, world.workspace_id)
    assert home.summary == WHY
    log = await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)
    assert [(item.kind, item.detail) for item in reversed(log.items) if item.detail == "summary"] == [
        ("workspace", "summary"),
        ("team", "summary"),
        ("team", "summary"),
    ]
    other = await new_world(world.database)
    assert (await directory.find_workspace(world.database, other.workspace_id)).summary is None


async def test_records_keep_their_summary_and_calls_from_then_on_have_the_new_one(world: World) -> None:
    before = await analyzed(world)

    async def text(call_id: UUID) -> str:
        (summary,) = (finding for finding in (await record(world, call_id)).findings if finding.step == "summary")
        return str(summary.value["text"])

    first = await text(before)
    await of_workspace(world, WHY)
    assert (await text(await analyzed(world))).startswith("Why: ") and await text(before) == first


async def test_a_template_of_a_later_version_is_not_read_and_the_usual_one_counts(world: World) -> None:
    await of_workspace(world, WHY)
    later = '{"parts": [{"part": "mood", "heading": null, "most": null}]}'
    await world.execute("UPDATE workspaces SET summary = CAST(:later AS jsonb)", later=later)
    assert await template_of_call(world) is None


async def test_over_http_it_is_set_with_admin_for_workspace_and_team(world: World, postgres_url: str) -> None:
    admin, of_the_team = await key_of(world), await key_of(world, world.team_id)
    template = {"parts": [{"part": "next_step", "heading": "Next"}, {"part": "reason", "most": 1}]}
    with served(postgres_url) as base:
        async with httpx.AsyncClient(base_url=base, timeout=60) as http:

            async def patch(path: str, secret: str, summary: Any) -> httpx.Response:
                headers = {"Authorization": f"Bearer {secret}"}
                return await http.patch(path, json={"summary": summary}, headers=headers)

            changed = await patch("/workspace", admin, template)
            assert changed.status_code == 200, changed.text
            assert changed.json()["summary"]["parts"][0] == {"part": "next_step", "heading": "Next", "most": None}
            team = f"/teams/{world.team_id}"
            assert (await patch(team, of_the_team, {"parts": [{"part": "open"}]})).status_code == 200
            assert (await patch("/workspace", of_the_team, template)).status_code == 403
            for wrong, problem in (
                ({"parts": []}, "at least 1 item"),
                ({"parts": [{"part": "why"}]}, "'reason', 'done', 'agreed', 'open', 'next_step' or 'ending'"),
                ({"parts": [{"part": "open"}, {"part": "open"}]}, "is repeated. Name it once"),
                ({"parts": [{"part": "open", "most": 11}]}, "less than or equal to 10"),
                ({"parts": [{"part": "open", "heading": "{x}"}]}, "without braces. Change it"),
            ):
                refused = await patch(team, admin, wrong)
                assert refused.status_code == 400, wrong
                (fault,) = refused.json()["errors"]
                assert fault["pointer"] == "/summary" and problem in fault["detail"], fault
            assert (await patch(team, admin, None)).json()["summary"] is None
            assert (await patch("/workspace", admin, None)).json()["summary"] is None


async def test_the_command_line_shows_sets_and_removes_it(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    teams = await directory.list_teams(world.database, world.workspace_id)
    name = next(team.name for team in teams if team.team_id == world.team_id)

    def run(*arguments: str, code: int = 0) -> str:
        with ThreadPoolExecutor(1) as thread:  # the command runs its own event loop
            command = ["workspaces", "summary", *arguments]
            result = thread.submit(CliRunner().invoke, app, command, env={"COLUMNS": "80"}).result()
        assert result.exit_code == code, result.output
        return " ".join(str(result.output).split())

    assert "has no template" in run()
    assert run("reason:1", "next_step=What comes next", "open=") == "reason:1 next_step=What comes next open="
    assert run("open:5", "--team", name) == "open:5"
    assert json.loads(run("--team", name, "--json"))["summary"]["parts"] == [
        {"part": "open", "heading": None, "most": 5}
    ]
    assert "Unknown part 'why'. Parts: reason" in run("why", code=2)
    assert "must be 1 to 10" in run("open:99", code=2) and "is not a part" in run("Open!", code=2)
    assert "has no template" in run("--default", "--team", name)
    assert run() == "reason:1 next_step=What comes next open="
    assert await template_of_call(world) == SummaryTemplate(
        (TemplatePart("reason", None, 1), TemplatePart("next_step", "What comes next"), TemplatePart("open", ""))
    )
