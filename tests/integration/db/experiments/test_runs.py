from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from db.core.database import Reader
from db.experiments import promotion, run_calls, run_results, runs
from db.experiments.run_calls import digest_of
from db.experiments.runs import Run
from db.records import correct
from db.records.corrections import Editor
from db.records.views import CallRecord
from pipeline.domain.edits import EditKind
from pipeline.domain.speech import ChunkText, Transcript, Word
from pipeline.errors import LeaseLost
from pipeline.runtime.workers import Workers
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.runs import RunLoop
from serve_app.experiments.configuration import RunOptions
from serve_app.settings import Settings
from tests import fixture_checkpoints
from tests.file_server import FileServer
from tests.postgres import World
from tests.support.conductors import LEASE, WatchedWorkers, completed, shown, until
from tests.tuned import tuned

OTHER = {"asr": {"beam_size": 1}}
PLAIN = tuned(ProcessingOptions, lease_seconds=LEASE, drain_seconds=0, poll_seconds=0.1, backoff_seconds=0.1)


class Shouting:
    """A recognition engine of another configuration, with the live engine's result in other words."""

    _identity = None

    def __init__(self, engine: Any) -> None:
        self._of = engine
        self.name, self.options = f"{engine.name} shouting", None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def transcribe(self, *args: Any) -> list[ChunkText]:
        return [replace(piece, words=tuple(map(_loud, piece.words))) for piece in self._of.transcribe(*args)]


def _loud(word: Word) -> Word:
    return replace(word, text=word.text.upper())


class Engines:
    """Workers of runs in this process: the live ones, or loud ones if the run sets another recognizer."""

    def __init__(self, settings: Settings, workers: WatchedWorkers, other: WatchedWorkers) -> None:
        self._settings, self.own, self.other = settings, workers, other

    def workers(self, options: RunOptions) -> Workers:
        same = options.asr == self._settings.asr.for_engine().model_dump(mode="json")
        return self.own if same else self.other

    def room(self) -> int:
        return 2

    def start_seconds(self, workers: Workers) -> float:
        return 0.0

    def close(self, workers: Workers) -> None: ...


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def settings_of(folder: Path) -> Settings:
    return Settings(
        storage=folder.as_uri(),
        asr={"model": str(fixture_checkpoints.RECOGNITION), "device": "cpu"},
        diarization={"pipeline": str(fixture_checkpoints.DIARIZATION), "device": "cpu"},
        fetch={"allowed_hosts": ["127.0.0.1"]},
    )


@pytest.fixture
def engines(settings: Settings, workers: WatchedWorkers, transcriber: Any, diarizer: Any) -> Engines:
    return Engines(settings, workers, WatchedWorkers(Shouting(transcriber), diarizer))


@asynccontextmanager
async def working(world: World, engines: Engines, settings: Settings) -> AsyncIterator[RunLoop]:
    loop = RunLoop(world.database, engines, settings, PLAIN)
    await loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


@asynccontextmanager
async def conducting(world: World, workers: WatchedWorkers, settings: Settings) -> AsyncIterator[None]:
    conductor = ConductorLoop(world.database, workers, PLAIN, settings.process_options())
    await conductor.start()
    try:
        yield
    finally:
        await conductor.stop()


@pytest.fixture
async def call(world: World, files: FileServer, short: Path, workers: WatchedWorkers, settings: Settings) -> CallRecord:
    """Complete a call by the live pipeline."""
    async with conducting(world, workers, settings):
        await world.submit(recording_url=files.add(short))
        return await completed(world)


async def create_run(world: World, name: str = "other", changes: Any = OTHER, *calls: UUID) -> Run:
    run, _ = await runs.create(world.database, world.workspace_id, name, changes, calls or [world.call_id])
    return run


async def ended(world: World, run: Run) -> Run:
    async def it_ended() -> bool:
        return (await runs.find(world.database, world.workspace_id, run.run_id)).state != "running"

    await until(it_ended)
    return await runs.find(world.database, world.workspace_id, run.run_id)


async def worked(world: World, engines: Engines, settings: Settings, run: Run) -> Run:
    async with working(world, engines, settings):
        run = await ended(world, run)
    calls = (await run_results.list_calls(world.database, world.workspace_id, run.run_id)).items
    assert run.failed == 0, [(call.error_code, call.error_message) for call in calls]
    return run


def same(record: CallRecord) -> CallRecord:
    """Return a record without fields that any change updates."""
    return replace(record, call=replace(record.call, updated_at=record.call.created_at))


async def result(world: World, run: Run) -> run_results.RunResult:
    result_of_run = await run_results.show(world.database, world.workspace_id, run.run_id, world.call_id)
    assert result_of_run is not None
    return result_of_run


async def test_a_run_of_the_services_own_settings_recalls_every_stage_and_has_the_records_digest(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    before = engines.own.asked.copy()
    run = await worked(world, engines, settings, await create_run(world, "again", {}))
    assert engines.own.asked == before and not engines.other.asked
    assert (await result(world, run)).call.digest == digest_of(call.transcript, call.findings)


async def test_another_recognizer_is_asked_and_the_record_stays(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    before = engines.own.asked.copy()
    run = await worked(world, engines, settings, await create_run(world))
    assert engines.own.asked == before and engines.other.asked["transcribe"] >= 1
    outcome = await result(world, run)
    assert outcome.transcript is not None and outcome.call.engine is not None
    assert outcome.call.engine.endswith("shouting")
    assert all(word.text.isupper() for turn in outcome.transcript.turns for word in turn.words if word.text.isalpha())
    assert same(await shown(world)) == same(call)
    assert {"asr"} <= set(outcome.call.seconds or {})
    assert "audio" not in (outcome.call.seconds or {}), "the labels of the sound are the same: they are recalled"
    assert run.configuration is not None and len(run.configuration["engines"]["asr"]["digest"]) == 32
    assert (run.done, run.waiting, run.promoted) == (1, 0, 0)


async def test_another_analysis_recognizes_nothing_again(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    before = engines.own.asked.copy()
    run = await worked(
        world, engines, settings, await create_run(world, "silent", {"analysis": {"tone_by_voice": "nobody"}})
    )
    assert engines.own.asked == before and not engines.other.asked
    outcome = await result(world, run)
    assert outcome.transcript == call.transcript
    assert "asr" not in (outcome.call.seconds or {}) and "analysis" in (outcome.call.seconds or {})


async def test_a_second_run_of_the_same_configuration_has_the_same_digest(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    first = await worked(world, engines, settings, await create_run(world, "one"))
    asked = engines.other.asked.copy()
    second = await worked(world, engines, settings, await create_run(world, "two"))
    assert engines.other.asked == asked
    assert first.digest == second.digest
    assert (await result(world, first)).call.digest == (await result(world, second)).call.digest


async def test_a_promoted_run_is_the_record_until_it_is_rolled_back(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    run = await worked(world, engines, settings, await create_run(world))
    moved = await promotion.promote(world.database, world.workspace_id, run.run_id)
    assert (moved.calls, moved.skipped, moved.run.promoted) == (1, {}, 1)
    promoted = await shown(world)
    outcome = await result(world, run)
    assert digest_of(promoted.transcript, promoted.findings) == outcome.call.digest
    assert promoted.call.updated_at > call.call.updated_at
    moved = await promotion.roll_back(world.database, world.workspace_id, run.run_id)
    assert (moved.calls, moved.skipped, moved.run.promoted, moved.run.promoted_at) == (1, {}, 0, None)
    assert same(await shown(world)) == same(call)


async def test_what_a_run_is_and_made_never_changes(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    run = await worked(world, engines, settings, await create_run(world))
    for statement in (
        "UPDATE runs SET settings = '{}'",
        "UPDATE runs SET digest = 'x'",
        "UPDATE run_calls SET findings = '[]'",
        "UPDATE run_calls SET state = 'waiting'",
    ):
        with pytest.raises(DBAPIError, match=r"do(es)? not change"):
            await world.execute(statement)
    assert (await runs.find(world.database, world.workspace_id, "other")).digest == run.digest


async def test_calls_that_changed_since_are_skipped_and_told(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    run = await worked(world, engines, settings, await create_run(world))
    await world.submit(from_number="+4930999999")
    with pytest.raises(runs.RunRefused, match="its data changed since"):
        await promotion.promote(world.database, world.workspace_id, run.run_id)
    await world.submit(recording_url="https://pbx.example/another.wav")
    with pytest.raises(runs.RunRefused, match="it has another recording now"):
        await promotion.promote(world.database, world.workspace_id, run.run_id)


async def test_an_analysis_of_a_promoted_call_rests_on_the_runs_words_and_a_rollback_on_the_services(
    world: World, call: CallRecord, engines: Engines, settings: Settings, workers: WatchedWorkers
) -> None:
    run = await worked(world, engines, settings, await create_run(world))
    await promotion.promote(world.database, world.workspace_id, run.run_id)
    asked = workers.asked.copy()
    await world.submit(user_id=uuid4())
    async with conducting(world, workers, settings):
        await until(lambda: analyzed(world))
        assert words((await shown(world)).transcript) == words((await result(world, run)).transcript)
        await promotion.roll_back(world.database, world.workspace_id, run.run_id)
        await until(lambda: analyzed(world))
    assert workers.asked == asked, "nothing is recognized again"
    assert words((await shown(world)).transcript) == words(call.transcript)


def words(transcript: Transcript | None) -> list[Any]:
    assert transcript is not None
    return [turn.words for turn in transcript.turns]


async def analyzed(world: World) -> bool:
    return not await world.rows("SELECT 1 FROM jobs WHERE kind = 'analyze' AND state IN ('queued', 'running')")


async def test_a_worker_that_lost_a_call_of_a_run_writes_nothing(
    world: World, call: CallRecord, settings: Settings
) -> None:
    run = await create_run(world)
    (old,) = await run_calls.claim(world.database, "w1", 1, 0.0)
    (new,) = await run_calls.claim(world.database, "w2", 1, 60.0)
    assert (old.key, new.claims) == (new.key, old.claims + 1)
    assert call.transcript is not None
    outcome = run_calls.RunOutcome(call.transcript, call.findings, (), {}, {})
    with pytest.raises(LeaseLost):
        await run_calls.complete(world.database, old, outcome)
    assert await run_calls.renew(world.database, [old, new], 60.0) == {old.key}
    await run_calls.complete(world.database, new, outcome)
    ended = await runs.find(world.database, world.workspace_id, run.run_id)
    assert (ended.state, ended.done) == ("completed", 1)


async def test_a_run_waits_while_a_job_is_due(world: World, call: CallRecord) -> None:
    await create_run(world)
    await world.submit(call_id=uuid4(), recording_url="https://pbx.example/waits.wav")
    await world.all_fetched()
    assert await run_calls.claim(world.database, "w1", 1, 60.0) == []
    await world.execute("UPDATE jobs SET state = 'failed' WHERE state = 'queued'")
    assert len(await run_calls.claim(world.database, "w1", 1, 60.0)) == 1


async def test_a_run_goes_with_what_only_it_made_and_its_calls_stay(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    before = await world.rows("SELECT stage, content_key FROM stage_results ORDER BY 1, 2")
    run = await worked(world, engines, settings, await create_run(world))
    assert len(await world.rows("SELECT 1 FROM stage_results")) > len(before)
    await runs.delete(world.database, world.workspace_id, run.run_id)
    assert await world.rows("SELECT stage, content_key FROM stage_results ORDER BY 1, 2") == before
    assert same(await shown(world)) == same(call)


async def test_an_erased_call_leaves_its_runs(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    run = await worked(world, engines, settings, await create_run(world))
    async with world.database.transaction(world.workspace_id) as connection:
        await connection.execute(sa.text("SET LOCAL switchboard.erasure = 'on'"))
        await connection.execute(sa.text("DELETE FROM calls"))
    assert await world.rows("SELECT * FROM run_calls") == []
    canceled = await runs.find(world.database, world.workspace_id, run.run_id)
    assert (canceled.calls, canceled.done) == (1, 0)


async def test_a_promotion_is_told_with_the_run_and_its_rollback_without(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    await world.execute(
        "INSERT INTO webhook_endpoints (workspace_id, url, events, secret)"
        " VALUES (:workspace, 'https://hooks.example', '{call.promoted,call.completed}', 'sealed')",
        workspace=world.workspace_id,
    )
    run = await worked(world, engines, settings, await create_run(world))
    await promotion.promote(world.database, world.workspace_id, run.run_id)
    await promotion.roll_back(world.database, world.workspace_id, run.run_id)
    events = await world.rows("SELECT type, data FROM events ORDER BY at")
    assert [event["type"] for event in events] == ["call.promoted", "call.promoted"]
    assert [event["data"]["run"] for event in events] == [{"runId": str(run.run_id), "name": "other"}, None]


async def test_corrections_of_people_stay_where_their_words_are(
    world: World, call: CallRecord, engines: Engines, settings: Settings
) -> None:
    assert call.transcript is not None
    turn = next(turn for turn in call.transcript.turns if turn.words)
    word = turn.words[0]
    edit = correct.WantedEdit(EditKind.TEXT, word.text, "Corrected", turn.index, word.start, word.end)
    reader = Reader(world.workspace_id)
    await correct.make(world.database, reader, Editor(None, None, "Ana"), world.call_id, edit)
    corrected = await shown(world)
    run = await worked(world, engines, settings, await create_run(world))
    await promotion.promote(world.database, world.workspace_id, run.run_id)
    assert [edit.state for edit in (await shown(world)).edits] == ["not-applied"], (
        "the run recognized another word there"
    )
    await promotion.roll_back(world.database, world.workspace_id, run.run_id)
    assert same(await shown(world)) == same(corrected)
