import json
import re
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from db.core.database import Database
from db.queue import backlog as queue
from db.queue import jobs, stage_results
from db.queue.backlog import MeasuredRtfx
from pipeline.domain.speech import AudioAnalysis, Layout, LayoutKind, Recognized, Recording
from pipeline.domain.stage import Stage
from pipeline.errors import RecordingNotReady
from serve_app.cli import app
from serve_app.operations.estimates import ahead
from tests.postgres import World

runner = CliRunner()


def said(url: str, *command: str) -> str:
    environment = {
        "SWITCHBOARD_DATABASE_URL": url,
        "SWITCHBOARD_SCALING__TRANSCRIBER__NUM_GPUS": "0.5",
        "SWITCHBOARD_SCALING__TRANSCRIBER__PRICE_PER_HOUR": "1.2",
    }
    result = runner.invoke(app, list(command), env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def submitted(postgres_url: str, count: int, fetched: bool = True) -> list[UUID]:
    """Return the calls' ids. Runs in a thread, since a command needs a separate event loop."""
    import asyncio

    from tests.postgres import new_world

    call_ids: list[UUID] = []

    async def work() -> None:
        database = await Database.open(postgres_url)
        world = await new_world(database)
        for _ in range(count):
            world.call_id = uuid4()
            call_ids.append(world.call_id)
            await world.submit(recording_url="https://store.example/a.wav", duration=600)
        if fetched:
            await world.claim()
        await queue.record_rtfx(
            database, [MeasuredRtfx("asr", 1, 100, 1e6, 1e6 / 20), MeasuredRtfx("asr", 2, 1, 600, 60)]
        )
        await queue.note_replicas(database, "Transcriber", 2, 2)
        await database.close()

    asyncio.run(work())
    return call_ids


def test_the_queue_is_shown_by_stage_and_team_with_time_and_cost(postgres_url: str) -> None:
    submitted(postgres_url, 3)
    shown = json.loads(said(postgres_url, "queue", "--json"))
    assert (shown["waitingCalls"], shown["runningCalls"], shown["audioSeconds"]) == (2, 1, 1800.0)
    transcriber = next(stage for stage in shown["stages"] if stage["deployment"] == "Transcriber")
    assert transcriber["replicas"] == 2
    assert transcriber["drainSeconds"] == pytest.approx(1800 / 20 / 2, rel=0.01)
    assert transcriber["costPerAudioHour"] == pytest.approx(1.2 / 20, rel=0.01)
    assert shown["gpuSecondsPerAudioHour"] == pytest.approx(180 * 0.5, rel=0.01)
    (team,) = shown["teams"]
    assert (team["team"], team["live"], team["waitingCalls"], team["runningCalls"]) == ("Sales", False, 2, 1)
    text = said(postgres_url, "queue")
    assert "2 calls waiting, 1 running" in text
    assert "Sales" in text


def test_priorities_are_set_by_workspace_and_team(postgres_url: str) -> None:
    submitted(postgres_url, 1)
    said(postgres_url, "workspaces", "priority", "2", "--live-seconds", "60")
    shown = json.loads(said(postgres_url, "workspaces", "priority", "4", "--team", "Support", "--json"))
    assert (shown["priority"], shown["liveSeconds"], shown["teams"]) == (2.0, 60, {"Sales": 1.0, "Support": 4.0})
    refused = runner.invoke(app, ["workspaces", "priority", "0"], env={"SWITCHBOARD_DATABASE_URL": postgres_url})
    assert refused.exit_code == 2


async def test_what_waits_before_a_call_follows_from_the_turns(world: World) -> None:
    for team, count in ((world.scoped, 4), (world.other_scoped, 2)):
        for _ in range(count):
            world.call_id = uuid4()
            answer = await world.submit(team, recording_url="https://store.example/a.wav", duration=100)
    assert answer.job_id is not None
    place = await queue.place(world.database, answer.job_id)
    assert place == queue.QueuePlace(world.other_team_id, live=False, running=False, audio_seconds=100, before=100)
    backlog, lanes = await queue.lanes(world.database)
    (mine,) = (lane for lane in lanes if lane.team_id == world.other_team_id)
    assert ahead(mine, place.before, lanes, backlog, 0.1) == 200, "as much of the other team's four"


async def test_a_call_of_unknown_length_counts_as_a_usual_one(world: World) -> None:
    answer = await world.submit(recording_url="https://store.example/a.wav")
    assert answer.job_id is not None
    place = await queue.place(world.database, answer.job_id)
    assert place is not None
    assert place.audio_seconds == queue.USUAL_SECONDS
    await queue.record_rtfx(world.database, [MeasuredRtfx("call", 2, 2, 100.0, 10.0)])
    place = await queue.place(world.database, answer.job_id)
    assert place is not None
    assert place.audio_seconds == 50


async def test_what_is_tried_later_or_has_ended_has_no_place(world: World) -> None:
    answer = await world.submit(recording_url="https://store.example/a.wav", duration=100)
    assert answer.job_id is not None
    lease = await world.claim_one()
    place = await queue.place(world.database, answer.job_id)
    assert place is not None
    assert (place.running, place.before) == (True, 0)
    await jobs.retry(world.database, lease, RecordingNotReady("not yet"), 60, True)
    assert await queue.place(world.database, answer.job_id) is None


def test_a_call_on_its_way_says_when_it_is_done(postgres_url: str) -> None:
    running, _, last = submitted(postgres_url, 3)
    shown = json.loads(said(postgres_url, "calls", "show", str(last), "--json"))["expected"]
    assert shown["audioSecondsBefore"] == 900, "half of the one that is running, and the whole of the other"
    assert 0 < shown["seconds"] < 86400
    assert not shown["measured"], "no call has been finished"
    first = json.loads(said(postgres_url, "calls", "show", str(running), "--json"))["expected"]
    assert first["audioSecondsBefore"] == 0
    assert first["seconds"] == pytest.approx(shown["seconds"] * 300 / 1500, rel=0.01)
    text = " ".join(
        said(postgres_url, "calls", "show", str(last)).split()
    )  # it is wrapped where the terminal is narrow
    assert "done in about" in text
    assert "15 min 00 s of audio before it (assumed" in text


async def test_recorded_stages_leave_the_queue_what_is_left(world: World) -> None:
    await world.submit(recording_url="https://store.example/a.wav")
    lease = await world.claim_one()
    await stage_results.record(world.database, lease, Stage.FETCH, (Recording(0, "file:///a", "ab", 7),))
    layout = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "")
    await stage_results.record(world.database, lease, Stage.AUDIO, AudioAnalysis(layout, 33.0, ((), ()), ()))
    await stage_results.record(world.database, lease, Stage.RECOGNITION, Recognized((), "e"))
    (group,) = (await queue.backlog(world.database)).groups
    assert (group.channels, group.audio_seconds, group.recognized, group.voice_done) == (2, 33.0, True, False)
    await jobs.release(world.database, [lease])
    (group,) = (await queue.backlog(world.database)).groups
    assert (group.running, group.recognized) == (False, True)


def test_recordings_that_are_not_fetched_promise_no_time(postgres_url: str) -> None:
    sent = submitted(postgres_url, 3, fetched=False)
    text = " ".join(said(postgres_url, "queue").split())
    assert "3 calls waiting (3 for the recording), 0 running" in text
    assert "no estimate before a recording is fetched" in text and "done in about" not in text.partition(".")[0]
    assert len(re.findall(r"(?:Conductor|Transcriber|Diarizer) \d+ \S+ unknown ", text)) == 3
    jobs_ = " ".join(said(postgres_url, "jobs", "list").split())
    assert "fetching" in jobs_ and "None" not in jobs_
    shown = json.loads(said(postgres_url, "calls", "show", str(sent[0])[:8], "--json"))
    assert shown["call"]["callId"] == str(sent[0]), "as the console shows it"
