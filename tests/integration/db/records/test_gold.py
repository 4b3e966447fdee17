import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner, Result

from db.core.database import Reader
from db.experiments import gold_sets
from db.records import correct as editing
from db.records.corrections import Editor
from db.workspace.admin_log import list_changes
from pipeline.domain.edits import EditKind
from serve_app.cli import app
from tests.finished import findings, finished, task
from tests.postgres import World, new_world


@pytest.fixture(autouse=True)
def settings(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)


async def switchboard(world: World, *arguments: str) -> Result:
    """Run the command for the world's workspace in a thread, since it has its own loop."""
    options = ("--workspace", str(world.workspace_id))
    return await asyncio.to_thread(CliRunner().invoke, app, ["gold", *arguments, *options], env={"COLUMNS": "200"})


async def ok(world: World, *arguments: str) -> Any:
    result = await switchboard(world, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def refused(world: World, *arguments: str) -> str:
    result = await switchboard(world, *arguments)
    assert result.exit_code in (1, 2), result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


async def correct(world: World, call_id: UUID, new: str = "Acne") -> UUID:
    edit = editing.WantedEdit(EditKind.TEXT, "Acme", new, 0, *await place(world, call_id, "Acme"))
    result = await editing.make(world.database, Reader(world.workspace_id), Editor(None, None, "Ana"), call_id, edit)
    return result.edit.edit_id


async def place(world: World, call_id: UUID, text: str) -> tuple[float, float]:
    content = await world.rows(
        "SELECT t.content FROM transcripts t JOIN calls c ON c.id = t.call_pk WHERE c.call_id = :id", id=call_id
    )
    words = content[0]["content"]["turns"][0]["words"]
    word = next(word for word in words if word["text"] == text)
    return word["start"], word["end"]


async def test_what_people_corrected_is_frozen(world: World, tmp_path: Path) -> None:
    call_id, other = await finished(world), await finished(world, minutes=5)
    assert "None of these calls was corrected" in await refused(world, "create", "desk")
    edit_id = await correct(world, call_id)
    first = await ok(world, "create", "desk")
    assert (first["name"], first["version"], first["calls"], first["source"]) == ("desk", 1, 1, "corrections")
    assert (await ok(world, "create", "desk"))["version"] == 1, "nothing changed"
    await editing.undo(world.database, Reader(world.workspace_id), Editor(None, None, "Ana"), call_id, edit_id)
    second = await ok(world, "create", "desk", "--call", str(call_id), "--call", str(other))
    assert (second["version"], second["calls"]) == (2, 2)
    assert second["digest"] != first["digest"]
    texts = {}
    for version in (1, 2):
        file = tmp_path / f"{version}.stm"
        await ok(world, "export", f"desk@{version}", "--format", "stm", "--out", str(file))
        texts[version] = [line for line in file.read_text().splitlines() if line.startswith(str(call_id))]
    assert "Acne" in texts[1][0] and "Acme" in texts[2][0]
    assert [line.split()[1:3] for line in texts[1]] == [["1", "rep"], ["2", "customer"], ["1", "rep"]]
    shown = await ok(world, "show", "desk@1")
    assert (shown["wordsTimed"], shown["speakersKnown"], shown["digestFits"]) == (True, True, True)
    assert (shown["turns"], shown["languages"]) == (3, ["en"])
    changes = await list_changes(world.database, world.workspace_id, world.workspace_id)
    assert [(item.action, item.name) for item in changes.items if item.kind == "gold set"] == [
        ("created", "desk v2"),
        ("created", "desk v1"),
    ]


@pytest.mark.parametrize("kind", ["jsonl", "stm", "ctm", "rttm", "textgrid"])
async def test_an_export_comes_back_as_the_next_version(world: World, tmp_path: Path, kind: str) -> None:
    call_id = await finished(world)
    created = await ok(world, "create", "desk", "--call", str(call_id))
    target = tmp_path / ("grids" if kind == "textgrid" else f"desk.{kind}")
    await ok(world, "export", "desk", "--format", kind, "--out", str(target))
    back = await ok(world, "import", "desk", str(target))
    if kind == "jsonl":
        assert back == created, "it holds the same"
    else:
        assert (back["version"], back["source"], back["calls"]) == (2, kind, 1)
    shown = await ok(world, "show", "desk")
    assert shown["digestFits"]
    assert shown["words"] == (0 if kind == "rttm" else 30)
    assert shown["wordsTimed"] == (kind in ("jsonl", "ctm", "textgrid"))
    assert shown["speakersKnown"] == (kind != "ctm")


async def test_an_import_of_what_is_not_there_changes_nothing(world: World, tmp_path: Path) -> None:
    theirs = await finished(await new_world(world.database))
    file = tmp_path / "a.stm"
    file.write_text(f"{theirs} 1 rep 0 1 hello\n")
    assert "1 of 1 calls are not in workspace" in await refused(world, "import", "desk", str(file))
    file.write_text("monday-morning 1 rep 0 1 hello\n")
    assert "monday-morning" in await refused(world, "import", "desk", str(file))
    file.write_text("monday-morning 1 rep\n")
    assert "a.stm: line 1" in await refused(world, "import", "desk", str(file))
    assert "is not a valid name of a gold set" in await refused(world, "import", "../desk", str(file))
    assert await ok(world, "list") == []


async def test_a_call_that_goes_leaves_its_sets_and_they_say_so(world: World) -> None:
    calls = [await finished(world, minutes=at) for at in range(2)]
    await ok(world, "create", "desk", *(part for call in calls for part in ("--call", str(call))))
    await world.execute(
        "DELETE FROM gold_calls WHERE call_pk = (SELECT id FROM calls WHERE call_id = :id)", id=calls[0]
    )
    (listed,) = await ok(world, "list")
    assert (listed["calls"], listed["left"]) == (2, 1)
    result = await switchboard(world, "show", "desk")
    assert "1 of its 2 calls were deleted" in result.output
    again = await ok(world, "create", "desk", *(part for call in calls for part in ("--call", str(call))))
    assert again["version"] == 2, "the same truth, whole again"
    assert (await ok(world, "delete", "desk@1"))["removed"]["version"] == 1
    assert "Existing: desk@2" in await refused(world, "show", "desk@1")


async def test_a_version_is_never_changed(world: World) -> None:
    call_id = await finished(world)
    await ok(world, "create", "desk", "--call", str(call_id))
    for statement in ("UPDATE gold_sets SET digest = 'x'", "UPDATE gold_calls SET truth = '{}'"):
        with pytest.raises(sa.exc.DBAPIError, match="row-level security"):
            async with world.database.transaction(world.workspace_id) as connection:
                await connection.execute(sa.text(statement))


async def test_sets_are_of_their_workspace_and_of_no_team(world: World) -> None:
    other = await new_world(world.database)
    await ok(world, "create", "desk", "--call", str(await finished(world)))
    assert await gold_sets.list_sets(other.database, other.workspace_id) == []
    assert "No gold set" in await refused(other, "show", "desk")
    async with world.database.transaction(Reader(world.workspace_id, world.team_id)) as connection:
        assert (await connection.execute(sa.text("SELECT count(*) FROM gold_sets"))).scalar_one() == 0


async def test_what_the_machine_heard_is_measured_against_what_people_corrected(world: World, tmp_path: Path) -> None:
    calls = [await finished(world, minutes=at) for at in range(6)]
    for call_id in calls[:2]:
        await correct(world, call_id, "Acne")
    await ok(world, "create", "desk", *(part for call in calls for part in ("--call", str(call))))
    file = tmp_path / "calls.csv"
    scores = await ok(world, "score", "desk", "--csv", str(file))
    (machine,) = scores["systems"]
    wer = machine["metrics"]["wer"]
    assert (wer["value"], wer["calls"]) == (pytest.approx(2 / 180), 6)
    assert wer["low"] <= wer["value"] <= wer["high"]
    assert machine["metrics"]["der"]["value"] == 0
    assert [call["callId"] for call in scores["worst"][:2]] == sorted(map(str, calls[:2]))
    assert len(file.read_text().splitlines()) == 7
    empty, other = tmp_path / "nothing.stm", tmp_path / "other.stm"
    other.write_text(f"{calls[0]} 1 rep 0 3 Good morning\n")
    empty.write_text(f"{calls[1]} 1 rep 0 3 Good evening\n")
    both = await ok(world, "score", "desk", "--heard", str(other), "--heard", str(empty))
    assert [(system["name"], system["calls"], system["missing"]) for system in both["systems"]] == [
        ("other", 1, 5),
        ("nothing", 1, 5),
    ]
    assert both["systems"][1]["againstFirst"]["wer"] is None, "they share no call"
    assert "Unknown metric" in await refused(world, "score", "desk", "--by", "bleu")
    shown = await switchboard(world, "score", "desk", "--by", "cpwer")
    assert "word errors, normalized (WER)" in shown.output and "1.1 % (" in shown.output


async def test_systems_are_compared_with_what_they_take(world: World, tmp_path: Path) -> None:
    calls = [await finished(world, minutes=at) for at in range(6)]
    await correct(world, calls[0])
    await ok(world, "create", "desk", *(part for call in calls for part in ("--call", str(call))))
    perfect = tmp_path / "perfect.jsonl"
    await ok(world, "export", "desk", "--out", str(perfect))
    timed = [json.loads(line) | {"processing": 2.1} for line in perfect.read_text().splitlines()]
    perfect.write_text("".join(f"{json.dumps(line)}\n" for line in timed))
    options = ("--with-machine", "--heard", str(perfect), "--price-per-hour", "3")
    scores = await ok(world, "score", "desk", *options)
    machine, other = scores["systems"]
    assert (machine["name"], other["name"]) == ("machine", "perfect")
    assert other["metrics"]["rtfx"]["value"] == pytest.approx(10.5 / 2.1), "audio is as long as the recording"
    assert other["metrics"]["costPerAudioHour"]["value"] == pytest.approx(3 * 2.1 / 10.5)
    assert other["againstFirst"]["wer"]["value"] == pytest.approx(-1 / 180)
    assert other["againstFirst"]["rtfx"] is None, "the machine was not measured"
    again = await ok(world, "import", "perfect", str(perfect))
    assert again["digest"] == scores["set"]["digest"], "how long a system took is nothing that people know"
    output = await switchboard(world, "score", "desk", *options[:3])
    assert "perfect - machine" in output.output and "no difference shown" in output.output


async def test_tasks_and_contacts_are_known_where_people_said_so(world: World, tmp_path: Path) -> None:
    send, call_back = task("Send the corrected invoice"), task("Call back")
    fields = {"name": "Anna Schmidt", "email": "anna@nord.example"}
    calls = [
        await finished(world, minutes=at, found=findings(tasks=(send, call_back), heard=fields)) for at in range(2)
    ]
    await correct(world, calls[0])
    reader, editor = Reader(world.workspace_id), Editor(None, None, "Ana")
    (row, *_) = await world.rows(
        "SELECT task_id(call_pk, title, evidence) AS id FROM tasks JOIN calls ON calls.id = call_pk"
        " WHERE call_id = :call AND title LIKE 'Send%'",
        call=calls[0],
    )
    await editing.tick(world.database, reader, editor, calls[0], row["id"])
    nobody = editing.WantedEdit(EditKind.CONTACT, await contact_of(world, calls[0]), None)
    await editing.make(world.database, reader, editor, calls[0], nobody)
    await ok(world, "create", "desk", *(part for call in calls for part in ("--call", str(call))))
    shown = await ok(world, "show", "desk")
    assert (shown["tasksKnown"], shown["contactsKnown"]) == (1, 1), "the other call has no annotations"
    file = tmp_path / "desk.jsonl"
    await ok(world, "export", "desk", "--out", str(file))
    corrected = next(call for line in file.read_text().splitlines() if (call := json.loads(line)).get("tasks"))
    assert [(task["title"], task["optional"]) for task in corrected["tasks"]] == [
        (send.title, False),
        ("Call back", True),
    ]
    (machine,) = (await ok(world, "score", "desk"))["systems"]
    assert machine["metrics"]["taskF1"] == {"value": 1.0, "low": None, "high": None, "calls": 1}
    assert machine["metrics"]["contactF1"]["value"] == 0, "it returned two fields of a contact that does not exist"


async def contact_of(world: World, call_id: UUID) -> str | None:
    rows = await world.rows(
        "SELECT contact_id FROM call_contacts JOIN calls ON calls.id = call_pk WHERE call_id = :call", call=call_id
    )
    return str(rows[0]["contact_id"]) if rows else None
