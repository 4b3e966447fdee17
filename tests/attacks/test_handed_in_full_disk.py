"""Files handed in when their disk is full, and more at once than it holds: each is whole, or refused in words."""

import asyncio
import contextlib
import multiprocessing
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from db.core.database import Database
from db.workspace import directory, keys
from pipeline.errors import StorageError
from pipeline.fetch import handed_in
from pipeline.fetch.handed_in import NoRoom, hand_in, make_private, take
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.storage import flaw_of
from serve_app.cli.calls.submit import _submit, show
from tests.integration.db.intake.test_submit_over_http import served
from tests.small_disk import fill, small_disk
from tests.unit.pipeline.fetch.test_fetch import AUDIO

MB = 1 << 20
DISK, FILE, ROOM = 32 * MB, 3 * MB, 2 * MB
LIMIT = FetchOptions().max_bytes


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a separate file system of 32 MB."""
    monkeypatch.setattr(handed_in, "ROOM_BYTES", ROOM)
    with small_disk(tmp_path / "disk", DISK) as place:
        yield place


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "call.wav"
    path.write_bytes((AUDIO * (FILE // len(AUDIO) + 1))[:FILE])
    return path


def test_a_file_for_which_there_is_no_room_is_refused_in_words_and_nothing_of_it_stays(disk: Path, file: Path) -> None:
    folder = make_private(disk / "handed-in")
    filler = fill(disk, 2 * FILE + ROOM - MB)
    with pytest.raises(NoRoom, match=r"takes 8 MB in .* and 7 MB are free\. Free some space, or wait"):
        hand_in(folder, file, uuid4())
    assert list(folder.iterdir()) == []
    filler.unlink()
    assert hand_in(folder, file, uuid4())


def test_a_disk_that_fills_up_during_the_copy_leaves_no_half_of_it(
    disk: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fill the disk during the copy, as PostgreSQL or a second command may."""
    folder = make_private(disk / "handed-in")
    fill(disk, MB)
    monkeypatch.setattr(handed_in, "ROOM_BYTES", -2 * DISK)
    with pytest.raises(NoRoom):
        hand_in(folder, file, uuid4())
    assert list(folder.iterdir()) == []


async def test_what_was_accepted_before_the_disk_was_full_waits_and_is_stored_when_there_is_room(
    disk: Path, file: Path
) -> None:
    folder, call_id = make_private(disk / "handed-in"), uuid4()
    url = hand_in(folder, file, call_id)
    storage = (disk / "recordings").as_uri()
    filler = fill(disk, MB)
    with pytest.raises(StorageError) as full:
        await take(url, call_id, 0, storage, folder, LIMIT)
    assert full.value.retryable
    assert [path.stat().st_size for path in folder.iterdir()] == [FILE], "the copy is whole"
    assert sum(path.stat().st_size for path in (disk / "recordings").rglob("*") if path.is_file()) == 0
    filler.unlink()
    recording = await take(url, call_id, 0, storage, folder, LIMIT)
    assert flaw_of(recording) is None


def test_more_files_at_once_than_the_disk_holds_are_each_whole_or_refused(disk: Path, file: Path) -> None:
    """Twice what fits, by commands that run at once; each looks at the same free space."""
    folder = make_private(disk / "handed-in")
    commands = 2 * DISK // FILE
    forked = multiprocessing.get_context("fork")
    answers: Any = forked.Queue()
    running = [forked.Process(target=_hand_in, args=(folder, file, answers)) for _ in range(commands)]
    for process in running:
        process.start()
    results = [answers.get(timeout=60) for _ in running]
    for process in running:
        process.join(60)
    accepted = [result for result in results if result.startswith("https://")]
    assert accepted and len(accepted) < commands
    assert all("MB are free" in result for result in results if result not in accepted), results
    assert [path.stat().st_size for path in folder.iterdir()] == [FILE] * len(accepted)


def _hand_in(folder: Path, file: Path, answers: Any) -> None:
    try:
        answers.put(hand_in(folder, file, uuid4()))
    except NoRoom as error:
        answers.put(str(error))


def test_a_large_file_does_not_lie_in_memory(tmp_path: Path) -> None:
    large = tmp_path / "day.wav"
    with large.open("wb") as file:
        file.truncate(128 * MB)
    forked = multiprocessing.get_context("fork")
    answers: Any = forked.Queue()
    process = forked.Process(target=_measured, args=(make_private(tmp_path / "handed-in"), large, answers))
    process.start()
    grown = answers.get(timeout=120)
    process.join(60)
    assert grown < 32 * MB


def _measured(folder: Path, file: Path, answers: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hand_in(folder, file, uuid4())
    answers.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


async def test_of_many_files_in_one_command_those_that_fit_are_accepted_and_the_others_refused(
    disk: Path, file: Path, database: Database, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = (await directory.create_workspace(database, "Acme")).workspace_id
    team = (await directory.create_team(database, workspace, "Sales")).team_id
    _, key = await keys.create(database, workspace, team, {"submit"}, "this machine")
    folder = make_private(disk / "handed-in")
    call = {"from": "+1", "to": "+2", "startTime": "2026-11-20T09:30:00+00:00", "recordingUrl": file}
    many = [(f"{number}.wav", {**call, "callId": str(uuid4())}) for number in range(2 * DISK // FILE)]
    with served(postgres_url) as url:
        sent = await asyncio.to_thread(_submit, url, key, many, folder)
        wrong = [("wrong.wav", {**call, "callId": str(uuid4()), "from": ""})]
        for path in folder.iterdir():
            path.unlink()
        (refused,) = await asyncio.to_thread(_submit, url, key, wrong, folder)
        assert refused.problem and refused.problem.status == 400 and not list(folder.iterdir())
        again = await asyncio.to_thread(_submit, url, key, many[-1:], folder)
    accepted = [item for item in sent if item.reply]
    assert [item.name for item in accepted] == [name for name, _ in many[: len(accepted)]]
    assert 0 < len(accepted) < len(many)
    assert {item.problem.status for item in sent if item.problem} == {507}
    assert again[0].reply, "what was refused can be submitted when there is room"
    show(sent[-1:])
    assert "No room for the file" in capsys.readouterr().err


async def test_without_a_service_nothing_stays_behind(tmp_path: Path, file: Path) -> None:
    folder = make_private(tmp_path / "handed-in")
    body = {"callId": str(UUID(int=1)), "recordingUrl": file}
    with contextlib.suppress(Exception):
        await asyncio.to_thread(_submit, "http://127.0.0.1:9", "sb_x", [("call.wav", body)], folder)
    assert list(folder.iterdir()) == []
