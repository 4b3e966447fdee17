import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from db.queue import backlog
from pipeline.analysis import AnalysisOptions
from tests.file_server import FileServer
from tests.llm_server import MODEL, Endpoint
from tests.postgres import World
from tests.support.conductors import (
    MOST_WRONG,
    OTHER,
    STEREO,
    Conduct,
    WatchedWorkers,
    completed,
    finding,
    share_wrong,
    shown,
    until,
)
from tests.support.llm_by_hand import answer
from tests.synthetic_calls import FOLDER


async def test_a_superseding_submission_in_the_middle_stops_the_old_job_and_its_own_words_are_in_the_record(
    world: World, workers: WatchedWorkers, files: FileServer, conducting: Conduct
) -> None:
    halt = workers.halt("transcribe")
    async with conducting():
        first = await world.submit(recording_url=files.add(FOLDER / OTHER / "call.flac"))
        await halt.wait()
        second = await world.submit(recording_url=files.add(FOLDER / STEREO / "call.flac"))
        record = await completed(world)
    assert {job.job_id: job.state for job in record.jobs} == {first.job_id: "superseded", second.job_id: "done"}
    assert share_wrong(record, STEREO) <= MOST_WRONG
    assert workers.asked["transcribe"] == 1


@pytest.mark.slow
async def test_an_analysis_without_end_after_a_change_leaves_the_findings_that_there_are(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    async with conducting(max_failures=1):
        await world.submit(recording_url=files.add(short))
        before = await completed(world)
        workers.endless_analysis = True
        await world.submit(user_id=uuid4())
        await until(lambda: analysis_failed(world), timeout=180)
    record = await shown(world)
    assert record.findings == before.findings
    assert any("took longer than 10 s" in warning for warning in record.warnings)


async def analysis_failed(world: World) -> bool:
    return bool(await world.rows("SELECT id FROM jobs WHERE kind = 'analyze' AND state = 'failed'"))


async def test_what_a_superseded_call_held_is_charged_to_its_lane(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    """However it ends: it held a place for more than a second, in which 150 seconds of other calls would be done."""
    await backlog.record_rtfx(world.database, [backlog.MeasuredRtfx("call", 2, 10, 6000.0, 60.0)])
    halt = workers.halt("transcribe")
    other = uuid4()
    async with conducting(concurrency=1):
        await world.submit(recording_url=files.add(short), team_id=world.team_id, duration=60)
        await halt.wait()
        await world.submit(world.wide, call_id=other, team_id=world.other_team_id, recording_url=files.add(short))
        await asyncio.sleep(1.5)
        await world.execute(
            "UPDATE jobs SET state = 'superseded', lease_until = NULL WHERE team_id = :a", a=world.team_id
        )
        await until(lambda: charged(world, 110))


async def charged(world: World, seconds: float) -> bool:
    rows = await world.rows("SELECT ended - began AS turn FROM turns WHERE team_id = :id", id=world.team_id)
    return any(row["turn"] > seconds for row in rows)


async def test_what_is_learned_while_a_call_is_worked_on_is_in_the_findings(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    user, halt = uuid4(), workers.halt("transcribe")
    async with conducting():
        await world.submit(recording_url=files.add(short), outgoing=False)
        await halt.wait()
        await world.submit(user_id=user, outgoing=True)
        halt.go_on.set()
        record = await completed(world)
    assert finding(record, "agent").value["user_id"] == str(user)
    assert finding(record, "direction").value["outgoing"] is True
    assert await world.jobs() == [("process", "done")]
    assert workers.asked["transcribe"] == 1


async def test_a_language_model_is_asked_nothing_again_where_only_what_is_known_of_a_call_changes(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct, endpoint: Endpoint
) -> None:
    endpoint.answers(answer())
    asking = AnalysisOptions(engine="llm", base_url=endpoint.base_url, model=MODEL)
    user = uuid4()
    async with conducting(analysis=asking):
        await world.submit(recording_url=files.add(short))
        await completed(world)
        assert len(endpoint.asked) == 1
        await world.submit(user_id=user)
        await until(lambda: analyzed(world))
    record = await shown(world)
    assert finding(record, "agent").value["user_id"] == str(user)
    assert finding(record, "tasks").value["engine"] == f"llm {MODEL}"
    assert len(endpoint.asked) == 1


async def analyzed(world: World) -> bool:
    return ("analyze", "done") in await world.jobs()
