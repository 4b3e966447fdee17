import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE
from db.experiments import promotion, run_results, runs
from db.records.views import CallRecord
from db.workspace import directory, questions
from pipeline.domain.insight import Finding
from pipeline.domain.questions import Question
from pipeline.domain.summaries import SummaryTemplate, TemplatePart
from serve_app.settings import Settings
from tests.integration.db.experiments.test_runs import (  # noqa: F401 (fixtures)
    Engines,
    call,
    create_run,
    engines,
    result,
    same,
    settings,
    worked,
    working,
)
from tests.postgres import World
from tests.support.conductors import shown, until

CLONE = """
    CREATE TEMP TABLE clones ON COMMIT DROP AS
        SELECT 1000 + n AS pk, gen_random_uuid() AS call_id, gen_random_uuid() AS job
        FROM generate_series(1, CAST(:count AS bigint)) AS n
"""
TABLES = {
    "calls": "'id', m.pk, 'call_id', m.call_id, 'job_id', m.job",
    "jobs": "'id', m.job, 'call_pk', m.pk",
    "recordings": "'job_id', m.job, 'call_pk', m.pk",
    "stage_results": "'job_id', m.job, 'call_pk', m.pk",
    "transcripts": "'job_id', m.job, 'call_pk', m.pk",
    "findings": "'call_pk', m.pk",
}


async def cloned(world: World, count: int) -> None:
    """Copy the stored call `count` times, with its stage results."""
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL ROLE NONE"))
        await connection.execute(sa.text(CLONE), {"count": count})
        for table, ids in TABLES.items():
            mine = "t.id" if table == "calls" else "t.call_pk"
            await connection.execute(
                sa.text(
                    f"INSERT INTO {table} SELECT (jsonb_populate_record(t, jsonb_build_object({ids}))).*"
                    f" FROM {table} t, clones m WHERE {mine} < 1000"
                )
            )


async def asks(world: World, phrase: str) -> None:
    asked = Question("heard", question="Is it said?", phrases=(phrase,))
    await questions.set_questions(world.database, world.workspace_id, [asked])


def first_word(call: CallRecord) -> str:  # noqa: F811
    assert call.transcript is not None
    return next(word.text for turn in call.transcript.turns for word in turn.words if not turn.machine)


@pytest.mark.parametrize("count", [24, pytest.param(999, marks=pytest.mark.slow)])
async def test_stored_calls_are_asked_without_recognizing_and_a_killed_run_goes_on_as_it_began(
    count: int,
    world: World,
    call: CallRecord,  # noqa: F811
    engines: Engines,  # noqa: F811
    settings: Settings,  # noqa: F811
) -> None:
    assert call.answers == ()
    await cloned(world, count)
    await asks(world, first_word(call))
    ids = [row["call_id"] for row in await world.rows("SELECT call_id FROM calls ORDER BY id")]
    asked_before = engines.own.asked.copy()
    run = await create_run(world, "asked", {}, *ids)

    async def done() -> int:
        return (await runs.find(world.database, world.workspace_id, run.run_id)).done

    async def some_are_done() -> bool:
        return await done() >= count // 4

    async def all_are_done() -> bool:
        return await done() == run.calls

    async with working(world, engines, settings):
        await until(some_are_done, 600.0)
    assert await done() < run.calls, "it was stopped on its way"
    await asks(world, "nobody says this")  # the run continues with its first configuration
    async with working(world, engines, settings):
        await until(all_are_done, 600.0)
    run = await runs.find(world.database, world.workspace_id, run.run_id)
    assert (run.done, run.failed, run.state) == (count + 1, 0, "completed")
    assert engines.own.asked == asked_before and not engines.other.asked, "no engine was asked for anything"
    assert run.configuration is not None and run.configuration["questions"] == {"heard": 1}
    rows = await world.rows(
        "SELECT DISTINCT a ->> 'state' AS state, a ->> 'version' AS version FROM run_calls r,"
        " jsonb_array_elements(r.findings) f, jsonb_array_elements(f -> 'value' -> 'answers') a"
    )
    assert [(row["state"], row["version"]) for row in rows] == [("said", "1")]


async def test_a_run_makes_summaries_again_by_the_template_of_the_workspace(
    world: World,
    call: CallRecord,  # noqa: F811
    engines: Engines,  # noqa: F811
    settings: Settings,  # noqa: F811
) -> None:
    def text(findings: Iterable[Finding]) -> str:
        return next(str(finding.value["text"]) for finding in findings if finding.step == "summary")

    before = text(call.findings)
    template = SummaryTemplate((TemplatePart("reason", "Why", 1),))
    await directory.update_workspace(world.database, world.workspace_id, {"summary": template})
    run = await worked(world, engines, settings, await create_run(world, "laid-out", {}))
    again = await result(world, run)
    assert text(again.findings).startswith("Why: ") and not before.startswith("Why: ")
    assert text((await shown(world)).findings) == before, "the record keeps its own until the run is promoted"


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_a_process_that_is_killed_in_a_run_of_questions_is_followed_by_one_that_asks_no_finished_call_again(
    world: World,
    call: CallRecord,  # noqa: F811
    tmp_path: Path,
    postgres_url: str,
) -> None:
    await cloned(world, 999)
    await asks(world, first_word(call))
    ids = [row["call_id"] for row in await world.rows("SELECT call_id FROM calls ORDER BY id")]
    run = await create_run(world, "asked", {}, *ids)
    log = tmp_path / "asked.log"

    async def ended(state: str) -> dict[UUID, Any]:
        query = "SELECT c.call_id, r.* FROM run_calls r JOIN calls c ON c.id = r.call_pk WHERE r.state = :state"
        return {row["call_id"]: row for row in await world.rows(query, state=state)}

    async def count(state: str) -> int:
        (row,) = await world.rows("SELECT count(*) AS n FROM run_calls WHERE state = :state", state=state)
        return int(row["n"])

    @asynccontextmanager
    async def process() -> AsyncIterator[None]:
        command = ("-m", "tests.support.asking_worker", postgres_url, str(tmp_path), str(log))
        begun = await asyncio.create_subprocess_exec(sys.executable, *command)
        try:
            yield
        finally:
            begun.kill()
            assert await begun.wait() == -signal.SIGKILL, "it had ended before"

    async def some_are_done() -> bool:
        return await count("done") >= 250 and await count("running") > 0

    async def all_are_done() -> bool:
        return await count("done") == 1000

    async with process():
        await until(some_are_done, 600.0)
    finished, running = await ended("done"), await ended("running")
    assert 250 <= len(finished) < 1000 and running, "it was killed in the middle, at work"
    async with process():
        await until(all_are_done, 600.0)
    now = await ended("done")
    unchanged = ("claims", "finished_at", "digest", "findings")
    assert all(now[call_id][name] == row[name] for call_id, row in finished.items() for name in unchanged)
    asked = Counter(map(UUID, log.read_text().split()))
    assert set(asked) == set(ids), "each was asked"
    assert {call_id for call_id, count in asked.items() if count > 1} <= set(running), "only unfinished calls ran twice"
    assert {call_id for call_id, row in now.items() if row["claims"] > 1} == set(running)
    assert (await runs.find(world.database, world.workspace_id, run.run_id)).state == "completed"


async def test_a_promoted_run_answers_in_the_record_tells_no_tracker_and_is_taken_back(
    world: World,
    call: CallRecord,  # noqa: F811
    engines: Engines,  # noqa: F811
    settings: Settings,  # noqa: F811
) -> None:
    word = first_word(call)
    tracker = Question("word", "tracker", phrases=(word,))
    asked = Question("heard", question="Is it said?", phrases=(word,))
    await questions.set_questions(world.database, world.workspace_id, [asked, tracker])
    await world.execute(
        "INSERT INTO webhook_endpoints (workspace_id, url, events, secret)"
        " VALUES (:workspace, 'https://hooks.example', '{call.promoted,tracker.matched}', 'sealed')",
        workspace=world.workspace_id,
    )
    run = await worked(world, engines, settings, await create_run(world, "asked", {}))
    result_of_run = await run_results.show(world.database, world.workspace_id, run.run_id, world.call_id)
    assert result_of_run is not None and result_of_run.findings[-1].value["answers"][0]["answer"] == "yes"
    assert (await shown(world)).answers == (), "the record has not changed"
    await promotion.promote(world.database, world.workspace_id, run.run_id)
    record = await shown(world)
    assert [(answer.key, answer.answer) for answer in record.answers] == [("heard", "yes")]
    assert [tracker.raised for tracker in record.trackers] == [True]
    assert (await world.row())["raised"] == ["word"]
    await promotion.roll_back(world.database, world.workspace_id, run.run_id)
    assert same(await shown(world)) == same(call) and (await world.row())["raised"] == []
    assert [row["type"] for row in await world.rows("SELECT type FROM events ORDER BY at")] == ["call.promoted"] * 2
