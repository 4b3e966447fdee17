"""An archive has everything that is stored about a person and nothing about others, or it does not exist."""

import asyncio
import hashlib
import io
import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from db.core.database import Reader
from db.core.tables import metadata
from db.events import endpoints
from db.records import correct
from db.records.corrections import Editor
from db.records.person import HIDDEN, Person
from db.workspace import access_log, admin_log, directory
from pipeline.domain.edits import EditKind
from pipeline.domain.insight import Finding
from serve_app.cli import app
from serve_app.records import person_archive
from serve_app.records.person_archive import Archived
from tests.finished import findings, finished, received
from tests.paths import ROOT
from tests.postgres import World, new_world

NUMBER, OTHER_NUMBER = "+4930777888", "+4930999000"
URL = "https://s.example/{}?sig=secretsig"
HOSTILE = "<script>alert(1)</script>"
SOUND = b"RIFF" + bytes(range(256)) * 9000  # several pieces


async def recorded(world: World, call_id: UUID, folder: Path, content: bytes = SOUND) -> Path:
    """Store a file as the recording of a completed call; return its path."""
    path = folder / f"{call_id}.stored"
    path.write_bytes(content)
    await world.execute(
        "INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)"
        " SELECT job_id, 0, id, :uri, :sha256, :size FROM calls WHERE call_id = :call",
        **{"uri": path.as_uri(), "sha256": hashlib.sha256(content).hexdigest()},
        **{"size": len(content), "call": call_id},
    )
    return path


async def written(world: World, path: Path, person: Person | None = None) -> Archived:
    person = person or Person("number", NUMBER, NUMBER)
    return await person_archive.write(world.database, world.workspace_id, person, path)


def entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def stored_rows(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


async def rows_in_database(world: World, call_id: UUID) -> Counter[str]:
    (call,) = await world.rows("SELECT id FROM calls WHERE call_id = :call", call=call_id)
    counts = Counter({"calls": 1})
    for name, table in metadata.tables.items():
        if "call_pk" in table.c:
            (row,) = await world.rows(f"SELECT count(*) AS n FROM {name} WHERE call_pk = {call['id']}")
            counts[name] = row["n"]
    return +counts


async def planted(world: World, folder: Path) -> tuple[list[UUID], list[UUID]]:
    """Store calls of the person over two teams, and calls of others; return both."""
    await endpoints.add(world.database, world.workspace_id, "https://crm.example/", "sealed")
    talk = (("rep", "Good morning."), ("customer", "My word is plantedmine."))
    summary = [Finding("summary", 1, {"text": f"They talked {HOSTILE}."}), *findings()[1:]]
    ends = ({"from_number": NUMBER}, {"to_number": "030 777888"}, {"from_number": NUMBER}, {"to_number": NUMBER})
    senders = (world.scoped, world.other_scoped, world.other_scoped, world.scoped)
    mine = [
        await finished(world, *talk, minutes=at * 10, sender=sender, found=summary, recording_url=URL.format(at), **end)
        for at, (sender, end) in enumerate(zip(senders, ends, strict=True))
    ]
    others = [
        await finished(world, ("customer", "Their word is plantedtheirs."), minutes=at, from_number=OTHER_NUMBER)
        for at in range(3)
    ]
    for call_id in (*mine[:3], *others):
        await recorded(world, call_id, folder, SOUND + str(call_id).encode())
    editor, roles = Editor(world.wide.key_id), correct.WantedEdit(EditKind.ROLES, False, True)
    await correct.make(world.database, Reader(world.workspace_id), editor, mine[0], roles)
    return mine, others


async def test_the_archive_has_the_calls_of_the_person_in_all_teams_and_no_others(world: World, tmp_path: Path) -> None:
    mine, others = await planted(world, tmp_path)
    elsewhere = await finished(await new_world(world.database), from_number=NUMBER)
    archived = await written(world, tmp_path / "person.zip")
    files = entries(tmp_path / "person.zip")
    assert (archived.calls, archived.incomplete) == (4, 1)
    index = json.loads(files["index.json"])
    assert [item["call"]["callId"] for item in index["calls"]] == list(map(str, mine)), "the earliest first"
    listed = {file["path"] for call in index["calls"] for file in call["files"]}
    assert listed | {"index.html", "index.json"} == set(files), "each file is in the index"
    for call_id in mine:
        rows = stored_rows(files[f"calls/{call_id}/stored.ndjson"])
        assert Counter(row["table"] for row in rows) == await rows_in_database(world, call_id)
        assert "plantedmine" in files[f"calls/{call_id}/transcript.txt"].decode()
        assert json.loads(files[f"calls/{call_id}/transcript.json"])["turns"][1]["start"] == 3.5
        assert json.loads(files[f"calls/{call_id}/record.json"])["call"]["callId"] == str(call_id)
    for call_id in mine[:3]:
        assert files[f"calls/{call_id}/recording-1.wav"] == SOUND + str(call_id).encode()
    assert index["calls"][3]["notes"] == [person_archive.NO_RECORDING]
    everything = b"\n".join(files.values())
    for foreign in (*map(str, (*others, elsewhere)), "plantedtheirs", OTHER_NUMBER, "secretsig"):
        assert foreign.encode() not in everything
    assert not re.search(rb'"(%s)": ' % "|".join(HIDDEN).encode(), everything)
    edits = json.loads(files[f"calls/{mine[0]}/record.json"])["edits"]
    assert [edit["kind"] for edit in edits] == ["roles"]


async def test_two_archives_at_once_are_whole_while_calls_arrive(world: World, tmp_path: Path) -> None:
    mine, _ = await planted(world, tmp_path)
    end = asyncio.Event()

    async def flow(store: Callable[..., Awaitable[UUID]]) -> list[UUID]:
        arrived = []
        while not end.is_set():
            arrived.append(await store(world, from_number=OTHER_NUMBER))
        return arrived

    flows = [asyncio.create_task(flow(store)) for store in (finished, received, received)]
    paths = [tmp_path / f"person-{number}.zip" for number in range(2)]
    archived = await asyncio.gather(*(written(world, path) for path in paths))
    end.set()
    arrived = [call_id for calls in await asyncio.gather(*flows) for call_id in calls]
    assert arrived and [(archive.calls, archive.incomplete) for archive in archived] == [(4, 1)] * 2
    for path in paths:
        files = entries(path)
        assert {name.split("/")[1] for name in files if name.startswith("calls/")} == set(map(str, mine))
        assert not any(str(call_id).encode() in content for call_id in arrived for content in files.values())


async def test_the_export_is_logged_without_the_number(world: World, tmp_path: Path) -> None:
    mine, others = await planted(world, tmp_path)
    archived = await written(world, tmp_path / "person.zip")
    operator = access_log.operator_id(admin_log.operator().name)
    for call_id in mine:
        log = await access_log.list_reads(world.database, world.workspace_id, call_id)
        assert ("export", operator) in [(read.what, read.key_id) for read in log]
        archived_log = json.loads(entries(tmp_path / "person.zip")[f"calls/{call_id}/access-log.json"])
        assert "export" in [read["what"] for read in archived_log], "the archive has the access log with this export"
    for call_id in others:
        assert await access_log.list_reads(world.database, world.workspace_id, call_id) == []
    (change,) = (await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id, limit=1)).items
    assert (change.action, change.kind, change.object_id) == ("exported", "person", str(archived.export_id))
    assert "777888" not in repr(change)


async def test_a_recording_that_is_gone_or_cut_off_is_noted(world: World, tmp_path: Path) -> None:
    gone, cut, whole = [await finished(world, minutes=at, from_number=NUMBER) for at in range(3)]
    (await recorded(world, gone, tmp_path)).unlink()
    os.truncate(await recorded(world, cut, tmp_path), 5000)
    await recorded(world, whole, tmp_path)
    archived = await written(world, tmp_path / "person.zip")
    assert archived.incomplete == 2
    files = entries(tmp_path / "person.zip")
    notes = [call["notes"] for call in json.loads(files["index.json"])["calls"]]
    assert notes == [[person_archive.UNREADABLE], [person_archive.UNREADABLE], []]
    assert files["index.html"].decode().count(person_archive.UNREADABLE) == 2


async def test_the_page_runs_nothing_loads_nothing_and_links_to_every_file(world: World, tmp_path: Path) -> None:
    await planted(world, tmp_path)
    await written(world, tmp_path / "person.zip")
    files = entries(tmp_path / "person.zip")
    page = files["index.html"].decode()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.findall(r"""(?:src|href)=["'](?:[a-z]+:|//)""", page)
    assert set(re.findall(r'href="([^"]+)"', page)) == set(files) - {"index.html", "index.json"}
    assert "other party" in page


async def test_a_contact_brings_linked_calls_and_a_member_brings_the_voice(world: World, tmp_path: Path) -> None:
    person = await directory.add_contact(world.database, world.workspace_id, "Mia Muster", None, None, NUMBER)
    by_number = await finished(world, minutes=1, from_number=NUMBER)
    linked = await finished(world, minutes=2, from_number=OTHER_NUMBER)
    member = await directory.add_member(world.database, world.workspace_id, "Ana", None, None, ())
    await world.execute(
        "INSERT INTO call_contacts (call_pk, contact_id) SELECT id, :contact FROM calls WHERE call_id = :call",
        **{"contact": UUID(person.contact_id), "call": linked},
    )
    await world.execute("UPDATE calls SET user_id = :user WHERE call_id = :call", user=member.user_id, call=linked)
    await world.execute(
        "INSERT INTO voiceprints (call_pk, workspace_id, user_id, named_by, model, vector, speech_seconds)"
        " SELECT id, workspace_id, :user, 'sender', 'm', '[0.25,0.5]', 9 FROM calls WHERE call_id = :call",
        **{"user": member.user_id, "call": linked},
    )
    contact = Person("contact", "Mia Muster", id=UUID(person.contact_id))
    await written(world, tmp_path / "contact.zip", contact)
    files = entries(tmp_path / "contact.zip")
    index = json.loads(files["index.json"])
    assert [item["call"]["callId"] for item in index["calls"]] == [str(by_number), str(linked)]
    assert {row["table"] for row in stored_rows(files["person.ndjson"])} == {"contacts", "admin_changes"}
    assert b"[0.25,0.5]" not in b"".join(files.values()), "the agent's voice is not the customer's data"
    await written(world, tmp_path / "member.zip", Person("member", "Ana", id=member.user_id))
    files = entries(tmp_path / "member.zip")
    assert [item["call"]["callId"] for item in json.loads(files["index.json"])["calls"]] == [str(linked)]
    assert {row["table"] for row in stored_rows(files["person.ndjson"])} == {"members", "voiceprints", "admin_changes"}
    assert b"[0.25,0.5]" in files["person.ndjson"]
    assert b"Mia Muster" not in files["person.ndjson"]


async def test_a_call_that_is_erased_during_the_export_is_left_out(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_id, rest = [await finished(world, minutes=at, from_number=NUMBER) for at in range(2)]
    selected = person_archive.people.call_ids

    async def then_erase(*arguments: Any) -> list[UUID]:
        call_ids = await selected(*arguments)
        await world.execute("SET LOCAL switchboard.erasure = 'on'")
        async with world.database.transaction(world.workspace_id) as connection:
            await connection.exec_driver_sql("SET LOCAL switchboard.erasure = 'on'")
            await connection.exec_driver_sql(f"DELETE FROM calls WHERE call_id = '{call_id}'")
        return call_ids

    monkeypatch.setattr(person_archive.people, "call_ids", then_erase)
    assert (await written(world, tmp_path / "person.zip")).calls == 1
    (item,) = json.loads(entries(tmp_path / "person.zip")["index.json"])["calls"]
    assert item["call"]["callId"] == str(rest)


KILLED = """
import sys, time
from serve_app.cli import app
from serve_app.records import person_archive

def block(*_):
    print("written", flush=True)
    time.sleep(60)

person_archive._index = block
app(sys.argv[1:])
"""


@pytest.fixture
def environment(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path / "data"))
    yield


def export(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", *arguments], env={"COLUMNS": "200"})


@pytest.mark.usefixtures("environment")
async def test_a_killed_export_leaves_an_unfinished_file_that_the_next_one_replaces(
    world: World, tmp_path: Path
) -> None:
    await recorded(world, await finished(world, from_number=NUMBER), tmp_path)
    target = tmp_path / "person.zip"
    arguments = ["export", "--number", NUMBER, "--output", str(target)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, *arguments, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"written\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert sorted(path.name for path in tmp_path.glob("person*")) == ["person.zip.part"]
    result = await asyncio.to_thread(export, *arguments[1:])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.glob("person*")) == ["person.zip"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert len(json.loads(entries(target)["index.json"])["calls"]) == 1


@pytest.mark.usefixtures("environment")
async def test_a_full_disk_is_reported_and_leaves_no_file(world: World, tmp_path: Path) -> None:
    await recorded(world, await finished(world, from_number=NUMBER), tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(SOUND) // 2, limits[1]))
    try:
        result = await asyncio.to_thread(export, "--number", NUMBER, "--output", str(tmp_path / "person.zip"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.exit_code == 1
    assert "person.zip: File too large. No archive was written." in result.output
    assert list(tmp_path.glob("person*")) == []


@pytest.mark.usefixtures("environment")
async def test_the_command_exports_by_name_and_refuses_what_it_cannot_do(world: World, tmp_path: Path) -> None:
    await directory.add_contact(world.database, world.workspace_id, "Mia Muster", None, None, NUMBER)
    await finished(world, from_number=NUMBER)
    target = str(tmp_path / "person.zip")

    def run(*arguments: str) -> Result:
        return export(*arguments, "--output", target)

    assert (await asyncio.to_thread(run)).exit_code == 2
    assert (await asyncio.to_thread(run, "--number", NUMBER, "--member", "Ana")).exit_code == 2
    assert (await asyncio.to_thread(run, "--number", "12")).exit_code == 2
    assert (await asyncio.to_thread(run, "--member", "Nobody")).exit_code == 1
    assert not list(tmp_path.glob("*.zip*"))
    done = await asyncio.to_thread(run, "--contact", "mia muster", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["calls"] == 1
    again = await asyncio.to_thread(run, "--contact", "mia muster")
    assert (again.exit_code, "exists" in again.output) == (2, True)
    assert zipfile.is_zipfile(io.BytesIO(Path(target).read_bytes()))
