import re
from dataclasses import replace
from datetime import date

import httpx

from db.core.database import Reader
from db.search import trends
from pipeline.domain.insight import Finding
from tests.finished import findings, finished, mark_done, task
from tests.postgres import World, new_world
from tests.support.console_site import Parsed, signed_in

WEEK = 7 * 24 * 60  # minutes
MONDAY = date(2026, 11, 2)


def ended(outcome: str | None, titles: tuple[str, ...] = ()) -> list[Finding]:
    results = findings(tone="negative", tasks=tuple(task(title) for title in titles))
    summary = {"text": "They talked."} | ({"outcome": outcome} if outcome else {})
    return [replace(finding, value=summary) if finding.step == "summary" else finding for finding in results]


async def week_of_calls(world: World) -> None:
    await finished(world, found=ended("resolved", ("Send the offer", "Call back")))
    await finished(world, found=ended("resolved"), minutes=60)
    await finished(world, found=ended("refused"), minutes=120)
    await finished(world, found=ended(None), minutes=180)
    await finished(world, found=ended("voicemail", ("Try again",)), minutes=WEEK)
    await finished(world, found=ended("follow_up"), sender=world.other_scoped, minutes=240)
    await mark_done(world, "Call back")


async def test_outcomes_and_tasks_are_counted_by_team_and_week(world: World) -> None:
    await week_of_calls(world)
    weeks = await trends.team_weeks(world.database, Reader(world.workspace_id), "UTC")
    counts = {
        (team_week.team_id, team_week.week): (
            team_week.calls,
            dict(team_week.outcomes),
            team_week.tasks,
            team_week.tasks_done,
        )
        for team_week in weeks
    }
    assert counts == {
        (world.team_id, MONDAY): (4, {"resolved": 2, "refused": 1}, 2, 1),
        (world.team_id, date(2026, 11, 9)): (1, {"voicemail": 1}, 1, 0),
        (world.other_team_id, MONDAY): (1, {"follow_up": 1}, 0, 0),
    }
    assert [team_week.week for team_week in weeks] == sorted(team_week.week for team_week in weeks)
    (week,) = await trends.team_weeks(world.database, Reader(world.workspace_id, world.other_team_id), "UTC")
    assert (week.team_id, week.outcomes) == (world.other_team_id, {"follow_up": 1})
    other = await new_world(world.database)
    assert await trends.team_weeks(world.database, Reader(other.workspace_id), "UTC") == []


async def test_what_another_recording_gave_is_not_counted(world: World) -> None:
    call_id = await finished(world, found=ended("resolved", ("Send the offer",)))
    await world.submit(call_id=call_id, recording_url="https://s.example/another")
    (week,) = await trends.team_weeks(world.database, Reader(world.workspace_id), "UTC")
    assert (week.calls, week.outcomes, week.tasks) == (1, {}, 0)


async def test_the_page_draws_them_and_tells_them_as_a_table(site: httpx.AsyncClient, world: World) -> None:
    await week_of_calls(world)
    await signed_in(site, world, world.team_id)
    page = (await site.get("/trends")).text
    assert re.search(r'<rect class="resolved"[^>]*height="80.0"[^>]*><title>Resolved: 2</title>', page)
    assert "<title>Done: 1</title>" in page and "<title>Open: 1</title>" in page
    heads = re.findall(r'<th scope="col"[^>]*>([^<]+)', page)
    assert heads[6:11] == ["Resolved", "Voicemail", "Declined", "Tasks", "Tasks done"]
    german = Parsed((await site.get("/trends", headers={"Accept-Language": "de"})).text).seen
    assert "Ausgang" in german and "Abgelehnt" in german
