import asyncio
import json
import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner, Result

from db.core.database import Database
from db.queue import jobs
from db.records.complete import complete as complete_call
from pipeline.analysis import analyze
from pipeline.errors import NotAudio, RecordingUnreachable
from serve_app.cli import app
from serve_app.cli.ui import database as state
from serve_app.records.advice import advice
from tests.integration.db.intake.test_submit_over_http import served
from tests.support.calls_by_hand import call as call_by_hand

URL = "https://pbx.example/1.wav"
AWAY = RecordingUnreachable("pbx.example has no address.")


@pytest.fixture(autouse=True)
def settings(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)


def switchboard(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.fixture
def secret() -> str:
    created = switchboard("keys", "create", "--workspace", "acme", "--team", "support", "--json")
    return str(json.loads(created.stdout)["secret"])


def submit(base: str, secret: str, *arguments: str) -> Result:
    return switchboard("submit", URL, "--url", base, "--key", secret, *arguments)


def in_background(call_id: UUID, *, fails: bool) -> threading.Thread:
    """Process the call as the Conductor does, when it exists."""

    async def work(database: Database) -> None:
        for _ in range(300):
            for fetch in await jobs.claim_fetches(database, "w", 1, 60, 9, 9):
                await jobs.fetched(database, fetch)
            for lease in await jobs.claim(database, "w", 1, 60):
                assert lease.call.call_id == call_id
                if fails:
                    return await jobs.fail(database, lease, NotAudio("It is a web page."))
                call = call_by_hand(("rep", "I will send you a router tomorrow."), ("customer", "Thank you."))
                await complete_call(database, lease, call.transcript, analyze(call), None)
                return None
            await asyncio.sleep(0.1)
        raise AssertionError("nothing was submitted")

    thread = threading.Thread(target=state.run, args=(work,))
    thread.start()
    return thread


def test_waiting_for_a_submission_prints_its_record(postgres_url: str, secret: str) -> None:
    call_id = uuid4()
    with served(postgres_url) as base:
        worker = in_background(call_id, fails=False)
        result = submit(base, secret, "--call-id", str(call_id), "--wait", "--timeout", "30")
        worker.join()
    assert result.exit_code == 0, result.output
    assert "I will send you a router tomorrow." in result.stdout
    assert result.stdout.split(f"Call {call_id}  completed", 1)[1].strip() == (
        switchboard("calls", "show", str(call_id)).stdout.split("completed", 1)[1].strip()
    )


def test_waiting_for_a_submission_that_fails_says_why_and_what_to_do(postgres_url: str, secret: str) -> None:
    call_id = uuid4()
    with served(postgres_url) as base:
        worker = in_background(call_id, fails=True)
        result = submit(base, secret, "--call-id", str(call_id), "--wait", "--timeout", "30")
        worker.join()
    assert result.exit_code == 1
    assert "not_audio: It is a web page." in result.stdout
    assert advice("not_audio", call_id) in " ".join(result.stdout.split())


def delayed(postgres_url: str, secret: str) -> tuple[str, str]:
    """Create a call whose first fetch failed; return it and its job."""
    with served(postgres_url) as base:
        (sent,) = json.loads(submit(base, secret, "--json").stdout)

    async def work(database: Database) -> None:
        (fetch,) = await jobs.claim_fetches(database, "w", 1, 60, 9, 9)
        await jobs.retry(database, fetch, AWAY, 600.0, False)

    state.run(work)
    return sent["callId"], sent["reply"]["jobId"]


def test_a_call_that_waits_says_why_and_until_when(postgres_url: str, secret: str) -> None:
    call_id, job_id = delayed(postgres_url, secret)
    for command in (("calls", "list"), ("calls", "show", call_id), ("jobs", "show", job_id)):
        shown = switchboard(*command).stdout
        assert "next try" in shown, command
        assert "recording_unreachable: pbx.example has no address." in " ".join(shown.split()), command
    assert f"switchboard jobs retry {call_id}" in switchboard("calls", "show", call_id).stdout
    (listed,) = json.loads(switchboard("calls", "list", "--json").stdout)
    assert listed["lastError"]["code"] == "recording_unreachable"
    assert listed["nextTry"] is not None


@pytest.mark.parametrize("which", ["its call", "its job", "all that wait"])
def test_a_job_that_waits_is_tried_now(postgres_url: str, secret: str, which: str) -> None:
    call_id, job_id = delayed(postgres_url, secret)
    assert claimed() == []
    what = {"its call": call_id, "its job": job_id, "all that wait": "--waiting"}[which]
    assert "would be tried now" in switchboard("jobs", "retry", what, "--dry-run").output
    assert claimed() == []
    (retried,) = json.loads(switchboard("jobs", "retry", what, "--json").stdout)
    assert (retried["jobId"], retried["tried"]) == (job_id, True)
    assert claimed() == [job_id], "the same job"


def claimed() -> list[str]:
    async def work(database: Database) -> list[Any]:
        return [str(fetch.job.job_id) for fetch in await jobs.claim_fetches(database, "w", 9, 60, 9, 9)]

    return list(state.run(work))


def test_only_what_waits_is_tried_now_and_by_its_reason(postgres_url: str, secret: str) -> None:
    delayed(postgres_url, secret)
    assert json.loads(switchboard("jobs", "retry", "--waiting", "--code", "storage_error", "--json").stdout) == []
    assert switchboard("jobs", "retry", str(uuid4())).exit_code == 1
    assert switchboard("jobs", "retry", "--waiting", str(uuid4())).exit_code == 2
    assert "1 of 1 are tried now" in switchboard("jobs", "retry", "--waiting").output
    assert "0 of 0" in switchboard("jobs", "retry", "--waiting").output
