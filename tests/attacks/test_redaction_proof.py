"""What a policy hides is found nowhere: no column of any table, no file, no answer of the API, no log line.

Real calls go through a real Conductor; only the words are given, so that they contain planted values.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from db.core.database import Reader
from db.events import endpoints
from db.records import correct, late_redaction, retention
from db.records.corrections import Editor
from db.records.views import CallRecord
from db.search import saved_views
from db.workspace import access_log, keys, redaction_policies
from pipeline.domain.edits import EditKind
from pipeline.domain.redaction import RedactionMode, RedactionPreset, RedactionState
from pipeline.domain.retention import RetentionKind
from pipeline.domain.speech import PENDING
from pipeline.fetch.fetcher import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.speakers.profile import Voices
from pipeline.steps import redact
from serve_app.cli import app
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.file_server import FileServer
from tests.planted import leftovers
from tests.planted_talk import CODES, KINDS, PLANTED, SENTENCES
from tests.postgres import World
from tests.reading_api import Api
from tests.support.conductors import STEREO, completed, ended, shown, until
from tests.support.spoken import SpokenWorkers
from tests.synthetic_calls import FOLDER
from tests.tuned import tuned

CARD, MAIL = "4111111111111111", "zqbert@zqmann.example"
HARMLESS = "invoice"


class Installation:
    """A Conductor over the recordings of a folder."""

    def __init__(self, api: Api, folder: Path, transcriber: Any, diarizer: Any, files: FileServer) -> None:
        self.api, self.world, self.folder, self.files = api, api.world, folder, files
        self.storage = folder / "recordings"
        self.workers = SpokenWorkers(transcriber, diarizer, SENTENCES)

    @asynccontextmanager
    async def conducting(self) -> AsyncIterator[ConductorLoop]:
        options = tuned(ProcessingOptions, lease_seconds=20, poll_seconds=0.1, backoff_seconds=0.1, drain_seconds=0)
        process_options = ProcessOptions(
            storage=self.storage.as_uri(), fetch=FetchOptions(allowed_hosts=("127.0.0.1",))
        )
        conductor = ConductorLoop(self.world.database, self.workers, options, process_options)
        await conductor.start()
        try:
            yield conductor
        finally:
            await conductor.stop()

    async def policy(self, mode: RedactionMode, **fields: Any) -> None:
        presets = (RedactionPreset.PCI, RedactionPreset.PRIVACY)
        policy = redaction_policies.named(mode, presets, **fields)
        await redaction_policies.set_policy(self.world.database, self.world.workspace_id, policy)

    async def submit(self, count: int) -> list[UUID]:
        calls = [uuid4() for _ in range(count)]
        for number, call_id in enumerate(calls):
            copy = self.folder / f"{number}.flac"
            shutil.copy(FOLDER / STEREO / "call.flac", copy)
            await self.world.submit(call_id=call_id, recording_url=self.files.add(copy))
        return calls

    def found_in_files(self, strings: Sequence[str]) -> list[str]:
        """Return strings in the names and contents of stored files."""
        paths = [path for path in self.storage.rglob("*") if path.is_file()]
        contents = {path.name: path.read_bytes().lower() for path in paths}
        return [
            f"{string} in {name}"
            for string in strings
            for name, content in contents.items()
            if string.encode() in content
        ]

    def shown(self, call_id: UUID) -> str:
        """Return everything that the API returns about a call."""
        paths = ["", "/transcript.json", "/transcript.txt", "/transcript.srt", "/transcript.vtt", "/events", "/edits"]
        answers = [self.api.get(f"/calls/{call_id}{path}").text for path in paths]
        answers += [self.api.get("/export", include="transcript").text, self.api.get("/tasks").text]
        answers += [self.api.get("/calls").text, self.api.get("/contacts").text]
        return "\n".join(answers).lower()


@pytest.fixture
def installation(api: Api, tmp_path: Path, transcriber: Any, diarizer: Any) -> Any:
    with FileServer() as files:
        yield Installation(api, tmp_path, transcriber, diarizer, files)


@pytest.mark.parametrize(
    ("mode", "count"),
    [
        (RedactionMode.MASK, 2),
        (RedactionMode.REDACTED_ONLY, 2),
        pytest.param(RedactionMode.MASK, 12, marks=[pytest.mark.slow_attack, pytest.mark.timeout(900)]),
        pytest.param(RedactionMode.REDACTED_ONLY, 12, marks=[pytest.mark.slow_attack, pytest.mark.timeout(900)]),
    ],
)
async def test_planted_values_are_nowhere(
    mode: RedactionMode,
    count: int,
    installation: Installation,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("DEBUG")
    world = installation.world
    include = ["record", "transcript"]
    await endpoints.add(world.database, world.workspace_id, "https://crm.example/", "sealed", include=include)
    await installation.policy(mode)
    async with installation.conducting():
        calls = await installation.submit(count)
        records = [await completed(world, call_id) for call_id in calls]
    await _work_with(installation, records[0], monkeypatch)
    original = (FOLDER / STEREO / "call.flac").read_bytes()
    for record in records:
        redaction = record.transcript.redaction
        assert redaction.state is RedactionState.FOUND
        assert HARMLESS in installation.shown(record.call.call_id)
        assert "[card]" in installation.shown(record.call.call_id)
        shown = installation.shown(record.call.call_id)
        assert [shown[max(0, shown.index(text) - 200) :][:300] for text in PLANTED if text in shown] == []
    hidden = {kind for record in records for kind in record.redaction.counts}
    assert sorted(KINDS - hidden) == []
    assert leftovers(world.database.url, PLANTED) == []
    assert installation.found_in_files(PLANTED) == []
    logged = " ".join(entry.getMessage() for entry in caplog.records if entry.name != "httpx").lower()
    assert [text for text in PLANTED if text in logged] == []
    assert installation.api.get("/calls", text=CARD).json()["items"] == []
    stored = [path.read_bytes() for path in installation.storage.rglob("*") if path.is_file()]
    assert not [content for content in stored if content == original]
    words = await world.rows("SELECT content FROM unredacted_words")
    sealed = await world.rows("SELECT uri FROM unredacted_recordings")
    kept = mode is RedactionMode.MASK
    assert (len(words), len(sealed)) == ((count, count) if kept else (0, 0))
    await _only_with_the_scope(installation, calls, original if kept else None)


async def _work_with(installation: Installation, record: CallRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """Correct a word of the call, save a view and a gold set: each stores words again."""
    world, reader = installation.world, Reader(installation.world.workspace_id)
    index, word = next(
        (turn.index, word) for turn in record.transcript.turns for word in turn.words if HARMLESS in word.text
    )
    edit = correct.WantedEdit(EditKind.TEXT, word.text, "invoices", index, word.start, word.end)
    await correct.make(world.database, reader, Editor(None, None, "Ana"), record.call.call_id, edit)
    await saved_views.save(world.database, reader, "Invoices", f"text={HARMLESS}")
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", world.database.url)
    command = ["gold", "create", "desk", "--workspace", str(world.workspace_id)]
    done = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert done.exit_code == 0, done.output
    assert await world.rows("SELECT FROM gold_calls")


async def _only_with_the_scope(installation: Installation, calls: Sequence[UUID], original: bytes | None) -> None:
    """Check that a key with the scope reads sealed words and sound, if there are any; no other key does."""
    world, api = installation.world, installation.api
    path, sound = f"/calls/{calls[0]}", f"/calls/{calls[0]}/audio"
    assert api.get(path, unredacted=True).status_code == 403
    assert api.get(sound, unredacted=True).status_code == 403
    scopes = ["read", "unredacted"]
    _, key = await keys.create(world.database, world.workspace_id, None, scopes, "auditor")
    assert CARD not in api.get(path, key).text
    assert api.get(sound, key).content != original
    unredacted = " ".join(api.get(f"/calls/{call_id}", key, unredacted=True).text for call_id in calls)
    assert (CARD in unredacted, MAIL in unredacted) == (original is not None,) * 2
    assert [code for code in CODES if code in unredacted] == [], "a card code is never kept"
    assert (api.get(sound, key, unredacted=True).content == original) == (original is not None)
    reads = await access_log.list_reads(world.database, world.workspace_id, calls[0])
    assert sum(read.count for read in reads if read.what == "unredacted") == 2


@pytest.mark.slow_attack
async def test_a_later_policy_replaces_what_was_stored(installation: Installation) -> None:
    world, api = installation.world, installation.api
    await endpoints.add(world.database, world.workspace_id, "https://crm.example/", "sealed", include=["record"])
    async with installation.conducting() as conductor:
        calls = await installation.submit(2)
        for call_id in calls:
            await completed(world, call_id)
        await _expire_recording(world, calls[1])
        assert CARD in installation.shown(calls[0])
        assert leftovers(world.database.url, PLANTED)
        transcribed = installation.workers.transcribed
        files = {row["uri"] for row in await world.rows("SELECT uri FROM recordings")}
        await installation.policy(RedactionMode.MASK)
        await installation.policy(RedactionMode.REDACTED_ONLY)
        filter_ = late_redaction.LateFilter()
        assert await late_redaction.count_due(world.database, world.workspace_id, filter_) == 2
        queued = await late_redaction.queue_due(world.database, world.workspace_id, filter_)
        assert await late_redaction.queue_due(world.database, world.workspace_id, filter_, queued[-1]) == []
        assert conductor.alive

        async def is_done() -> bool:
            return await late_redaction.count_due(world.database, world.workspace_id, filter_) == 0

        await until(is_done)
    assert installation.workers.transcribed == transcribed, "nothing is recognized again"
    assert leftovers(world.database.url, PLANTED) == []
    for call_id in calls:
        assert [text for text in PLANTED if text in installation.shown(call_id)] == []
        assert "[card]" in installation.shown(call_id)
    queued_files = {row["uri"] for row in await world.rows("SELECT uri FROM file_deletions")}
    assert files <= queued_files
    await installation.policy(RedactionMode.MASK, last_digits=4)
    async with installation.conducting():  # a looser policy
        assert await late_redaction.queue_due(world.database, world.workspace_id, filter_) == queued
        await until(is_done)
    assert installation.workers.transcribed == transcribed, "masked words are never recognized again"
    assert "[card]" in installation.shown(calls[0])
    record = await shown(world, calls[0])
    assert record.redaction.policy.mode is RedactionMode.MASK
    assert record.redaction.counts["card"] >= 1
    assert leftovers(world.database.url, PLANTED) == []
    assert CARD not in api.get(f"/calls/{calls[0]}").text


async def _expire_recording(world: World, call_id: UUID) -> None:
    """Delete the recording of a call as retention does; its words stay."""
    await world.execute("UPDATE calls SET created_at = now() - interval '2 days' WHERE call_id = :call", call=call_id)
    await retention.set_period(world.database, world.workspace_id, RetentionKind.RECORDINGS, 1)
    while await retention.expire(world.database, Voices(), 50, 1000, 0.0, 3600.0) is not None:
        pass
    assert (await shown(world, call_id)).recordings == ()


@pytest.mark.slow_attack
async def test_a_call_that_cannot_be_checked_is_held_back_and_leaves_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(recognized: Any, policy: Any) -> Any:
        raise RuntimeError(f"it quotes {CARD}")

    monkeypatch.setattr(redact, "find_entities", fails)
    world = installation.world
    await installation.policy(RedactionMode.MASK)
    async with installation.conducting():
        (held,) = await installation.submit(1)
        record = await ended(world, held)
        assert record.call.failure.code == "could_not_redact"
        assert await world.rows("SELECT FROM recordings UNION ALL SELECT FROM transcripts") == []
        await installation.policy(RedactionMode.MASK, hold=False)
        (unchecked,) = await installation.submit(1)
        record = await completed(world, unchecked)
        assert record.redaction.state is RedactionState.COULD_NOT_LOOK
        assert any("is not redacted" in warning for warning in record.warnings)
        assert CARD not in f"{record.warnings}{record.redaction}"


@pytest.mark.slow_attack
async def test_another_conductor_fetches_what_only_a_dead_one_could_open(installation: Installation) -> None:
    world = installation.world
    await installation.policy(RedactionMode.REDACTED_ONLY)
    installation.workers.stalls = True
    async with installation.conducting():
        (call_id,) = await installation.submit(1)
        await until(lambda: installation.workers.stalled)
    installation.workers.stalls = False
    async with installation.conducting():
        record = await completed(world, call_id)
    assert record.redaction.state is RedactionState.FOUND
    (recording,) = record.recordings
    assert recording.redaction not in PENDING
    queued = await world.rows("SELECT uri FROM file_deletions")
    assert len(queued) == 2, "the files of both keys"
