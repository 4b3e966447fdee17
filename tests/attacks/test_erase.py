"""Nothing of an erased call remains: not in any column, not in a file, not by a race, not after a crash."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from db.core.database import EVERY_WORKSPACE
from db.core.tables import metadata
from db.events import endpoints
from db.queue import jobs, stage_results
from db.records import erase, file_deletions
from db.records.erase import CallNotFound, Erased
from db.workspace import keys
from db.workspace.admin_log import Actor
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import Layout, LayoutKind, Recording
from pipeline.domain.stage import Stage
from pipeline.errors import LeaseLost, StorageError
from pipeline.fetch import handed_in, storage
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from pipeline.speakers.profile import Voices
from serve_app.api.sound import SoundFolder, SoundRequest
from serve_app.backup.ledger_copies import LedgerCopies
from serve_app.cli import app
from serve_app.conductor.erasure import ErasureLoop
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ErasureOptions, ProcessingOptions
from serve_app.console.app import build_console
from serve_app.http.decoders import Decoders
from serve_app.settings import Settings
from tests import serving
from tests.erased import erased_workspace
from tests.finished import finished
from tests.integration.db.voices import test_voiceprints as voices
from tests.paths import ROOT
from tests.postgres import World
from tests.reading_api import Api
from tests.tuned import tuned

MARKER = "zqplantedzq"  # one word for the search index as well
FIXED = uuid4()
URL = "https://store.example/a.wav"
OF_TYPE = {
    "text": f"'{MARKER}'",
    "jsonb": f"""'{{"{MARKER}": ["{MARKER}"]}}'""",
    "text[]": f"ARRAY['{MARKER}']",
    "bytea": f"'{MARKER}'::bytea",
    "tsvector": f"to_tsvector('simple', '{MARKER}')",
    "vector": "'[1,2,3]'",
    "halfvec": f"'[{','.join(['1'] * 384)}]'",
    "uuid": f"'{FIXED}'",
    "boolean": "true",
    "timestamptz": "now()",
    "date": "current_date",
    "time": "'10:00'",
}
CHOSEN = {  # columns whose values are checked
    ("calls", "state"): "'completed'",
    ("jobs", "kind"): "'process'",
    ("jobs", "state"): "'done'",
    ("edits", "kind"): "'text'",
    ("voiceprints", "named_by"): "'sender'",
    ("voiceprints", "standing"): "'waiting'",
    ("voiceprint_events", "action"): "'removed'",
    ("run_calls", "state"): "'done'",
    ("webhook_deliveries", "state"): "'delivered'",
    ("contacts", "source"): "'call'",
    ("reads", "what"): "'record'",
    ("reads", "operator"): "null",  # of the service, not of the call
    ("recordings", "uri"): "'file:///nowhere/abc'",
    ("recordings", "sha256"): "'abc'",
    ("unredacted_recordings", "uri"): "'file:///nowhere/abc'",
    ("unredacted_recordings", "sha256"): "'abc'",
}
NO_OWN_CALL = {"contacts", "webhook_attempts", "reads"}  # tables that refer to a call in another way


def types_of(table: sa.Table) -> dict[str, str]:
    source = (ROOT / "db" / "schema" / "tables.sql").read_text()
    body = re.search(rf"^CREATE TABLE {table.name} \((.*?)^\)", source, re.MULTILINE | re.DOTALL)
    assert body is not None
    return dict(re.findall(r"^ {4}([a-z]\w*) (double precision|[a-z]+(?:\[\])?)", body[1], re.MULTILINE))


async def plant(world: World, call_pk: int, call_id: UUID) -> set[str]:
    """Write the marker into every column of every table that can refer to the call; return the tables."""
    tables = [t for t in metadata.tables.values() if "call_pk" in t.c or t.name in {"calls", *NO_OWN_CALL}]
    numbers = {"call_pk": str(call_pk), "delivery_id": "77", "channels": "1", "channel": "0"}
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL ROLE NONE"))
        await connection.execute(sa.text("SET LOCAL session_replication_role = replica"))
        for table in tables:
            values = {
                name: CHOSEN.get((table.name, name)) or numbers.get(name) or OF_TYPE.get(kind, "1")
                for name, kind in types_of(table).items()
            }
            values |= {"workspace_id": f"'{world.workspace_id}'"} if "workspace_id" in values else {}
            values |= {"team_id": f"'{world.team_id}'"} if "team_id" in values else {}
            if types_of(table).get("id") == "bigint":
                values["id"] = "77"
            if table.name in ("calls", "reads"):
                values["call_id"] = f"'{call_id}'"
            if table.name == "calls":
                values["id"] = str(call_pk)
                await connection.execute(sa.text(f"DELETE FROM calls WHERE id = {call_pk}"))
            elif table.name not in NO_OWN_CALL:
                await connection.execute(sa.text(f"DELETE FROM {table.name} WHERE call_pk = {call_pk}"))
            columns = ", ".join(values)
            query = f"INSERT INTO {table.name} ({columns}) VALUES ({', '.join(values.values())})".replace(":", r"\:")
            await connection.execute(sa.text(query))
    return {table.name for table in tables}


async def places_of(world: World, text: str) -> list[str]:
    """Return the tables with a row that has the text in any column, as text or as bytes."""
    tables = await world.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    matches = "t::text LIKE :like OR t::text LIKE :bytes"
    values = {"like": f"%{text}%", "bytes": f"%{text.encode().hex()}%"}
    each = " UNION ALL ".join(
        f"SELECT '{row['relname']}' AS name FROM {row['relname']} t WHERE {matches}" for row in tables
    )
    return sorted({row["name"] for row in await world.rows(each.replace("::", r"\:\:"), **values)})


async def every_row_of(world: World, call_pk: int) -> dict[str, list[str]]:
    tables = [name for name, table in metadata.tables.items() if "call_pk" in table.c]
    return {
        name: [
            row["t"]
            for row in await world.rows(
                f"SELECT CAST(t AS text) AS t FROM {name} t WHERE call_pk = {call_pk} ORDER BY 1"
            )
        ]
        for name in tables
    }


async def erased(world: World, call_id: UUID, by: Actor | None = None) -> Erased:
    return await erase.erase_call(world.database, world.workspace_id, call_id, Voices(), by)


async def stored(world: World, folder: Path, content: bytes = b"RIFF sound", call_id: UUID | None = None) -> Path:
    """Record a stored file as the recording of a new call; return its path."""
    world.call_id = call_id or uuid4()
    await world.submit(recording_url=URL)
    (lease,) = await jobs.claim_fetches(world.database, "w", 1, 60.0, 10, 10)
    recording = keep(folder, content)
    await stage_results.record(world.database, lease, Stage.FETCH, (recording,))
    await jobs.fetched(world.database, lease)
    path = Path(recording.uri.removeprefix("file://"))
    os.utime(path, (time.time() - 3600,) * 2)
    return path


def keep(folder: Path, content: bytes, channel: int = 0) -> Recording:
    store = storage.Store(folder.as_uri())
    with store.receive() as incoming:
        incoming.write(content)
        uri, sha256 = store.keep(incoming)
    return Recording(channel, uri, sha256, len(content))


def loop(world: World, handed_in_folder: Path | None = None) -> ErasureLoop:
    return ErasureLoop(world.database, ErasureOptions(), LedgerCopies("memory://", ()), handed_in_folder, Voices())


async def test_a_marker_in_every_column_is_gone(world: World) -> None:
    other = await finished(world)
    call_id = await finished(world)
    (row,) = await world.rows("SELECT id FROM calls WHERE call_id = :call", call=call_id)
    (other_row,) = await world.rows("SELECT id FROM calls WHERE call_id = :call", call=other)
    before = await every_row_of(world, other_row["id"])
    planted = await plant(world, row["id"], call_id)
    assert set(await places_of(world, MARKER)) == planted - {"call_contacts", "passages_due", "webhook_deliveries"}
    result = await erased(world, call_id)
    assert result.counts["transcripts"] == result.counts["jobs"] == 1
    assert await places_of(world, MARKER) == []
    assert not any((await every_row_of(world, row["id"])).values())
    assert await every_row_of(world, other_row["id"]) == before
    assert await places_of(world, str(call_id)) == ["admin_changes", "events", "reads"]
    assert await places_of(world, "file:///nowhere/abc") == ["file_deletions"]


async def test_an_erased_call_does_not_come_back(world: World) -> None:
    call_id = world.call_id = await finished(world)
    await erased(world, call_id)
    for sender in (world.scoped, world.wide):
        first = await world.submit(sender, recording_url=URL, team_id=world.team_id)
        second = await world.submit(sender, recording_url=URL, team_id=world.team_id)
        assert (first.status, first.decision) == ("transcribing", "erased")
        assert first.job_id is not None and first.job_id != second.job_id
        started = await world.submit(sender, team_id=world.team_id)
        assert (started.status, started.job_id) == ("received", None)
    for table in ("calls", "jobs", "submissions"):
        assert await world.rows(f"SELECT * FROM {table}") == []
    (remembered,) = await world.rows("SELECT * FROM erased_calls")
    assert remembered["submissions"] == 6 and str(call_id) not in str(dict(remembered))
    await world.execute("UPDATE erased_calls SET erased_at = now() - interval '91 days'")
    assert await erase.forget_erased(world.database, 90.0) == 1
    assert (await world.submit(recording_url=URL)).decision == "new"


async def test_another_team_neither_erases_nor_takes_over(world: World) -> None:
    call_id = world.call_id = await finished(world)
    stranger = Actor("Other team", team_id=world.other_team_id)
    with pytest.raises(CallNotFound):
        await erased(world, call_id, stranger)
    assert not (await erased(world, call_id, Actor("Own team", team_id=world.team_id))).before
    assert (await erased(world, call_id)).before
    with pytest.raises(CallNotFound):
        await erased(world, call_id, stranger)
    with pytest.raises(CallNotFound):
        await erased(world, uuid4())
    with pytest.raises(Exception, match="team"):
        await world.submit(world.other_scoped, recording_url=URL)
    assert await world.rows("SELECT * FROM calls") == []


async def test_workers_lose_an_erased_call(world: World) -> None:
    await world.submit(recording_url=URL)
    (lease,) = await jobs.claim_fetches(world.database, "w", 1, 60.0, 10, 10)
    await erased(world, world.call_id)
    assert await jobs.renew(world.database, [lease], 60.0) == {lease.job.job_id}
    with pytest.raises(LeaseLost):
        await stage_results.record(world.database, lease, Stage.FETCH, (Recording(0, "file:///a", "a", 1),))
    with pytest.raises(LeaseLost):
        await jobs.fetched(world.database, lease)


async def test_a_voice_leaves_the_profile(world: World) -> None:
    ana = await voices.member(world, "Ana")
    for seed in range(3):
        await voices.call(world, voices.voice(voices.ANA, seed), ana)
    without = await centroids(world)
    assert [row["calls"] for row in without if row["kind"] == "own"] == [3]
    call_id = await voices.call(world, voices.voice(voices.ANA, 3), ana)
    assert await centroids(world) != without
    await erase.erase_call(world.database, world.workspace_id, call_id, voices.VOICES)
    assert await centroids(world) == without


async def centroids(world: World) -> list[dict[str, Any]]:
    query = "SELECT user_id, kind, position, CAST(vector AS text) AS vector, calls FROM voice_centroids ORDER BY kind"
    return [dict(row) for row in await world.rows(query)]


async def test_a_file_is_deleted_with_its_last_call(world: World, tmp_path: Path) -> None:
    path = await stored(world, tmp_path)
    first = world.call_id
    await stored(world, tmp_path)
    second = world.call_id
    await erased(world, first)
    assert await file_deletions.waiting(world.database) == 1
    assert await loop(world).delete_due() == 1
    assert path.exists() and await file_deletions.waiting(world.database) == 0
    await erased(world, second)
    assert path.exists()  # the process is killed here; the next one goes on
    assert await loop(world).delete_due() == 1
    assert not path.exists() and await file_deletions.waiting(world.database) == 0


async def test_a_storage_that_refuses_is_asked_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    path = await stored(world, tmp_path)
    await erased(world, world.call_id)
    with monkeypatch.context() as patch:
        patch.setattr("fsspec.implementations.local.LocalFileSystem.rm_file", refuse)
        for attempt in (1, 2):
            assert await loop(world).delete_due() == 1
            (entry,) = await world.rows("SELECT *, next_try - now() AS pause FROM file_deletions")
            assert entry["attempts"] == attempt and "could not be deleted" in entry["last_error"]
            assert 5 * 2 ** (attempt - 1) < entry["pause"].total_seconds() <= 10 * 2 ** (attempt - 1)
            await world.execute("UPDATE file_deletions SET next_try = now()")
    assert path.exists()
    assert await loop(world).delete_due() == 1
    assert not path.exists() and await file_deletions.waiting(world.database) == 0


async def test_a_file_that_was_just_stored_waits(world: World, tmp_path: Path) -> None:
    path = await stored(world, tmp_path)
    os.utime(path)
    await erased(world, world.call_id)
    assert await loop(world).delete_due() == 1
    assert path.exists() and await file_deletions.waiting(world.database) == 1


async def test_a_replaced_recording_is_deleted(world: World, tmp_path: Path) -> None:
    world.call_id = uuid4()
    await world.submit(recording_url=URL, recording_url2=URL + "2")
    (lease,) = await jobs.claim_fetches(world.database, "w", 1, 60.0, 10, 10)
    first, second, changed = keep(tmp_path, b"a"), keep(tmp_path, b"b", 1), keep(tmp_path, b"c", 1)
    for leg in (first, second):
        await stage_results.record(world.database, lease, Stage.LEG, leg)
    await stage_results.record(world.database, lease, Stage.FETCH, (first, second))
    assert await file_deletions.waiting(world.database) == 0
    await stage_results.record(world.database, lease, Stage.FETCH, (first, changed))
    (entry,) = await world.rows("SELECT uri FROM file_deletions")
    assert entry["uri"] == second.uri
    await stage_results.record(world.database, lease, Stage.FETCH, (first,))
    assert [row["uri"] for row in await world.rows("SELECT uri FROM file_deletions ORDER BY id")] == [
        second.uri,
        changed.uri,
    ]


async def test_files_of_a_deleted_workspace_are_queued(world: World, tmp_path: Path) -> None:
    path = await stored(world, tmp_path)
    await erased_workspace(world)
    assert await loop(world).delete_due() == 1
    assert not path.exists()


async def test_files_that_were_handed_in_are_removed(world: World, tmp_path: Path) -> None:
    folder = handed_in.make_private(tmp_path / "handed-in")
    source = tmp_path / "call.wav"
    source.write_bytes(b"RIFF")
    kept = uuid4()
    for call_id in (world.call_id, kept):
        handed_in.hand_in(folder, source, call_id)
    await world.submit(recording_url=URL)
    await loop(world, folder).remove_handed_in()
    assert handed_in.call_ids(folder) == {world.call_id, kept}
    await erased(world, world.call_id)
    await loop(world, folder).remove_handed_in()
    assert handed_in.call_ids(folder) == {kept}


async def test_decoded_audio_of_an_erased_call_is_removed(world: World, tmp_path: Path) -> None:
    await stored(world, tmp_path / "recordings")
    (row,) = await world.rows("SELECT uri, sha256, size_bytes FROM recordings")
    sounds = SoundFolder(tmp_path.as_uri(), DecodeOptions(), 1 << 30, Decoders())
    layout = Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand")
    sound = SoundRequest((Recording(0, row["uri"], row["sha256"], row["size_bytes"]),), layout, "mixed")
    sounds._folder().mkdir(exist_ok=True)
    file = sounds._folder() / f"{sound.name}.wav"
    file.write_bytes(b"decoded")
    await sounds.remove_unused(world.database)
    assert file.exists()
    await erased(world, world.call_id)
    await sounds.remove_unused(world.database)
    assert not file.exists()


async def test_erasures_and_submissions_at_once(world: World) -> None:
    calls = [await finished(world) for _ in range(6)]
    committed: list[Any] = []

    async def resubmit(call_id: UUID) -> None:
        for number in range(4):
            fields = {"call_id": call_id, "recording_url": f"{URL}?{number}", "from_number": f"+4930{number}"}
            committed.append(await world.submit(**fields))

    async with asyncio.timeout(60):
        results = await asyncio.gather(
            *(erased(world, call_id) for call_id in calls for _ in range(2)), *(resubmit(call_id) for call_id in calls)
        )
    assert [result.before for result in results[:12] if result].count(False) == 6
    assert len(committed) == 24
    assert await world.rows("SELECT * FROM calls") == await world.rows("SELECT * FROM jobs") == []


KILLED = """
import asyncio, sys
from uuid import UUID
from db.core.database import Database
from db.records import erase
from db.workspace.admin_log import Changing
from pipeline.speakers.profile import Voices

async def block(*_, **__):
    print("deleted", flush=True)
    await asyncio.sleep(60)

async def main():
    Changing.note = block
    async with await Database.open(sys.argv[1]) as database:
        await erase.erase_call(database, UUID(sys.argv[2]), UUID(sys.argv[3]), Voices())

asyncio.run(main())
"""


async def test_a_killed_erasure_has_done_nothing(world: World, tmp_path: Path) -> None:
    await stored(world, tmp_path)
    arguments = [world.database.url, str(world.workspace_id), str(world.call_id)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, *arguments, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"deleted\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert (await world.row())["call_id"] == world.call_id
    assert await file_deletions.waiting(world.database) == 0
    assert await world.rows("SELECT * FROM erased_calls") == []
    assert not (await erased(world, world.call_id)).before


async def test_receivers_get_ids_only(world: World) -> None:
    endpoint = await endpoints.add(world.database, world.workspace_id, "https://crm.example/", "sealed")
    call_id = await finished(world)
    await world.execute("UPDATE webhook_deliveries SET state = 'sending', not_before = now() + interval '20 s'")
    await erased(world, call_id)
    (event,) = await world.rows("SELECT * FROM events")
    assert event["type"] == "call.deleted" and event["call_pk"] is None
    ids = {"callId": call_id, "teamId": world.team_id, "workspaceId": world.workspace_id}
    assert event["data"] == {name: str(value) for name, value in ids.items()}
    (delivery,) = await world.rows("SELECT *, not_before > now() AS later FROM webhook_deliveries")
    assert (delivery["endpoint_id"], delivery["state"], delivery["later"]) == (endpoint.endpoint_id, "waiting", True)
    (listed,) = await endpoints.list_deliveries(world.database, world.workspace_id, call_id=call_id)
    assert (listed.type, listed.call_id) == ("call.deleted", call_id)
    assert await endpoints.list_deliveries(world.database, world.workspace_id, call_id=uuid4()) == []


async def test_the_api_deletes_calls(api: Api) -> None:
    world = api.world
    call_id = await finished(world)
    secrets = {}
    for name, team, scopes in (
        ("admin", None, ["admin"]),
        ("edit", None, ["read", "edit"]),
        ("other", world.other_team_id, ["admin"]),
    ):
        _, secrets[name] = await keys.create(world.database, world.workspace_id, team, scopes, name)

    def delete(key: str, call: UUID = call_id) -> httpx.Response:
        headers = {"Authorization": f"Bearer {secrets[key]}"}
        return api.client.delete(f"{api.base}/calls/{call}", headers=headers)

    assert delete("edit").status_code == 403
    assert delete("other").status_code == delete("admin", uuid4()).status_code == 404
    assert api.get(f"/calls/{call_id}").status_code == 200
    answer = delete("admin")
    assert (answer.status_code, answer.content) == (204, b"")
    assert delete("admin").status_code == 204 and delete("other").status_code == 404
    assert api.get(f"/calls/{call_id}").status_code == 404
    (change,) = await world.rows("SELECT * FROM admin_changes WHERE kind = 'call'")
    assert (change["who"], change["action"], change["object_id"]) == ("admin", "erased", str(call_id))
    assert "transcripts: 1" in change["detail"]


def lines_of(answer: httpx.Response) -> Iterator[str]:
    for line in answer.iter_lines():
        yield line
        if line == "event: call.deleted":
            return


async def test_the_stream_reports_a_deletion(api: Api) -> None:
    call_id = await finished(api.world)
    await erased(api.world, call_id)
    for key, sees in ((api.wide, True), (api.team, True), (api.other_team, False)):
        headers = {"Authorization": f"Bearer {key}"}
        timeout = httpx.Timeout(2.0)
        url = f"{api.base}/events/stream?since=2026-01-01T00:00:00Z"
        lines: list[str] = []
        try:
            with api.client.stream("GET", url, headers=headers, timeout=timeout) as answer:
                lines += lines_of(answer)
        except httpx.ReadTimeout:
            pass
        assert ("event: call.deleted" in lines) is sees


async def test_a_storage_failure_names_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    os.utime(folder, (1, 1))
    with pytest.raises(StorageError, match=r"^A stored recording could not be deleted \(\w+\)\.$"):
        storage.delete(folder.as_uri())


async def test_the_console_deletes_calls(world: World, postgres_url: str, tmp_path: Path) -> None:
    call_id = await finished(world)
    with serving.served(build_console(Settings(database_url=postgres_url, data_dir=tmp_path))) as base:
        for scopes, deletes in ((["read", "edit"], False), (["read", "admin"], True)):
            _, secret = await keys.create(world.database, world.workspace_id, None, scopes, "user")
            async with httpx.AsyncClient(base_url=base, headers={"Sec-Fetch-Site": "same-origin"}) as client:
                await client.post("/sign-in", data={"key": secret})
                assert ("Delete call" in (await client.get(f"/calls/{call_id}")).text) is deletes
                form = {"Content-Type": "application/x-www-form-urlencoded"}
                answer = await client.post(f"/calls/{call_id}/delete", headers=form)
                assert answer.status_code == (303 if deletes else 403)
                assert (await client.get(f"/calls/{call_id}")).status_code == (404 if deletes else 200)


def test_the_command_asks_first(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["erase", "--call", str(uuid4())])
    assert result.exit_code == 2 and "--yes deletes the call" in result.stderr


async def test_the_command_prints_counts(world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call_id = await finished(world)
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    arguments = ["erase", "--call", str(call_id), "--yes"]
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert result.exit_code == 0 and "1 transcripts" in result.stdout, result.output
    again = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--json"])
    assert json.loads(again.stdout) == {"callId": str(call_id), "counts": {}, "erasedBefore": True}
    unknown = await asyncio.to_thread(CliRunner().invoke, app, ["erase", "--call", str(uuid4()), "--yes"])
    assert unknown.exit_code == 1 and "No call" in unknown.stderr


async def test_a_canceled_fetch_leaves_no_file(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.conductor.jobs.LATE_SECONDS", 0.0)
    folder = handed_in.make_private(tmp_path / "handed-in")
    source = tmp_path / "call.wav"
    source.write_bytes(b"RIFF" + b"\0" * 5000)
    options = ProcessOptions(storage=(tmp_path / "recordings").as_uri(), handed_in=folder)
    placed, erased_call = threading.Event(), threading.Event()
    place = storage.Store._place

    def place_late(store: storage.Store, path: Path, target: str) -> None:
        placed.set()
        erased_call.wait(10)
        place(store, path, target)

    monkeypatch.setattr(storage.Store, "_place", place_late)
    await world.submit(recording_url=handed_in.hand_in(folder, source, world.call_id))
    conductor = ConductorLoop(
        world.database, LocalWorkers(None, None), tuned(ProcessingOptions, lease_seconds=1.5), options
    )
    await conductor.start()
    try:
        assert await asyncio.to_thread(placed.wait, 20)
        await erased(world, world.call_id)
        erased_call.set()
        async with asyncio.timeout(20):
            while not await file_deletions.waiting(world.database):
                await asyncio.sleep(0.1)
    finally:
        erased_call.set()
        await conductor.stop()
    files = [path for path in (tmp_path / "recordings").rglob("*") if path.is_file() and len(path.name) == 64]
    for path in files:
        os.utime(path, (1, 1))
    await loop(world, folder).delete_due()
    await loop(world, folder).remove_handed_in()
    assert len(files) == 1 and not files[0].exists() and handed_in.call_ids(folder) == set()
