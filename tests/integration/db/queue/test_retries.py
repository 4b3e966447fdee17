import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

import pipeline.errors
from db.queue import jobs, retries
from db.records.complete import complete
from pipeline.domain.speech import Layout, LayoutKind, Transcript
from pipeline.errors import CallError, EngineError, NotAudio, RecordingGone
from serve_app.cli import app
from serve_app.records.advice import ADVICE
from tests.postgres import World

A = "https://store.example/a.wav"
TRANSCRIPT = Transcript("en", 1.0, 1.0, (), (), Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand"), "test")


async def fail(world: World, error: CallError) -> UUID:
    """Create a call whose job fails."""
    world.call_id = uuid4()
    await world.submit(recording_url=A)
    lease = await world.claim_one()
    await jobs.fail(world.database, lease, error)
    return lease.job.job_id


async def test_failed_work_is_listed_by_reason_and_time_until_it_is_begun_anew(world: World) -> None:
    missing, broken = await fail(world, RecordingGone()), await fail(world, EngineError("It broke."))
    failed = await retries.failed(world.database)
    assert [(job.job_id, job.code, job.workspace) for job in failed] == [
        (broken, "engine_error", "Acme"),
        (missing, "recording_gone", "Acme"),
    ]
    assert [job.job_id for job in await retries.failed(world.database, code="recording_gone")] == [missing]
    assert [job.job_id for job in await retries.failed(world.database, ids=[world.call_id])] == [broken]
    assert await retries.failed(world.database, since=datetime.now(UTC) + timedelta(minutes=1)) == []
    assert await retries.failed(world.database, workspace_id=uuid4()) == []
    await retries.retry(world.database, broken)
    assert [job.job_id for job in await retries.failed(world.database)] == [missing]


async def test_a_failed_call_tried_again_has_a_new_job_as_if_its_recording_had_come_again(world: World) -> None:
    old = await fail(world, NotAudio("It is a web page."))
    done = await retries.retry(world.database, old)
    assert done is not None
    row = await world.row()
    assert (row["state"], row["job_id"], row["failure_code"], row["failed_at"]) == (
        "transcribing",
        done.new_job_id,
        None,
        None,
    )
    assert (await world.submit(recording_url=A)).job_id == done.new_job_id, "the sender's retry starts nothing"
    lease = await world.claim_one()
    assert lease.job.job_id == done.new_job_id
    await complete(world.database, lease, TRANSCRIPT, (), None)
    assert (await world.row())["state"] == "completed"
    assert await world.jobs() == [("process", "failed"), ("process", "done")]


async def test_what_was_begun_meanwhile_is_left_alone(world: World) -> None:
    old = await fail(world, NotAudio())
    again = await world.submit(recording_url=A)
    assert await retries.retry(world.database, old) == retries.Retried(old, world.call_id, None)
    assert (await world.row())["job_id"] == again.job_id
    assert await retries.retry(world.database, uuid4()) is None


async def test_a_failed_analysis_is_tried_again_and_its_call_stays_completed(world: World) -> None:
    await world.submit(recording_url=A)
    await complete(world.database, await world.claim_one(), TRANSCRIPT, (), None)
    await world.submit(user_id=uuid4())
    analysis = await world.claim_one()
    await jobs.fail(world.database, analysis, EngineError("It broke."))
    assert (await world.row())["analysis_warnings"]
    done = await retries.retry(world.database, analysis.job.job_id)
    assert done is not None
    assert done.new_job_id is not None
    row = await world.row()
    assert (row["state"], row["analysis_warnings"]) == ("completed", [])
    assert (await world.claim_one()).job.kind == "analyze"


def test_every_code_of_a_failed_call_has_its_advice() -> None:
    never_stored = {"call_error", "submission_error", "unknown_team", "call_of_other_team", "key_revoked"}
    never_stored |= {"state_unavailable", "lease_lost"}
    codes = {var.code for var in vars(pipeline.errors).values() if isinstance(var, type) and issubclass(var, CallError)}
    assert codes - never_stored <= set(ADVICE)


# The commands


@pytest.fixture
def switchboard(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)

    def run(*arguments: str) -> Any:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:  # the command runs its own event loop
            return pool.submit(CliRunner().invoke, app, ["jobs", *arguments], env={"COLUMNS": "200"}).result()

    return run


async def test_failed_work_is_explained_and_tried_again_from_the_command_line(world: World, switchboard: Any) -> None:
    missing, broken = await fail(world, RecordingGone()), await fail(world, EngineError("It broke."))
    listed = switchboard("failed")
    assert str(missing) in listed.output
    assert ADVICE["engine_error"] in listed.output
    output = json.loads(switchboard("failed", "--code", "recording_gone", "--json").stdout)
    assert [(job["jobId"], job["advice"]) for job in output] == [(str(missing), ADVICE["recording_gone"])]
    assert "would be retried" in switchboard("retry", "--all", "--dry-run").output
    assert await world.jobs() == [("process", "failed")] * 2
    (done,) = json.loads(switchboard("retry", str(broken), "--json").stdout)
    assert (done["jobId"], bool(done["newJobId"])) == (str(broken), True)
    assert "1 of 1" in switchboard("retry", "--since", "1h").output
    assert sorted(await world.jobs()) == [("process", "failed")] * 2 + [("process", "fetching")] * 2
    assert "engine_error" in switchboard("show", str(broken)).output


@pytest.mark.parametrize("arguments", [(), ("--all", str(UUID(int=1))), ("--since", "yesterday"), (str(UUID(int=1)),)])
async def test_a_retry_that_does_not_say_what_is_refused(
    world: World, switchboard: Any, arguments: tuple[str, ...]
) -> None:
    await fail(world, RecordingGone())
    result = switchboard("retry", *arguments)
    assert result.exit_code != 0
    assert await world.jobs() == [("process", "failed")]
