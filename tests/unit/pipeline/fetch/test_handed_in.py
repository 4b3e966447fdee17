import os
import stat
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from pipeline.errors import NotAudio, RecordingEmpty, RecordingGone, RecordingTooLarge
from pipeline.fetch import handed_in
from pipeline.fetch.handed_in import hand_in, is_handed_in, make_private, take, withdraw
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.storage import flaw_of
from tests.unit.pipeline.fetch.test_fetch import AUDIO

LIMIT = FetchOptions().max_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_private(tmp_path / "handed-in")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a call.wav"
    path.write_bytes(AUDIO)
    return path


def storage(folder: Path) -> str:
    return (folder.parent / "recordings").as_uri()


async def taken(url: str, call_id: UUID, folder: Path, limit: int = LIMIT) -> bytes:
    recording = await take(url, call_id, 0, storage(folder), folder, limit)
    assert flaw_of(recording) is None
    return Path(recording.uri.removeprefix("file://")).read_bytes()


async def test_a_file_is_taken_whole_and_its_copy_is_gone_then(folder: Path, file: Path) -> None:
    call_id = uuid4()
    url = hand_in(folder, file, call_id)
    (copy,) = folder.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert await taken(url, call_id, folder) == AUDIO
    assert not copy.exists()
    assert file.read_bytes() == AUDIO


async def test_a_retry_gets_what_was_stored_until_the_store_has_lost_it(folder: Path, file: Path) -> None:
    call_id = uuid4()
    url = hand_in(folder, file, call_id)
    await taken(url, call_id, folder)
    assert await taken(url, call_id, folder) == AUDIO
    recording = await take(url, call_id, 1, storage(folder), folder, LIMIT)
    assert recording.channel == 1
    Path(recording.uri.removeprefix("file://")).unlink()
    with pytest.raises(RecordingGone, match="submit it again"):
        await taken(url, call_id, folder)


async def test_a_note_that_a_crash_cut_short_is_none(folder: Path, file: Path) -> None:
    call_id = uuid4()
    url = hand_in(folder, file, call_id)
    (copy,) = folder.iterdir()
    copy.with_name(copy.name + handed_in.TAKEN).write_text('{"uri": "fi')
    assert await taken(url, call_id, folder) == AUDIO
    assert await taken(url, call_id, folder) == AUDIO


def test_the_same_content_is_the_same_recording_and_another_one_is_not(folder: Path, file: Path) -> None:
    from db.core.identity import recording_identity

    first, second = (recording_identity(hand_in(folder, file, uuid4())) for _ in range(2))
    file.write_bytes(AUDIO + b"x")
    assert first == second != recording_identity(hand_in(folder, file, uuid4()))


def test_the_token_is_not_in_what_people_are_shown(folder: Path, file: Path) -> None:
    from db.secrets.recording_urls import UrlSealer, shown

    url = hand_in(folder, file, uuid4())
    token = url.partition("token=")[2]
    sealed = UrlSealer(["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="]).seal(url)
    assert len(token) == 43
    assert token not in sealed + shown(url)


@pytest.mark.parametrize(("content", "error"), [(b"", RecordingEmpty), (b"<html><body>no</body></html>", NotAudio)])
async def test_what_is_no_recording_is_refused_and_not_kept(
    folder: Path, file: Path, content: bytes, error: type[Exception]
) -> None:
    file.write_bytes(content)
    call_id = uuid4()
    url = hand_in(folder, file, call_id)
    with pytest.raises(error):
        await taken(url, call_id, folder)
    assert list(folder.iterdir()) == []


async def test_a_file_over_the_limit_is_refused(folder: Path, file: Path) -> None:
    call_id = uuid4()
    with pytest.raises(RecordingTooLarge):
        await taken(hand_in(folder, file, call_id), call_id, folder, limit=100)


def test_what_was_refused_is_withdrawn_and_what_nobody_took_is_dropped_in_the_end(folder: Path, file: Path) -> None:
    call_id = uuid4()
    withdraw(folder, hand_in(folder, file, call_id), call_id)
    assert list(folder.iterdir()) == []
    hand_in(folder, file, call_id)
    (old,) = folder.iterdir()
    then = time.time() - handed_in.ABANDONED_SECONDS - 60
    os.utime(old, (then, then))
    hand_in(folder, file, call_id)
    assert old not in folder.iterdir()
    half = folder / f"{call_id}.{'A' * 43}.part"
    half.write_bytes(b"RIFF")
    os.utime(half, (then, time.time() - handed_in.UNFINISHED_SECONDS - 60))
    hand_in(folder, file, call_id)
    assert not half.exists()


def test_a_file_that_cannot_be_read_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hand_in(folder, tmp_path / "absent.wav", uuid4())
    assert list(folder.iterdir()) == []


def test_only_its_own_host_is_handed_in() -> None:
    assert is_handed_in("https://handed-in.invalid/x?token=y")
    assert not any(
        map(is_handed_in, ("https://handed-in.invalid.example/", "https://pbx/handed-in.invalid", "http://["))
    )
