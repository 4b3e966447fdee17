"""The side door for files of this machine opens for no sender over HTTP: not to other files, not to others' copies."""

import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from pipeline.errors import RecordingError, RecordingGone, StorageError
from pipeline.fetch.fetcher import fetch
from pipeline.fetch.handed_in import HOST, hand_in, make_private, take
from pipeline.fetch.options import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.attacks.test_allowed_hosts import fate
from tests.postgres import World, new_world
from tests.tuned import tuned
from tests.unit.pipeline.fetch.test_fetch import AUDIO, reply, serving

TOKEN = "A" * 43


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_private(tmp_path / "handed-in")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "call.wav"
    path.write_bytes(AUDIO)
    return path


async def refused(url: str, folder: Path | None, call_id: UUID | None = None) -> bool:
    storage = f"file://{(folder or Path('/nonexistent')).parent}/recordings"
    try:
        await take(url, call_id or uuid4(), 0, storage, folder, 1 << 30)
    except RecordingGone:
        return True
    return False


@pytest.mark.parametrize(
    "query",
    [
        "",
        "token=",
        "token=../secret.wav",
        "token=..%2Fsecret.wav",
        "token=%2Fetc%2Fpasswd",
        "token=" + "../" * 14 + "x",
        f"token={TOKEN}&token={TOKEN}",
        f"token={TOKEN}%00",
        f"token={TOKEN}%0A",
        f"token={TOKEN}/../../secret.wav",
        "token=*",
    ],
)
async def test_a_token_is_never_a_path(folder: Path, query: str) -> None:
    (folder.parent / "secret.wav").write_bytes(AUDIO)
    assert await refused(f"https://{HOST}/x?{query}", folder)


async def test_a_copy_is_for_its_call_alone(folder: Path, file: Path) -> None:
    mine = uuid4()
    url = hand_in(folder, file, mine)
    assert await refused(url, folder)
    assert not await refused(url, folder, mine)
    assert await refused(url, folder)  # what is stored is not given to other calls either


async def test_a_token_that_differs_by_one_letter_opens_nothing(folder: Path, file: Path) -> None:
    mine = uuid4()
    url = hand_in(folder, file, mine)
    assert await refused(url[:-1] + ("A" if url[-1] != "A" else "B"), folder, mine)


async def test_links_and_pipes_in_the_folder_are_not_followed(folder: Path, file: Path) -> None:
    mine = uuid4()
    url = hand_in(folder, file, mine)
    (copy,) = folder.iterdir()
    copy.unlink()
    os.mkfifo(copy)
    assert await refused(url, folder, mine)
    assert not copy.exists()
    copy.symlink_to(file)
    with pytest.raises(StorageError):
        await take(url, mine, 0, (folder.parent / "recordings").as_uri(), folder, 1 << 30)


async def test_a_folder_that_others_may_enter_is_not_used(folder: Path, file: Path) -> None:
    mine = uuid4()
    url = hand_in(folder, file, mine)
    folder.chmod(0o755)
    assert await refused(url, folder, mine)
    assert await refused(url, None, mine)


async def test_a_redirect_does_not_lead_to_it(folder: Path, file: Path, tmp_path: Path) -> None:
    url = hand_in(folder, file, uuid4())
    moved = reply(b"", "302 Found", Location=url)
    async with serving(moved) as server:
        with pytest.raises(RecordingError):
            await fetch(server.url(), 0, tmp_path.as_uri(), FetchOptions(allowed_hosts=("127.0.0.1", HOST)))
    assert len(list(folder.iterdir())) == 1


async def test_a_sender_of_another_workspace_gets_nothing_by_anothers_url(
    world: World, folder: Path, file: Path, tmp_path: Path
) -> None:
    """Through the Conductor: the same URL, for the call that it was made for and for a stranger's."""
    other = await new_world(world.database)
    options = ProcessOptions(storage=(tmp_path / "recordings").as_uri(), handed_in=folder)
    fast = tuned(ProcessingOptions, lease_seconds=5, poll_seconds=0.1, drain_seconds=0)
    conductor = ConductorLoop(world.database, LocalWorkers(None, None), fast, options)
    other.call_id = uuid4()
    url = hand_in(folder, file, world.call_id)
    await conductor.start()
    try:
        await other.submit(recording_url=url)
        assert await fate(other) == "recording_gone"
        await world.submit(recording_url=url)
        assert await fate(world) == "fetched"
    finally:
        await conductor.stop()
