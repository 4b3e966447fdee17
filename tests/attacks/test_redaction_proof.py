"""What a policy hides is found nowhere: no column of any table, no file, no answer of the API, no log line.

Real calls go through a real Conductor; only the words are given, so that they contain planted values.
"""

import asyncio
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

import switchboard
from db.core.database import Database, Reader
from db.events import endpoints
from db.experiments import promotion
from db.queue import retries
from db.records import correct, redactions, retention, views
from db.records.corrections import Editor
from db.records.retention import RetentionKind
from db.records.views import CallRecord
from db.search import saved_views
from db.secrets.call_keys import CallKeys
from db.secrets.encryption import Sealer
from db.workspace import access_log, keys, redaction_policies
from pipeline.domain.edits import EditKind
from pipeline.domain.redaction import RedactionMode, RedactionPreset, RedactionState
from pipeline.domain.speech import PENDING
from pipeline.fetch.fetcher import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.sealed_files import open_stored
from pipeline.speakers.profile import Voices
from pipeline.steps import redact
from serve_app.cli import app
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.attacks.test_sealed_calls import KEY
from tests.attacks.test_sealed_calls import switchboard as run_command
from tests.file_server import FileServer
from tests.integration.db.experiments import test_runs
from tests.integration.serve_app.webhooks.test_delivery import all_sent, delivering, endpoint
from tests.paths import ROOT
from tests.planted import leftovers
from tests.planted_talk import CODES, KINDS, PLANTED, SENTENCES
from tests.postgres import World, fresh_database
from tests.reading_api import Api
from tests.receiver import receiving
from tests.support import conducting
from tests.support.conductors import STEREO, completed, ended, shown, until
from tests.support.spoken import SpokenWorkers
from tests.synthetic_calls import FOLDER
from tests.tuned import tuned
from tests.whole_service import served

CARD, MAIL = "4111111111111111", "zqbert@zqmann.example"
HARMLESS = "invoice"


class Installation:
    """A Conductor over the recordings of a folder."""

    def __init__(self, api: Api, folder: Path, transcriber: Any, diarizer: Any, files: FileServer) -> None:
        self.api, self.world, self.folder, self.files = api, api.world, folder, files
        self.storage = folder / "recordings"
        self.engines = (transcriber, diarizer)
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
    await installation.policy(mode)
    async with receiving() as receiver, delivering(world):
        await endpoint(world, receiver, include=["record", "transcript"])
        async with installation.conducting():
            calls = await installation.submit(count)
            records = [await completed(world, call_id) for call_id in calls]
        await all_sent(world)
    delivered = b" ".join(event.body for event in receiver.taken).decode().lower()
    assert HARMLESS in delivered and "[card]" in delivered
    assert [text for text in PLANTED if text in delivered] == []
    await _work_with(installation, records[0], monkeypatch)
    if count > 2:
        run_id = await _promote_a_run(installation, calls)
    await _check_frames(installation)
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
    if count > 2:
        await promotion.roll_back(world.database, world.workspace_id, run_id)
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


async def _promote_a_run(installation: Installation, calls: Sequence[UUID]) -> UUID:
    """Recognize calls again by a run of other settings, whose recognizer returns the planted values, and promote it."""
    world = installation.world
    settings = test_runs.settings_of(installation.storage)
    transcriber, diarizer = installation.engines
    other = SpokenWorkers(test_runs.Shouting(transcriber), diarizer, SENTENCES)
    engines = test_runs.Engines(settings, installation.workers, other)
    run = await test_runs.create_run(world, "other", test_runs.OTHER, *calls)
    run = await test_runs.worked(world, engines, settings, run)
    assert other.transcribed, "the run recognized the calls again"
    promoted = await promotion.promote(world.database, world.workspace_id, run.run_id)
    assert promoted.calls == len(calls)
    results = await world.rows("SELECT transcript::text AS text FROM run_calls")
    unmarked = [row["text"][:300] for row in results if not re.search(r"\[[A-Z][A-Z _-]+\]", row["text"])]
    assert len(results) == len(calls) and not unmarked
    return run.run_id


async def _check_frames(installation: Installation) -> None:
    """Check the data frame that notebooks work with."""
    with served(installation.world.database.url) as base, switchboard.Client(base, installation.api.wide) as client:
        frame = (await asyncio.to_thread(client.to_pandas, words=True)).to_json().lower()
    assert HARMLESS in frame and "[card]" in frame
    assert [text for text in PLANTED if text in frame] == []


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
async def test_a_restored_backup_opens_sealed_originals_with_the_keys(
    installation: Installation, postgres_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, plain = installation.world, installation.world.database
    environment = {
        "SWITCHBOARD_DATABASE_URL": plain.url,
        "SWITCHBOARD_STORAGE": installation.storage.as_uri(),
        "SWITCHBOARD_DATA_DIR": str(tmp_path / "data"),
        "SWITCHBOARD_SECRETS_KEYS": json.dumps([KEY]),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with await Database.open(plain.url, call_keys=CallKeys(Sealer([KEY]))) as world.database:
        await installation.policy(RedactionMode.MASK)
        async with installation.conducting():
            (call_id,) = await installation.submit(1)
            await completed(world, call_id)
    world.database = plain
    backup = (await asyncio.to_thread(run_command, "backup", "create", tmp_path / "backups"))["backup"]
    original = (FOLDER / STEREO / "call.flac").read_bytes()
    copies = [path.read_bytes() for path in (tmp_path / "backups").rglob("*") if path.is_file()]
    texts = [gzip.decompress(copy) if copy.startswith(b"\x1f\x8b") else copy for copy in copies]
    assert [text for text in PLANTED if any(text.encode() in copy.lower() for copy in texts)] == []
    assert original not in copies
    shutil.rmtree(installation.storage)
    for url in fresh_database(postgres_server, "template0"):
        monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", url)
        monkeypatch.setenv("SWITCHBOARD_STORAGE", (tmp_path / "elsewhere").as_uri())
        await asyncio.to_thread(run_command, "restore", backup)
        async with (
            await Database.open(url, call_keys=CallKeys(Sealer([KEY]))) as restored,
            restored.transaction(Reader(world.workspace_id)) as connection,
        ):
            record = await views.read_unredacted(connection, call_id)
        assert record is not None and CARD in f"{record.transcript}"
        (recording,) = record.recordings
        with open_stored(recording.uri, recording.key) as file:
            assert file.read() == original


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
        filter_ = redactions.LateFilter()
        assert await redactions.count_due(world.database, world.workspace_id, filter_) == 2
        queued = await redactions.queue_due(world.database, world.workspace_id, filter_)
        assert await redactions.queue_due(world.database, world.workspace_id, filter_, queued[-1]) == []
        assert conductor.alive

        async def is_done() -> bool:
            return await redactions.count_due(world.database, world.workspace_id, filter_) == 0

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
        assert await redactions.queue_due(world.database, world.workspace_id, filter_) == queued
        await until(is_done)
    assert installation.workers.transcribed == transcribed, "masked words are never recognized again"
    assert "[card]" in installation.shown(calls[0])
    records = [await shown(world, call_id) for call_id in calls]  # in which order they were recognized depends on load
    assert {record.redaction.policy.mode for record in records} == {RedactionMode.MASK}
    assert sum(record.redaction.counts.get("card", 0) for record in records) >= 1
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
    monkeypatch.setattr(redact, "find_entities", _fails)
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
async def test_a_stored_call_that_cannot_be_checked_is_held_back_until_it_can(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, api, filter_ = installation.world, installation.api, redactions.LateFilter()
    url, home = world.database.url, world.workspace_id
    await endpoints.add(world.database, home, "https://crm.example/", "sealed", include=["record", "transcript"])
    async with installation.conducting():
        (call_id,) = await installation.submit(1)
        await _work_with(installation, await completed(world, call_id), monkeypatch)
        transcribed = installation.workers.transcribed
        await installation.policy(RedactionMode.MASK)
        with monkeypatch.context() as patch:
            patch.setattr(redact, "find_entities", _fails)
            assert len(await redactions.queue_due(world.database, home, filter_)) == 1
            await until(lambda: _has_state(world, call_id, "failed"))
            record = await shown(world, call_id)
            assert (record.call.failure.code, record.transcript, record.recordings) == ("could_not_redact", None, ())
            assert leftovers(url, PLANTED) == [] and CARD not in f"{record}"
            assert [text for text in PLANTED if text in installation.shown(call_id)] == []
            _, key = await keys.create(world.database, home, None, ["read", "unredacted"], "auditor")
            assert api.get(f"/calls/{call_id}/audio", key, unredacted=True).status_code == 404
            assert [job.code for job in await retries.failed(world.database, home)] == ["could_not_redact"]
            assert await redactions.count_due(world.database, home, filter_) == 1, "a repeated pass includes it"
        (job,) = await retries.failed(world.database, home)
        assert await retries.retry(world.database, job.job_id, home) is not None
        record = await completed_again(world, call_id)
    assert record.redaction.state is RedactionState.FOUND and record.redaction.counts["card"] >= 1
    assert (record.call.failure, len(record.recordings), bool(record.findings)) == (None, 1, True)
    assert installation.workers.transcribed == transcribed, "nothing is recognized again"
    assert leftovers(url, PLANTED) == [] and installation.found_in_files(PLANTED) == []
    assert api.get(f"/calls/{call_id}/audio").content != (FOLDER / STEREO / "call.flac").read_bytes()
    assert await redactions.count_due(world.database, home, filter_) == 0


def _fails(*_: Any) -> Any:
    raise RuntimeError(f"it quotes {CARD}")


async def _has_state(world: World, call_id: UUID, state: str) -> bool:
    return (await shown(world, call_id)).call.state == state


async def completed_again(world: World, call_id: UUID) -> CallRecord:
    await until(lambda: _has_state(world, call_id, "completed"))
    return await shown(world, call_id)


@pytest.mark.slow_attack
@pytest.mark.timeout(600)
async def test_a_pass_that_is_killed_anywhere_resumes_and_leaves_no_old_copy(installation: Installation) -> None:
    """The command and three Conductors die by SIGKILL: with a file stored, before a commit, and right after one."""
    world, api = installation.world, installation.api
    command = ["redact", "--workspace", str(world.workspace_id), "--preset", "pci", "--preset", "privacy"]
    command += ["--mode", "redacted-only", "--json"]
    environment = {**os.environ, "SWITCHBOARD_DATABASE_URL": world.database.url}
    async with installation.conducting():
        calls = await installation.submit(3)
        for call_id in calls:
            await completed(world, call_id)
    files = [path for path in installation.storage.rglob("*") if path.is_file() and path.suffix != ".owner"]
    before = {path: path.read_bytes() for path in files}
    waiting = subprocess.Popen([sys.executable, "-m", "serve_app.cli", *command], env=environment, cwd=ROOT)
    await until(lambda: world.rows("SELECT FROM jobs WHERE kind = 'analyze' AND redaction IS NOT NULL"))
    for point in conducting.POINTS:
        child = [sys.executable, "-m", "tests.support.conducting", world.database.url, installation.storage.as_uri()]
        done = await asyncio.to_thread(subprocess.run, [*child, point], cwd=ROOT, check=False, timeout=180)
        assert done.returncode == -signal.SIGKILL, point
    waiting.kill()
    waiting.wait()
    redacted = await world.rows("SELECT FROM transcripts WHERE redaction IS NOT NULL")
    assert len(redacted) == 1, "one pass was in the middle: one call is committed"
    assert leftovers(world.database.url, PLANTED)
    async with installation.conducting():
        again = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "serve_app.cli", *command], env=environment, cwd=ROOT,
            capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
    assert (again.returncode, json.loads(again.stdout)["remaining"]) == (0, 0), again.stderr
    for call_id in calls:
        assert [text for text in PLANTED if text in installation.shown(call_id)] == []
        record = await shown(world, call_id)
        assert (record.redaction.policy.name, bool(record.redaction.counts)) == ("pci+privacy", True)
    assert leftovers(world.database.url, PLANTED) == []
    queued = {row["uri"] for row in await world.rows("SELECT uri FROM file_deletions")}
    served = {row["uri"] for row in await world.rows("SELECT uri FROM recordings")}
    assert {path.as_uri() for path in before} <= queued and not queued & served
    assert api.get(f"/calls/{calls[0]}/audio").content not in before.values()


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
