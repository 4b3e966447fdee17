"""A sealed call reads as any other, and nothing sealed of it can be read without its key: not from an old copy."""

import asyncio
import base64
import gzip
import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa
from typer.testing import CliRunner

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.experiments import promotion, runs
from db.experiments.run_results import compared
from db.queue import jobs, stage_results
from db.records import correct, erase, views
from db.records.complete import complete as complete_call
from db.records.correct import WantedEdit
from db.records.corrections import Editor
from db.records.stored_transcripts import stored_transcripts
from db.search import call_list, passages
from db.search.call_list import CallFilter
from db.secrets import call_keys, rotate
from db.secrets.call_keys import CallKeys, CallSealed
from db.secrets.encryption import Sealer, SecretSealed
from db.workspace import settings
from pipeline.domain.edits import EditKind
from pipeline.domain.speech import BY_VOICE, Diarization, Recording, Role, Speaker, Transcript, Voiceprint
from pipeline.domain.stage import Stage
from pipeline.fetch import handed_in, storage
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from pipeline.sealed_files import MAGIC, RecordingAltered, RecordingSealed, open_stored
from pipeline.speakers.profile import Voices
from serve_app.cli import app
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from serve_app.http.camel_json import to_camel_json
from tests.finished import claimed, findings, finished, transcript, work
from tests.integration.db.queue import test_typed_digits as typed_digits
from tests.paths import ROOT
from tests.postgres import World, fresh_database
from tests.reading_api import reading_key, served, store, with_sound
from tests.tuned import tuned
from tests.unit.pipeline.test_sealed_files import keep

KEY, NEW_KEY = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
WORD = "zqplantedzq"
TALK = (("rep", f"Good morning {WORD} desk."), ("customer", "My invoice is wrong."))
READS = "SELECT CAST(content AS text) AS text FROM transcripts UNION ALL SELECT CAST(result AS text) FROM stage_results"


@pytest_asyncio.fixture
async def sealing(world: World) -> AsyncIterator[World]:
    """Return the world with a database that seals what it writes."""
    plain = world.database
    async with await opened(plain) as database:
        world.database = database
        yield world
        world.database = plain


async def opened(database: Database, *keys: str, seals: bool = True) -> Database:
    return await Database.open(database.url, call_keys=CallKeys(Sealer(keys or [KEY]), seals))


async def pk_of(world: World, call_id: UUID) -> int:
    (row,) = await world.rows("SELECT id FROM calls WHERE call_id = :call", call=call_id)
    return int(row["id"])


async def shown(database: Database, call_id: UUID) -> Transcript | None:
    record = await views.show_call(database, call_id)
    assert record is not None
    return record.transcript


async def found(world: World, words: str) -> dict[UUID, tuple[str, ...]]:
    """Return the calls with these words, and the words of their hits."""
    page = await call_list.list_calls(world.database, Reader(world.workspace_id), CallFilter(text=words))
    return {line.call.call_id: tuple(hit.words for hit in line.hits) for line in page.items}


async def test_a_sealed_call_reads_as_any_other_and_no_word_is_in_its_columns(sealing: World) -> None:
    call_id = await finished(sealing, *TALK)
    assert not any(WORD in row["text"] for row in await sealing.rows(READS))
    assert await shown(sealing.database, call_id) == transcript(*TALK)
    async with sealing.database.transaction(EVERY_WORKSPACE) as connection:
        (stored,) = await stored_transcripts(connection, [call_id])
        assert stored.machine() == transcript(*TALK)
        pk = await pk_of(sealing, call_id)
        (row,) = (await connection.execute(passages.turns_of([pk], as_text=True))).all()
        (parsed,) = (await connection.execute(passages.turns_of([pk]))).all()
    assert WORD not in row.turns and WORD not in str(parsed.turns)


async def test_words_are_found_in_sealed_calls_also_after_another_index_and_an_edit(sealing: World) -> None:
    call_id = await finished(sealing, *TALK)
    (before,) = await sealing.rows("SELECT CAST(terms AS text) AS terms FROM call_search")
    assert WORD in before["terms"]
    await sealing.rows("SELECT index_call(id) FROM calls")
    assert await sealing.rows("SELECT CAST(terms AS text) AS terms FROM call_search") == [before]
    assert list(await found(sealing, WORD)) == [call_id]
    again = await finished(sealing, ("rep", "Quite other words."), call_id=call_id, recording_url="https://s.example/b")
    assert again == call_id and await found(sealing, WORD) == {}


async def test_sealed_calls_are_opened_for_a_search_outside_of_the_event_loop(
    sealing: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_id = await finished(sealing, *TALK)
    threads: list[threading.Thread] = []
    open_text = CallKeys.open_text

    def noted(keys: CallKeys, text: str | None) -> str | None:
        threads.append(threading.current_thread())
        return open_text(keys, text)

    monkeypatch.setattr(CallKeys, "open_text", noted)
    assert list(await found(sealing, WORD)) == [call_id]
    assert threads and threading.main_thread() not in threads


async def test_stage_results_are_sealed_and_recalled(sealing: World) -> None:
    lease, recorded = await recorded_stages(sealing)
    loaded = await stage_results.load(sealing.database, lease)
    assert {stage: loaded[stage] for stage in recorded} == recorded
    rows = await sealing.rows("SELECT stage, CAST(result AS text) AS text FROM stage_results")
    assert len(rows) == 2 and not any(WORD in row["text"] or "voiceprints" in row["text"] for row in rows)


async def recorded_stages(world: World) -> tuple[jobs.Lease, dict[Stage, Any]]:
    await world.submit(recording_url="https://s.example/a")
    lease = await claimed(world, world.call_id)
    await stage_results.record(world.database, lease, Stage.FETCH, (Recording(0, "file:///a", "aa" * 32, 1),))
    voices = {label: Voiceprint((1.0, 0.5), "m", 9.0) for label in ("S1", "S2")}
    spoken = replace(transcript(*TALK), speakers=(Speaker("S1", Role.REP, 1.0, BY_VOICE),))
    recorded = {Stage.DIARIZATION: Diarization((), voices, "m"), Stage.SPEAKERS: spoken}
    for stage, result in recorded.items():
        await stage_results.record(world.database, lease, stage, result)
    return lease, recorded


async def test_voices_of_customers_are_deleted_in_sealed_results_too(sealing: World) -> None:
    lease, recorded = await recorded_stages(sealing)
    await complete_call(sealing.database, lease, recorded[Stage.SPEAKERS], findings(), None)
    loaded = await stage_results.load(sealing.database, lease)
    assert loaded[Stage.DIARIZATION].voiceprints.keys() == {"S1"}


async def test_sealed_and_unsealed_calls_coexist_and_only_new_writes_are_sealed(world: World) -> None:
    first = await finished(world, *TALK)
    async with await opened(world.database) as sealing, await opened(world.database, seals=False) as reading:
        second = await finished(replace(world, database=sealing), *TALK)
        for database in (sealing, reading):
            assert await shown(database, first) == await shown(database, second) == transcript(*TALK)
        third = await finished(replace(world, database=reading), *TALK)
    assert await shown(world.database, third) == transcript(*TALK)
    sealed = "SELECT count(*) AS n FROM transcripts WHERE jsonb_typeof(content) = 'string'"
    assert (await world.rows(sealed))[0]["n"] == 1


async def test_a_missing_or_deleted_key_is_a_clear_error(sealing: World) -> None:
    call_id = await finished(sealing, *TALK)
    async with await Database.open(sealing.database.url) as keyless:
        with pytest.raises(SecretSealed, match="SWITCHBOARD_SECRETS_KEYS is not set"):
            await shown(keyless, call_id)
    async with await opened(sealing.database, NEW_KEY) as other:
        with pytest.raises(SecretSealed, match="not in SWITCHBOARD_SECRETS_KEYS"):
            await shown(other, call_id)
    await sealing.execute("DELETE FROM call_keys")
    with pytest.raises(CallSealed, match="key was deleted"):
        await shown(sealing.database, call_id)
    assert await found(sealing, WORD) == {call_id: ()}, "a search resumes"


async def test_an_altered_value_is_refused(sealing: World) -> None:
    call_id = await finished(sealing, *TALK)
    await sealing.execute(
        "UPDATE transcripts SET content = to_jsonb(overlay(content #>> '{}' PLACING 'AAAA' FROM 101))"
    )
    with pytest.raises(CallSealed, match="altered"):
        await shown(sealing.database, call_id)


async def test_keys_are_rotated_without_rewriting_what_they_seal(sealing: World) -> None:
    call_id = await finished(sealing, *TALK)
    rows = f"{READS} UNION ALL SELECT CAST(key AS text) FROM call_keys"
    before = await sealing.rows(rows)
    sealer = Sealer([NEW_KEY, KEY])
    assert await rotate.stale_secrets(sealing.database, sealer) == {rotate.DATA_KEYS}
    assert await rotate.reseal_secrets(sealing.database, sealer, rotate.DATA_KEYS) == rotate.Resealed(1, 0)
    assert await rotate.reseal_secrets(sealing.database, sealer, rotate.DATA_KEYS) == rotate.Resealed(0, 0)
    assert not await rotate.stale_secrets(sealing.database, sealer)
    assert await sealing.rows(rows) == before
    async with await opened(sealing.database, NEW_KEY) as database:
        assert await shown(database, call_id) == transcript(*TALK)
    without = await rotate.reseal_secrets(sealing.database, Sealer([KEY]), rotate.DATA_KEYS)
    assert without == rotate.Resealed(0, 1), "the key is missing"


async def test_an_edit_of_a_sealed_call_is_applied_and_undone(sealing: World) -> None:
    call_id = await finished(sealing, *TALK)
    editor, scope = Editor(None, None, "me"), Reader(sealing.workspace_id)
    word = next(word for word in transcript(*TALK).turns[0].words if word.text == WORD)
    wanted = WantedEdit(EditKind.TEXT, WORD, "betterword", 0, word.start, word.end)
    edit = (await correct.make(sealing.database, scope, editor, call_id, wanted)).edit.edit_id
    assert WORD not in str(await shown(sealing.database, call_id))
    assert list(await found(sealing, "betterword")) == [call_id] and await found(sealing, WORD) == {}
    await correct.undo(sealing.database, scope, editor, call_id, edit)
    assert await shown(sealing.database, call_id) == transcript(*TALK)
    assert list(await found(sealing, WORD)) == [call_id] and await found(sealing, "betterword") == {}


async def test_digits_are_removed_from_sealed_calls_too(sealing: World) -> None:
    await settings.set_keep_digits(sealing.database, sealing.workspace_id, True)
    lease = await typed_digits.complete_call(sealing)
    (audio,) = await digits_of(sealing, lease)
    assert audio == "4711"
    run, _ = await runs.create(sealing.database, sealing.workspace_id, "r", {}, [lease.call.call_id])
    await work(sealing, *TALK)
    await promotion.promote(sealing.database, sealing.workspace_id, run.run_id)
    await settings.set_keep_digits(sealing.database, sealing.workspace_id, False)
    assert await digits_of(sealing, lease) == [None]
    await promotion.roll_back(sealing.database, sealing.workspace_id, run.run_id)
    record = await views.show_call(sealing.database, lease.call.call_id)
    assert record is not None and record.transcript is not None
    assert [label.detail for label in record.transcript.labels[0]] == ["440 Hz", None]


async def digits_of(world: World, lease: jobs.Lease) -> list[str | None]:
    loaded = await stage_results.load(world.database, lease)
    return [label.detail for label in loaded[Stage.AUDIO].labels[0] if label.keys]


async def test_a_promoted_run_of_a_sealed_call_is_rolled_back_with_its_words(sealing: World) -> None:
    call_id = await finished(sealing, *TALK)
    run, _ = await runs.create(sealing.database, sealing.workspace_id, "r", {}, [call_id])
    await work(sealing, ("rep", "Other words entirely."))
    comparison = [item async for item in compared(sealing.database, EVERY_WORKSPACE, run.run_id)]
    assert comparison[0].live == transcript(*TALK)
    await promotion.promote(sealing.database, sealing.workspace_id, run.run_id)
    assert list(await found(sealing, "entirely")) == [call_id] and await found(sealing, WORD) == {}
    former = [item async for item in compared(sealing.database, EVERY_WORKSPACE, run.run_id)]
    assert former[0].live == transcript(*TALK)
    await promotion.roll_back(sealing.database, sealing.workspace_id, run.run_id)
    assert await shown(sealing.database, call_id) == transcript(*TALK)
    assert list(await found(sealing, WORD)) == [call_id] and await found(sealing, "entirely") == {}


async def fetched(world: World, folder: Path, content: bytes) -> Recording:
    """Let a Conductor fetch a recording of a new call; return it, with its key."""
    world.call_id = uuid4()
    source = folder / "call.wav"
    source.write_bytes(content)
    copies = handed_in.make_private(folder / "handed-in")
    await world.submit(recording_url=handed_in.hand_in(copies, source, world.call_id))
    options = ProcessOptions(storage=(folder / "recordings").as_uri(), handed_in=copies)
    conductor = ConductorLoop(world.database, LocalWorkers(None, None), tuned(ProcessingOptions), options)
    await conductor.start()
    try:
        async with asyncio.timeout(60):
            while not await world.rows(
                "SELECT 1 FROM recordings r JOIN calls c ON c.id = r.call_pk WHERE c.call_id = :call",
                call=world.call_id,
            ):
                await asyncio.sleep(0.1)
    finally:
        await conductor.stop()
    return await recording_of(world.database, world.call_id)


async def recording_of(database: Database, call_id: UUID) -> Recording:
    (row,) = await database.rows(
        EVERY_WORKSPACE,
        sa.text("SELECT r.*, c.id AS pk FROM recordings r JOIN calls c ON c.id = r.call_pk WHERE c.call_id = :call"),
        {"call": call_id},
    )
    async with database.transaction(EVERY_WORKSPACE) as connection:
        key = await call_keys.find_key(connection, row.pk)
    return Recording(row.channel, row.uri, row.sha256, row.size_bytes, row.media_type, key)


async def test_a_fetched_recording_is_sealed_by_the_key_of_its_call(sealing: World, tmp_path: Path) -> None:
    content = store(tmp_path).read_bytes()
    first = await fetched(sealing, tmp_path, content)
    second = await fetched(sealing, tmp_path, content)
    assert first.key and second.key and first.key != second.key and first.uri != second.uri
    for recording in (first, second):
        sealed = Path(recording.uri.removeprefix("file://")).read_bytes()
        assert sealed.startswith(MAGIC) and content[100:200] not in sealed
        assert hashlib.sha256(sealed).hexdigest() == recording.sha256
        with open_stored(recording.uri, recording.key) as file:
            assert file.read() == content
    with pytest.raises(RecordingAltered):
        open_stored(first.uri, second.key)
    assert first.key.hex() not in repr(first) and "key" not in to_camel_json(first, for_operators=True)


async def test_the_api_plays_a_range_of_a_sealed_recording(
    sealing: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", json.dumps([KEY]))
    path = store(tmp_path, 60.0)
    call_id = await with_sound(sealing, path)
    async with sealing.database.transaction(EVERY_WORKSPACE) as connection:
        key = await call_keys.find_key(connection, await pk_of(sealing, call_id))
    assert key is not None
    recording = keep(tmp_path / "recordings", path.read_bytes(), key)
    await sealing.execute("UPDATE recordings SET uri = :uri", uri=recording.uri)
    secret = await reading_key(sealing)
    headers = {"Authorization": f"Bearer {secret}"}
    with served(sealing.database.url, call_keys=CallKeys(Sealer([KEY]))) as base, httpx.Client(base_url=base) as client:
        audio = f"/calls/{call_id}/audio"
        part = client.get(audio, headers=headers | {"Range": "bytes=100000-100999"})
        assert (part.status_code, part.content) == (206, path.read_bytes()[100_000:101_000])
        assert client.get(audio, headers=headers).content == path.read_bytes()
        await sealing.execute("DELETE FROM call_keys")
        problem = client.get(f"/calls/{call_id}", headers=headers)
        assert (problem.status_code, problem.headers["content-type"]) == (503, "application/problem+json")


def switchboard(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def talk_in(folder: Path) -> set[str]:
    """Return the tables of a dump with the planted word."""
    toc = subprocess.run(["strings", folder / "toc.dat"], check=True, capture_output=True, text=True).stdout
    return {path.name for path in folder.glob("*.gz") if WORD in gzip.decompress(path.read_bytes()).decode()} | (
        {"toc.dat"} if WORD in toc else set()
    )


async def test_an_old_backup_shows_nothing_sealed_of_a_call_erased_since(
    sealing: World, tmp_path: Path, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "SWITCHBOARD_DATABASE_URL": sealing.database.url,
        "SWITCHBOARD_STORAGE": (tmp_path / "recordings").as_uri(),
        "SWITCHBOARD_DATA_DIR": str(tmp_path / "data"),
        "SWITCHBOARD_SECRETS_KEYS": json.dumps([KEY]),
    }.items():
        monkeypatch.setenv(name, value)
    content = store(tmp_path).read_bytes()
    erased_recording = await fetched(sealing, tmp_path, content)
    erased_call = sealing.call_id
    # The Conductor may have claimed the job after the fetch, without engines, or have stopped before it was queued.
    await sealing.execute("UPDATE jobs SET state = 'queued', lease_until = NULL, worker = NULL, not_before = now()")
    (lease,) = await sealing.claim(10)
    await stage_results.record(sealing.database, lease, Stage.SPEAKERS, transcript(*TALK))
    await complete_call(sealing.database, lease, transcript(*TALK), findings(), None)
    remaining = await finished(sealing, ("rep", "Another talk."))
    first = Path((await asyncio.to_thread(switchboard, "backup", "create", tmp_path / "backups"))["backup"])
    copies = {path.name: path for path in (first.parent / "recordings").rglob("*") if path.is_file()}
    assert list(copies) == [erased_recording.sha256]
    with psycopg.connect(sealing.database.url, options="-c switchboard.workspace=*") as connection:
        stored = connection.execute(f"SELECT count(*) FROM ({READS}) t WHERE text LIKE '%{WORD}%'").fetchone()
    assert stored == (0,)
    of_index = talk_in(first / "database")
    assert len(of_index) == 1, "only the search index has the word"
    await erase.erase_call(sealing.database, sealing.workspace_id, erased_call, Voices())
    await asyncio.sleep(1.1)
    await asyncio.to_thread(switchboard, "backup", "create", tmp_path / "backups")
    assert await asyncio.to_thread(switchboard, "backup", "verify", first, "--drill")
    for url in fresh_database(postgres_server, "template0"):
        monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", url)
        restored = await asyncio.to_thread(switchboard, "restore", first)
        assert restored["callsWithoutKey"] == 1
        async with await Database.open(url, call_keys=CallKeys(Sealer([KEY]))) as database:
            assert await shown(database, remaining) == transcript(("rep", "Another talk."))
            with pytest.raises(CallSealed):
                await shown(database, erased_call)
            again = await recording_of(database, erased_call)
            with pytest.raises(RecordingSealed):
                open_stored(again.uri, again.key)
            assert storage.flaw_of(again) is None, "the file is there, and unreadable"


def test_a_killed_process_leaves_no_part_of_a_sealed_file(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from pipeline import sealed_files
from tests.attacks.test_sealed_calls import keep
nonce, count = sealed_files._nonce, 0
def counted(number, is_last):
    if number == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return nonce(number, is_last)
sealed_files._nonce = counted
keep(Path({str(tmp_path)!r}), os.urandom(40 * sealed_files.CHUNK), b"k" * 32)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path for path in tmp_path.rglob("*") if path.is_file() and len(path.name) == 64] == []
