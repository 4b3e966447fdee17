import json
from datetime import date
from typing import Any
from uuid import UUID

import httpx
import pytest

from db.core.database import Reader
from db.records import correct
from db.search import trends
from db.search.call_list import CallFilter, list_calls
from db.workspace import questions
from db.workspace.directory import add_member
from pipeline.domain.questions import Question, Scorecard, ScorecardItem
from tests.commands import run
from tests.finished import START
from tests.integration.db.records.test_answer_edits import ANA, CARD, answered, make_edit
from tests.integration.serve_app.api.test_api_admin import key_of
from tests.postgres import World, new_world
from tests.questions import NOTICE, OFFERED, WHY, analyzed
from tests.reading_api import served
from tests.support.console_site import Parsed, signed_in

WHICH = Question("which", "choice", "Which?", choices={"Phone, or so": ("phone",), "Contract": ("contract",)})


async def defined(world: World) -> None:
    await questions.set_questions(world.database, world.workspace_id, [OFFERED, WHY, NOTICE, WHICH, CARD])


async def search(world: World, team: UUID | None = None, **conditions: Any) -> list[UUID]:
    page = await list_calls(world.database, Reader(world.workspace_id, team), CallFilter(**conditions))
    assert page.next is None
    return [line.call.call_id for line in page.items]


async def test_calls_are_found_by_the_answer_to_a_question(world: World) -> None:
    before = await analyzed(world)  # nothing was asked of it
    await defined(world)
    call_id = await analyzed(world)
    for key, answer in (("offered", "yes"), ("why", "said"), ("notice", "not said"), ("which", "Contract")):
        assert await search(world, question=key, answer=answer) == [call_id]
        assert before not in await search(world, question=key, answer=answer)
    assert await search(world, question="offered", answer="no") == []
    assert await search(world, question="offered", answer="yes", text="cancel") == [call_id]
    assert await search(world, question="offered", answer="yes", text="elephant") == []
    assert await search(world, question="offered", answer="yes", updated_after=START) == [call_id]
    other = await new_world(world.database)
    assert await search(other, question="offered", answer="yes") == []
    assert await search(world, world.other_team_id, question="offered", answer="yes") == []


async def test_what_a_person_answers_is_what_a_call_is_found_by_until_it_is_undone(world: World) -> None:
    await defined(world)
    call_id = await analyzed(world)
    assert await search(world, scorecard="service", score_below=60) == [call_id]
    edit_id = await make_edit(world, call_id, answered("notice", None, "said"))
    assert await search(world, question="notice", answer="said") == [call_id]
    assert await search(world, question="notice", answer="not said") == []
    assert await search(world, scorecard="service", passed=True, score_from=100) == [call_id]
    await make_edit(world, call_id, answered("offered", "yes", "n/a"))
    assert await search(world, question="offered", answer="yes") == []
    await world.execute("UPDATE calls SET analyzed_at = clock_timestamp()")  # another analysis
    assert await search(world, question="notice", answer="said") == [call_id]
    await correct.undo(world.database, Reader(world.workspace_id), ANA, call_id, edit_id)
    assert await search(world, question="notice", answer="said") == []


async def test_lists_tell_and_narrow_by_score(world: World) -> None:
    await defined(world)
    strict = Scorecard("strict", title="Strict", items=(ScorecardItem("notice", auto_fail=True),))
    await questions.set_questions(world.database, world.workspace_id, [strict])
    call_id = await analyzed(world)
    page = await list_calls(world.database, Reader(world.workspace_id))
    assert page.items[0].scores == (
        trends.ScorecardScore("service", 50.0, False, False),
        trends.ScorecardScore("strict", 0.0, False, True),
    )
    assert await search(world, scorecard="service") == [call_id]
    assert await search(world, scorecard="service", passed=False) == [call_id]
    assert await search(world, scorecard="service", auto_failed=True) == []
    assert await search(world, scorecard="strict", passed=False, auto_failed=True) == [call_id]
    assert await search(world, scorecard="service", score_from=50, score_below=50.1) == [call_id]
    assert await search(world, scorecard="service", score_below=50) == []


async def test_what_another_recording_gave_is_not_found(world: World) -> None:
    await defined(world)
    call_id = await analyzed(world)
    await world.submit(call_id=call_id, recording_url="https://s.example/another")
    assert await search(world, question="offered", answer="yes") == []
    reader = Reader(world.workspace_id)
    assert await trends.score_weeks(world.database, reader, "UTC") == []


async def scored_weeks(world: World) -> UUID:
    """Create two calls of a member and one without an agent in two weeks; another one in another team."""
    await defined(world)
    ana = await add_member(world.database, world.workspace_id, "Ana", team_id=world.team_id)
    week = START.replace(day=9)
    first = await analyzed(world, start_time=START, user_id=ana.user_id)
    await analyzed(world, start_time=START, user_id=ana.user_id)
    await analyzed(world, start_time=week)
    await analyzed(world, sender=world.other_scoped, start_time=week)
    await make_edit(world, first, answered("notice", None, "said"))
    return ana.user_id


async def test_scores_are_averaged_by_week_team_and_member(world: World) -> None:
    ana = await scored_weeks(world)
    reader = Reader(world.workspace_id)
    by_team = await trends.score_weeks(world.database, reader, "UTC")
    figures = [(week.week, week.team_id, week.calls, week.score, week.passed, week.failed) for week in by_team]
    assert sorted(figures, key=str) == sorted(
        [
            (date(2026, 11, 2), world.team_id, 2, 75.0, 1, 1),
            (date(2026, 11, 9), world.team_id, 1, 50.0, 0, 1),
            (date(2026, 11, 9), world.other_team_id, 1, 50.0, 0, 1),
        ],
        key=str,
    )
    by_member = await trends.score_weeks(world.database, reader, "UTC", by="member", key="service")
    assert [(week.week, week.user_id, week.name, week.calls, week.score) for week in by_member] == [
        (date(2026, 11, 2), ana, "Ana", 2, 75.0),
        (date(2026, 11, 9), ana, "Ana", 1, 50.0),  # she says her name
        (date(2026, 11, 9), None, None, 1, 50.0),  # of another team
    ]
    (week,) = await trends.score_weeks(world.database, Reader(world.workspace_id, world.other_team_id), "UTC")
    assert (week.team_id, week.calls) == (world.other_team_id, 1)
    late = await trends.score_weeks(world.database, reader, "UTC", weeks=1, by="member")
    assert {week.week for week in late} == {date(2026, 11, 9)}
    assert await trends.score_weeks(world.database, reader, "UTC", key="another") == []


async def test_programs_list_calls_by_score_and_get_scores_as_json_and_csv(world: World, postgres_url: str) -> None:
    await scored_weeks(world)
    headers = {"Authorization": f"Bearer {await key_of(world, None, 'read')}"}
    with served(postgres_url) as base:
        async with httpx.AsyncClient(base_url=base, timeout=60) as api:

            async def answer(path: str, **parameters: str) -> httpx.Response:
                return await api.get(path, params=parameters, headers=headers)

            items = (await answer("/calls", scorecard="service", passed="true")).json()["items"]
            assert [item["scores"] for item in items] == [
                [{"key": "service", "score": 100.0, "passed": True, "autoFailed": False}]
            ]
            assert len((await answer("/calls", question="which", answer="Contract")).json()["items"]) == 4
            for wrong in ({"question": "which"}, {"passed": "true"}, {"scorecard": "service", "scoreBelow": "101"}):
                assert (await answer("/calls", **wrong)).status_code == 400
            weeks = (await answer("/scorecards/service/scores", by="member")).json()["items"]
            assert [(week["week"], week["name"], week["score"]) for week in weeks] == [
                ("2026-11-02", "Ana", 75.0),
                ("2026-11-09", "Ana", 50.0),
                ("2026-11-09", None, 50.0),
            ]
            text = await answer("/scorecards/service/scores", by="member", format="csv", timeZone="Europe/Berlin")
            assert text.headers["content-type"].startswith("text/csv")
            head, first, *_ = text.text.splitlines()
            assert head == "key,week,teamId,userId,name,calls,score,passed,failed,autoFailed"
            assert first.startswith("service,2026-11-02,,") and first.endswith(",Ana,2,75.0,1,1,0")
            assert (await answer("/scorecards/another/scores")).status_code == 404
            assert (await answer("/scorecards/service/scores", timeZone="Mars")).status_code == 400


async def test_the_console_filters_by_answer_and_score_and_saves_that_as_a_view(
    site: httpx.AsyncClient, world: World
) -> None:
    await scored_weeks(world)
    await signed_in(site, world, scopes=("read", "edit"))
    page = Parsed((await site.get("/calls")).text)
    values = {attributes.get("value") for name, attributes in page.elements if name == "option"}
    assert {"offered:yes", "which:Phone, or so", "notice:not said", "service:failed", "service:0-50"} <= values
    assert "service:auto-failed" not in values, "no question of it fails a call"

    async def rows(**parameters: str) -> int:
        answer = await site.get("/calls", params=parameters)
        assert answer.status_code == 200
        return answer.text.count("data-row>")

    assert await rows(score="service:passed") == 1 and await rows(score="service:failed") == 3
    assert await rows(score="service:80-") == 1 and await rows(score="service:0-50") == 0
    assert await rows(answer="which:Contract") == 4 and await rows(answer="which:Phone, or so") == 0
    text = (await site.get("/calls", params={"score": "service:80-", "answer": "offered:yes"})).text
    seen = " ".join(Parsed(text).seen.split())
    assert "Score: Service: 80 or higher" in seen and "Answer: Was an appointment offered?: Yes" in seen
    assert "Score 100" in seen
    for wrong in ({"score": "service"}, {"score": "service:x-"}, {"score": "service:0-101"}, {"answer": "yes"}):
        assert (await site.get("/calls", params=wrong)).status_code == 400, wrong
    form = {"name": "Failed", "query": "score=service%3Afailed"}
    assert (await site.post("/views", data=form)).headers["location"].endswith("/calls?score=service%3Afailed")


async def test_trends_show_scores_by_team_and_by_agent(site: httpx.AsyncClient, world: World) -> None:
    ana = await scored_weeks(world)
    await signed_in(site, world)
    page = (await site.get("/trends")).text
    assert page.count("<title>75 · 2 calls</title>") == 1 and page.count("<title>50 · 1 call</title>") == 2
    seen = " ".join(Parsed(page).seen.split())
    assert "Service, by agent" in seen and "Ana66.732" in seen and "Unknown5011" in seen
    assert f"/calls?userId={ana}&amp;score=service:failed" in page
    await signed_in(site, world, world.other_team_id)
    seen = " ".join(Parsed((await site.get("/trends")).text).seen.split())
    assert "Ana" not in seen and "Unknown5011" in seen


async def test_the_command_line_lists_calls_by_score_and_answer_and_tells_scores(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scored_weeks(world)
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)

    listed = ("calls", "list", "--json", "--scorecard", "service")
    assert len(json.loads(run(*listed))) == 4
    assert len(json.loads(run(*listed, "--failed"))) == 3
    assert len(json.loads(run(*listed, "--passed", "--question", "offered", "--answer", "yes"))) == 1
    assert len(json.loads(run(*listed, "--limit", "2", "--score-below", "60"))) == 2
    assert "No matching calls" in run("calls", "list", "--question", "offered", "--answer", "no")
    assert "need --scorecard" in run("calls", "list", "--failed", code=2)
    assert "given together" in run("calls", "list", "--question", "offered", code=2)
    assert "No question or scorecard 'tea'" in run("calls", "list", "--scorecard", "tea", code=1)
    output = run("questions", "scores", "service", "--by", "member")
    assert "2026-11-02 Ana 2 75.0 1 1 0" in output and "2026-11-09 unknown 1 50.0 0 1 0" in output
    assert json.loads(run("questions", "scores", "service", "--json"))[0]["calls"] == 2
    assert "No scorecard 'tea'" in run("questions", "scores", "tea", code=1)
