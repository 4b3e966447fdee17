import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from db.workspace import keys
from serve_app.api.options import ApiOptions
from serve_app.cli import app
from switchboard import Client, ComparisonTimedOut, RunTimedOut, errors
from tests.finished import finished, gold_of_all, received, work
from tests.postgres import World
from tests.whole_service import served

TALK = (("rep", "Good morning."), ("customer", "The invoice is wrong."))
OTHER = (("rep", "Good mourning."), ("customer", "The invoice is wrong."))


@dataclass
class Lab:
    """A running service with two completed calls, and a client with all scopes."""

    base: str
    world: World
    client: Client
    calls: list[UUID]


@pytest.fixture
def base(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    with served(postgres_url) as url:
        yield url


async def key_of(world: World, *scopes: str, team: UUID | None = None) -> str:
    _, secret = await keys.create(world.database, world.workspace_id, team, list(scopes), "lab")
    return secret


@pytest_asyncio.fixture
async def lab(base: str, world: World) -> AsyncIterator[Lab]:
    calls = [await finished(world, *TALK, minutes=number) for number in range(2)]
    with Client(base, await key_of(world, "read", "admin"), timeout=60) as client:
        yield Lab(base, world, client, calls)


async def test_a_run_is_made_worked_read_promoted_taken_back_and_deleted_by_the_client(lab: Lab) -> None:
    created = lab.client.create_run("tiny", {"asr": {"model": "whisper-tiny.en"}})
    assert (created.run.calls, created.run.waiting, created.left_out) == (2, 2, [])
    assert created.run.settings == {"asr": {"model": "whisper-tiny.en"}}
    with pytest.raises(RunTimedOut, match="2 calls of run 'tiny' did not end"):
        lab.client.wait_for_run(created.run.run_id, timeout=0)
    await work(lab.world, *OTHER)
    run = lab.client.wait_for_run(created.run.run_id, timeout=60)
    assert (run.status, run.done, run.worked_seconds) == ("completed", 2, 3.0)
    assert [run.name for run in lab.client.runs()] == ["tiny"]
    of_run = list(lab.client.run_calls(run.run_id, status="done"))
    assert {run_call.call_id for run_call in of_run} == set(lab.calls) and len(
        {run_call.digest for run_call in of_run}
    ) == 1
    before = lab.client.read(lab.calls[0])
    run_call = lab.client.run_call(run.run_id, lab.calls[0])
    assert run_call.transcript is not None and run_call.transcript.turns[0].words[1].text == "mourning."
    assert lab.client.promote_run(run.run_id).calls == 2
    promoted = lab.client.read(lab.calls[0])
    assert promoted.transcript == run_call.transcript and promoted.call.updated_at > before.call.updated_at
    matches = [line.call.call_id for line in lab.client.search("mourning")]
    assert set(matches) == set(lab.calls), "search finds the words of the run"
    with pytest.raises(errors.Conflict, match="roll it back first"):
        lab.client.delete_run(run.run_id)
    assert lab.client.roll_back_run(run.run_id).skipped == {}
    back = lab.client.read(lab.calls[0])
    assert (back.transcript, back.findings, back.tasks) == (before.transcript, before.findings, before.tasks)
    assert list(lab.client.search("mourning")) == []
    lab.client.delete_run(run.run_id)
    assert lab.client.runs() == []


async def test_what_cannot_be_set_or_done_is_told(lab: Lab) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"Did you mean asr\.model"):
        lab.client.create_run("one", {"asr": {"mdel": "base"}})
    with pytest.raises(errors.InvalidRequest, match="not a path"):
        lab.client.create_run("one", {"asr": {"model": "/etc/passwd"}})
    with pytest.raises(errors.InvalidRequest, match="gold is not a gold set"):
        lab.client.create_run("one", gold="unknown")
    with pytest.raises(errors.Conflict, match="None of the calls is completed"):
        lab.client.create_run("one", call_ids=[uuid4()])
    created = lab.client.create_run("one", call_ids=[lab.calls[0], await received(lab.world)])
    assert created.run.calls == 1 and len(created.left_out) == 1
    with pytest.raises(errors.Conflict, match="A run named 'one' exists"):
        lab.client.create_run("one")
    with pytest.raises(errors.Conflict, match="has not ended: 1 calls remain"):
        lab.client.promote_run(created.run.run_id)
    with pytest.raises(errors.Conflict, match="is not promoted"):
        lab.client.roll_back_run(created.run.run_id)
    assert lab.client.cancel_run(created.run.run_id).status == "canceled"
    with pytest.raises(errors.NotFound):
        lab.client.run(uuid4())


async def test_a_key_that_only_reads_makes_no_run_and_one_of_a_team_sees_none(lab: Lab) -> None:
    created = lab.client.create_run("one")
    with Client(lab.base, await key_of(lab.world, "read"), timeout=60) as reader:
        assert [run.name for run in reader.runs()] == ["one"]
        with pytest.raises(errors.NotAllowed):
            reader.cancel_run(created.run.run_id)
    of_team = await key_of(lab.world, "read", "admin", team=lab.world.team_id)
    with Client(lab.base, of_team, timeout=60) as team:
        assert team.runs() == []
        with pytest.raises(errors.NotFound):
            team.run(created.run.run_id)
        with pytest.raises(errors.NotAllowed):
            team.create_run("two")


async def test_a_request_that_is_sent_again_makes_one_run(lab: Lab) -> None:
    body = {"idempotencyKey": str(uuid4()), "name": "once", "settings": {}}
    for _ in range(2):
        answer = lab.client._session.ask  # the same body twice, as after a lost connection
        from switchboard.models import CreatedRun

        assert answer(CreatedRun, "createRun", body=body).run.name == "once"
    assert len(lab.client.runs()) == 1


async def switchboard(lab: Lab, *arguments: str, code: int = 0) -> str:
    command = ["runs", *arguments, "--workspace", str(lab.world.workspace_id)]
    result = await asyncio.to_thread(CliRunner().invoke, app, command, env={"COLUMNS": "80"})
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


async def test_the_command_line_makes_compares_promotes_and_takes_back(lab: Lab) -> None:
    output = await switchboard(lab, "create", "tiny", "--set", "asr.model=whisper-tiny.en", "--limit", "2")
    assert "Created run tiny: 2 calls, asr.model=whisper-tiny.en." in output
    assert "waiting: 0 of 2 calls done, waiting for its turn" in await switchboard(lab, "show", "tiny")
    await work(lab.world, *OTHER)
    status = await switchboard(lab, "show", "tiny", "--watch")
    assert "completed: 2 of 2 calls done" in status and "of processing" in status
    compared = await switchboard(lab, "compare", "tiny")
    assert "words changed: 2 of 12" in compared and "tone in 2" in compared
    shown = json.loads(await switchboard(lab, "compare", "tiny", "--json"))
    assert [call["words"]["substituted"] for call in shown["calls"]] == [1, 1]
    await gold_of_all(lab.world, "desk")
    against = json.loads(await switchboard(lab, "compare", "tiny", "--gold", "desk", "--price-per-hour", "2", "--json"))
    record, run = against["againstGold"]["systems"]
    assert (record["name"], record["metrics"]["wer"]["value"]) == ("record", 0.0)
    assert (run["name"], run["calls"]) == ("tiny", 2)
    assert run["againstFirst"]["wer"]["value"] == pytest.approx(2 / 12)
    output = await switchboard(lab, "compare", "tiny", "--gold", "desk")
    assert "tiny differs by +16.7 points: too few calls to tell" in " ".join(output.split())
    assert "Run tiny is now live for 2 calls." in await switchboard(lab, "promote", "tiny")
    assert "promoted" in await switchboard(lab, "list")
    assert "words changed: 2 of 12" in await switchboard(lab, "compare", "tiny"), "with the record before"
    assert "is no longer live for 2 calls" in await switchboard(lab, "rollback", "tiny")
    assert "Deleted run tiny." in await switchboard(lab, "delete", "tiny")
    assert "No runs yet" in await switchboard(lab, "list")


async def two_runs(lab: Lab) -> tuple[UUID, UUID]:
    """Create a run that differs in two words of twelve, and one that agrees with the records."""
    ids = []
    for name, talk in (("tiny", OTHER), ("base", TALK)):
        ids.append(lab.client.create_run(name).run.run_id)
        await work(lab.world, *talk)
    return ids[0], ids[1]


async def test_a_run_is_compared_with_the_records_with_another_run_and_against_a_gold_set(lab: Lab) -> None:
    tiny, base = await two_runs(lab)
    comparison = await asyncio.to_thread(lab.client.compare_run, tiny)
    assert (comparison.run, comparison.beside, comparison.measured_against) == ("tiny", "record", "record")
    assert (comparison.calls, comparison.left_out, comparison.findings) == (2, 0, {"tone": 2})
    (run,) = comparison.systems
    assert run.metrics["wer"].value == pytest.approx(2 / 12) and run.against_first == {}
    assert {call.call_id for call in comparison.worst} == set(lab.calls)
    assert comparison.worst[0].start == 0.0 and comparison.worst[0].values == [pytest.approx(1 / 6)]
    assert comparison.worst[0].audio.endswith(f"/api/v1/calls/{comparison.worst[0].call_id}/audio")
    beside = await asyncio.to_thread(lab.client.compare_run, tiny, other=base)
    assert beside.beside == "base" and beside.systems[0].metrics["wer"].value == pytest.approx(2 / 12)
    same = await asyncio.to_thread(lab.client.compare_run, base, by="cpwer")
    assert (same.by, same.systems[0].metrics["cpwer"].value) == ("cpwer", 0.0)
    await gold_of_all(lab.world, "desk")
    against = await asyncio.to_thread(lab.client.compare_run, base, other=tiny, gold="desk")
    first, second = against.systems
    assert (against.measured_against, first.name, second.name) == ("desk@1", "tiny", "base")
    assert first.metrics["wer"].value == pytest.approx(2 / 12) and second.metrics["wer"].value == 0.0
    difference = second.against_first["wer"]
    assert (
        difference.value == pytest.approx(-2 / 12)
        and difference.better is None
        and "too few calls to tell" in difference.sentence
    )
    shown = json.loads(await switchboard(lab, "compare", "base", "tiny", "--gold", "desk", "--json"))
    verdict = shown["againstGold"]["systems"][1]["againstFirst"]["wer"]
    assert (verdict["value"], verdict["sentence"]) == (difference.value, difference.sentence), (
        "the command line says the same"
    )
    text = " ".join((await switchboard(lab, "compare", "tiny", "base")).split())
    assert "tiny: 2 calls compared with base words changed: 2 of 12" in text


async def test_a_comparison_that_cannot_be_made_or_is_too_much_is_refused_and_a_long_one_goes_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = lab.client.create_run("waiting").run.run_id
    with pytest.raises(errors.Conflict, match="No call of run 'waiting' is done yet"):
        lab.client.compare_run(waiting)
    lab.client.delete_run(waiting)
    tiny, base = await two_runs(lab)
    with pytest.raises(errors.Conflict, match="cannot be compared with itself"):
        lab.client.compare_run(tiny, other=tiny)
    with pytest.raises(errors.InvalidRequest, match="other is not a run"):
        lab.client.compare_run(tiny, other=uuid4())
    with pytest.raises(errors.InvalidRequest, match="gold is not a gold set"):
        lab.client.compare_run(tiny, gold="desk@7")
    with pytest.raises(errors.NotFound):
        lab.client.compare_run(uuid4())
    monkeypatch.setattr("serve_app.api.runs.MAX_CALLS", 1)
    with pytest.raises(errors.Conflict, match=r"The run has 2 calls; max\. 1 can be compared here\. Set limit"):
        lab.client.compare_run(tiny)
    assert (await asyncio.to_thread(lab.client.compare_run, tiny, limit=1)).calls == 1
    monkeypatch.setattr("serve_app.api.runs.MAX_CALLS", 500)
    monkeypatch.setattr(ApiOptions, "MEASURE_WAIT_SECONDS", 0.0)
    progress: list[int] = []
    with pytest.raises(ComparisonTimedOut, match="was not measured within"):
        lab.client.compare_run(tiny, timeout=-1, on_progress=lambda comparison: progress.append(comparison.all))
    assert len(progress) == 1
    assert (await asyncio.to_thread(lab.client.compare_run, tiny)).calls == 2, "it continued"
    monkeypatch.setattr("serve_app.experiments.comparison_cache.MAX_SECONDS", -1.0)
    with pytest.raises(errors.Conflict, match="The comparison took too long"):
        await asyncio.to_thread(lab.client.compare_run, base, other=tiny)


async def test_the_command_line_says_what_is_wrong_and_what_to_do(lab: Lab) -> None:
    assert "Did you mean asr.model?" in await switchboard(lab, "create", "x", "--set", "asr.mdel=base", code=2)
    assert "is not a valid name of a run" in await switchboard(lab, "create", "a b", code=2)
    assert "No gold set" in await switchboard(lab, "create", "x", "--gold", "nothing", code=2)
    assert "No completed call matches" in await switchboard(lab, "create", "x", "--language", "fr", code=1)
    assert "No run 'x'" in await switchboard(lab, "show", "x", code=1)
    await switchboard(lab, "create", "x")
    assert "A run named 'x' exists" in await switchboard(lab, "create", "x", code=1)
    await work(lab.world, fails=True)
    status = await switchboard(lab, "show", "x")
    assert "2 failed" in status and "run_not_reproducible" in status
    assert "No call of run 'x' is done yet" in await switchboard(lab, "compare", "x", code=1)
    assert "the run has no result of it" in " ".join((await switchboard(lab, "promote", "x", code=1)).split())
