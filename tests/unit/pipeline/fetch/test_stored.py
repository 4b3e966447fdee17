from pathlib import Path

import fsspec
import pytest

from pipeline.domain.speech import Recording
from pipeline.errors import StorageError
from pipeline.fetch.fetcher import fetch
from pipeline.fetch.storage import flaw_of
from tests.recording_server import AUDIO, options, reply, serving


async def stored(folder: str) -> Recording:
    async with serving(reply()) as server:
        return await fetch(server.url(), 0, folder, options())


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_what_is_gone_or_cut_short_is_told_and_fetched_into_its_place(kind: str, tmp_path: Path) -> None:
    folder = f"memory://kept-{tmp_path.name}" if kind == "memory" else tmp_path.as_uri()
    recording = await stored(folder)
    fs, path = fsspec.core.url_to_fs(recording.uri)
    assert flaw_of(recording) is None
    fs.pipe_file(path, AUDIO[:-1])
    assert flaw_of(recording) == "was not what had been stored"
    assert flaw_of(recording, deep=False) == "was not what had been stored"
    assert await stored(folder) == recording
    assert flaw_of(recording) is None
    fs.rm_file(path)
    assert flaw_of(recording) == "was gone"
    assert await stored(folder) == recording
    assert fs.cat_file(path) == AUDIO


async def test_a_changed_byte_is_found_by_reading_and_written_over(tmp_path: Path) -> None:
    recording = await stored(tmp_path.as_uri())
    path = Path(recording.uri.removeprefix("file://"))
    path.write_bytes(AUDIO[:-1] + bytes([AUDIO[-1] ^ 1]))
    assert flaw_of(recording, deep=False) is None
    assert flaw_of(recording) == "was not what had been stored"
    await stored(tmp_path.as_uri())
    assert flaw_of(recording) is None


def test_a_store_that_cannot_say_is_no_store_without_the_recording() -> None:
    with pytest.raises(StorageError):
        flaw_of(Recording(0, "nosuchprotocol://bucket/x", "0" * 64, 1))
